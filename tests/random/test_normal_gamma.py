"""Normal-gamma draws: the two marginal laws and the conditional one, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.random.gamma_draws import normal_gamma

pytestmark = [pytest.mark.numerics, pytest.mark.optimised]

NUM_DRAWS = 50_000
LOC, PSEUDO_COUNT, CONCENTRATION, RATE = 0.7, 3.0, 2.5, 1.5
FALSE_ALARM = 1e-8


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_laws(dtype, key):
    """Precision: gamma. Mean: Student's t. Given the precision: normal. A rate that is 10 % off must be seen."""
    with jax.enable_x64(dtype == np.float64):
        loc = jnp.full(NUM_DRAWS, LOC, dtype)
        rest = [jnp.asarray(x, dtype) for x in (PSEUDO_COUNT, CONCENTRATION, RATE)]
        mean, precision = jax.jit(normal_gamma)(key, loc, *rest)
        assert mean.dtype == precision.dtype == dtype
        mean, precision = np.asarray(mean, np.float64), np.asarray(precision, np.float64)
    law = stats.gamma(CONCENTRATION, scale=1 / RATE)
    assert stats.kstest(precision, law.cdf).pvalue > FALSE_ALARM
    assert stats.kstest(1.1 * precision, law.cdf).pvalue < FALSE_ALARM
    student = stats.t(2 * CONCENTRATION, LOC, np.sqrt(RATE / (CONCENTRATION * PSEUDO_COUNT)))
    assert stats.kstest(mean, student.cdf).pvalue > FALSE_ALARM
    standard = (mean - LOC) * np.sqrt(PSEUDO_COUNT * precision)
    assert stats.kstest(standard, stats.norm.cdf).pvalue > FALSE_ALARM
    assert abs(np.corrcoef(np.abs(standard), precision)[0, 1]) < 6 / np.sqrt(NUM_DRAWS)


def test_small_concentration_is_wide_but_never_nan(key):
    mean, precision = jax.jit(normal_gamma)(key, jnp.zeros(10_000), 1.0, jnp.float32(0.01), 1.0)
    assert np.isfinite(mean).all() and np.isfinite(precision).all() and (np.asarray(precision) >= 0).all()
    assert (np.abs(mean) > 1e10).mean() > 0.3


def test_arguments_broadcast(key):
    mean, precision = jax.eval_shape(normal_gamma, key, jnp.zeros((3, 1)), jnp.ones(2), 2.0, 1.0)
    assert mean.shape == precision.shape == (3, 2)
