"""A verdict abstains for each of its reasons, and for no other; probabilities are printed where it does not."""

from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions import verdict
from bayes_mdp.decisions.policy_comparison import VerdictOptions, compare_policies
from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.decisions.value_basis import PRIOR_SHARE, Unvisited, ValueBasis
from bayes_mdp.decisions.verdict import Verdict, check_value_range, verdict_on
from bayes_mdp.mdp import Discounted, StateActionSpace, Transitions
from tests.options import fold
from tests.text import unwrapped

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
NOBODY = Unvisited((), np.zeros(0), (), np.zeros(0))


def value(share: float | None = 0.05, own: bool = False, draws: Any = (0.0, 1.0), gap: float = 0.0, **changes: Any):
    """A policy's value that rests on so much."""
    weakest = () if share is None else ((("low", "go"), share),)
    basis = ValueBasis(NOBODY, share, weakest, 20.0, own)
    numbers = np.asarray(draws, float)
    fields = {"mean": 0.5, "sd": 0.5, "interval": (0.0, 1.0), "gap": gap, "initial": np.ones(2) / 2} | changes
    return PolicyValue(
        draws=numbers,
        initial_given=True,
        rests_on=changes.get("basis", basis),
        objective=Discounted(0.9),
        **{name: x for name, x in fields.items() if name != "basis"},
    )


@pytest.mark.parametrize(
    ("found", "value_range", "held_out", "reasons"),
    [
        (value(), None, False, ()),
        (value(share=PRIOR_SHARE), None, False, ()),
        (value(share=PRIOR_SHARE + 1e-6), None, False, ("a: the prior's share",)),
        (value(share=None), None, False, ()),
        (value(basis=None), None, False, ()),
        (value(), (0.0, 1.0), False, ()),
        (value(draws=(0.0, 1.1)), (0.0, 1.0), False, ("a: its values go from 0 to 1.1, outside the stated range 0",)),
        (value(draws=(-0.1, 1.0)), (0.0, 1.0), False, ("a: its values go from -0.1 to 1",)),
        (value(draws=(0.0, 1.1)), None, False, ()),
        (value(draws=(0.0, 1.1), gap=0.2), (0.0, 1.0), False, ()),  # it may be the solver's error
        (value(draws=(0.0, 1.0 + 1e-12)), (0.0, 1.0), False, ()),
        (value(own=True), None, False, ("a: it is the optimum of this posterior's own mean",)),
        (value(own=True), None, True, ()),
        (
            value(share=0.5, own=True, draws=(0.0, 2.0)),
            (0, 1),
            False,
            ("a: the prior's share of the rows it uses is 0.5", "a: its values go", "a: it is the optimum"),
        ),
        (value(share=0.5, own=True, draws=(0.0, 2.0)), (0, 1), True, ("a: the prior's share", "a: its values go")),
    ],
)
def test_it_abstains_for_each_reason_and_only_then(found, value_range, held_out, reasons):
    verdict = verdict_on({"a": found, "fine": value()}, value_range, "other data" if held_out else "")
    assert len(verdict.reasons) == len(verdict.would_decide) == len(reasons)
    assert all(ours.startswith(theirs) for ours, theirs in zip(verdict.reasons, reasons, strict=True))
    assert verdict.decided is not bool(reasons)


def test_its_words():
    assert str(Verdict((), ())).startswith("verdict: no reason was found to distrust this (see how-to/decide")
    text = str(verdict_on({"a": value(share=0.5)}, None, ""))
    page = "(see how-to/decide-from-a-log in the documentation)"
    assert unwrapped(text).startswith(f"verdict: not decided by these data {page}")
    assert "What would decide: data of low go (0.5), or a prior that is known to fit" in unwrapped(text)


@pytest.mark.parametrize(
    ("value_range", "kind", "message"),
    [
        ((1, 0), ValueError, r"value_range is \(1, 0\), expected two finite numbers, the lower one first"),
        ((0, 0), ValueError, r"value_range is \(0, 0\), expected two finite numbers"),
        ((np.nan, 1), ValueError, r"value_range is \(nan, 1\), expected two finite"),
        ((0, np.inf), ValueError, r"value_range is \(0, inf\), expected two finite"),
        ((0, 1, 2), TypeError, r"value_range is .*, expected two numbers \(lowest, highest\)"),
        ("x", TypeError, "value_range is 'x', expected two numbers"),
        (3, TypeError, "value_range is 3, expected two numbers"),
    ],
)
def test_a_range_is_two_numbers_in_order(value_range, kind, message):
    check_value_range(None)
    check_value_range((0, 1.5))
    with pytest.raises(kind, match=message):
        check_value_range(value_range)


