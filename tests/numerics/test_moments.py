"""Moments of merged and pooled samples against numpy on the raw numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.numerics.moments import merge_moments, pool_moments

VALUES = np.random.default_rng(0).normal(1e4, 1.0, 60)


def moments(values):
    mean = values.mean()
    return jnp.asarray(float(len(values))), jnp.asarray(mean), jnp.asarray(((values - mean) ** 2).sum())


@pytest.mark.parametrize("cut", [1, 20, 59])
def test_merged(cut, x64):
    merged = merge_moments(moments(VALUES[:cut]), moments(VALUES[cut:]))
    np.testing.assert_allclose(merged, moments(VALUES), rtol=1e-10)


def test_pooled(x64):
    parts = [moments(part) for part in np.split(VALUES, [5, 30])]
    count, mean, ss = (jnp.stack(x) for x in zip(*parts, strict=True))
    pooled = pool_moments((count, mean, ss), lambda x: x.sum(), lambda x: x)
    np.testing.assert_allclose(pooled, moments(VALUES), rtol=1e-10)


def test_nothing_and_something(x64):
    nothing = (jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
    np.testing.assert_array_equal(merge_moments(nothing, nothing), nothing)
    np.testing.assert_allclose(merge_moments(nothing, moments(VALUES)), moments(VALUES), rtol=1e-15)
    np.testing.assert_array_equal(pool_moments(nothing, lambda x: x, lambda x: x), nothing)
