"""Criteria of choice: their numbers by other formulas, their slopes by differences, and their names."""

from typing import Any

import numpy as np
import pytest

from bayes_mdp.decisions.choosing.criteria import (
    CVaR,
    ExpectedValue,
    Percentile,
    ProbabilityOptimal,
    Regret,
    Robust,
    SoftRobust,
    TailMean,
    needs_best,
    read_criterion,
    scored,
    tail_share,
)
from tests.decisions.choosing.problems import exceeded, lowest_mean

pytestmark = pytest.mark.numerics

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(30, 17))
BEST = VALUES.max(0) + RNG.uniform(0, 1, 17)
LEVELS = (0.06, 0.1, 0.25, 1 / 3, 0.5, 0.77, 1.0)


@pytest.mark.parametrize("level", LEVELS)
def test_cvar_is_the_maximum_of_rockafellar_and_uryasev(level):
    """Also where the level falls within a draw. The conditional value at risk is at most the percentile."""
    for values in VALUES:
        found = scored(CVaR(level)).score(values)
        assert found == pytest.approx(lowest_mean(values, level), abs=1e-12)
        assert found <= scored(Percentile(level)).score(values) + 1e-12
        assert scored(SoftRobust(level, 0.3)).score(values) == pytest.approx(0.3 * values.mean() + 0.7 * found)
        assert scored(Regret(level)).score(values, BEST) == pytest.approx(lowest_mean(values - BEST, level))


@pytest.mark.parametrize("level", LEVELS)
def test_the_percentile_is_its_definition(level):
    """sup {y: P(value >= y) >= 1 - level}, ties included."""
    for values in (*VALUES, np.round(VALUES[0]), np.zeros(17)):
        assert Percentile(level).score(values) == exceeded(values, level)


def test_cvar_rises_with_the_level_to_the_mean():
    """And falls to the lowest value, which a level below one draw means too."""
    for values in VALUES:
        scores = [scored(CVaR(level)).score(values) for level in LEVELS]
        assert (np.diff(scores) >= -1e-12).all()
        assert scores[-1] == pytest.approx(values.mean()) == scored(ExpectedValue()).score(values)
        assert scored(CVaR(1e-6)).score(values) == values.min()
        assert scored(SoftRobust(0.2, 1.0)).score(values) == pytest.approx(values.mean())
        assert scored(Regret()).score(values, BEST) == (values - BEST).min()


@pytest.mark.parametrize(
    "criterion", [ExpectedValue(), CVaR(0.2), SoftRobust(0.1), Regret(), Regret(0.5), Percentile(0.3)]
)
def test_slopes_by_differences(criterion):
    """Weights that are zero or greater and sum to one; central differences where no two draws are tied."""
    form = scored(criterion)
    for values in VALUES[:10]:
        slope = form.gradient(values, BEST)
        assert (slope >= 0).all() and slope.sum() == pytest.approx(1.0)
        step = 1e-6 * np.eye(len(values))
        central = [(form.score(values + e, BEST) - form.score(values - e, BEST)) / 2e-6 for e in step]
        np.testing.assert_allclose(slope, central, atol=1e-8)


def test_the_order_of_the_draws_is_irrelevant():
    """For scores; slopes move with their draws."""
    order = RNG.permutation(17)
    for criterion in (
        ExpectedValue(),
        CVaR(0.2),
        SoftRobust(0.1),
        Regret(0.3),
        Percentile(0.3),
        ProbabilityOptimal(1.0),
    ):
        form = scored(criterion)
        for values in VALUES[:5]:
            assert form.score(values[order], BEST[order]) == pytest.approx(form.score(values, BEST), abs=1e-12)
            np.testing.assert_allclose(form.gradient(values[order], BEST[order]), form.gradient(values, BEST)[order])


def test_the_probability_of_being_optimal():
    """Regrets up to the tolerance; equal to rounding is equal."""
    best = np.array([1.0, 1.0, 1.0, 1e6])
    values = np.array([1.0 - 1e-12, 0.9, 0.5, 1e6 - 1e-4])
    assert ProbabilityOptimal().score(values, best) == 0.5
    assert ProbabilityOptimal(0.1).score(values, best) == 0.75
    assert ProbabilityOptimal(0.5).score(values, best) == 1.0


