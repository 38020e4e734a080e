"""Proper scores against quadrature and densities; what a wrong claim costs."""

from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks.validation import proper_scores as scores

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(("truth", "mean", "sd"), [(0.3, 0.0, 1.0), (-4.0, 1.0, 0.5), (2.0, 2.0, 3.0)])
def test_crps_of_a_normal_is_its_integral(truth, mean, sd):
    """The integral of (F(x) - [x >= truth])^2, in two parts."""
    cdf = stats.norm(mean, sd).cdf
    low = integrate.quad(lambda x: cdf(x) ** 2, min(mean, truth) - 12 * sd, truth)[0]
    high = integrate.quad(lambda x: (1 - cdf(x)) ** 2, truth, max(mean, truth) + 12 * sd)[0]
    assert scores.crps_normal(np.array(truth), np.array(mean), np.array(sd)) == pytest.approx(low + high, rel=1e-6)


def test_crps_where_nothing_is_unknown():
    assert scores.crps_normal(np.array([1.0]), np.array([3.0]), np.array([0.0])) == [2.0]


def test_crps_of_draws_is_the_sum_over_pairs():
    """Over all pairs of different draws, and in the limit that of the normal distribution they are from."""
    draws, truth = RNG.normal(size=(4, 30)), RNG.normal(size=4)
    apart = np.abs(draws[:, :, None] - draws[:, None, :]).sum((1, 2)) / (30 * 29)
    expected = np.abs(draws - truth[:, None]).mean(1) - apart / 2
    assert np.allclose(scores.crps_draws(truth, draws), expected)
    many = stats.norm(1.0, 2.0).ppf((np.arange(20_000) + 0.5) / 20_000)[None]
    normal = scores.crps_normal(np.array([0.2]), np.array([1.0]), np.array([2.0]))
    assert np.allclose(scores.crps_draws(np.array([0.2]), many), normal, rtol=1e-3)


def test_intervals_hold_what_they_should():
    """The edges of a central interval, just inside and just outside, of a normal and of draws."""
    low, high = stats.norm(1.0, 2.0).interval(0.8)
    truth = np.array([low + 1e-6, low - 1e-6, high - 1e-6, high + 1e-6])
    assert scores.covered(truth, np.ones(4), np.full(4, 2.0), 0.8).tolist() == [True, False, True, False]
    draws = np.tile(np.arange(101.0), (4, 1))
    assert scores.covered_by_draws(np.array([10.5, 9.5, 89.5, 90.5]), draws, 0.8).tolist() == [True, False, True, False]


def test_pair_score_is_a_log_density():
    """Mean over the pairs of minus the log density of two values, less log 2 pi; inf where nothing is unknown."""
    root = RNG.normal(size=(3, 3))
    covariance, mean, truth = root @ root.T, RNG.normal(size=3), RNG.normal(size=3)
    expected = []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        pair = np.array([i, j])
        shrunk = covariance[np.ix_(pair, pair)] * np.where(np.eye(2), 1.0, 0.999)
        density: Any = stats.multivariate_normal.logpdf(truth[pair], mean[pair], shrunk)  # type: ignore[arg-type]
        expected.append(-density - np.log(2 * np.pi))
    assert np.allclose(scores.pair_score(truth[None], mean[None], covariance[None]), np.mean(expected))
    assert np.isfinite(scores.pair_score(truth[None], mean[None], np.ones((1, 3, 3))))
    assert np.isinf(scores.pair_score(truth[None], mean[None], np.diag([1.0, 1.0, 0.0])[None]))


def test_pair_score_prefers_the_correlation_that_is_there():
    """Values with correlation .9: the true covariance scores better than its diagonal, by log(1 - .9^2) / 2.

    20,000 values, standard error of the mean gain about .007: a false alarm is beyond 6 of them; a gain of half as much
    is caught.
    """
    covariance = np.array([[1.0, 0.9], [0.9, 1.0]])
    truth = np.random.default_rng(5).multivariate_normal(np.zeros(2), covariance, 20_000)
    mean, stacked = np.zeros((20_000, 2)), np.tile(covariance, (20_000, 1, 1))
    gain = scores.pair_score(truth, mean, stacked * np.eye(2)) - scores.pair_score(truth, mean, stacked)
    assert gain.mean() == pytest.approx(-0.5 * np.log(1 - 0.81), abs=0.045)


def test_sd_ratio():
    """Of exact scale, and half: within 6 of its own standard errors, which are near the theory's sqrt(1 / 2 n)."""
    error = np.random.default_rng(7).normal(0, 2.0, (5000, 1))
    ratio, deviation = scores.sd_ratio(np.full((5000, 1), 4.0), error)
    assert deviation == pytest.approx(0.01, rel=0.1) and abs(ratio - 1) < 6 * deviation
    half, deviation = scores.sd_ratio(np.full((5000, 1), 1.0), error)
    assert abs(half - 0.5) < 6 * deviation
