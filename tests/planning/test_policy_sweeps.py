"""Sweeps of one policy against numpy: dense, listed, and listed with many successors."""

from importlib import import_module

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.planning.discounted import PolicySweeps
from bayes_mdp.planning.policy_arrays import action_values, action_values_by_column
from tests.planning.planning_problems import KINDS, arrays, listed, make_mdp


def test_one_sweep(x64, monkeypatch):
    rows, reward, *_ = data = arrays("random", 7)
    v, policy = np.random.default_rng(0).normal(size=7), np.arange(7) % 2
    expected = reward[np.arange(7), policy] + 0.9 * rows[np.arange(7), policy] @ v
    for mdp in (make_mdp(*data), listed(make_mdp(*data))):
        np.testing.assert_allclose(PolicySweeps.of(mdp, jnp.asarray(policy), 0.9)(jnp.asarray(v)), expected, rtol=1e-12)
    monkeypatch.setattr("bayes_mdp.planning.discounted.UNROLLED", 3)
    wide = PolicySweeps.of(listed(make_mdp(*data)), jnp.asarray(policy), 0.9)
    np.testing.assert_allclose(wide(jnp.asarray(v)), expected, rtol=1e-12)


def test_changes_are_swept_in_single_precision(x64):
    """d -> residual + discount * P d, where the rows are listed; nothing where they are dense."""
    rows, *_ = data = arrays("random", 7)
    residual, policy = np.random.default_rng(1).normal(size=7), np.arange(7) % 2
    changes = PolicySweeps.of(listed(make_mdp(*data)), jnp.asarray(policy), 0.9).for_changes(jnp.asarray(residual))
    assert changes is not None
    found = changes(changes(jnp.zeros(7, jnp.float32)))
    expected = residual + 0.9 * rows[np.arange(7), policy] @ residual
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert PolicySweeps.of(make_mdp(*data), jnp.asarray(policy), 0.9).for_changes(jnp.asarray(residual)) is None


@pytest.mark.parametrize("most", [32, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_unrolled_action_values(kind, most, x64, monkeypatch):
    monkeypatch.setattr(import_module("bayes_mdp.planning.policy_arrays"), "UNROLLED", most)
    dense = make_mdp(*arrays(kind, 6))
    values = jnp.asarray(np.random.default_rng(2).normal(size=6))
    expected = action_values(dense, values, 0.9)
    for mdp in (dense, listed(dense)):
        np.testing.assert_allclose(action_values_by_column(mdp, values, 0.9), expected, rtol=1e-12, atol=1e-12)
