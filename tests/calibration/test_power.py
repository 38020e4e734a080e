"""Sensitivity to power-scaling: closed forms, and ArviZ 1.x where it is installed."""

from importlib.metadata import version

import numpy as np
import pytest
from scipy import integrate, stats

from bayes_mdp.calibration.power import by_formula, sensitivity


def _exact(shift: float) -> float:
    """Of x ~ N(0, 1) to the density exp(shift x): at power alpha, x ~ N((alpha - 1) shift, 1)."""
    grid = np.linspace(-3.4, 3.4, 20001)
    rates = []
    for alpha in (0.99, 1.01):
        both = []
        for sign in (1.0, -1.0):
            p, q = stats.norm.cdf(grid), stats.norm.cdf(grid - sign * (alpha - 1) * shift)
            m = (p + q) / 2
            divergence = integrate.trapezoid(p * np.log2(p / m) + q * np.log2(q / m), grid)
            both.append(np.sqrt(max(divergence, 0.0) / integrate.trapezoid(p + q, grid)))
        rates.append(max(both) / abs(np.log2(alpha)))
    return float(np.mean(rates))


def test_a_normal_mean_that_a_power_shifts():
    """Quantiles in place of draws: no Monte Carlo error. Half the shift gives half the sensitivity (a broken twin)."""
    x = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)[:, None]
    x = np.random.default_rng(0).permutation(x)
    found = by_formula(x, 2.0 * x[:, 0])[0]
    assert found == pytest.approx(_exact(2.0), rel=0.02)
    assert by_formula(x, x[:, 0])[0] == pytest.approx(found / 2, rel=0.05)


def test_what_has_nothing_to_do_with_the_density_does_not_move():
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.normal(size=(2000, 2)), np.ones(2000)])
    found = sensitivity(x, 2.0 * x[:, 0])
    assert found[0] > 0.3 and found[1] < 0.05 and np.isnan(found[2])
    # A scale and a shift of the quantity change nothing.
    np.testing.assert_allclose(sensitivity(3.0 - 5.0 * x[:, :1], 2.0 * x[:, 0]), found[:1], rtol=1e-3)


@pytest.mark.skipif(version("arviz").startswith("0."), reason="ArviZ 0.x has no psense")
def test_arviz_says_the_same():
    x = np.random.default_rng(2).normal(size=(1000, 3))
    x[:, 1] = np.exp(x[:, 0])
    density = -0.5 * (x[:, 0] - 2.0) ** 2
    # It smooths the tail of the weights with a tail length of its own.
    np.testing.assert_allclose(sensitivity(x, density, 2), by_formula(x, density), rtol=0.01)
