"""`decide`: recommended where it should be, kept back with each of its reasons, parts that fit together."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import Discounted, Episodic, Log, Transitions
from bayes_mdp.mdp.data.log_split import first_states, split_log
from tests.recommend.shops import ACTIONS, BAD, REWARD, STATES, easy_log, right_prior

KEY = jax.random.key(0)
OBJECTIVE = Discounted(0.5)


def test_an_easy_log_and_a_right_prior_are_recommended(decided):
    decision = decided()
    assert decision.recommended and decision.reasons == ()
    np.testing.assert_array_equal(decision.policy, [1, 1])
    assert decision.policy is decision.candidate
    assert decision.headline.startswith("change to the chosen policy: it gains 0.9")
    text = str(decision)
    assert text.startswith("Decision from log.csv, 600 transitions (0.5 of its episodes chose): change to")
    assert "P(best)" in text and "Criticism" in text and "  because " not in text
    assert f"{BAD} " in text
    assert "  P(no worse than the baseline) is 1.000 in 100 draws" in text
    header = next(line for line in text.splitlines() if "today_prob" in line)
    assert header.split() == ["state", "today", "today_prob", "chosen", "next", "lead", "time", "transitions", "gain"]
    assert "(2 states):" in text and "transitions: of the part that judges, with the chosen action" in text
    assert (
        text.count("  start: the first states of the log's 60 episodes (idle 0.") == 3
    )  # of the choice, of the judgement, of the values compared


def test_its_parts_are_those_of_the_halves(decided):
    """The judge has learnt from the second half alone, the chooser from the first; both start as the log does."""
    decision, log = decided(), easy_log()
    _, second = split_log(jax.random.split(KEY, 6)[0], log)
    values = decision.comparison.values
    assert set(values) == {"baseline", "chosen"}
    np.testing.assert_allclose(values["chosen"].initial, first_states(log))
    gain = values["chosen"].draws - values["baseline"].draws
    np.testing.assert_allclose(decision.improvement.gain, gain)
    counts = np.zeros((2, 2))
    np.add.at(counts, (np.asarray(second.transitions.state), np.asarray(second.transitions.action)), 1.0)
    found = {row["state"]: row["count"] for _, row in decision.differences.iterrows()}
    assert found == {name: counts[s, 1] for s, name in enumerate(STATES)}
    expected = values["chosen"].mean - values["baseline"].mean  # rows are nearly the same in every draw
    assert decision.differences["gain"].sum() == pytest.approx(expected, abs=0.01)
    assert decision.num_transitions == 600 and decision.split == 0.5


UNDECIDED = "keep the baseline: these data do not decide for the chosen policy (gain "


@pytest.mark.parametrize(
    ("options", "headline", "reasons"),
    [
        ({"split": 0.0}, UNDECIDED, ["chosen: it is the optimum of this posterior's own mean"]),
        (
            {"checks": False},
            "keep the baseline: the checks of the belief were left out (checks=False), without which nothing is "
            "recommended (gain 0.9",
            ["the checks of the belief were left out (checks=False)"],
        ),
        ({"concentration": 100.0}, UNDECIDED, ["baseline: the prior's share", "chosen: the prior's share"]),
        (
            {"value_range": (0, 1.5)},
            UNDECIDED,
            ["chosen: its values go from 2 to 2, outside the stated range 0 to 1.5"],
        ),
    ],
)
def test_it_is_kept_back_and_says_why(decided, options, headline, reasons):
    decision = decided(**options)
    assert not decision.recommended and not decision.unchanged
    assert len(decision.reasons) == len(reasons)
    for ours, theirs in zip(decision.reasons, reasons, strict=True):
        assert ours.startswith(theirs)
    assert decision.policy is decision.baseline
    assert decision.headline.startswith(headline)
    assert str(decision).count("  because ") == len(reasons)
    whole = "the whole log chose and judged" if "split" in options else "0.5 of its episodes chose"
    assert whole in str(decision)


@pytest.mark.parametrize("checks", [True, False])
def test_where_the_candidate_is_the_baseline_there_is_no_gain(decided, checks):
    """One reason, of the choice; nothing is compared with itself."""
    decision = decided(baseline=(1, 1), checks=checks)
    assert decision.unchanged and not decision.recommended and decision.policy is decision.baseline
    assert decision.headline == "keep the baseline: no better policy was found"
    (reason,) = decision.reasons
    assert reason.startswith("no other policy was found that is better than the baseline on average, and no worse with")
    assert "(0.95)" in reason
    text = str(decision)
    for absent in (
        "P(best)",
        "[0, 0]",
        "checks=False",
        "chosen minus baseline",
        "by the whole log, which",
        "P(no worse",
    ):
        assert absent not in text, absent
    assert "The baseline, by the posterior that judges:" in text
    assert decision.uncertain == "What the value of the baseline is most uncertain about"
    assert not len(decision.differences) and "Where it differs" not in text


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("slack", [0.0, 0.25])
def test_data_that_favour_the_change_while_a_check_fails(decided, number, slack):
    """The probability was reached; what is to be resolved is named."""
    fine = decided()
    names = list(fine.criticism.findings)[:number]
    failed = {
        name: replace(finding, p_value=1e-4 * (1 + names.index(name)))
        for name, finding in ((name, fine.criticism.findings[name]) for name in names)
    }
    criticism = replace(fine.criticism, findings={**fine.criticism.findings, **failed})
    improvement = eqx.tree_at(lambda x: x.slack, fine.improvement, slack)
    decision = replace(fine, criticism=criticism, reasons=("a check",), improvement=improvement)
    low, high = fine.comparison.difference("chosen", "baseline").interval
    checks = "a check of the belief failed" if number == 1 else "2 checks of the belief failed"
    margin = " by more than 0.25" if slack else ""
    assert decision.headline == (
        f"keep the baseline until this is resolved: the gain is {fine.improvement.gain.mean():.4g}, 95 % interval "
        f"[{low:.4g}, {high:.4g}], and P(no worse than the baseline{margin}) is 1.000, as sure as was asked for, but "
        f"{checks}: {', '.join(names)}"
    )
    # Not so where the probability was not reached.
    unsure = replace(decision, improvement=eqx.tree_at(lambda x: x.confidence, improvement, 0.999))
    assert unsure.headline.startswith(UNDECIDED)


def test_a_range_that_holds_is_no_reason(decided):
    assert decided(value_range=(0, 2)).recommended


def test_a_prior_that_does_not_fit_is_named_by_a_check():
    """Rows that are nearly certain, believed to be nearly flat: the prior's share is small, and yet."""
    rng = np.random.default_rng(0)
    states, rows = 6, np.full((6, 2, 6), 0.0)
    rows[np.arange(6), :, (np.arange(6) + 1) % 6] = 1.0
    state, reached, action = [], [], rng.integers(2, size=3000)
    now = 0
    for act in action:
        state.append(now)
        now = int(rng.choice(states, p=rows[now, act]))
        reached.append(now)
    cut = np.arange(3000) % 30 == 29
    reward = np.tile([0.0, 1.0], (states, 1))
    data = Transitions(state, action, reward[state, action], reached, None, cut)
    log = Log(data, tuple(range(states)), (0, 1))
    prior = bm.models.known_rewards(reward, 1.0)
    decision = bm.decide(KEY, prior, log, OBJECTIVE, num_draws=100)
    assert not decision.recommended
    assert any(reason.startswith("new outcomes: of held-out transitions 0 had") for reason in decision.reasons)
    assert decision.headline.startswith(("keep the baseline until this is resolved: ", "keep the baseline: no better"))
    assert not any("prior's share" in reason for reason in decision.reasons)