@pytest.fixture(scope="module")
def belief() -> Any:
    """100 transitions of each pair: going pays 1, staying nothing."""
    state, action = np.repeat([0, 0, 1, 1], 100), np.tile(np.repeat([0, 1], 100), 2)
    reached = np.random.default_rng(0).integers(2, size=400)
    prior = bm.models.known_rewards([[1.0, 0.0], [1.0, 0.0]])
    return bm.infer(KEY, prior, Transitions(state, action, None, reached), space=StateActionSpace(2, 2))


def test_a_comparison_prints_probabilities_only_where_it_decides(belief):
    policies = {"go": np.zeros(2, int), "stay": np.ones(2, int)}

    def compared(policies, **more) -> Any:
        given = fold(VerdictOptions, more)
        return compare_policies(KEY, belief, policies, Discounted(0.5), num_draws=16, **given)

    own = compared(policies)
    assert own.verdict.reasons == (
        "go: it is the optimum of this posterior's own mean: if the same data chose it, they cannot judge it",
    )
    assert "P(best)" not in str(own) and " better)" not in str(own)
    assert own.prob_best == {"go": 1.0, "stay": 0.0}
    judged = compared(policies, held_out=True, value_range=(0, 2))
    assert judged.verdict.decided and "P(best)" in str(judged) and "P(go better) 1.000" in str(judged)
    outside = compared(policies, held_out=True, value_range=(0, 1))
    assert not outside.verdict.decided and "P(best)" not in str(outside)
    neither = compared({"stay": policies["stay"], "half": np.full((2, 2), 0.5)})
    assert neither.verdict.decided and "P(best)" in str(neither)
    # What was found, with which probability, on which data.
    said = unwrapped(judged.verdict)
    assert said.startswith(
        "verdict: go is the best of 2 policies with probability 1.000 in 16 draws of the posterior given 400 "
        "transitions, which did not choose the policies; the prior's share of the rows in use is at most 0.0"
    )
    assert "; no value lies outside 0 to 2; no reason was found to distrust this (see " in said
    said = unwrapped(neither.verdict)
    prob = neither.prob_best["half"]
    assert f"half is the best of 2 policies with probability {prob:.3f} in 16" in said
    assert "did not choose" not in said and "; no range of values was stated; " in said
    with pytest.raises(TypeError, match="held_out is 'yes'"):
        compared(policies, held_out="yes")


def test_the_finding_says_what_it_cannot_know():
    """Probabilities are those of the draws, by a count; unknown parts are said to be so."""
    draws = {"a": [1.0, 2.0, 3.0, 4.0], "b": [1.0, 3.0, 2.0, 5.0]}
    values = {name: value(draws=x, mean=float(np.mean(x))) for name, x in draws.items()}
    # Draw by draw: a tie (half for each), b, a, b.
    assert (
        "b is the best of 2 policies with probability 0.625 in 4 draws of the posterior; the prior's share"
        in unwrapped(verdict_on(values, None, ""))
    )
    text = unwrapped(verdict_on({"a": value(share=None), "b": value()}, None, "other data"))
    assert "what the prior weighs in it is not known" in text and "draws of the posterior, which did not choose" in text
    same = unwrapped(verdict_on({"a": value(), "b": value()}, None, ""))
    assert same.startswith("verdict: all 2 policies are worth the same in 2 draws of the posterior; ")
    alone = unwrapped(verdict_on({"a": value(basis=None, mean=0.5)}, (0, 1), ""))
    assert alone.startswith("verdict: a is worth 0.5 on average in 2 draws of the posterior; what the prior weighs")


def test_draws_in_which_both_are_worth_the_same_count_half():
    assert verdict.prob_better(np.array([1.0, 0.0, -1.0, 0.0])) == 0.5
    assert verdict.prob_better(np.array([2.0, 0.0])) == 0.75
