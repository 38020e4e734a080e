# pyright: reportAttributeAccessIssue=false
"""Test statistics against loops, pandas and scipy."""

import numpy as np
import pytest
from scipy import stats

from bayes_mdp.calibration.predictive import predictive_check as statistics
from bayes_mdp.calibration.predictive.predictive_check import Sample, previous_states
from bayes_mdp.mdp import StateActionSpace, Transitions

SPACE = StateActionSpace(3, 2)


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    cell = (rng.integers(0, 2, 300), rng.integers(0, 2, 300))  # state 2 is never left
    reward = np.where(rng.random(300) < 0.1, np.nan, rng.normal(size=300))
    previous = rng.integers(-1, 3, 300)
    rows = rng.dirichlet(np.ones(3), (3, 2))
    return Sample(SPACE, cell, rng.integers(0, 3, 300), reward, previous, rows)


def test_the_state_before_is_known_only_where_transitions_are_joined():
    """0 -> 1 -> 2 | terminated, 0 -> 0 | truncated, 1 (not where the last led)."""
    data = Transitions(
        np.array([0, 1, 0, 0, 1]),
        np.zeros(5, int),
        None,
        np.array([1, 2, 0, 0, 0]),
        np.array([False, True, False, False, False]),
        np.array([False, False, False, True, False]),
    )
    np.testing.assert_array_equal(previous_states(data), [-1, 0, -1, 0, -1])
    np.testing.assert_array_equal(previous_states(Transitions(*[np.zeros(0, int)] * 4)), [])


def test_row_discrepancy_is_the_freeman_tukey_distance(sample):
    found = statistics.row_discrepancy(sample)
    mine = (sample.cell[0] == 1) & (sample.cell[1] == 0)
    counts = np.bincount(sample.outcome[mine], minlength=3)
    expected = counts.sum() * sample.transition_probs[1, 0]
    power = stats.power_divergence(counts, expected, lambda_="freeman-tukey").statistic
    np.testing.assert_allclose(found[1, 0], power)
    assert np.isnan(found[2]).all()
    np.testing.assert_allclose(statistics.transition_discrepancy(sample), np.nansum(found))


def test_serial_dependence_is_the_sum_of_the_g_statistics_of_the_pairs(sample):
    total = 0.0
    for s in range(2):
        for a in range(2):
            mine = (sample.cell[0] == s) & (sample.cell[1] == a) & (sample.previous >= 0)
            table = stats.contingency.crosstab(sample.previous[mine], sample.outcome[mine]).count
            total += stats.chi2_contingency(table, lambda_="log-likelihood", correction=False).statistic
    np.testing.assert_allclose(statistics.serial_dependence(sample), total)


def test_rewards_of_each_pair(sample):
    for name, function in (("mean", np.mean), ("min", np.min), ("max", np.max), ("sd", lambda x: np.std(x, ddof=1))):
        found = np.asarray(statistics.REWARDS[f"reward_{name}"](sample))
        mine = (sample.cell[0] == 0) & (sample.cell[1] == 1) & ~np.isnan(sample.reward)
        np.testing.assert_allclose(found[0, 1], function(sample.reward[mine]))
        assert np.isnan(found[2]).all()
