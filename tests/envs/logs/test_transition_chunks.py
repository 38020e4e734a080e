# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""`read_chunks`: the chunks of a log together are the log."""

import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from tests.envs.logs.random_logs import ACTIONS, STATES, random_log, written

pytestmark = pytest.mark.filterwarnings("ignore:.*next_state is not the state")  # random ones

LABELS = {"states": STATES, "actions": ACTIONS}


def rows(logs):
    """Every transition as a tuple."""
    found = []
    for log in logs:
        t = log.transitions
        size = len(t.state)
        assert size > 0
        none = [None] * size
        ends = none if t.terminated is None else t.terminated
        following = np.where(ends, -1, t.next_state) if t.terminated is not None else t.next_state
        observed = np.ones(size, bool) if t.reward_observed is None else t.reward_observed
        reward = none if t.reward is None else np.where(observed, t.reward, 0.0)
        cut, step = (none if x is None else x for x in (t.truncated, t.step))
        led = np.ones(size, bool) if t.next_observed is None else t.next_observed
        following = np.where(led, following, -2)
        found += zip(t.state, t.action, reward, following, ends, cut, step, observed, strict=True)
    return [tuple(x.item() if hasattr(x, "item") else x for x in row) for row in found]


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [("frame", 12), ("csv", 4), ("parquet", 4), pytest.param("frame", 300, marks=pytest.mark.slow)],
)
def test_the_chunks_together_are_the_log(kind, seeds, tmp_path):
    for seed in range(seeds):
        frame, columns = random_log(seed, holes=seed % 3 == 0)
        source = frame if kind == "frame" else written(frame, tmp_path / f"{seed}.{kind}")
        try:
            whole = bm.read_log(source, **columns, **LABELS)
        except ValueError as error:
            with pytest.raises(ValueError, match="expected at least one transition") as other:
                list(bm.envs.read_chunks(source, **columns, **LABELS, chunksize=2))
            assert str(other.value) == str(error)
            continue
        for chunksize in (1, 3, 10**6) if seeds < 100 else (1, 2, 3, 4, 7, 11, 10**6):
            chunks = list(bm.envs.read_chunks(source, **columns, **LABELS, chunksize=chunksize))
            assert {(log.states, log.actions, log.source) for log in chunks} == {
                (whole.states, whole.actions, whole.source)
            }
            assert sorted(rows(chunks), key=repr) == sorted(rows([whole]), key=repr), (seed, chunksize, columns)


def test_the_rows_of_an_episode_stay_in_order():
    for seed in range(10):
        frame, columns = random_log(seed, spread=True)
        columns |= {"episode": "episode", "reward": "row"}
        frame["row"] = np.arange(len(frame), dtype=float)
        parts = [log.transitions.reward for log in bm.envs.read_chunks(frame, **columns, **LABELS, chunksize=4)]
        seen = np.concatenate(parts).astype(int)
        for _, rows_of_one in frame["row"].groupby(frame["episode"]):
            mine = seen[np.isin(seen, rows_of_one)]
            assert (np.diff(mine) > 0).all()


def test_labels_must_be_given():
    frame, columns = random_log(0)
    with pytest.raises(ValueError, match="states is None, expected all labels in order, where chunksize is given"):
        bm.envs.read_chunks(frame, **columns, actions=ACTIONS, chunksize=3)
    with pytest.raises(ValueError, match="chunksize is 0, expected an integer of at least 1"):
        bm.envs.read_chunks(frame, **columns, **LABELS, chunksize=0)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("s", "x", r"row 5 \(line 6\): state 's' is 'x', expected one of the labels given"),
        ("a", "", r"row 5 \(line 6\): action 'a' is empty, expected the label of an action"),
        ("r", "much", r"row 5 \(line 6\): reward 'r' is 'much', expected a finite number"),
        ("r", "", r"row 5 \(line 6\): reward 'r' is empty, expected a number"),
        ("end", "maybe", r"row 5 \(line 6\): terminated 'end' is 'maybe', expected true or false"),
        ("t", "1.5", r"row 5 \(line 6\): step 't' is .*1.5.*, expected a whole number"),
    ],
)
def test_a_bad_cell_is_named_by_its_row_of_the_file(column, value, said, tmp_path):
    frame = pd.DataFrame({"s": list("abcdabcd"), "a": 0, "r": 0.5, "n": "a", "end": False, "t": 0}).astype(object)
    frame.loc[4, column] = value
    frame.to_csv(tmp_path / "log.csv", index=False)
    columns = {"state": "s", "action": "a", "reward": "r", "next_state": "n", "terminated": "end", "step": "t"}
    for chunksize in (1, 3, 100):
        with pytest.raises(ValueError, match=r"log\.csv, " + said):
            list(bm.envs.read_chunks(tmp_path / "log.csv", **columns, **LABELS, chunksize=chunksize))


@pytest.mark.parametrize("argument", ["by_step", "allow_duplicates", "progress"])
def test_what_belongs_to_a_folded_log_is_refused(argument):
    frame = pd.DataFrame({"s": ["a"]})
    with pytest.raises(ValueError, match=f"{argument} is True, expected read_log"):
        bm.envs.read_chunks(frame, chunksize=1, state="s", **LABELS, **{argument: True})
