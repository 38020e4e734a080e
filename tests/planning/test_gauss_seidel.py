"""Sweeps in order against a loop over states; their fixed point is the optimum."""

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.planning.discounted import OrderedSweeps
from tests.planning.planning_problems import arrays, listed, make_mdp, optimal_discounted


def one_sweep(rows, reward, legal, discount, v, segments):
    """From the last place of all segments to the first, and back; staying is solved for."""
    n = len(v)
    length = -(-n // segments)
    v = v.copy()
    for place in [*reversed(range(length)), *range(length)]:
        states = [s for s in range(place, n, length)]
        new = []
        for s in states:
            others = np.arange(n) != s
            q = (reward[s] + discount * rows[s][:, others] @ v[others]) / (1 - discount * rows[s][:, s])
            new.append(np.where(legal[s], q, -np.inf).max())
        v[states] = new
    return v


@pytest.mark.few(1)
@pytest.mark.parametrize("segments", [1, 3])
def test_a_loop_over_states(segments, x64, monkeypatch):
    """Ten states in 3 segments of 4, the last of which is not full."""
    monkeypatch.setattr("bayes_mdp.planning.discounted._LANES", segments)
    for kind in ("masked", "ending"):
        rows, reward, _, legal = data = arrays(kind, 10)
        v = np.random.default_rng(0).normal(size=10)
        expected = one_sweep(rows, reward, legal, 0.9, v, segments)
        swept = OrderedSweeps.of(listed(make_mdp(*data)), jnp.asarray(0.9))(jnp.asarray(v), 1)
        np.testing.assert_allclose(swept, expected, rtol=1e-12)
        dense = OrderedSweeps.of(make_mdp(*data), jnp.asarray(0.9))(jnp.asarray(v), 1)
        np.testing.assert_allclose(dense, one_sweep(rows, reward, legal, 0.9, v, 1), rtol=1e-12)


def test_the_optimum_stays(x64):
    data = arrays("masked", 10)
    v = optimal_discounted(*data, 0.9)
    swept = OrderedSweeps.of(listed(make_mdp(*data)), jnp.asarray(0.9))(jnp.asarray(v), 3)
    np.testing.assert_allclose(swept, v, rtol=1e-11)
