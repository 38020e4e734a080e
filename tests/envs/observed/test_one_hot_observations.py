"""Tabular environments seen one-hot: the table's own steps, and where an episode ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.envs import bsuite_deep_sea, chain, one_hot
from bayes_mdp.mdp import MDP, Environment, NormalReward


def test_steps_are_those_of_the_table(key):
    table = chain()
    seen = one_hot(table, num_steps=3)
    state, observation = seen.reset(key)
    for number in range(3):
        step_key = jax.random.fold_in(key, number)
        following, reward, _ = table.step(step_key, state.state, jnp.asarray(1))
        moved = seen.step(step_key, state, jnp.asarray(1))
        assert int(jnp.argmax(observation)) == int(state.state) and int(jnp.sum(observation)) == 1
        assert int(moved.state.state) == int(following) and float(moved.reward) == float(reward) == float(moved.score)
        assert bool(moved.truncated) == (number == 2) and not moved.terminated
        state, observation = moved.state, moved.observation


def test_a_table_with_a_step_axis_shows_the_step_and_ends_with_it(key):
    seen = one_hot(bsuite_deep_sea(4))
    assert seen.observation_shape == (16,)
    state, observation = seen.reset(key)
    places, steps = [int(jnp.argmax(observation))], []
    for _ in range(4):
        steps.append(seen.step(key, state, jnp.asarray(1)))
        state = steps[-1].state
        places.append(int(jnp.argmax(steps[-1].observation)))
    moved = steps[-1]
    assert places[:4] == [0, 5, 10, 15] and bool(moved.terminated) and not moved.truncated
    np.testing.assert_allclose(moved.reward, 1 - 0.01 / 4, rtol=1e-6)


def test_an_end_of_the_table_is_an_end(key):
    mdp = MDP(jnp.zeros((1, 1, 1)), jnp.ones((1, 1)), end_probs=jnp.ones((1, 1)), initial=jnp.ones(1))
    seen = one_hot(Environment(mdp, NormalReward(mdp.reward)))
    assert seen.num_steps == 1000
    moved = seen.step(key, seen.reset(key)[0], jnp.asarray(0))
    assert bool(moved.terminated) and not bool(moved.truncated)


def test_wrong_input():
    with pytest.raises(TypeError, match="env is int, expected a tabular Environment"):
        one_hot(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="num_steps is 5, expected 4, the number of steps of its table"):
        one_hot(bsuite_deep_sea(4), 5)
    with pytest.raises(ValueError, match="num_steps is 0"):
        one_hot(chain(), 0)