@pytest.mark.parametrize(
    ("name", "criterion"),
    [
        ("mean", ExpectedValue()),
        ("cvar:0.1", CVaR(0.1)),
        ("percentile:0.1", Percentile(0.1)),
        ("soft-robust:0.1", SoftRobust(0.1)),
        ("soft-robust:0.1:0.7", SoftRobust(0.1, 0.7)),
        ("regret", Regret()),
        ("regret:0.2", Regret(0.2)),
        ("probability-optimal", ProbabilityOptimal()),
        ("probability-optimal:0.2", ProbabilityOptimal(0.2)),
        ("robust:0.9", Robust(0.9)),
        ("robust", Robust()),
    ],
)
def test_names_are_read(name, criterion):
    """With their numbers."""
    read = read_criterion(name)
    assert type(read) is type(criterion) and vars(read) == vars(criterion)
    assert read_criterion(criterion) is criterion
    assert str(read) == str(criterion)


def test_criteria_in_words():
    """What the answer prints."""
    assert str(ExpectedValue()) == "expected value"
    assert str(CVaR(0.1)) == "mean of the lowest 0.1 of the values (CVaR)"
    assert str(SoftRobust(0.1, 0.25)) == "0.25 expected value + 0.75 CVaR at 0.1"
    assert str(Regret()) == "minus the largest regret"
    assert str(Regret(0.2)) == "minus the mean of the largest 0.2 of the regrets"
    assert str(Percentile(0.1)) == "percentile at 0.1"
    assert str(ProbabilityOptimal(0.1)) == "probability that the regret is at most 0.1"
    assert str(Robust(0.9)) == "worst value over a credible set of probability 0.9"
    assert str(Robust(radius=np.zeros((2, 2)))) == "worst value over the given L1 distances"


def test_what_a_criterion_rests_on():
    """Shares of the draws, and whether optimal values are needed."""
    shares = [
        (ExpectedValue(), 1),
        (CVaR(0.1), 0.1),
        (SoftRobust(0.2), 0.2),
        (Percentile(0.3), 0.3),
        (Regret(), 1),
        (Regret(0.4), 0.4),
    ]
    for criterion, share in shares:
        assert tail_share(criterion) == share
        assert needs_best(scored(criterion)) == isinstance(criterion, Regret)
    assert tail_share(ProbabilityOptimal()) == 1 and needs_best(ProbabilityOptimal())
    assert tail_share(Robust(0.9)) == pytest.approx(0.1) and tail_share(Robust(radius=np.zeros((2, 2)))) == 1
    assert isinstance(scored(CVaR(0.1)), TailMean)


@pytest.mark.parametrize(
    ("criterion", "kind", "message"),
    [
        ("mode", ValueError, "criterion is 'mode', expected one of mean, cvar, soft-robust"),
        ("cvr:0.1", ValueError, "criterion is 'cvr'.*cvar"),
        ("cvar", ValueError, "criterion is 'cvar', expected cvar:LEVEL"),
        ("cvar:", ValueError, "criterion is 'cvar:', expected cvar:LEVEL"),
        ("cvar:0.1:0.2", ValueError, "criterion is 'cvar:0.1:0.2', expected cvar:LEVEL"),
        ("mean:0.1", ValueError, "criterion is 'mean:0.1', expected mean"),
        ("soft-robust", ValueError, "expected soft-robust:LEVEL or soft-robust:LEVEL:WEIGHT"),
        ("probability-optimal:a", ValueError, "expected probability-optimal or probability-optimal:TOLERANCE"),
        ("cvar:2", ValueError, "level is 2.*, expected a number greater than 0, at most 1"),
        ("cvar:0", ValueError, "level is 0.*, expected a number greater than 0, at most 1"),
        ("cvar:nan", ValueError, "level is nan, expected a number greater than 0, at most 1"),
        ("percentile:-1", ValueError, "level is -1"),
        ("regret:1.5", ValueError, "level is 1.5, expected a number from 0 to 1"),
        ("soft-robust:0.1:2", ValueError, "weight is 2.*, expected a number from 0 to 1"),
        ("probability-optimal:-1", ValueError, "tolerance is -1.*, expected a number, zero or greater"),
        ("robust:0", ValueError, "confidence is 0"),
        ("robust:1", ValueError, "confidence is 1.*, expected a number between 0 and 1"),
        (3, TypeError, "criterion is 3, expected a criterion or its name"),
        (None, TypeError, "criterion is None, expected a criterion or its name"),
    ],
)
def test_bad_criteria_are_refused(criterion: Any, kind, message):
    """In one sentence."""
    with pytest.raises(kind, match=message):
        read_criterion(criterion)


@pytest.mark.parametrize("radius", [-0.1, np.nan])
def test_a_distance_is_zero_or_greater(radius):
    """The entry that is not is named."""
    with pytest.raises(ValueError, match=r"radius\[0, 1\] is .*, expected a number, zero or greater"):
        Robust(radius=np.array([[0.1, radius], [0.0, 0.0]]))
