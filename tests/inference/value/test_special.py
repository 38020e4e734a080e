"""log x - digamma(x) and its inverse, against mpmath in 50 digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.special import digamma

from bayes_mdp.inference.value.returns import inverse_log_minus_digamma, log_minus_digamma


def _exact(x):
    """f(x) and x f'(x); the series where digamma would need more digits."""
    if x > 1e15:
        return 1 / (2 * x) + 1 / (12 * x**2), -1 / (2 * x) - 1 / (6 * x**2)
    return mpmath.log(x) - mpmath.digamma(x), 1 - x * mpmath.psi(1, x)


def _errors(y):
    """Relative errors of the inverse at `y` and of the function at its answers."""
    y = jnp.asarray(y)
    x, value = jax.jit(lambda y: ((x := inverse_log_minus_digamma(y)), log_minus_digamma(x)))(y)
    assert x.dtype == value.dtype == y.dtype
    errors = []
    with mpmath.workdps(50):
        for one, of_x, at in zip(*(np.asarray(a, float) for a in (y, value, x)), strict=True):
            f, slope = _exact(mpmath.mpf(at))
            errors.append([abs(float((f - one) / slope)), abs(float(of_x / f - 1))])
    return np.max(errors, axis=0)


GRID = np.concatenate([np.logspace(-4, 3, 141), [1e-18, 1e18]])


def test_float64(x64):
    """15 ulp from end to end."""
    assert _errors(np.concatenate([np.logspace(-300, 300, 41), GRID])).max() < 15 * np.finfo(float).eps


@pytest.mark.slow
def test_float32():
    """15 ulp."""
    assert _errors(np.concatenate([np.logspace(-30, 30, 41), GRID]).astype(np.float32)).max() < 15 * 2.0**-23


def test_the_literal_difference_would_not_pass():
    """The broken twin, in numpy: 3 digits are left at x = 1e12."""
    assert abs((np.log(1e12) - digamma(1e12)) / 5e-13 - 1) > 1e-4
