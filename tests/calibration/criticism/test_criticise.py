"""`criticise` as a whole: its line that matters, rivals, what it skips, and what it refuses."""

from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.calibration.criticism.criticise import CHOSEN, NEW, RETURNS, WHERE, Criticism, Finding, criticise
from bayes_mdp.mdp import Discounted, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.data.log_split import split_log
from tests.calibration.criticism.worlds import REWARD, RIGHT, SPACE, A, S, log_of_world, world
from tests.options import fold

KEY = jax.random.key(11)
OBJECTIVE = Discounted(0.8)


def prior(concentration: float) -> Any:
    return bm.models.known_rewards(REWARD, concentration)


@pytest.fixture(scope="module")
def log() -> Log:
    rng = np.random.default_rng(3)
    return log_of_world(rng, world(rng))


def criticised(log: Log, concentration: float, **more: Any) -> Criticism:
    posterior = bm.infer(KEY, prior(concentration), log, space=SPACE)
    given = fold(bm.calibration.CriticiseOptions, {"num_replicates": 159, **more})
    return criticise(KEY, posterior, log, OBJECTIVE, **given)


@pytest.fixture(scope="module")
def right(log) -> Criticism:
    return criticised(log, RIGHT, rivals={"flat": prior(100 * RIGHT), "sure": prior(RIGHT / 100)})


def test_a_right_belief(right, log):
    assert right.alarms == ()
    assert right.better_rival is None
    assert set(right.findings) == {NEW, WHERE, CHOSEN}
    assert right.skipped[RETURNS] == "it does not apply: no episode of the log ends, so that none has a return"
    text = str(right)
    assert text.startswith("Criticism, discount 0.8: no check failed")
    assert "\n  start: the first state" in text
    for part in (
        "new outcomes (passed, p = ",
        "; fails at 0.0167 or less): ",
        "chosen policy (passed",
        "returns: not checked",
        "greedy: ",
        "behaviour: ",
    ):
        assert part in text
    greedy = right.bases["greedy"]
    assert greedy is not None and greedy.own_optimum
    behaviour = right.bases["behaviour"]
    assert behaviour is not None and not behaviour.own_optimum


def test_rivals_are_ranked_by_the_evidence_that_the_second_half_adds(right, log):
    first, second = split_log(jax.random.split(KEY, 5)[0], log)
    number = len(second.transitions.state)
    for name, concentration in {"this prior": RIGHT, "flat": 100 * RIGHT, "sure": RIGHT / 100}.items():
        whole, half = (
            float(bm.infer(KEY, prior(concentration), part, space=SPACE).log_evidence)  # type: ignore[union-attr]
            for part in (log, first)
        )
        assert right.log_density[name] == pytest.approx((whole - half) / number, rel=1e-4)
    assert right.log_density["this prior"] > max(right.log_density["flat"], right.log_density["sure"])


def test_pairs_weigh_by_the_use_of_the_chosen_policy(right, log):
    """That of the first half, which is in one pair of each state; what does not count pairs stays as it was."""
    by_use = criticised(log, RIGHT, by_use=True)
    assert "of held-out transitions, by use of the chosen policy, " in by_use.findings[NEW].text
    assert "by use" not in right.findings[NEW].text
    assert by_use.findings[CHOSEN] == right.findings[CHOSEN]
    # By hand: its time in the mean MDP of the first half, shared among the second half's transitions of each pair.
    keys = jax.random.split(KEY, 5)
    first, second = split_log(keys[0], log)
    half = bm.infer(keys[1], prior(RIGHT), first.transitions, space=SPACE)
    policy, rows = np.asarray(bm.greedy(half, OBJECTIVE)), np.asarray(half.mean_mdp().transition_probs)
    starts = np.bincount(np.asarray(log.transitions.state)[::10], minlength=S) / 24  # of episodes of ten steps
    time = np.linalg.solve(np.eye(S) - 0.8 * rows[np.arange(S), policy].T, starts)
    data = first.transitions
    pairs = set(zip(*(np.asarray(x).tolist() for x in (data.state, data.action, data.next_state)), strict=True))
    moved = second.transitions
    share = total = 0.0
    for s in range(S):
        its = (np.asarray(moved.state) == s) & (np.asarray(moved.action) == policy[s])
        if its.any():
            fresh = [(s, int(policy[s]), int(t)) not in pairs for t in np.asarray(moved.next_state)[its]]
            share, total = share + time[s] * np.mean(fresh), total + time[s]
    assert by_use.findings[NEW].observed == pytest.approx(share / total, rel=1e-5)


