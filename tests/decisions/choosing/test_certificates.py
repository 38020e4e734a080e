"""Limits of probabilities: golden values, what they cover, what weighted draws are worth, draws of convex programs."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr
from scipy.stats import beta, binom, norm

from bayes_mdp.decisions import scenario_draws
from bayes_mdp.decisions.choosing.budgets import independent_draws, limit_of_share, most_over, upper_limit


def test_the_limit_is_clopper_and_pearsons(x64):
    """The golden number; the most hits that certify are those of the specification; the limit covers."""
    assert upper_limit(12, 1000) == pytest.approx(0.019370199285059248, abs=1e-9)
    assert upper_limit(0, 100) == pytest.approx(0.029513049607039925, abs=1e-9)
    assert [most_over(number, 0.05) for number in (58, 59, 200, 1000)] == [-1, 0, 4, 38]
    assert most_over(200, 0.1) == 12
    for prob in (0.01, 0.05, 0.2):
        hits = np.arange(201)
        limits = np.array([upper_limit(int(hit), 200) for hit in hits])
        assert binom.pmf(hits, 200, prob)[limits < prob].sum() <= 0.05
        assert limits[7] == pytest.approx(beta.isf(0.05, 8, 193))


@pytest.mark.parametrize(
    ("variables", "allowed", "failure", "number"),
    [(4, Fraction(1, 20), 1e-3, 257), (6, Fraction(1, 10), 1e-3, 159), (10, Fraction(1, 20), 1e-6, 643)],
)
def test_draws_of_a_convex_program(variables, allowed, failure, number):
    """The golden numbers, by sums of whole numbers: so many are enough, and one fewer is not."""
    assert scenario_draws(variables, float(allowed), failure) == number

    def tail(draws: int) -> float:
        terms = (comb(draws, i) * allowed**i * (1 - allowed) ** (draws - i) for i in range(variables))
        return float(sum(terms, Fraction(0)))

    assert tail(number) <= failure < tail(number - 1)


def test_one_variable_needs_the_draws_of_a_largest_value():
    """(1 - allowed)^N <= failure: 59 draws without one over, as `most_over` has it."""
    assert scenario_draws(1, 0.05, 0.05) == 59
    assert scenario_draws(1, 0.9, 0.5) == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 0.1, 0.1), "variables"),
        ((2, 0.0, 0.1), "allowed"),
        ((2, 0.1, 1.0), "failure"),
        ((2, np.nan, 0.1), "allowed"),
    ],
)
def test_what_is_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        scenario_draws(*arguments)


def breaks(draws: int, times: int) -> int:
    """How often the optimum of a program with so many drawn constraints breaks a new one with more than .1.

    One state, three actions, of which two have normal costs: occupancies are two numbers, whose probability is known.
    """
    rng, mean, broken = np.random.default_rng(0), np.array([1.0, 0.0]), 0
    for _ in range(times):
        costs = np.column_stack([mean + rng.normal(size=(draws, 2)), np.zeros(draws)])
        answer = linprog([-1.0, -0.7, 0.0], A_ub=costs, b_ub=np.ones(draws), A_eq=np.ones((1, 3)), b_eq=[1.0])
        plan = answer.x[:2]
        broken += ndtr((plan @ mean - 1.0) / np.linalg.norm(plan)) > 0.1
    return broken


def test_optima_of_drawn_constraints_keep_a_new_one_as_often_as_is_said():
    """400 programs: wrong in at most .2 of them (false alarm below 1e-6); half of the draws are too few for it."""
    number = scenario_draws(2, 0.1, 0.2)
    most = int(binom.isf(1e-6, 400, 0.2))
    assert breaks(number, 400) <= most < breaks(number // 2, 400)


class Weighted:
    """A belief that holds weighted draws."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights

    def worth_of_picks(self) -> float:
        return float(1 / (self.weights**2).sum())


def test_picks_by_weights_count_as_the_draws_that_the_weights_are_worth():
    """400 times 1,000 picks from 300 weighted draws, worth about 110: P(over) is .1, just not allowed.

    A certificate at 95 % is wrong in 5 % where draws are independent; what weights are worth is a rule of thumb, so
    that the bound is that of 10 % (false alarm below 1e-6 if they are wrong in no more). A twin that counts all picks
    is wrong in about 40 %, which the same bound catches.
    """
    rng, limit, wrong, twin = np.random.default_rng(0), norm.isf(0.1), 0, 0
    for _ in range(400):
        held = rng.normal(0.0, 1.5, 300)
        weights = norm.pdf(held) / norm.pdf(held, 0.0, 1.5) * rng.gamma(1.0, size=300)
        weights /= weights.sum()
        costs = rng.choice(held, 1000, p=weights)
        number = independent_draws(Weighted(weights), costs, costs > limit, 0.1)
        share = float((costs > limit).mean())
        wrong += limit_of_share(share, number) <= 0.1
        twin += limit_of_share(share, 1000) <= 0.1
    assert wrong <= int(binom.isf(1e-6, 400, 0.1)) < twin, (wrong, twin)


def test_draws_of_no_number_of_their_own_count_all():
    costs = np.arange(100.0)
    assert independent_draws(object(), costs, costs > 90, 0.1) == 100
    assert independent_draws(Weighted(np.array([1.0])), costs, costs > 90, 0.1) == 1
