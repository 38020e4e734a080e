"""Importance sampling: its error is the one it states, its tail that of ArviZ; what it cannot carry it refuses."""

# scipy types a frozen law as any: discrete, continuous.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from bayes_mdp.inference.integrals.importance import Draws, draw_roughly, integrate_by_draws, smooth_tail
from bayes_mdp.inference.integrals.quadrature import NotIntegrableError
from tests.inference.integrals.densities import looked_for


def drawn(density, size: int, seed: int = 0, spread: float = 3.0) -> Draws:
    modes = looked_for(density, size, spread).modes
    return integrate_by_draws(np.random.default_rng(seed), density, modes)


ROOT = 2.0 * np.eye(6) + 0.5 * np.random.default_rng(3).standard_normal((6, 6))


def skewed(points: np.ndarray) -> np.ndarray:
    """Six correlated numbers; three skew, one with the tail of an exponential."""
    x = np.linalg.solve(ROOT, points.T).T
    logs = stats.norm.logpdf(x[:, :2]).sum(-1) + stats.skewnorm(3.0).logpdf(x[:, 2:5]).sum(-1)
    return logs + x[:, 5] - np.exp(np.minimum(x[:, 5], 300.0)) - np.linalg.slogdet(ROOT)[1]


def two_places(points: np.ndarray) -> np.ndarray:
    """Four numbers in two places, .2 of the mass in the narrower."""
    one = stats.norm([-2.0, 0.0, 0.0, 1.0], [1.0, 0.5, 1.0, 2.0]).logpdf(points).sum(-1)
    other = stats.norm([4.0, 3.0, 0.0, 1.0], [0.3, 0.2, 0.5, 0.4]).logpdf(points).sum(-1)
    return np.logaddexp(np.log(0.8) + one, np.log(0.2) + other)


@pytest.mark.parametrize(("density", "size"), [(skewed, 6), (two_places, 4)])
def test_the_evidence_is_within_its_error(density, size):
    """z of 30 seeds: none beyond 6 (false alarm 6e-8), and their spread is 1 (chi-squared of 30: 1e-6 outside)."""
    found = [drawn(density, size, seed) for seed in range(30)]
    z = np.array([each.log_evidence / each.error for each in found])
    assert np.abs(z).max() < 6.0
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 30)
    assert low < (z**2).sum() < high
    for each in found:
        assert each.pareto_k < 0.5 and each.effective >= 400 and each.error < 0.05
        assert logsumexp(each.log_weights) == pytest.approx(0.0, abs=1e-10)


def test_both_places_have_their_share():
    found = [drawn(two_places, 4, seed) for seed in range(10)]
    shares = np.array([np.exp(each.log_weights) @ (each.points[:, 0] > 2.5) for each in found])
    # Six standard errors of 400 draws or more.
    errors = np.sqrt(0.16 / np.array([each.effective for each in found]))
    assert (np.abs(shares - 0.2) < 6.0 * errors).all()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.3, 0.6, 0.9, 1.4])
def test_the_tail_is_that_of_arviz(shape):
    az = pytest.importorskip("arviz")
    if not hasattr(az, "psislw"):
        pytest.skip("ArviZ 1 has another interface")
    logs = shape * np.random.default_rng(0).standard_exponential(4000)
    smoothed, k = smooth_tail(logs)
    expected, k_expected = az.psislw(logs.copy())
    assert k == pytest.approx(float(k_expected), abs=1e-6)
    ours, theirs = np.exp(smoothed - logsumexp(smoothed)), np.exp(np.asarray(expected))
    np.testing.assert_allclose(ours, theirs / theirs.sum(), rtol=1e-6, atol=1e-12)


def test_the_shape_is_that_of_a_pareto_law():
    """Mean of 50 fits to 20,000 weights each, whose shape is known; its prior pulls it towards 1/2."""
    for shape in (0.2, 0.5, 0.8):
        rng = np.random.default_rng(1)
        fits = [smooth_tail(shape * rng.standard_exponential(20_000))[1] for _ in range(50)]
        assert np.mean(fits) == pytest.approx(shape, abs=6.0 * np.std(fits) / np.sqrt(50) + 0.02)
    assert smooth_tail(np.zeros(100))[1] == -np.inf
    assert smooth_tail(np.where(np.arange(100) < 3, 0.0, -np.inf))[1] == np.inf


def neal(points: np.ndarray) -> np.ndarray:
    """Neal's funnel: nine numbers whose spread is the exponential of the tenth."""
    v = points[:, 0]
    return stats.norm(0.0, 3.0).logpdf(v) + stats.norm(0.0, np.exp(v / 2)[:, None]).logpdf(points[:, 1:]).sum(-1)


def cauchy_funnel(points: np.ndarray) -> np.ndarray:
    """A half-Cauchy scale, on its logarithm, of four numbers."""
    scale = np.exp(points[:, 0])
    prior = stats.halfcauchy.logpdf(scale) + points[:, 0]
    return prior + stats.norm(0.0, scale[:, None]).logpdf(points[:, 1:]).sum(-1)


def cauchy(points: np.ndarray) -> np.ndarray:
    """Five independent Cauchy numbers: tails that no t of five degrees has."""
    return stats.cauchy.logpdf(points).sum(-1)


@pytest.mark.parametrize(("density", "size"), [(neal, 10), (cauchy_funnel, 5), (cauchy, 5)])
def test_funnels_are_right_or_refused(density, size):
    for seed in range(5):
        try:
            found = drawn(density, size, seed)
        except NotIntegrableError as error:
            assert "Pareto k" in str(error) or "independent" in str(error)
        else:
            assert abs(found.log_evidence) < 6.0 * found.error
            place = np.exp(found.log_weights) @ np.clip(found.points[:, 0], -10.0, 10.0)
            assert abs(place) < 6.0 * 3.0 / np.sqrt(found.effective)


def test_rough_draws_are_all_over_the_place():
    modes = looked_for(two_places, 4, 3.0).modes
    points = draw_roughly(np.random.default_rng(0), two_places, modes, 400)
    share = (points[:, 0] > 2.5).mean()
    assert points.shape == (400, 4) and 0.05 < share < 0.7


@pytest.mark.parametrize("fault", ["weights", "one mode", "jacobian"])
def test_the_checks_catch_what_is_wrong(fault):
    """Weights forgotten, one mode of two, a positive number without the Jacobian of its logarithm."""
    rng = np.random.default_rng(0)
    searched = looked_for(two_places, 4, 3.0)
    if fault == "weights":
        found = drawn(skewed, 6)
        square = np.linalg.solve(ROOT, found.points.T)[0] ** 2  # of a standard normal number: mean 1, variance 2
        allowed = 6.0 * np.sqrt(2.0 / found.effective)
        assert abs(np.exp(found.log_weights) @ square - 1.0) < allowed < abs(square.mean() - 1.0)
    elif fault == "one mode":
        wide = [mode for mode in searched.modes if mode.point[0] < 0.0]
        apart = lambda x: np.where(x[:, 0] < 2.5, two_places(x), -np.inf)  # noqa: E731
        found = integrate_by_draws(rng, apart, wide)
        assert abs(found.log_evidence) > 6.0 * found.error
    else:
        positive = lambda x: stats.gamma(3.0).logpdf(np.exp(x)).sum(-1)  # noqa: E731
        found = drawn(positive, 3)
        assert abs(found.log_evidence) > 6.0 * found.error
