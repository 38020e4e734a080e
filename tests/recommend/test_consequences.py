"""What a failed check changes: each check asks the beliefs that it points to, and stops where the promise breaks."""

from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.calibration.criticism.criticise import CHOSEN, NEW, RETURNS, WHERE
from bayes_mdp.mdp import Discounted, Log, Transitions
from bayes_mdp.mdp.data.log_split import halves_in_time
from bayes_mdp.recommend.consequences import BY_STEP, SHARE, SIGN, Consequence, Question, consequences, sentences
from tests.recommend.shops import REWARD, easy_log, right_prior

KEY = jax.random.key(0)
POOLED = "with rows that the actions of a state share"
TODAY, BETTER, WORSE = np.full((2, 2), 0.5), np.array([1, 1]), np.array([0, 0])


def question(log: Log, prior: Any, chosen: str | None = "chosen", **policies: Any) -> Question:
    space = bm.StateActionSpace.from_log(log)
    rule = lambda posterior: BETTER  # noqa: E731
    named = policies or {"chosen": BETTER}
    return Question(KEY, prior, log, space, Discounted(0.5), log, rule, TODAY, named, chosen, 0.0, 0.95, 100)


@pytest.mark.parametrize(
    ("check", "beliefs"),
    [
        (NEW, ["with rows whose concentration is learnt", "with rows that lead where the log leads", POOLED]),
        (WHERE, ["with rows whose concentration is learnt", "with rows that lead where the log leads", POOLED]),
        (CHOSEN, ["chosen by one half of the episodes and judged by the other"]),
        (
            RETURNS,
            [
                "with rows whose concentration is learnt",
                "with rows that lead where the log leads",
                "by the earlier half of the episodes alone",
                "by the later half of the episodes alone",
            ],
        ),
        (
            SHARE,
            [
                "with rows whose concentration is learnt",
                "with rows that lead where the log leads",
                "with rows whose prior weighs one transition",
            ],
        ),
    ],
)
def test_each_check_asks_the_beliefs_that_it_points_to(check, beliefs):
    """The easy log: the better policy gains about 1 whatever is believed, so that nothing stops."""
    (answers,) = consequences(question(easy_log(), right_prior()), [check], {"chosen": 1.0}).values()
    assert [each.belief for each in answers] == beliefs and not any(each.stops for each in answers)
    for each in answers:
        assert each.gain.mean() == pytest.approx(1.0, abs=0.05) and each.check == check
        assert "the answer stays" in str(each)


def test_a_policy_that_is_worse_is_stopped():
    asked = question(easy_log(), right_prior(), None, good=BETTER, bad=WORSE)
    answers = consequences(asked, [NEW, CHOSEN], {"good": 1.0, "bad": 1.0})
    assert all(each.stops for each in answers["bad"]) and not any(each.stops for each in answers["good"])
    assert {each.check for each in answers["bad"]} == {NEW}  # nothing was chosen by the rule
    assert "the gain of 1 is -" in str(answers["bad"][0]) and "the answer changes" in str(answers["bad"][0])


def test_the_default_prior_is_not_asked_twice():
    log = easy_log()
    (answers,) = consequences(question(log, bm.models.default_prior(log)), [NEW], {"chosen": 1.0}).values()
    assert [each.belief for each in answers] == ["with rows that lead where the log leads", POOLED]


def test_rows_that_cannot_be_pooled_and_those_that_are_are_not_asked_for():
    """Listed successors; the prior is partial pooling itself."""
    log = easy_log()
    asked = question(log, bm.models.partial_pooling())
    assert POOLED not in [each.belief for each in consequences(asked, [WHERE], {"chosen": 1.0})["chosen"]]
    successors = np.broadcast_to([0, 1], (2, 2, 2))
    listed = bm.StateActionSpace(2, 2, successors=successors, states=log.states, actions=log.actions)
    asked = question(log, right_prior())._replace(space=listed)
    assert POOLED not in [each.belief for each in consequences(asked, [NEW], {"chosen": 1.0})["chosen"]]


def alike_log() -> Log:
    """40 states; the 8 actions of each lead alike; state 0 pays."""
    rng = np.random.default_rng(3)
    rows = rng.dirichlet(np.full(40, 0.3), 40)
    state, action = rng.integers(0, 40, 4000), rng.integers(0, 8, 4000)
    reached = (rng.random((4000, 1)) > rows[state].cumsum(-1)).sum(-1).clip(0, 39)
    data = Transitions(state, action, np.where(state == 0, 1.0, 0.0), reached, np.zeros(4000, bool))
    return Log(data, tuple(range(40)), tuple(range(8)))


def test_rows_that_actions_share_see_through_a_gain_of_chance():
    """No policy is better than another; independent rows say that the one they choose surely is."""
    log, space = alike_log(), bm.StateActionSpace(40, 8)
    prior = bm.models.dirichlet_normal_gamma(concentration=0.1)
    posterior = bm.infer(KEY, prior, log, space=space)
    policy = np.asarray(bm.greedy(posterior, Discounted(0.9)))
    asked = Question(
        *(KEY, prior, log, space, Discounted(0.9), np.full(40, 1 / 40), lambda _: policy, np.full((40, 8), 1 / 8)),
        *({"chosen": policy}, "chosen", 0.0, 0.95, 100),
    )
    answers = {each.belief: each for each in consequences(asked, [WHERE], {"chosen": 1.0})["chosen"]}
    independent = answers["with rows whose concentration is learnt"]
    assert independent.prob > 0.95 and answers[POOLED].gain.mean() < independent.gain.mean() / 3