def test_a_log_with_one_action_has_nothing_to_choose():
    log = easy_log(20)
    same = Log(
        Transitions(log.transitions.state, np.zeros(200, int), None, log.transitions.next_state, None),
        STATES,
        ("wait",),
    )
    prior: Any = bm.models.known_rewards(REWARD[:, :1])
    decision = bm.decide(KEY, prior, same, OBJECTIVE, num_draws=100)
    assert not decision.recommended and not len(decision.differences)
    assert "Where it differs" not in str(decision)


def test_episodes_of_a_few_steps():
    decision = bm.decide(KEY, right_prior(), easy_log(), Episodic(3), num_draws=100, baseline=[0, 0], checks=False)
    assert np.shape(decision.candidate) == (3, 2) and (np.asarray(decision.candidate) == 1).all()
    assert decision.variance_shares is None
    assert decision.differences["gain"].to_numpy().sum() == pytest.approx(3.0, rel=1e-6)
    assert list(decision.differences["today"]) == ["wait", "wait"]


@pytest.mark.parametrize("split", [0.0, 0.5])
def test_a_log_without_rows_is_refused_in_words(split):
    nothing = np.zeros(0, int)
    empty = Log(Transitions(nothing, nothing, None, nothing), STATES, ACTIONS)
    with pytest.raises(ValueError, match=r"holds no transitions|log has 0 transition"):
        bm.decide(KEY, right_prior(), empty, OBJECTIVE, num_draws=100, split=split)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"split": 1.0}, ValueError, "split is 1.0, expected a number from 0 to 1, less than 1"),
        ({"criterion": "nosuch"}, ValueError, "criterion is 'nosuch'"),
        ({"num_draws": 64}, ValueError, "num_draws is 64, expected at least 90: fewer cannot show a probability of"),
        ({"value_range": (1, 0)}, ValueError, "value_range is"),
        ({"slack": -1.0}, ValueError, "slack is -1.0, expected a number, zero or greater"),
        ({"checks": 1}, TypeError, "checks is 1"),
        ({"space": bm.StateActionSpace(2, 2)}, ValueError, r"log\.states"),
    ],
)
def test_bad_arguments_are_refused(changes, kind, message):
    with pytest.raises(kind, match=message):
        bm.decide(KEY, right_prior(), easy_log(2), OBJECTIVE, **changes)


