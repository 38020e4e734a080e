"""Student-t laws against SciPy: density, distribution function, moments, draws."""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.inference.value.student_t import (
    StudentT,
    cdf_from_table,
    expected_excess,
    standard_draws,
    standard_pdf,
    tail_table,
    upper_tail,
)
from tests.tf32 import MEASURED

DOF = np.array([0.5, 1.1, 2.0, 5.0, 15.0, 17.0, 63.0, 65.0, 1e3, 1e7])[:, None]
Z = np.concatenate([np.linspace(-9.0, 9.0, 37), [-200.0, 200.0]])


def standard_cdf(z, dof):
    """P(t <= z), by the tail beyond |z|."""
    tail = upper_tail(jnp.abs(z), dof)
    return jnp.where(z < 0, tail, 1.0 - tail)


@pytest.mark.parametrize(
    ("dtype", "absolute", "relative"),
    [(np.float64, 1e-12, 1e-11), pytest.param(np.float32, 2e-6, 5e-5, marks=pytest.mark.slow)],
)
def test_density_and_distribution(dtype, absolute, relative):
    """Also where there are very many or very few degrees of freedom."""
    with jax.enable_x64(dtype == np.float64):
        z, dof = (jnp.asarray(np.broadcast_to(x, (10, 39)), dtype) for x in (Z, DOF))
        found = jax.jit(lambda z, dof: (standard_cdf(z, dof), standard_pdf(z, dof)))(z, dof)
    assert np.abs(np.asarray(found[0], float) - stats.t.cdf(Z, DOF)).max() < absolute
    assert np.allclose(found[1], stats.t.pdf(Z, DOF), rtol=relative, atol=1e-30)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_distribution_near_zero_and_far_away(dtype):
    """By the closed forms of one and two degrees of freedom.

    In float32 dof / (dof + z^2) rounds to 1 for z below 2e-4: by it the tail would be off by 1e-4.
    """
    z = np.concatenate([[0.0], 10.0 ** np.linspace(-12, 30, 421), [np.inf]]).astype(dtype).astype(float)
    with np.errstate(invalid="ignore"):
        slope = np.where(np.isinf(z), 1.0, z / np.sqrt(2 + z**2))
    expected = {1.0: 0.5 - np.arctan(z) / np.pi, 2.0: 0.5 - 0.5 * slope}
    with jax.enable_x64(dtype == np.float64):
        for dof, right in expected.items():
            found = jax.jit(standard_cdf)(jnp.asarray(-z, dtype), jnp.full(len(z), dof, dtype))
            assert np.abs(np.asarray(found, float) - right).max() < (1e-12 if dtype == np.float64 else 2e-6)
        far = standard_cdf(jnp.asarray(-z, dtype), jnp.full(len(z), 100.0, dtype))
        assert np.all(np.diff(far) <= 0)  # nowhere nan


EXTREME_DOF = 10.0 ** np.arange(-6, 13)[:, None]
EXTREME_Z = np.concatenate([[0.0], 10.0 ** np.linspace(-37, 38, 51), [np.inf]])


@pytest.mark.parametrize(("dtype", "absolute", "relative"), [(np.float64, 1e-12, 1e-10), (np.float32, 2e-6, 2e-5)])
def test_any_degrees_of_freedom_at_any_distance(dtype, absolute, relative):
    """1e-6 to 1e12 of them, from 0 to infinity: with few of them much lies beyond the root of the largest number (where
    it was nothing before), with very many the transformation's powers end (where it was 1)."""
    dof, z = np.broadcast_arrays(EXTREME_DOF.astype(dtype), EXTREME_Z.astype(dtype))
    with jax.enable_x64(dtype == np.float64):
        tail, density = jax.jit(lambda z, dof: (upper_tail(z, dof), standard_pdf(z, dof)))(z, dof)
    dof, z = dof.astype(float), z.astype(float)
    with np.errstate(all="ignore"):
        right, exact = stats.t.logpdf(z, dof), stats.t.sf(z, dof)
    exact[dof == 1] = np.arctan2(1.0, z[dof == 1]) / np.pi  # where SciPy is off by 1e-9
    error = np.abs(np.asarray(tail, float) - exact)
    MEASURED.append(float(error.max()))
    assert error[dof >= 1].max() < absolute
    assert error.max() < (absolute if dtype == np.float64 else 2e-5)
    shown = right > np.log(np.finfo(np.float32).tiny)
    np.testing.assert_allclose(np.asarray(density, float)[shown], np.exp(right[shown]), rtol=relative)
    assert np.all(np.asarray(density)[~shown] < 2 * np.finfo(np.float32).tiny)


