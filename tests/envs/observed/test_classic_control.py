"""CartPole against Gymnasium's."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.envs import OBSERVED, cartpole
from bayes_mdp.envs.observed.classic_control import CartPoleState
from bayes_mdp.mdp import ObservedEnvironment
from tests.envs.classic_control import episode, stepped


def states(rng, num):
    """States about the limits and far within."""
    return rng.uniform(-1, 1, (num, 4)).astype(np.float32) * np.array([2.45, 3.0, 0.22, 3.0], np.float32)


def test_steps_are_those_of_gymnasium():
    rng = np.random.default_rng(0)
    physics, actions = states(rng, 2000), rng.integers(0, 2, 2000)
    env: Any = gymnasium.make("CartPole-v1").unwrapped
    expected, rewards, ends = [], [], []
    for state, action in zip(physics, actions, strict=True):
        env.reset()
        env.state = state.astype(np.float64)
        _, reward, terminated, _, _ = env.step(int(action))
        for rows, x in ((expected, env.state), (rewards, reward), (ends, terminated)):
            rows.append(x)
    expected, ends = np.array(expected), np.array(ends)
    ours = stepped(cartpole(), CartPoleState(jnp.asarray(physics), jnp.zeros(2000, jnp.int32)), actions)
    np.testing.assert_allclose(ours.observation, expected, rtol=2e-6, atol=1e-6)
    np.testing.assert_array_equal(ours.observation, ours.state.physics)
    np.testing.assert_array_equal(ours.reward, rewards)
    np.testing.assert_array_equal(ours.score, ours.reward)
    edge = np.min(np.abs(np.abs(expected[:, [0, 2]]) - [2.4, 12 * np.pi / 180]), 1) < 1e-6
    np.testing.assert_array_equal(np.asarray(ours.terminated)[~edge], ends[~edge])
    assert 200 < ends.sum() < 1800
    assert not ours.truncated.any()


def test_an_episode_is_that_of_gymnasium():
    env = gymnasium.make("CartPole-v1")
    first, _ = env.reset(seed=3)
    actions = np.random.default_rng(1).integers(0, 2, 100)
    ours = episode(cartpole(), CartPoleState(jnp.asarray(first), jnp.zeros((), jnp.int32)), actions)
    time, terminated = -1, False
    for time, action in enumerate(actions):
        seen, reward, terminated, truncated, _ = env.step(int(action))
        np.testing.assert_allclose(ours.observation[time], seen, rtol=1e-4, atol=1e-5)
        assert (ours.reward[time], ours.terminated[time]) == (reward, terminated)
        if terminated or truncated:
            break
    assert terminated and 5 < time < 99


def test_the_time_limit_truncates_and_an_end_beats_it():
    env = cartpole(4)
    still = CartPoleState(jnp.zeros(4), jnp.zeros((), jnp.int32))
    ours = episode(env, still, np.array([0, 1, 0, 1]))
    assert ours.truncated.tolist() == [False, False, False, True]
    assert not ours.terminated.any()
    falling = CartPoleState(jnp.array([0.0, 0.0, 0.3, 1.0]), jnp.asarray(3))
    out = env.step(jax.random.key(0), falling, jnp.asarray(0))
    assert out.terminated and not out.truncated


def test_resets_are_uniform(key):
    """False-alarm rate below 1e-6: the 1,600 numbers miss either 5 % end with probability 2 x .95^1600 < 1e-35."""
    state, seen = jax.vmap(cartpole().reset)(jax.random.split(key, 400))
    np.testing.assert_array_equal(state.physics, seen)
    assert np.abs(seen).max() <= 0.05
    assert seen.max() > 0.045 and seen.min() < -0.045
    assert len(np.unique(seen)) > 1500


def test_it_keeps_the_contract_and_refuses_nonsense():
    env = OBSERVED["cartpole"]()
    assert isinstance(env, ObservedEnvironment)
    _, seen = env.reset(jax.random.key(0))
    assert (seen.shape, seen.dtype, env.name, env.n_actions) == (
        env.observation_shape,
        env.observation_dtype,
        "cartpole",
        2,
    )
    assert cartpole(200).name == "cartpole:200"
    with pytest.raises(ValueError, match="max_steps is 0, expected an integer of at least 1"):
        cartpole(0)
