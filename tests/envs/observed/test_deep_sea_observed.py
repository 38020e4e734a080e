"""DeepSea through observations beside its table: cells, rewards, successors, laws of slips and noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.envs import bsuite_deep_sea, deep_sea_observed
from bayes_mdp.envs.observed.one_hot_observations import DeepSeaState

SIZE, FALSE_ALARM = 5, 1e-6


def _everywhere(env, key):
    """A step from every cell with every action."""
    row, column, action = jnp.indices((SIZE, SIZE, 2)).reshape(3, -1)
    keys = jax.random.split(key, len(row))
    return jax.vmap(env.step)(keys, DeepSeaState(row, column), action), (row, column, action)


def test_steps_are_those_of_the_table(key):
    """bsuite's default mapping: the only successor, the mean reward, the plane, the end."""
    table: Any = bsuite_deep_sea(SIZE, mapping_seed=42).mdp
    step, (row, column, action) = jax.jit(_everywhere, static_argnums=())(deep_sea_observed(SIZE), key)
    at = np.asarray(row), np.asarray(column), np.asarray(action)
    np.testing.assert_allclose(step.reward, np.asarray(table.reward)[at], rtol=1e-6)
    last = at[0] == SIZE - 1
    np.testing.assert_array_equal(step.terminated, last)
    assert not np.any(step.truncated)
    following = np.asarray(table.successor)[..., 0][at]
    planes = np.asarray(step.observation)[~last]
    assert np.all(planes.sum((1, 2)) == 1)
    np.testing.assert_array_equal(np.argmax(planes.reshape(-1, SIZE**2), 1), ((at[0] + 1) * SIZE + following)[~last])
    np.testing.assert_array_equal(step.score, np.asarray(step.reward) > 0.5)


@pytest.mark.parametrize("mapping_seed", [None, 42])
def test_the_optimum(key, mapping_seed):
    """Right all the way: the reward is the table's optimum, the score 1, the length N."""
    env: Any = deep_sea_observed(SIZE, mapping_seed=mapping_seed)
    table = bsuite_deep_sea(SIZE, mapping_seed=mapping_seed)

    def dive(state, _):
        step = env.step(key, state, env.right[state.row, state.column])
        return step.state, (step.reward, step.score, step.terminated)

    reward, score, ended = jax.lax.scan(dive, env.reset(key)[0], length=SIZE)[1]
    assert float(jnp.sum(reward)) == pytest.approx(table.optimum, rel=1e-6)
    assert float(jnp.sum(score)) == 1
    assert np.flatnonzero(ended).tolist() == [SIZE - 1]


def test_stochastic(key):
    """Of 4,000 draws a cell: right fails in 1 of N, left never; noise N(0, 1) in the lowest corners alone.

    A probability of failing wrong by 0.05 and a noise scale wrong by 15 % are found.
    """
    draws, env = 4_000, deep_sea_observed(SIZE, stochastic=True)
    keys = jax.random.split(key, draws)
    step: Any = jax.jit(jax.vmap(lambda k: _everywhere(env, k)[0]))(keys)
    row, column, action = np.indices((SIZE, SIZE, 2)).reshape(3, -1)
    right = action == np.asarray(env.right)[row, column]
    inner = (row < SIZE - 1) & (column < SIZE - 1)
    stayed = np.asarray(step.state.column) == column
    slips = stats.binomtest(int(stayed[:, inner & right].sum()), draws * int((inner & right).sum()), 1 / SIZE)
    assert slips.pvalue > FALSE_ALARM
    assert not np.any(stayed[:, inner & ~right & (column > 0)])
    noise = np.asarray(step.reward) - np.asarray(bsuite_deep_sea(SIZE, mapping_seed=42).mdp.reward)[row, column, action]
    noisy = (row == SIZE - 1) & np.isin(column, (0, SIZE - 1))
    np.testing.assert_allclose(noise[:, ~noisy], 0.0, atol=1e-6)
    assert stats.kstest(noise[:, noisy].ravel(), "norm").pvalue > FALSE_ALARM


def test_what_is_refused():
    """One sentence about the argument at fault."""
    with pytest.raises(ValueError, match="size is 1"):
        deep_sea_observed(1)