def _excess(gap: float, scale: float, dof: float) -> float:
    """The integral of the tail, by the incomplete beta function in 60 digits."""
    with mpmath.workdps(60):
        z, nu = mpmath.mpf(gap) / mpmath.mpf(scale), mpmath.mpf(dof)
        ratio = nu / (nu + z**2)
        tail = mpmath.betainc(nu / 2, 0.5, 0, ratio, regularized=True) / 2
        density = ratio ** ((nu + 1) / 2) / (mpmath.sqrt(nu) * mpmath.beta(nu / 2, 0.5))
        return float(mpmath.mpf(scale) * ((nu + z**2) / (nu - 1) * density - z * tail))


@pytest.mark.parametrize(("dtype", "relative"), [(np.float64, 1e-11), (np.float32, 1e-5)])
def test_excess_over_any_gap(dtype, relative):
    """E[(X - loc - gap)^+] over its value without a gap, by mpmath: gaps from 0 to 1e37, scales 1e-30 to 1e30, means
    that hardly exist. It was nan for gaps beyond 1e19 scales."""
    cases = np.array(
        [
            (gap * scale, scale, dof)
            for dof in (1.0001, 1.01, 1.5, 3.0, 30.0, 1e4, 1e6)
            for scale in (1e-30, 1.0, 1e30)
            for gap in (0.0, 1e-30, 1e-3, 1.0, 30.0, 1e4, 1e7, 1e10, 1e20, 1e30, 1e37)
            if 0 <= gap * scale < 1e38 and (gap == 0 or gap * scale > 1e-37)
        ]
    ).astype(dtype)
    gap, scale, dof = cases.T
    with jax.enable_x64(dtype == np.float64):
        excess: Any = jax.jit(lambda g, s, d: expected_excess(g, StudentT(jnp.zeros_like(g), s, d)))
        found, top = (np.asarray(excess(g, scale, dof), float) for g in (gap, np.zeros_like(gap)))
        nowhere = excess(
            np.array([np.inf, 1.0, 1.0], dtype), np.array([1.0, 0.0, 1.0], dtype), np.array([2, 2, 1], dtype)
        )
    expected = np.array([_excess(*map(float, case)) for case in cases])
    assert np.all(np.isfinite(found)) and np.all(found >= 0)
    MEASURED.append(float(np.max(np.abs(found - expected) / top)))
    np.testing.assert_allclose(found / top, expected / top, rtol=relative, atol=relative)
    np.testing.assert_array_equal(nowhere, [0.0, 0.0, np.inf])


def test_variance():
    """Infinite up to 2 degrees of freedom, and none of a number that is known."""
    law = StudentT(jnp.zeros(4), jnp.array([2.0, 2.0, 0.0, 2.0]), jnp.array([6.0, 2.0, 1.5, 1e6]))
    assert np.allclose(jax.jit(lambda law: law.variance())(law), [6.0, np.inf, 0.0, 4.0])


def test_draws(key):
    """Kolmogorov-Smirnov, 40,000 draws each: critical distance 2.7 / 200 (false alarms 1e-6), catches a scale that is
    6 % off; the twin with one degree of freedom too few is caught at 2.1."""
    dof = np.array([0.7, 2.1, 6.0, 1e5], np.float32)
    draws = np.asarray(jax.jit(standard_draws)(key, np.broadcast_to(dof, (40_000, 4))))
    assert np.isfinite(draws).all()
    for k, nu in enumerate(dof):
        assert stats.kstest(draws[:, k], stats.t(nu).cdf).statistic < 2.7 / 200
    assert stats.kstest(draws[:, 1], stats.t(1.1).cdf).statistic > 2.7 / 200


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-9), (np.float32, 1e-6)])
def test_a_table_of_the_tail_is_the_distribution(dtype, error):
    """From one degree of freedom to very many, in the middle, in the tails and at infinity."""
    z = np.concatenate([np.linspace(-12, 12, 2001), np.sinh(np.linspace(-40, 40, 401)), [0.0, np.inf, -np.inf]])
    with jax.enable_x64(dtype == np.float64):
        read = jax.jit(lambda z, dof: cdf_from_table(z, dof, tail_table(dof)))
        for dof in (1.0, 1.3, 2.0, 5.0, 64.0, 1e3, 1e7):
            found = np.asarray(read(z.astype(dtype), jnp.asarray(dof, dtype)), float)
            assert np.abs(found - stats.t.cdf(z.astype(dtype).astype(float), float(dtype(dof)))).max() < error
            wrong = np.asarray(read(z.astype(dtype), jnp.asarray(dof * 1.001, dtype)), float)
            if dof < 3:  # a twin with a thousandth more degrees of freedom is seen
                assert np.abs(wrong - stats.t.cdf(z.astype(dtype).astype(float), float(dtype(dof)))).max() > 10 * error