def test_a_trend_is_seen_by_halves():
    """What pays changes in the middle of the log: by the later half alone the policy loses."""
    log = easy_log()
    state, action = (np.asarray(x) for x in (log.transitions.state, log.transitions.action))
    paid = np.where(np.arange(600) < 300, REWARD[state, action], 0.5 - 0.4 * REWARD[state, action])
    changed = Log(
        Transitions(state, action, paid, log.transitions.next_state, None, log.transitions.truncated),
        log.states,
        log.actions,
    )
    prior = bm.models.dirichlet_normal(noise_scale=0.5)
    (answers,) = consequences(question(changed, prior), [RETURNS], {"chosen": 1.0}).values()
    by = {each.belief: each for each in answers}
    early, late = (by[f"by the {name} half of the episodes alone"] for name in ("earlier", "later"))
    assert early.gain.mean() > 0.5 and not early.stops and late.gain.mean() < -0.1 and late.stops
    assert early.confidence == late.confidence == SIGN


def test_halves_in_time():
    """By episodes; of one stretch by rows."""
    log = easy_log(7)
    earlier, later = halves_in_time(log)
    assert [len(part.transitions.state) for part in (earlier, later)] == [30, 40]
    np.testing.assert_array_equal(earlier.transitions.state, np.asarray(log.transitions.state)[:30])
    number = np.zeros(9, int)
    stretch = Log(Transitions(number, number, None, number), ("s",), ("a",))
    assert [len(part.transitions.state) for part in halves_in_time(stretch)] == [4, 5]


def test_a_promise_of_half_of_the_data_is_the_sign():
    gain = np.array([-1.0] * 30 + [1.0] * 70)
    assert not Consequence(NEW, "x", 1.0, gain, 0.0, SIGN).stops and Consequence(NEW, "x", 1.0, gain, 0.0, 0.95).stops
    assert Consequence(NEW, "x", 1.0, gain, 2.0, 0.95).prob == 1.0


@pytest.mark.parametrize(
    ("number", "worse", "stops", "doubt"),
    [(400, 20, False, False), (400, 28, False, True), (400, 32, True, False), (40_000, 2_800, True, False)],
)
def test_a_promise_is_broken_where_the_draws_show_it(number, worse, stops, doubt):
    """.930 for .95 in 400 draws, whose error is .013, may be chance; .920 is not, nor .930 in 40,000 draws."""
    gain = np.where(np.arange(number) < worse, -1.0, 1.0)
    answer = Consequence(SHARE, "x", 1.0, gain, 0.0, 0.95)
    assert answer.stops == stops and answer.in_doubt == doubt
    assert ("0.95 up to Monte Carlo error: the answer stays" in str(answer)) == doubt
    # A gain that is none stops it, whatever the draws may show.
    assert Consequence(SHARE, "x", 1.0, 0.0 * gain, 0.0, 0.95).stops


def test_checks_that_point_to_one_belief_are_one_sentence():
    gain = np.linspace(-1.0, 3.0, 101)
    alike = [Consequence(check, "with other rows", 1.0, gain, 0.0, 0.95) for check in (NEW, RETURNS)]
    apart = Consequence(RETURNS, "in the second half", 1.0, gain, 0.0, 0.95)
    both, single = sentences([alike[0], apart, alike[1]])
    assert both.startswith(
        f"the check {NEW!r} failed and the check {RETURNS!r} failed; with other rows the gain of 1 is 1"
    )
    assert single == str(apart) and sentences([]) == []


def test_behaviour_by_step_is_judged_at_the_earlier_and_the_later_steps():
    """Staff who do what is best from the middle of an episode on: over that nothing is gained."""
    rng = np.random.default_rng(4)
    state = rng.integers(2, size=(60, 10))
    action = np.where(np.arange(10) < 5, rng.integers(2, size=(60, 10)), 1)
    reached = np.concatenate([state[:, 1:], rng.integers(2, size=(60, 1))], 1)
    paid = REWARD[state, action] + 0.05 * rng.normal(size=state.shape)
    end = np.tile(np.arange(10) == 9, 60)
    data = Transitions(*(x.ravel() for x in (state, action, paid, reached)), truncated=end)
    log = Log(data, (0, 1), (0, 1))
    asked = question(log, bm.models.default_prior(log))
    earlier, later = consequences(asked._replace(slack=0.05), [BY_STEP], {"chosen": 1.0})["chosen"]
    assert earlier.gain.mean() > 5 * abs(later.gain.mean()) and not earlier.stops
    assert "what the log did depends on the step of the episode" in str(later) and "at its later steps, the" in str(
        later
    )
    decision = bm.decide(KEY, "default", log, Discounted(0.5))
    assert not decision.recommended and "a check points to: behaviour by step" in decision.headline
    given = bm.decide(KEY, "default", log, Discounted(0.5), baseline=TODAY)  # what is given has no steps
    assert given.recommended and not any(each.consequences for each in given.candidates.values())