def test_where_the_log_has_returns_values_are_anchored_too(tmp_path):
    """The baseline at the mean return, the chosen policy its gain above; under their own name, in text and page."""
    from bayes_mdp.recommend import write_report
    from tests.inference.pooled.hospitals import hospital, stays

    log = stays(400)
    pays = np.zeros((5, 2)) + np.eye(5)[4][:, None]

    def decided(**more: Any) -> Any:
        prior = bm.models.known_rewards(pays, 0.2)
        return bm.decide(KEY, prior, log, bm.FirstExit(), space=hospital(), num_draws=100, checks=False, **more)

    decision = decided()
    survived = np.asarray(log.transitions.reward)[np.asarray(log.transitions.terminated)]
    gain = decision.improvement.gain
    assert decision.anchored["baseline"].mean == pytest.approx(survived.mean())
    assert decision.anchored["baseline"].sd == pytest.approx(survived.std(ddof=1) / 400**0.5)
    assert decision.anchored["chosen"].mean == pytest.approx(survived.mean() + gain.mean()) and gain.std() > 0
    write_report(decision, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    for text in (str(decision), page):
        assert "What the value of the chosen policy is most uncertain about" in text
        assert "What data are worth for the decision: bm.next_experiment (see docs/how-to/" in text
        assert "Anchored values: mean return of the log" in text and "is an observation, no theorem" in text
    assert f"  chosen: {decision.anchored['chosen']}" in str(decision)
    assert f"<td>{decision.anchored['chosen'].mean:.5g}</td>" in page
    # Of another baseline, and from another start, the returns say nothing.
    given = decided(baseline=np.zeros(5, int)), decided(initial=np.eye(5)[1])
    assert all(other.anchored is None and "Anchored" not in str(other) for other in given)


def test_a_baseline_and_a_start_by_label(decided):
    """As the same by arrays, draw by draw; the baseline is held as an array."""
    by_label = bm.decide(
        KEY,
        right_prior(),
        easy_log(),
        OBJECTIVE,
        num_draws=100,
        baseline={BAD: ACTIONS[0], "idle": ACTIONS[1]},
        initial={BAD: 1.0},
        checks=False,
    )
    plain = decided(baseline=(1, 0), initial=(0.0, 1.0), checks=False)
    np.testing.assert_array_equal(by_label.baseline, [1, 0])
    for name in ("baseline", "chosen"):
        np.testing.assert_array_equal(by_label.comparison.values[name].draws, plain.comparison.values[name].draws)
    assert by_label.comparison.values["chosen"].start == f"the given distribution (state {BAD})"
    with pytest.raises(ValueError, match=r"^baseline: policy has no action for 'idle', expected one for every state$"):
        bm.decide(KEY, right_prior(), easy_log(), OBJECTIVE, num_draws=100, baseline={BAD: ACTIONS[0]})
    with pytest.raises(ValueError, match=r"^initial is 'idel', expected .*; did you mean 'idle'"):
        bm.decide(KEY, right_prior(), easy_log(), OBJECTIVE, num_draws=100, initial="idel")


def test_the_gain_by_the_whole_log_stands_beside_the_judgement(decided):
    """The mean of 200 draws against that of 2,000 others: 5 standard errors, a false alarm of 6e-7."""
    decision = decided()
    posterior = bm.infer(jax.random.key(3), right_prior(), easy_log(), space=decision.space)
    policies = {"today": decision.baseline, "new": decision.candidate}
    compared = bm.compare_policies(
        jax.random.key(4), posterior, policies, OBJECTIVE, initial=easy_log(), num_draws=2000
    )
    expected, found = compared.difference("new", "today").draws, decision.by_all
    assert found is not None and found.shape == decision.improvement.gain.shape
    error = np.hypot(found.std() / np.sqrt(len(found)), expected.std() / np.sqrt(len(expected)))
    assert abs(found.mean() - expected.mean()) < 5 * error
    assert f"by the whole log, which also chose, the gain is {found.mean():.4g}" in str(decision)
    assert "far from the judgement" not in str(decision)
    away = replace(decision, by_all=found + 10 * decision.improvement.gain.std() + 10 * found.std())
    assert "far from the judgement (see docs/how-to/decide-from-a-log.md)" in str(away)


def test_there_is_none_where_the_whole_log_judges(decided):
    decision = decided(split=0.0)
    assert decision.by_all is None and decision.other_gain == "" and "by the whole log, which" not in str(decision)