@pytest.mark.parametrize("factor", [100, 0.01])
def test_a_wrong_belief(log, factor):
    """The clearest alarm stands in the first line; the right prior predicts better."""
    found = criticised(log, factor * RIGHT, rivals={"right": prior(RIGHT)})
    assert found.alarms and found.better_rival == "right"
    first = found.findings[found.alarms[0]]
    assert first.p_value == min(finding.p_value for finding in found.findings.values())
    assert found.layout().title.endswith(f"this belief does not fit the log: {first.text}")
    assert "(failed, p = " in str(found)


def finding(p_value: float) -> Finding:
    return Finding(0.0, 1.0, p_value, f"text of {p_value}")


def test_the_line_that_matters():
    """Alarms are those below the level over the number of checks; then the prior's share; then a rival."""

    def made(findings: dict[str, float], density: dict[str, float], level: float = 0.05) -> Criticism:
        return Criticism({name: finding(p) for name, p in findings.items()}, {}, {}, density, level, OBJECTIVE)

    three = made({"a": 0.02, "b": 0.01, "c": 0.001}, {})
    assert three.alarms == ("c", "b") and three.headline == "this belief does not fit the log: text of 0.001"
    assert made({"a": 0.02}, {}).alarms == ("a",)
    assert made({"a": 0.02}, {}, level=0.01).headline == "no check failed"
    assert made({}, {}).headline == "no check could be made"
    rival = made({"a": 0.5}, {"this prior": -1.0, "other": -0.5})
    assert rival.better_rival == "other" and "the prior 'other' predicts" in rival.headline
    assert made({"a": 0.5}, {"this prior": -0.5, "other": -1.0}).headline == "no check failed"


def test_listed_successors_and_ends():
    """States of many; the start is that of the log's episodes, "unseen" among the states."""
    rng = np.random.default_rng(4)
    rows = rng.dirichlet(np.full(S + 1, 1.0), (S, A))
    columns: list[list[Any]] = []
    for _ in range(60):
        now = 1
        for _ in range(30):
            act = int(rng.integers(A))
            reached = int(rng.choice(S + 1, p=rows[now, act]))
            columns.append([now, act, min(reached, S - 1), reached == S])
            if reached == S:
                break
            now = reached
    state, action, reached, ended = np.array(columns).T
    data = Transitions(state, action, REWARD[state, action], reached, ended.astype(bool))
    log = Log(data, tuple(range(S)), tuple(range(A)))
    space = StateActionSpace.from_log(log, successors="observed")
    known = bm.models.known_rewards(np.concatenate([REWARD, np.zeros((1, A))]))
    posterior = bm.infer(KEY, known, log, space=space)
    found = criticise(KEY, posterior, log, OBJECTIVE, options=bm.calibration.CriticiseOptions(num_replicates=159))
    assert set(found.findings) == {NEW, CHOSEN, RETURNS} and not found.alarms


def test_what_it_refuses(log, tmp_path):
    posterior: Any = bm.infer(KEY, prior(RIGHT), log, space=SPACE)
    bm.save(posterior, tmp_path / "p.bmdp")
    loaded: Any = bm.load(tmp_path / "p.bmdp")
    with pytest.raises(ValueError, match="posterior holds no prior to infer again, expected one as infer returns it"):
        criticise(KEY, loaded, log, OBJECTIVE)
    stepwise = StateActionSpace(S, A, horizon=2)
    steps = bm.infer(KEY, bm.models.known_rewards(0.0), Transitions([0], [0], None, [1], step=[0]), space=stepwise)
    with pytest.raises(ValueError, match="posterior has rows for each of 2 steps, expected rows that do not depend on"):
        criticise(KEY, steps, log, OBJECTIVE)
    named = Log(log.transitions, tuple("abcdef"), log.actions)
    with pytest.raises(ValueError, match=r"log\.states"):
        criticise(KEY, posterior, named, OBJECTIVE)
    other = Log(log.transitions, log.states, ("go", "stay"))
    with pytest.raises(ValueError, match=r"log\.actions"):
        criticise(KEY, posterior, other, OBJECTIVE)
    nothing = np.zeros(0, int)
    empty = Log(Transitions(nothing, nothing, None, nothing), log.states, log.actions)
    with pytest.raises(ValueError, match="log has 0 transition, expected at least 2"):
        criticise(KEY, posterior, empty, OBJECTIVE)
    wrong: Any = (
        ({"num_replicates": 118}, "num_replicates is 118, expected an integer of at least 159"),
        ({"false_alarm": 0.0}, "false_alarm is 0.0, expected a number between 0 and 1"),
        ({"initial": np.ones(S)}, "initial sums to 6"),
    )
    for bad, message in wrong:
        with pytest.raises(ValueError, match=message):
            criticise(KEY, posterior, log, OBJECTIVE, **fold(bm.calibration.CriticiseOptions, bad))
    with pytest.raises(TypeError, match=r"rivals is .*, expected name -> prior program"):
        criticise(KEY, posterior, log, OBJECTIVE, rivals={"a": 3})  # type: ignore[arg-type]
