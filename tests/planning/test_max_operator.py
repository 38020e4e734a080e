"""The two maxima: their chains reproduce them, and what rounding is allowed for is more than there is."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from bayes_mdp.planning.bellman import HardMax, SoftMax
from bayes_mdp.planning.policy_arrays import action_values
from tests.planning.planning_problems import arrays, listed, make_mdp


@pytest.mark.parametrize("temperature", [1e-3, 1.0, 50.0])
def test_rounding_of_the_soft_maximum(temperature):
    """In float32, beside the same numbers in float64."""
    q = np.random.default_rng(0).normal(size=(20_000, 7)).astype(np.float32) * 3
    q[::3, 2] = -np.inf
    soft = SoftMax(jnp.float32(temperature))
    tau = float(soft.temperature)
    exact = tau * np.asarray(logsumexp(q.astype(float) / tau, axis=1))
    error = np.abs(np.asarray(soft.value(jnp.asarray(q)), float) - exact)
    # The last sum is what `Rounding` counts.
    size = np.abs(exact) + np.abs(np.where(np.isneginf(q), 0, q)).max(1)
    allowed = float(soft.uncertainty(7)) + float(np.finfo(np.float32).eps) * size
    assert np.all(error <= allowed)
    assert np.all(exact - q.max(1) <= float(soft.excess(7)) * (1 + 1e-6))


@pytest.mark.some(2)
@pytest.mark.parametrize("maximum", [HardMax(), SoftMax(jnp.float32(0.4))])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_chain_of_a_maximum_has_its_sweep(maximum, sparse):
    mdp = make_mdp(*arrays("masked", 6))
    mdp = listed(mdp) if sparse else mdp
    v = jnp.asarray(np.random.default_rng(0).normal(size=6), jnp.float32)
    q = action_values(mdp, v)
    swept = action_values(maximum.chain(mdp, q), v)[:, 0]
    np.testing.assert_allclose(swept, maximum.value(q), rtol=2e-6, atol=2e-6)
