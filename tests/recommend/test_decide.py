"""`decide`: recommended where it should be, kept back with each of its reasons, parts that fit together."""

import dataclasses
import sys
from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import norm

import bayes_mdp as bm
from bayes_mdp.calibration.criticism.criticise import RETURNS, WHERE
from bayes_mdp.decisions.choosing.criteria import Improvement
from bayes_mdp.mdp import Discounted, Episodic, Log, Transitions
from bayes_mdp.mdp.data.log_split import first_states, split_log
from bayes_mdp.recommend.consequences import Consequence
from bayes_mdp.recommend.decide import LOOKS, MORE
from bayes_mdp.recommend.decision import SCREEN, Candidate, hidden_causes
from bayes_mdp.utils.layout import WIDTH
from tests.options import fold
from tests.recommend.shops import ACTIONS, BAD, REWARD, STATES, easy_log, right_prior

KEY = jax.random.key(0)
OBJECTIVE = Discounted(0.5)
UNDECIDED = "keep the baseline: these data do not decide for the chosen policy (gain "


def test_an_easy_log_and_a_right_prior_are_recommended(decided):
    decision: Any = decided()
    assert decision.recommended and decision.reasons == () and decision.lead == "chosen"
    np.testing.assert_array_equal(decision.policy, [1, 1])
    assert decision.policy is decision.candidate
    assert decision.headline.startswith("change to the chosen policy: it gains 0.9")
    text, words = str(decision), " ".join(str(decision).split())
    assert text.startswith("Decision from log.csv, 600 transitions: change to")
    assert len(text.splitlines()) <= SCREEN
    assert all(len(line) <= WIDTH for line in text.partition("Where ")[0].splitlines())
    assert "  because " not in text and "checks passed: new outcomes" in text
    assert f"{BAD} " in text
    header = next(line for line in text.splitlines() if "today_prob" in line)
    assert header.split() == ["state", "today", "today_prob", "chosen", "next", "lead", "time", "transitions", "gain"]
    assert "(2 states):" in text
    assert words.count("start: the first states of the log's 60 episodes (idle 0.") == 1
    (row,) = decision.table().to_dict("records")
    assert (row["policy"], row["prob"], row["answer"]) == ("chosen", 1.0, "recommended")


def test_its_parts_are_those_of_the_log(decided):
    """The whole log has chosen and judges; its episodes say where values start."""
    decision, log = decided(), easy_log()
    values = decision.comparison.values
    assert set(values) == {"baseline", "chosen"}
    np.testing.assert_allclose(values["chosen"].initial, first_states(log))
    # Its probability takes the frequencies of the log as known.
    gain = values["chosen"].draws - (values["baseline"].draws - values["baseline"].by_frequencies)
    np.testing.assert_allclose(decision.improvement.gain, gain)
    counts = counts_of(log)
    found = {row["state"]: row["count"] for _, row in decision.differences.iterrows()}
    assert found == {name: counts[s, 1] for s, name in enumerate(STATES)}
    assert decision.candidates["chosen"].fewest == counts[:, 1].min()
    expected = values["chosen"].mean - values["baseline"].mean  # rows are nearly the same in every draw
    assert decision.differences["gain"].sum() == pytest.approx(expected, abs=0.01)
    assert decision.num_transitions == 600 and decision.split == 0 and decision.by_all is None


def counts_of(log: Log) -> np.ndarray:
    """Transitions of each pair."""
    counts = np.zeros((2, 2))
    np.add.at(counts, (np.asarray(log.transitions.state), np.asarray(log.transitions.action)), 1.0)
    return counts


def test_the_halves_of_a_split(decided):
    """The judge has learnt from the second half alone; the interval is the posterior's, with drawn frequencies."""
    decision: Any = decided(split=0.5)
    _, second = split_log(jax.random.split(KEY, 6)[0], easy_log())
    found = {row["state"]: row["count"] for _, row in decision.differences.iterrows()}
    assert found == {name: counts_of(second)[s, 1] for s, name in enumerate(STATES)}
    chosen = decision.candidates["chosen"]
    values, gain = decision.comparison.values, chosen.improvement.gain
    spread = (values["chosen"].draws - values["baseline"].draws).std() / gain.std()
    assert decision.recommended and chosen.spread == pytest.approx(spread) and spread > 1
    ends = gain.mean() + spread * (np.quantile(gain, (0.025, 0.975)) - gain.mean())
    assert chosen.interval == pytest.approx(tuple(ends))
    assert f"interval {spread:.2g} times the posterior's for frequencies" in " ".join(str(decision).split())
    assert decision.by_all is not None and "0.5 of the log's episodes chose 'chosen'" in str(decision)


