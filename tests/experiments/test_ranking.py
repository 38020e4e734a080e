"""The statistics of a leaderboard, against brute force, scipy, and simulated runs of known truth."""

from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from scipy import stats

from bayes_mdp.experiments.ranking import (
    STATISTICS,
    THRESHOLDS,
    aggregates,
    improvement,
    interquartile_mean,
    leaderboard,
    mean_ranks,
    performance_profile,
    resamples,
)

pytestmark = pytest.mark.numerics

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [*range(1, 14), 50])
def test_interquartile_mean_is_the_trimmed_mean(size):
    """Of any number of scores, in any order, with ties."""
    scores = np.round(RNG.normal(size=size), 1)
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25))


def test_interquartile_mean_by_hand():
    """1 .. 8 without 1, 2, 7, 8; of 1 .. 5 one is left out on either side."""
    assert interquartile_mean(np.array([8, 1, 7, 2, 6, 3, 5, 4.0])) == 4.5
    assert interquartile_mean(np.array([1.0, 2.0, 3.0, 5.0, 90.0])) == pytest.approx(10 / 3)


def test_interquartile_mean_refuses():
    with pytest.raises(ValueError, match=r"scores\[1\] is nan, expected a finite number"):
        interquartile_mean(np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match="scores is empty"):
        interquartile_mean(np.array([]))


@pytest.mark.parametrize("shape", [(1, 2), (2, 3), (3, 5), (4, 4)])
def test_statistics_of_samples_are_those_of_the_runs_they_hold(shape):
    """Weights stand for repeated runs: brute force over the repeated runs, ties and sizes off multiples of 4."""
    scores = np.round(RNG.normal(0.5, 0.6, shape), 1)
    weights = resamples(RNG, 20, *shape)
    assert (weights.sum(-1) == shape[1]).all()
    found, profiles = aggregates(scores, weights), performance_profile(scores, weights, THRESHOLDS)
    for one, profile, weight in zip(found, profiles, weights, strict=True):
        runs = np.repeat(scores.ravel(), weight.astype(int).ravel())
        gap = np.mean(1 - np.minimum(runs, 1))
        expected = [stats.trim_mean(runs, 0.25), runs.mean(), np.median(runs), gap]
        np.testing.assert_allclose(one, expected, atol=1e-12)
        np.testing.assert_allclose(profile, [(runs > tau).mean() for tau in THRESHOLDS], atol=1e-12)


def test_ranks_share_ties():
    """As scipy ranks each problem, averaged; by hand: two share ranks 1 and 2."""
    means = np.round(RNG.normal(size=(30, 6, 4)), 1)
    expected = np.mean(stats.rankdata(-means, axis=1), -1)
    np.testing.assert_allclose(mean_ranks(means), expected)
    np.testing.assert_array_equal(mean_ranks(np.array([[[1.0], [1.0], [0.0]]])), [[1.5, 1.5, 3.0]])


def test_improvement_is_the_statistic_of_mann_and_whitney():
    ours, theirs = (np.round(RNG.normal(size=(3, 7)), 1) for _ in range(2))
    found = improvement(ours, theirs).mean((1, 2))
    expected = [stats.mannwhitneyu(x, y).statistic / 49 for x, y in zip(ours, theirs, strict=True)]
    np.testing.assert_allclose(found, expected)


def _covered(weights: Any, num_trials: int) -> float:
    """How often the interval of the interquartile mean holds the true one, 0: three problems of means -1, 0, 1."""
    rng, inside = np.random.default_rng(1), 0
    for _ in range(num_trials):
        scores = np.array([[-1.0], [0.0], [1.0]]) + rng.normal(0, 0.3, (3, 10))
        low, high = np.quantile(aggregates(scores, weights(rng))[:, 0], (0.025, 0.975))
        inside += low <= 0 <= high
    return inside / num_trials


def test_intervals_cover_as_often_as_they_say():
    """Between .82 and .985 of 400, and a bootstrap without strata covers too often.

    A percentile bootstrap of 10 seeds is a little narrow: .902 in 5000 trials. False alarms by the binomial law: 4e-7
    below .82, 1e-11 above .985. Resampling over all runs alike covers every time.
    """
    assert 0.82 < _covered(lambda rng: resamples(rng, 200, 3, 10), 400) < 0.985
    mixed = _covered(lambda rng: rng.multinomial(30, np.full(30, 1 / 30), 200).reshape(-1, 3, 10).astype(float), 100)
    assert mixed > 0.985


def _result(scores: np.ndarray) -> xr.Dataset:
    names = [f"agent {i}" for i in range(len(scores))]
    return xr.Dataset({"score": (("agent", "env", "seed"), scores)}, {"agent": names})


def test_leaderboard_of_agents_that_are_far_apart():
    """0, .5 and 1, less than .1 of noise: order, ranks, best and improvement are certain, intervals hold the mean."""
    scores = np.array([0.5, 1.0, 0.0])[:, None, None] + RNG.uniform(-0.1, 0.1, (3, 2, 6))
    board = leaderboard(_result(scores), key=jax.random.key(0), num_resamples=300)
    np.testing.assert_array_equal(board["rank"], [2, 1, 3])
    np.testing.assert_array_equal(board["best"], [0, 1, 0])
    np.testing.assert_array_equal(board["improvement"], [[0.5, 0, 1], [1, 0.5, 1], [0, 0, 0.5]])
    low, middle, high = (board[f"aggregate{end}"].to_numpy() for end in ("_low", "", "_high"))
    assert (low <= middle).all() and (middle <= high).all() and (low[:, 0] < high[:, 0]).all()
    assert middle[0, STATISTICS.index("iqm")] == pytest.approx(stats.trim_mean(scores[0].ravel(), 0.25))
    assert (board["profile_low"] <= board["profile"]).all() and (board["profile"] <= board["profile_high"]).all()
    again = leaderboard(_result(scores), key=jax.random.key(0), num_resamples=300)
    assert board.identical(again)
    assert not board.identical(leaderboard(_result(scores), key=jax.random.key(1), num_resamples=300))


def test_agents_that_did_not_play_all_are_not_ranked_and_unscored_problems_do_not_count():
    scores = RNG.uniform(size=(3, 3, 4))
    scores[:, 1] = np.nan
    scores[2, 0] = np.nan
    board = leaderboard(_result(scores), key=jax.random.key(0), num_resamples=50)
    expected = leaderboard(_result(scores[:2, [0, 2]]), key=jax.random.key(0), num_resamples=50)
    for name in board.data_vars:
        if name != "improvement":
            np.testing.assert_array_equal(board[name][:2], expected[name])
            assert np.isnan(board[name][2]).all()
    np.testing.assert_array_equal(board["improvement"][:2, :2], expected["improvement"])
    nothing = leaderboard(_result(np.full((2, 2, 3), np.nan)), key=jax.random.key(0), num_resamples=5)
    assert np.isnan(nothing["aggregate"]).all()


def test_leaderboard_refuses():
    board = _result(np.zeros((1, 1, 2)))
    with pytest.raises(ValueError, match=r"level is 1.0, expected a number between 0 and 1"):
        leaderboard(board, key=jax.random.key(0), level=1.0)
    with pytest.raises(ValueError, match="num_resamples is 0"):
        leaderboard(board, key=jax.random.key(0), num_resamples=0)
