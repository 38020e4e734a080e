"""The exact test of uniform ranks: its level, its power, its band, against simulation and brute force."""

import itertools

import numpy as np
import pytest
from scipy import stats

from bayes_mdp.calibration.simulation_based import ecdf

NUM, DRAWS = 48, 16


def test_prob_inside_is_that_of_every_path():
    """Against all 4^5 outcomes of five ranks, with unequal probabilities."""
    probs = np.array([0.1, 0.4, 0.3, 0.2])
    band = ecdf.Band(np.array([0, 1, 3, 5]), np.array([2, 4, 5, 5]))
    total = 0.0
    for ranks in itertools.product(range(4), repeat=5):
        counts = np.cumsum(np.bincount(ranks, minlength=4))
        total += np.prod(probs[list(ranks)]) * bool((counts >= band.low).all() and (counts <= band.high).all())
    np.testing.assert_allclose(ecdf.prob_inside(band, probs, 5), total, rtol=1e-12)


def test_p_values_are_valid():
    """P(p <= a) <= a, and not much less. 800 sets of uniform ranks: five binomial errors are a false alarm of 6e-7
    (two-sided), and catch a level that is off by 1.8 times at 0.05."""
    rng = np.random.default_rng(0)
    p = np.array([ecdf.p_value(rng.integers(0, DRAWS + 1, NUM), DRAWS) for _ in range(800)])
    for level in (0.02, 0.05, 0.2):
        error = 5 * np.sqrt(level * (1 - level) / len(p))
        assert level * 0.85 - error < (p <= level).mean() < level + error


def test_the_band_and_the_p_value_agree():
    """Ranks leave the band of a level exactly where their p-value is not above it."""
    rng = np.random.default_rng(1)
    band = ecdf.simultaneous_band(NUM, DRAWS, 0.05)
    for scale in np.linspace(0.6, 1.4, 60):
        ranks = rng.choice(DRAWS + 1, NUM, p=ecdf.fault_rank_probs(DRAWS, scale, 0.0))
        counts = np.cumsum(np.bincount(ranks, minlength=DRAWS + 1))
        inside = ((counts >= band.low) & (counts <= band.high)).all()
        assert inside == (ecdf.p_value(ranks, DRAWS) > 0.05)


def test_tiny_p_values_stay_positive_and_ordered():
    """What rounding leaves of 1 - P(inside) is not what is reported."""
    p = [ecdf.p_value(np.full(num, 0), 100) for num in (20, 40, 80)]
    assert 0 < p[2] < p[1] < p[0] < 1e-20


def test_rank_probabilities_of_a_fault():
    """Against 200,000 simulated ranks of draws that are too narrow and shifted (chi-square, false alarm 1e-6)."""
    rng = np.random.default_rng(2)
    truth = rng.normal(size=200_000)
    ranks = rng.binomial(DRAWS, stats.norm.cdf((truth - 0.3) / 0.7))
    probs = ecdf.fault_rank_probs(DRAWS, 0.7, 0.3)
    seen = np.bincount(ranks, minlength=DRAWS + 1)
    assert stats.chisquare(seen, len(ranks) * probs).pvalue > 1e-6
    np.testing.assert_allclose(ecdf.fault_rank_probs(DRAWS, 1.0, 0.0), 1 / (DRAWS + 1), atol=1e-9)


@pytest.mark.parametrize("fault", ["narrow", "wide", "shift"])
def test_the_power_is_what_is_said(fault):
    """300 simulated sets of ranks with the smallest detectable fault are rejected 95 % of the time (five errors:
    false alarm 6e-7; catches a power of 0.86)."""
    found = ecdf.detectable(NUM, DRAWS, 1e-3)
    scale, shift = (1.0, found.shift) if fault == "shift" else (getattr(found, fault), 0.0)
    rng = np.random.default_rng(3)
    ranks = rng.choice(DRAWS + 1, (300, NUM), p=ecdf.fault_rank_probs(DRAWS, scale, shift))
    rejected = np.mean([ecdf.p_value(each, DRAWS) <= 1e-3 for each in ranks])
    assert abs(rejected - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 300)


def test_too_few_simulations_detect_nothing():
    """nan: no fault of width or place would be seen."""
    assert np.isnan(ecdf.detectable(2, DRAWS, 1e-6).narrow)


def test_what_can_be_seen_in_words():
    """Faults that would not be seen are not named as seen."""
    words = ecdf.Detectable(np.nan, 2.0, 0.25).in_words(50)
    assert words == (
        "50 simulations are enough to see, in one quantity with probability 95%, draws wider than 2.00 or shifted by "
        "0.25 times the right standard deviation; all other faults need more"
    )
    assert "3 simulations are too few to see any fault" in ecdf.Detectable(np.nan, np.nan, np.nan).in_words(3)
