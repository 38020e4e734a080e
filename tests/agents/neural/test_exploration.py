# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Epsilon-greedy: its schedule and how often it does what."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from bayes_mdp.agents.neural import Epsilon
from bayes_mdp.agents.neural.dqn import epsilon_greedy

DRAWS, FALSE_ALARM = 40_000, 1e-6
Q = np.array([[0.0, 2.0, 1.0], [5.0, -1.0, 4.0]], np.float32)


def test_schedule():
    """Linear between its ends, flat beyond; of numbers that are traced too."""
    epsilon = Epsilon(1.0, 0.2, 400)
    expected = [1.0, 0.9, 0.6, 0.2, 0.2]
    np.testing.assert_allclose([epsilon.at(s) for s in (0, 50, 200, 400, 10**9)], expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(Epsilon.at)(epsilon, jnp.array([0, 50, 200, 400, 10**9])), expected, rtol=1e-6)


def _p_value(action, epsilon: float, best: int) -> float:
    expected = np.full(3, epsilon / 3)
    expected[best] += 1 - epsilon
    return float(stats.chisquare(np.bincount(action, minlength=3), expected * len(action)).pvalue)


def test_frequencies(key):
    """Chi-square in each environment; the twin never draws the best action when it explores (epsilon / 3 less)."""
    keys = jax.random.split(key, DRAWS)
    actions = np.asarray(jax.jit(jax.vmap(lambda k: epsilon_greedy(k, jnp.asarray(Q), 0.3)))(keys))
    for env, best in enumerate((1, 0)):
        assert _p_value(actions[:, env], 0.3, best) > FALSE_ALARM
    together = np.corrcoef(actions[:, 0] == 1, actions[:, 1] == 0)[0, 1]
    assert abs(together) < stats.norm.isf(FALSE_ALARM / 2) / np.sqrt(DRAWS)
    rng = np.random.default_rng(0)
    twin = np.where(rng.random(DRAWS) < 0.3, rng.choice([0, 2], DRAWS), 1)
    assert _p_value(twin, 0.3, 1) < FALSE_ALARM


def test_limits(key):
    """Nothing at random, everything at random."""
    q = jnp.tile(Q, (DRAWS // 2, 1))
    greedy, drawn = (np.asarray(epsilon_greedy(key, q, e)) for e in (0.0, 1.0))
    assert np.all(greedy == np.tile([1, 0], DRAWS // 2))
    assert stats.chisquare(np.bincount(drawn, minlength=3)).pvalue > FALSE_ALARM
    assert greedy.dtype == drawn.dtype == np.int32
