"""MountainCar against Gymnasium's."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.envs import OBSERVED, mountain_car
from bayes_mdp.envs.observed.classic_control import MountainCarState
from bayes_mdp.mdp import ObservedEnvironment
from tests.envs.classic_control import episode, stepped


def test_steps_are_those_of_gymnasium():
    rng = np.random.default_rng(0)
    position = rng.uniform(-1.2, 0.6, 2000).astype(np.float32)
    velocity, actions = rng.uniform(-0.07, 0.07, 2000).astype(np.float32), rng.integers(0, 3, 2000)
    position[:50], velocity[:50] = -1.19, -0.05  # into the wall
    env: Any = gymnasium.make("MountainCar-v0").unwrapped
    expected, rewards, ends = [], [], []
    for *state, action in zip(position, velocity, actions, strict=True):
        env.reset()
        env.state = np.array(state, np.float64)
        _, reward, terminated, _, _ = env.step(int(action))
        for rows, x in ((expected, env.state), (rewards, reward), (ends, terminated)):
            rows.append(x)
    expected, ends = np.array(expected), np.array(ends)
    state = MountainCarState(jnp.asarray(position), jnp.asarray(velocity), jnp.zeros(2000, jnp.int32))
    ours = stepped(mountain_car(), state, actions)
    np.testing.assert_allclose(ours.observation, expected, rtol=1e-6, atol=3e-7)
    np.testing.assert_array_equal(ours.observation[:, 0], ours.state.position)
    np.testing.assert_array_equal(ours.reward, rewards)
    np.testing.assert_array_equal(ours.score, ours.reward)
    edge = (np.abs(expected[:, 0] - 0.5) < 1e-6) | (np.abs(expected[:, 1]) < 1e-7)
    edge &= expected[:, 0] > 0.49
    np.testing.assert_array_equal(np.asarray(ours.terminated)[~edge], ends[~edge])
    assert 20 < ends.sum() < 400
    assert (expected[:, 1] == 0).sum() >= 50  # the wall stops the car


def test_an_episode_to_the_goal_is_that_of_gymnasium():
    env = gymnasium.make("MountainCar-v0")
    seen, _ = env.reset(seed=5)
    first = MountainCarState(jnp.asarray(seen[0]), jnp.asarray(seen[1]), jnp.zeros((), jnp.int32))
    actions, theirs = [], []
    for _ in range(200):  # push along
        actions.append(2 if seen[1] >= 0 else 0)
        seen, _, terminated, truncated, _ = env.step(actions[-1])
        theirs.append((seen, terminated))
        if terminated or truncated:
            break
    ours = episode(mountain_car(), first, np.array(actions))
    np.testing.assert_allclose(ours.observation, [seen for seen, _ in theirs], rtol=1e-4, atol=1e-4)
    assert ours.terminated.tolist() == [end for _, end in theirs]
    assert theirs[-1][1]


def test_the_time_limit_truncates_and_an_end_beats_it():
    env = mountain_car(3)
    ours = episode(env, MountainCarState(jnp.asarray(-0.5), jnp.asarray(0.0), jnp.asarray(0)), np.array([1, 1, 1]))
    assert ours.truncated.tolist() == [False, False, True]
    assert not ours.terminated.any()
    near = MountainCarState(jnp.asarray(0.49), jnp.asarray(0.05), jnp.asarray(2))
    out = env.step(jax.random.key(0), near, jnp.asarray(2))
    assert out.terminated and not out.truncated


def test_resets_are_at_rest_in_the_valley(key):
    """False-alarm rate below 1e-6: 400 positions miss either 5 % end with probability 2 x .95^400 < 3e-9."""
    _, seen = jax.vmap(mountain_car().reset)(jax.random.split(key, 400))
    assert (seen[:, 1] == 0).all()
    assert -0.6 <= seen[:, 0].min() < -0.59 and -0.41 < seen[:, 0].max() <= -0.4


def test_it_keeps_the_contract_and_refuses_nonsense():
    env = OBSERVED["mountain_car"]()
    assert isinstance(env, ObservedEnvironment)
    _, seen = env.reset(jax.random.key(0))
    assert (seen.shape, seen.dtype, env.n_actions) == (env.observation_shape, env.observation_dtype, 3)
    assert (env.name, mountain_car(1000).name) == ("mountain_car", "mountain_car:1000")
    with pytest.raises(TypeError, match=r"max_steps is 2\.5, expected an integer"):
        mountain_car(2.5)  # pyright: ignore[reportArgumentType]