@pytest.mark.parametrize(
    ("options", "headline", "reasons"),
    [
        (
            {"checks": False},
            "keep the baseline: the checks of the belief were left out (checks=False), without which nothing is "
            "recommended (gain 0.9",
            ["the checks of the belief were left out (checks=False)"],
        ),
        ({"concentration": 1000.0}, UNDECIDED, ["baseline: the prior's share", "chosen: the prior's share"]),
        (
            {"value_range": (0, 1.5)},
            UNDECIDED,
            ["chosen: its values go from 2 to 2, outside the stated range 0 to 1.5"],
        ),
    ],
)
def test_it_is_kept_back_and_says_why(decided, options, headline, reasons):
    decision: Any = decided(**options)
    assert not decision.recommended and decision.lead == "chosen"
    assert len(decision.reasons) == len(reasons)
    for ours, theirs in zip(decision.reasons, reasons, strict=True):
        assert ours.startswith(theirs)
    assert decision.policy is decision.baseline
    assert decision.headline.startswith(headline)
    assert str(decision).count("  because ") == len(reasons)
    assert decision.table()["answer"].tolist() == ["kept back"]


@pytest.mark.parametrize("checks", [True, False])
def test_where_nothing_is_better_there_is_no_candidate(decided, checks):
    """One reason; nothing is compared with itself."""
    decision: Any = decided(baseline=(1, 1), checks=checks)
    assert decision.lead is None and not decision.recommended and decision.policy is decision.baseline
    assert decision.headline == "keep the baseline: no policy that the log supports is better on average"
    assert decision.reasons == ("no policy that the log supports is better on average",)
    assert decision.improvement is None and not len(decision.table())
    text = str(decision)
    assert "P(no worse" not in text and "checks=False" not in text and "Where " not in text
    assert decision.uncertain == "What the value of the baseline is most uncertain about"
    assert not len(decision.differences) and "supports no policy that would do better" in decision.plainly


def noisy_log(gain: float, episodes: int, seed: int = 0) -> Log:
    """One state, two actions of mean 0 and `gain`, noise of standard deviation 1, taken as often."""
    rng = np.random.default_rng(seed)
    action, number = rng.integers(2, size=episodes), np.zeros(episodes, int)
    reward = gain * action + rng.normal(size=episodes)
    return Log(Transitions(number, action, reward, number, np.ones(episodes, bool)), ("s",), ("a", "b"), "noisy")


def test_a_policy_that_misses_the_probability_is_named():
    """With its gain and its probability, which is that of the difference of two means."""
    log = noisy_log(0.2, 60, seed=5)
    decision: Any = bm.decide(KEY, bm.models.dirichlet_normal(scale=10.0), log, Episodic(1))
    assert not decision.recommended and decision.lead == "chosen"
    reward, action = np.asarray(log.transitions.reward), np.asarray(log.transitions.action)
    means, counts = [reward[action == a].mean() for a in (0, 1)], np.bincount(action)
    assert decision.candidate.tolist() == [[int(np.argmax(means))]]
    # Of the gain over doing either as often as the log did; the prior weighs a hundredth of a reward.
    prob = norm.cdf(abs(means[1] - means[0]) / np.sqrt((1 / counts).sum()))
    found = decision.improvement
    assert 0.5 < prob < 0.95
    assert found.prob == pytest.approx(prob, abs=5 * float(np.sqrt(prob * (1 - prob) / len(found.gain))) + 0.01)
    assert f"is no worse with probability {found.prob:.3f}; 0.95 was asked for" in decision.headline
    assert "P(no worse than the baseline) is" in decision.reasons[0]


