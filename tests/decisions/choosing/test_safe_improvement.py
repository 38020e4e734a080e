"""Recommendations keep their promise, and one that is judged on the draws that chose it does not."""

from itertools import product

import jax
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.choosing.criteria import MONTE_CARLO_ERROR, Improvement, draws_for, no_worse
from bayes_mdp.mdp import Discounted
from tests.decisions.choosing.problems import GAMMA, START, DirichletRows, learnt, true_probability

pytestmark = pytest.mark.numerics

RATE = 1e-6


def test_the_bound_is_that_of_clopper_and_pearson():
    """At the bound so many draws, or more, are as rare as the error; all draws and none are no exception."""
    for number in (10, 60, 400):
        for count in {0, 1, number // 2, number - 1, number}:
            gain = np.where(np.arange(number) < count, 1.0, -1.0)
            found = Improvement(gain, 0.0, 0.9)
            assert found.prob == count / number
            bound = found.prob_at_least
            if count == 0:
                assert bound == 0.0
            else:
                assert stats.binom.sf(count - 1, number, bound) == pytest.approx(MONTE_CARLO_ERROR, rel=1e-6)
            assert found.accepted == (bound >= 0.9)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("number", [50, 100, 400, 1000])
def test_false_recommendations_are_as_rare_as_the_error(confidence, number):
    """Exactly, by the binomial law: with a probability a little below the confidence."""
    counts = np.arange(number + 1)
    accepted = [Improvement(np.where(np.arange(number) < k, 0.0, -1.0), 0.0, confidence).accepted for k in counts]
    wrong = stats.binom.pmf(counts, number, confidence - 1e-9)[accepted].sum()
    assert wrong <= MONTE_CARLO_ERROR
    assert any(accepted) == (number >= draws_for(confidence))


def test_slack_is_in_units_of_the_value():
    """A loss up to the slack counts as no worse, its edge included."""
    gain = np.array([-0.3, -0.2, 0.0, 0.4])
    assert [Improvement(gain, slack, 0.5).prob for slack in (0.0, 0.2, 0.3)] == [0.5, 0.75, 1.0]
    baseline = np.array([1.0, 2.0, 3.0, 4.0])
    values = np.stack([baseline + gain, baseline, baseline - 1], 1)
    np.testing.assert_array_equal(no_worse(values, baseline, 0.0, 0.5), [True, True, False])
    np.testing.assert_array_equal(no_worse(values, baseline, 0.25, 0.8), [False, True, False])
    np.testing.assert_array_equal(no_worse(values, baseline, 1.0, 1.0), [True, True, True])


def test_in_words():
    """One sentence, either way."""
    sure, unsure = Improvement(np.ones(100), 0.5, 0.9), Improvement(-np.ones(100), 0.0, 0.9)
    assert str(sure) == (
        "P(no worse than the baseline by more than 0.5) is 1.000 in 100 draws that did not choose it (at "
        "least 0.955, allowing for their number); 0.9 was asked for: reached"
    )
    assert str(unsure).startswith("P(no worse than the baseline) is 0.000") and str(unsure).endswith(": not reached")


def test_the_best_of_many_is_judged_on_other_draws():
    """300 policies that are no worse with probability .79, 200 times; .8 was asked for.

    The twin uses the same draws.
    """
    rng, honest, twin, rounds = np.random.default_rng(0), 0, 0, 200
    shift = stats.norm.ppf(0.79)
    for _ in range(rounds):
        search, judge = rng.normal(shift, 1, (2, 100, 300))
        best = int(np.mean(search >= 0, 0).argmax())
        honest += Improvement(judge[:, best], 0.0, 0.8).accepted
        twin += Improvement(search[:, best], 0.0, 0.8).accepted
    most = stats.binom.isf(RATE, rounds, MONTE_CARLO_ERROR)
    assert honest <= most < twin


@pytest.mark.slow
@pytest.mark.parametrize("number", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_recommendations_have_the_posterior_probability(number):
    """Random problems with few data or none; the surest of 216 policies on 32 draws, judged on 32 others at .6.

    The posterior probability is that in 4000 further draws; six of their standard errors are allowed for. The twin
    believes the share of the draws that chose.
    """
    baseline, choices = np.eye(6)[[0, 0, 0]], np.array(list(product(range(6), repeat=3)))
    honest, twin = 0, 0
    for seed in range(number):
        belief = learnt(seed, 3, 6, steps=seed % 12)
        reward = np.random.default_rng(seed).normal(size=(3, 1)) * np.ones((3, 6))
        belief = DirichletRows(belief.concentration, reward)
        search, judge = (
            draws_of(key, belief, Discounted(GAMMA), 32, initial=START).values(np.eye(6)[choices])
            for key in jax.random.split(jax.random.key(seed))
        )
        best = int(np.mean(search[:, 1:] >= search[:, :1], 0).argmax()) + 1
        accepted = Improvement(judge[:, best] - judge[:, 0], 0.0, 0.6).accepted
        believed = Improvement(search[:, best] - search[:, 0], 0.0, 0.6).prob >= 0.6
        if accepted or believed:
            true = true_probability(belief, np.eye(6)[choices[best]], baseline, START, GAMMA, 4000)
            wrong = true < 0.6 - 6 * np.sqrt(0.24 / 4000)
            honest, twin = honest + (accepted and wrong), twin + (believed and wrong)
    most = stats.binom.isf(RATE, number, MONTE_CARLO_ERROR)
    assert honest <= most < twin


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
def test_the_fewest_draws_are_enough_and_one_less_is_not(confidence):
    """All n of them no worse: the lower bound is (error)^(1 / n)."""
    enough = [n for n in range(1, 200) if MONTE_CARLO_ERROR ** (1 / n) >= confidence]
    assert draws_for(confidence) == enough[0]
