# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Columns of costs: rewards are minus them, whatever reads the log."""

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import read_choices
from tests.envs.logs.random_logs import ACTIONS, STATES, fold_log, random_log, written
from tests.envs.logs.test_fold_log import assert_same, assert_same_log
from tests.envs.logs.test_transition_chunks import rows

pytestmark = pytest.mark.filterwarnings("ignore:.*next_state is not the state")  # random ones

LABELS = {"states": STATES, "actions": ACTIONS}


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_the_rewards_are_minus_the_costs(kind, tmp_path):
    read = 0
    for seed in range(8):
        frame, columns = random_log(seed, holes=seed % 3 == 0)
        frame["r"] = np.where(np.arange(len(frame)) % 5 == 0, 0.0, frame["r"])
        frame["c"] = -1.0 * frame["r"]
        of_costs = {**columns, "cost": "c"}
        del of_costs["reward"]
        source = frame if kind == "frame" else written(frame, tmp_path / f"{seed}.{kind}")
        try:
            log = bm.read_log(source, **columns, **LABELS)
        except ValueError:
            continue
        read += 1
        costs = bm.read_log(source, **of_costs, **LABELS)
        assert rows([costs]) == rows([log]) and costs.cost == "c" and log.cost is None
        assert not np.signbit(costs.transitions.reward[costs.transitions.reward == 0.0]).any()
        chunks = list(bm.envs.read_chunks(source, **of_costs, **LABELS, chunksize=3))
        assert sorted(rows(chunks), key=repr) == sorted(rows([log]), key=repr)
        assert {chunk.cost for chunk in chunks} == {"c"}
        folds = [fold_log(source, **some, **LABELS, chunksize=4) for some in (columns, of_costs)]
        assert_same_log(*folds)
        space = bm.StateActionSpace.from_log(log, ends=True)
        assert_same(*(one.counts(space, by_outcome=True) for one in folds))
    assert read >= 6


FRAME = pd.DataFrame({"s": list("ab"), "a": ["x", "x"], "r": [1.0, 2.0], "c": [3.0, 0.0], "n": list("ba")})
COLUMNS = {"state": "s", "action": "a", "next_state": "n"}


@pytest.mark.parametrize("read", [bm.read_log, fold_log])
def test_a_reward_and_a_cost_are_refused(read):
    said = "reward is column 'r' and cost is column 'c', expected one of them"
    with pytest.raises(ValueError, match=said):
        read(FRAME, **COLUMNS, reward="r", cost="c")
    with pytest.raises(ValueError, match=said):
        read_choices(FRAME, subject="s", action="a", reward="r", cost="c")
    with pytest.raises(ValueError, match="cost is column 'price', which the DataFrame has not"):
        read(FRAME, **COLUMNS, cost="price")


@pytest.mark.parametrize(
    ("cell", "options", "said"),
    [
        ("dear", {}, r"row 2 \(line 3\): cost 'c' is 'dear', expected a finite number"),
        ("inf", {}, r"row 2 \(line 3\): cost 'c' is inf, expected a finite number"),
        ("", {}, r"row 2 \(line 3\): cost 'c' is empty, expected a number \(missing_reward='ignore' accepts"),
        ("dear", {"missing_reward": "ignore"}, r"row 2 \(line 3\): cost 'c' is 'dear', expected a finite number"),
    ],
)
def test_a_bad_cell_is_one_of_costs(cell, options, said, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(f"s,a,c,n\na,x,1,b\nb,x,{cell},a\n")
    with pytest.raises(ValueError, match=r"log\.csv, " + said):
        bm.read_log(path, **COLUMNS, cost="c", **options)
    with pytest.raises(ValueError, match=r"log\.csv, " + said):
        list(bm.envs.read_chunks(path, **COLUMNS, cost="c", **options, states=["a", "b"], actions=["x"], chunksize=1))
    with pytest.raises(ValueError, match=r"log\.csv, " + said):
        fold_log(path, **COLUMNS, cost="c", **options, chunksize=1)


def test_missing_costs_are_missing_rewards():
    frame = FRAME.assign(c=[3.0, np.nan])
    t = bm.read_log(frame, **COLUMNS, cost="c", missing_reward="ignore").transitions
    assert t.reward.tolist() == [-3.0, 0.0] and t.reward_observed.tolist() == [True, False]
    folded = fold_log(frame, **COLUMNS, cost="c", missing_reward="ignore")
    counts = folded.counts(bm.StateActionSpace.from_log(folded))
    assert counts.reward_count.tolist() == [[1.0], [0.0]] and counts.reward_mean.tolist() == [[-3.0], [0.0]]


def test_what_is_printed_says_that_rewards_are_minus_costs():
    log, plain = bm.read_log(FRAME, **COLUMNS, cost="c"), bm.read_log(FRAME, **COLUMNS, reward="r")
    assert str(log) == (
        "2 transitions of the DataFrame: 2 states ('a', 'b'), 1 action ('x'); rewards are minus column 'c'"
    )
    assert "minus" not in str(plain)
    ended = bm.read_log(FRAME.assign(end=True), **COLUMNS, cost="c", terminated="end")
    assert [part.cost for part in bm.mdp.split_log(jax.random.key(0), ended)] == ["c", "c"]
    one, two = fold_log(FRAME, **COLUMNS, cost="c"), fold_log(FRAME, **COLUMNS, reward="r")
    assert str(one).endswith("; rewards are minus column 'c'") and "minus" not in str(two)
    assert str(one.merge(two)).endswith("; rewards are minus column 'c' in 1 of 2 logs")


def test_the_cheaper_action_is_better():
    """The same table read as rewards has the other best action."""
    frame = pd.DataFrame({"s": "a", "a": ["dear", "cheap"] * 30, "c": [5.0, 1.0] * 30, "n": "a", "end": True})
    columns = {**COLUMNS, "terminated": "end"}
    for role, best in (("cost", "cheap"), ("reward", "dear")):
        log = bm.read_log(frame, **columns, **{role: "c"})
        space = bm.StateActionSpace.from_log(log)
        posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_normal_gamma(), log, space=space)
        assert log.actions[bm.greedy(posterior, bm.Episodic(1))[0, 0]] == best


def test_choices_of_persons():
    frame = pd.DataFrame({"who": [1, 1, 1], "what": list("xyx"), "c": [1.0, 0.0, np.nan]})
    log = read_choices(frame, subject="who", action="what", cost="c", missing="ignore")
    assert np.asarray(log.reward)[0].tolist() == [-1.0, 0.0, 0.0]
    assert np.asarray(log.observed).tolist() == [[True, True, False]]
    with pytest.raises(ValueError, match="row 3: cost 'c' is empty"):
        read_choices(frame, subject="who", action="what", cost="c")
    with pytest.raises(TypeError, match="reward and cost are both None, expected the name of one column"):
        read_choices(frame, subject="who", action="what")