def test_draws_go_on_until_the_promise_is_settled():
    """P = .97 in 400 draws does not show .95; in more it does. P = .95 never does, and there is an end."""
    log = noisy_log(0.55, 60, seed=3)
    few: Any = bm.decide(
        KEY,
        bm.models.dirichlet_normal(scale=10.0),
        log,
        Episodic(1),
        options=bm.recommend.DecideOptions(confidence=0.9),
    )
    assert few.improvement.settled
    close = float(np.round(few.improvement.prob, 3))
    more: Any = bm.decide(
        KEY,
        bm.models.dirichlet_normal(scale=10.0),
        log,
        Episodic(1),
        options=bm.recommend.DecideOptions(num_draws=400, confidence=close),
    )
    assert len(more.improvement.gain) == 400 * MORE ** (LOOKS - 1) and not more.improvement.settled
    assert not more.recommended
    clear: Any = bm.decide(KEY, bm.models.dirichlet_normal(scale=10.0), noisy_log(2.0, 60), Episodic(1))
    assert clear.recommended and len(clear.improvement.gain) == 400


def test_named_policies_are_judged_beside_the_choice(decided):
    """In the same draws, by the posterior's own interval, with their promise shared."""
    log, prior = easy_log(), right_prior()
    policies: dict[str, Any] = {"good": {"idle": ACTIONS[1], BAD: ACTIONS[1]}, "bad": [0, 0]}
    decision: Any = bm.decide(KEY, prior, log, OBJECTIVE, policies=policies)
    assert list(decision.candidates) == ["chosen", "good", "bad"]
    good, bad, chosen = (decision.candidates[name] for name in ("good", "bad", "chosen"))
    # The same policy, whose probability as the chosen one takes the frequencies of the log as known.
    drawn = decision.comparison.values["baseline"].by_frequencies
    np.testing.assert_allclose(good.improvement.gain + drawn, chosen.improvement.gain)
    assert good.named and bad.named and not chosen.named and good.spread == bad.spread == 1.0
    assert good.improvement.confidence == bad.improvement.confidence == pytest.approx(0.975)
    assert chosen.improvement.confidence == 0.95
    assert good.reasons == () and bad.reasons and bad.mean < 0 and decision.recommended
    compared = bm.compare_policies(
        jax.random.split(KEY, 6)[3],
        bm.infer(KEY, prior, log, space=decision.space),
        {"baseline": log, **policies},
        OBJECTIVE,
        initial=log,
        num_draws=400,
    )
    expected = compared.difference("bad", "baseline").draws
    np.testing.assert_allclose(bad.improvement.gain, expected, rtol=1e-9)
    assert set(decision.table()["policy"]) == {"chosen", "good", "bad"}
    assert all(f"  {name} " in str(decision) for name in policies)
    # Of one alone the promise is that of the posterior.
    alone: Any = bm.decide(KEY, prior, log, OBJECTIVE, policies={"bad": [0, 0]}, baseline=[1, 1])
    assert alone.lead == "bad" and alone.candidates["bad"].improvement.confidence == 0.95 and not alone.recommended
    assert alone.headline.startswith("keep the baseline: 'bad' gains -")


@pytest.mark.parametrize(
    ("policies", "kind", "message"),
    [
        ([[0, 0]], TypeError, r"^policies is a list"),
        ({"chosen": [0, 0]}, ValueError, "policies has the name 'chosen', which the answer uses itself"),
        ({1: [0, 0], "1": [0, 0]}, ValueError, "two names that are written '1', expected names that differ as text"),
        ({"B": {"idle": "wait"}}, ValueError, r"^policies\['B'\]: policy has no action for"),
    ],
)
def test_bad_policies_are_refused(policies, kind, message):
    with pytest.raises(kind, match=message):
        bm.decide(KEY, right_prior(), easy_log(2), OBJECTIVE, policies=policies)


