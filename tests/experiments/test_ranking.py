"""The statistics of a leaderboard, against brute force and simulated runs of known truth."""

import jax
import numpy as np
import pytest
import xarray as xr

from bayes_mdp.experiments.ranking import (
    STATISTICS,
    THRESHOLDS,
    leaderboard,
    statistics_of,
)

pytestmark = pytest.mark.numerics

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(1, 2), (2, 3), (3, 5), (4, 4)])
def test_statistics_of_runs(shape):
    """By the formulas, agent by agent and sample by sample; ties and sizes off multiples of 4."""
    agents, samples = 3, 5
    scores = np.round(RNG.normal(0.5, 0.6, (shape[0], agents, samples, shape[1])), 1)
    found = statistics_of(*scores)
    for agent, sample in np.ndindex(agents, samples):
        runs = np.sort(scores[:, agent, sample].ravel())
        cut = len(runs) // 4
        expected = [runs[cut : len(runs) - cut].mean(), runs.mean(), np.median(runs), np.mean(1 - np.minimum(runs, 1))]
        np.testing.assert_allclose(found[:4, agent, sample], expected, atol=1e-12)
        means = scores[:, :, sample].mean(-1)
        better = (means > means[:, [agent]]).sum(1) + ((means == means[:, [agent]]).sum(1) - 1) / 2
        np.testing.assert_allclose(found[4, agent, sample], np.mean(1 + better))
        np.testing.assert_allclose(found[5:, agent, sample], [(runs > tau).mean() for tau in THRESHOLDS], atol=1e-12)


def test_improvement_is_the_share_of_pairs_that_a_run_wins():
    """Counted; and twins, which every bootstrap sample draws alike, share the first place."""
    scores = np.round(RNG.normal(size=(3, 2, 7)), 1)
    scores[2] = scores[1]
    board = leaderboard(_result(scores), key=jax.random.key(0), num_resamples=40)
    for i, j in np.ndindex(3, 3):
        ours, theirs = scores[i][:, :, None], scores[j][:, None, :]
        expected = np.mean((ours > theirs) + 0.5 * (ours == theirs))
        np.testing.assert_allclose(board["improvement"][i, j], expected)
    np.testing.assert_array_equal(board["aggregate_low"][1], board["aggregate_low"][2])
    assert board["best"][1] == board["best"][2] and float(board["best"].sum()) == pytest.approx(1.0)


def test_intervals_cover_as_often_as_they_say():
    """Between .82 and .985 of 400 agents whose interquartile mean is 0 on three problems of means -1, 0, 1.

    A percentile bootstrap of 10 seeds is a little narrow: .902 in 5000 trials. False alarms by the binomial law: 4e-7
    below .82, 1e-11 above .985. A bootstrap without strata, which resamples over all runs alike, covers every time.
    """
    low, high = [], []
    for i in range(10):
        scores = np.array([[-1.0], [0.0], [1.0]]) + np.random.default_rng(i).normal(0, 0.3, (40, 3, 10))
        board = leaderboard(_result(scores), key=jax.random.key(i), num_resamples=200)
        low.append(board["aggregate_low"][:, 0])
        high.append(board["aggregate_high"][:, 0])
    inside = (np.concatenate(low) <= 0) & (np.concatenate(high) >= 0)
    assert 0.82 < inside.mean() < 0.985


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
    assert middle[0, STATISTICS.index("iqm")] == pytest.approx(np.sort(scores[0].ravel())[3:9].mean())
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
    with pytest.raises(ValueError, match="result has 1 seed, expected at least two"):
        leaderboard(_result(np.zeros((1, 1, 1))), key=jax.random.key(0))
