"""Sweeps of one policy against numpy: dense, listed, and listed with many successors."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.planning.policy_sweeps import PolicySweeps
from tests.planning.planning_problems import arrays, listed, make_mdp


def test_one_sweep(x64, monkeypatch):
    rows, reward, *_ = data = arrays("random", 7)
    v, policy = np.random.default_rng(0).normal(size=7), np.arange(7) % 2
    expected = reward[np.arange(7), policy] + 0.9 * rows[np.arange(7), policy] @ v
    for mdp in (make_mdp(*data), listed(make_mdp(*data))):
        np.testing.assert_allclose(PolicySweeps.of(mdp, jnp.asarray(policy), 0.9)(jnp.asarray(v)), expected, rtol=1e-12)
    monkeypatch.setattr("bayes_mdp.planning.policy_sweeps._UNROLLED", 3)
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