def test_a_prior_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r'prior is .*, expected a program, or "default"'):
        bm.decide(KEY, "flat", easy_log(2), OBJECTIVE)  # type: ignore[arg-type] - what is refused


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
    decision: Any = bm.decide(KEY, prior, log, OBJECTIVE, options=bm.recommend.DecideOptions(num_draws=100))
    assert "new outcomes" in decision.criticism.alarms
    # It does not matter to this decision: which action pays is known, and is the same under a prior that fits.
    assert decision.recommended
    told = decision.candidates["chosen"].consequences
    assert {each.check for each in told} == set(decision.criticism.alarms) and not any(each.stops for each in told)
    shown = " ".join(str(decision).split())
    assert "the check 'new outcomes' failed" in shown and "; with rows whose concentration is learnt the gain" in shown
    assert "the answer stays" in shown


def test_a_log_with_one_action_has_nothing_to_choose():
    log = easy_log(20)
    same = Log(
        Transitions(log.transitions.state, np.zeros(200, int), None, log.transitions.next_state, None),
        STATES,
        ("wait",),
    )
    prior: Any = bm.models.known_rewards(REWARD[:, :1])
    decision: Any = bm.decide(KEY, prior, same, OBJECTIVE, options=bm.recommend.DecideOptions(num_draws=100))
    assert not decision.recommended and not len(decision.differences)
    assert "Where it differs" not in str(decision)


def test_episodes_of_a_few_steps():
    decision: Any = bm.decide(
        KEY,
        right_prior(),
        easy_log(),
        Episodic(3),
        baseline=[0, 0],
        options=bm.recommend.DecideOptions(num_draws=100, checks=False),
    )
    assert np.shape(decision.candidate) == (3, 2) and (np.asarray(decision.candidate) == 1).all()
    assert decision.variance_shares is None
    assert decision.differences["gain"].to_numpy().sum() == pytest.approx(3.0, rel=1e-6)
    assert list(decision.differences["today"]) == ["wait", "wait"]


@pytest.mark.parametrize("split", [0.0, 0.5])
def test_a_log_without_rows_is_refused_in_words(split):
    nothing = np.zeros(0, int)
    empty = Log(Transitions(nothing, nothing, None, nothing), STATES, ACTIONS)
    with pytest.raises(ValueError, match=r"holds no transitions|log has 0 transition"):
        bm.decide(KEY, right_prior(), empty, OBJECTIVE, options=bm.recommend.DecideOptions(num_draws=100, split=split))


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
        bm.decide(KEY, right_prior(), easy_log(2), OBJECTIVE, **fold(bm.recommend.DecideOptions, changes))


def test_where_the_log_has_returns_values_are_anchored_too(tmp_path):
    """The baseline at the mean return, the chosen policy its gain above; under their own name, in text and page."""
    from bayes_mdp.recommend import write_report
    from tests.inference.hospitals import hospital, stays

    log = stays(400)
    pays = np.zeros((5, 2)) + np.eye(5)[4][:, None]

    def decided(**more: Any) -> Any:
        prior = bm.models.known_rewards(pays, 0.2)
        return bm.decide(
            KEY,
            prior,
            log,
            bm.FirstExit(),
            **fold(bm.recommend.DecideOptions, {"space": hospital(), "num_draws": 100, "checks": False, **more}),
        )

    decision: Any = decided()
    survived = np.asarray(log.transitions.reward)[np.asarray(log.transitions.terminated)]
    gain = decision.improvement.gain
    assert decision.anchored["baseline"].mean == pytest.approx(survived.mean())
    assert decision.anchored["baseline"].sd == pytest.approx(survived.std(ddof=1) / 400**0.5)
    assert decision.anchored["chosen"].mean == pytest.approx(survived.mean() + gain.mean()) and gain.std() > 0
    write_report(decision, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "What the value of the chosen policy is most uncertain about" in page
    assert "What data are worth for the decision: bm.information.next_experiment (see how-to/" in page
    assert "Anchored values: mean return of the log" in page and "is an observation, no theorem" in page
    assert f"<td>{decision.anchored['chosen'].mean:.5g}</td>" in page
    # Of another baseline, and from another start, the returns say nothing.
    given = decided(baseline=np.zeros(5, int)), decided(initial=np.eye(5)[1])
    assert all(other.anchored is None for other in given)


def test_a_baseline_and_a_start_by_label(decided):
    """As the same by arrays, draw by draw; the baseline is held as an array."""
    by_label = bm.decide(
        KEY,
        right_prior(),
        easy_log(),
        OBJECTIVE,
        baseline={BAD: ACTIONS[0], "idle": ACTIONS[1]},
        options=bm.recommend.DecideOptions(num_draws=100, initial={BAD: 1.0}, checks=False),
    )
    plain = decided(baseline=(1, 0), initial=(0.0, 1.0), checks=False)
    np.testing.assert_array_equal(by_label.baseline, [1, 0])
    for name in ("baseline", "chosen"):
        np.testing.assert_array_equal(by_label.comparison.values[name].draws, plain.comparison.values[name].draws)
    assert by_label.comparison.values["chosen"].start == f"the given distribution (state {BAD})"
    with pytest.raises(ValueError, match=r"^baseline: policy has no action for 'idle', expected one for every state$"):
        bm.decide(
            KEY,
            right_prior(),
            easy_log(),
            OBJECTIVE,
            options=bm.recommend.DecideOptions(num_draws=100),
            baseline={BAD: ACTIONS[0]},
        )
    with pytest.raises(ValueError, match=r"^initial is 'idel', expected .*; did you mean 'idle'"):
        bm.decide(
            KEY, right_prior(), easy_log(), OBJECTIVE, options=bm.recommend.DecideOptions(num_draws=100, initial="idel")
        )


def test_the_gain_by_the_whole_log_is_kept_where_it_is_split(decided):
    """The mean of 100 draws against that of 2,000 others: 5 standard errors, a false alarm of 6e-7."""
    decision: Any = decided(split=0.5)
    posterior = bm.infer(jax.random.key(3), right_prior(), easy_log(), space=decision.space)
    policies = {"today": decision.baseline, "new": decision.candidate}
    compared = bm.compare_policies(
        jax.random.key(4), posterior, policies, OBJECTIVE, initial=easy_log(), num_draws=2000
    )
    expected, found = compared.difference("new", "today").draws, decision.by_all
    assert found is not None
    error = np.hypot(found.std() / np.sqrt(len(found)), expected.std() / np.sqrt(len(expected)))
    assert abs(found.mean() - expected.mean()) < 5 * error


LATE: list[tuple[str, Any, dict[str, Any], str]] = [
    ("ends", bm.AverageReward(), {}, "objective is AverageReward, and episodes end"),
    ("goes on", bm.FirstExit(), {}, "objective is FirstExit, and no transition of the posterior ends"),
    ("goes on", Episodic(3), {"horizon": 4}, r"objective is Episodic\(horizon=3.*expected Episodic\(4\)"),
    ("goes on", Discounted(0.9), {"horizon": 4}, r"objective is Discounted.*expected Episodic\(4\)"),
    ("goes on", Episodic(4), {"horizon": 4}, "space has rows for each of 4 steps, which the checks cannot judge"),
    ("goes on", Discounted(0.9), {"num_draws": 80}, "num_draws is 80, expected at least 90: fewer cannot show"),
    ("goes on", Discounted(0.9), {"criterion": "cvar:0.01"}, "num_draws is 100, expected at least"),
    ("one episode", Discounted(0.9), {"split": 0.5}, "log has 1 episode, expected at least 2 to split it"),
]


@pytest.mark.parametrize(("kind", "objective", "options", "message"), LATE)
def test_what_cannot_be_decided_is_refused_at_the_door(monkeypatch, kind, objective, options, message):
    """Before anything is inferred."""
    number = np.zeros(4 if kind == "one episode" else 80, int)
    step, action = np.arange(len(number)) % 4, np.arange(len(number)) // 4 % 2
    over = {"truncated" if kind == "goes on" else "terminated": step == 3}
    log = Log(Transitions(number, action, action * 1.0, number, step=step, **over), ("s",), ("a", "b"))
    space = bm.StateActionSpace.from_log(log, horizon=options.get("horizon"))
    monkeypatch.setattr(sys.modules["bayes_mdp.recommend.decide"], "infer", None)
    more: dict[str, Any] = {"num_draws": 100} | {name: x for name, x in options.items() if name != "horizon"}
    with pytest.raises(ValueError, match=message):
        bm.decide(KEY, "default", log, objective, **fold(bm.recommend.DecideOptions, {"space": space, **more}))


def test_a_log_of_one_stretch_is_decided_on():
    """One episode whose recording stopped: its rows are split where others' episodes are."""
    rng = np.random.default_rng(0)
    state, action = rng.integers(2, size=121), rng.integers(2, size=120)
    end = np.arange(120) == 119
    data = Transitions(state[:-1], action, action + 0.1 * rng.normal(size=120), state[1:], truncated=end)
    decision = bm.decide(
        KEY,
        "default",
        Log(data, ("x", "y"), ("a", "b")),
        Discounted(0.5),
        options=bm.recommend.DecideOptions(num_draws=100),
    )
    assert decision.criticism is not None and "start: uniform" in " ".join(str(decision).split())


def test_a_recommendation_says_which_unrecorded_cause_would_undo_it(key):
    """Treated patients recover with .8, the others with .5: as the factor of the odds grows that could be chance."""
    rng = np.random.default_rng(0)
    action = rng.integers(2, size=3000)
    well = rng.random(3000) < np.where(action == 1, 0.8, 0.5)
    data = Transitions(np.zeros(3000, int), action, None, np.where(well, 1, 2), None, np.ones(3000, bool))
    log = Log(data, ("ill", "well", "worse"), ("wait", "treat"))
    prior = bm.models.known_rewards(np.array([[[0.0, 1.0, 0.0]] * 2] * 3))
    options = {
        "checks": False,
        "initial": "ill",
        "policies": {"treat": {"ill": "treat", "well": "wait", "worse": "wait"}},
    }
    decision = bm.decide(key, prior, log, bm.Episodic(1), **fold(bm.recommend.DecideOptions, options))
    # Practice is worth .65; at factor L the untreated half would recover with q: P r of the good outcome at its least.
    factor = decision.tipping or np.nan
    seen, taken = np.mean(well[action == 1]), action.mean()
    good = max(1.0 - (1.0 - seen) * factor, seen / factor)
    assert taken * seen + (1 - taken) * good == pytest.approx(np.mean(well), abs=2e-3)
    options = fold(bm.recommend.DecideOptions, {"observational": False, **options})
    trial = bm.decide(key, prior, log, bm.Episodic(1), **options)
    assert trial.tipping is None
    words = hidden_causes(1.1761)
    assert words.startswith(
        "holds unless those treated differ from the others, in ways not recorded, by a factor of 1.18"
    )
    assert (
        words
        in dataclasses.replace(
            decision, tipping=1.1761, candidates={"treat": dataclasses.replace(decision.candidates["treat"], doubts=())}
        ).notes
    )


def test_the_interval_holds_those_of_the_answers_to_checks_of_rows():
    """By hand: each interval about its own mean, with the variance that `spread` adds to the first."""
    rng = np.random.default_rng(0)
    gain, other, half = rng.normal(5, 1, 4000), rng.normal(2, 0.5, 4000), rng.normal(-9, 1, 4000)
    told = tuple(
        Consequence(check, "with other rows", 5.0, draws, 0.0, 0.95)
        for check, draws in ((WHERE, other), (RETURNS, half))
    )
    candidate = Candidate(np.array([1, 1]), Improvement(gain, 0.0, 0.95, 1), spread=2.0, consequences=told)
    alone = dataclasses.replace(candidate, consequences=())
    low, high = np.quantile(gain, (0.05, 0.95))
    mean = gain.mean()
    assert alone.interval_of(0.9) == pytest.approx((mean + 2 * (low - mean), mean + 2 * (high - mean)))
    factor = np.sqrt(1 + 3 * gain.var() / other.var())
    lowest = other.mean() + factor * (np.quantile(other, 0.05) - other.mean())
    assert candidate.interval_of(0.9) == pytest.approx((lowest, alone.interval_of(0.9)[1]))
    # A belief that knows the gain has no interval to widen, but its place.
    sure = dataclasses.replace(candidate, consequences=(told[0]._replace(gain=np.full(4000, -7.0)),))
    assert sure.interval_of(0.9)[0] == -7.0
