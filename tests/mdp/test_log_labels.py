# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Labels that may be two spellings of one: which pairs are named, by which reader, at what cost."""

import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import read_choices
from bayes_mdp.cli import main
from bayes_mdp.mdp import by_label
from bayes_mdp.mdp.by_label import COMMON, is_one_edit, similar_pairs
from tests.envs.logs.random_logs import fold_log


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Mild", "mild"),
        ("mild ", "mild"),
        (" Mild", "mild"),
        ("left turn", "left_turn"),
        ("left-turn", "Left  Turn"),
        ("room-1", "room 1"),
        ("room 1", "Room_1"),
        ("STRASSE", "straße"),
        ("no\xa0one", "no one"),
    ],
)
def test_other_case_blanks_and_separators_are_named(one, other):
    assert set(similar_pairs({one: 3, other: 90})) == {(one, other)}
    assert set(similar_pairs({other: 90, one: 3, "severe": 5})) == {(one, other)}


@pytest.mark.parametrize(
    "one", ["brokn", "brokken", "borken", "brocen", "roken", "brokenn", "xbroken", "rboken", "brokeen", "brokne"]
)
def test_a_misspelling_is_named(one):
    assert list(similar_pairs({one: 1, "broken": COMMON})) == [(one, "broken")]
    assert not list(similar_pairs({one: 1, "broken": COMMON - 1}))
    assert not list(similar_pairs({one: 2, "broken": 10**6}))


@pytest.mark.parametrize(
    "labels",
    [
        {"s1": 1, "s2": 500, "s12": 500},
        {"room 1": 1, "room 2": 500},
        {"left": 200, "loft": 200},
        {"left": 1, "loft": 200},
        {"mild": 1, "mile": 200},
        {"inland": 300, "island": 300},
        {"state1": 1, "state2": 400},
        {"stage IV": 1, "stage V": 400},
        {"A-": 30, "A": 30, "A+": 30},
        {"-1": 30, "1": 30, "x": 3},
        {"pos -1": 30, "pos 1": 30, "pos_-1.5": 3, "pos_1.5": 3},
        {"(0, -1)": 30, "(0, 1)": 30},
        {"-": 30, "_": 30, "#": 3, " - ": 3},
        {"western": 1, "eastern": 300},
        {"forward": 1, "forwarded": 300},
        {"converse": 1, "conversion": 300},
    ],
)
def test_no_false_alarm(labels):
    assert not list(similar_pairs(labels))


def distance(one, other):
    """Edits from one text to the other, exchanges of neighbours among them: the usual table."""
    table = np.zeros((len(one) + 1, len(other) + 1), int)
    table[:, 0], table[0] = range(len(one) + 1), range(len(other) + 1)
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            same = one[i - 1] == other[j - 1]
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (not same))
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                table[i, j] = min(table[i, j], table[i - 2, j - 2] + 1)
    return table[-1, -1]


def test_the_pairs_are_those_of_a_loop_over_all():
    """Words of two letters are dense: many pairs are at one edit, more at two."""
    rng = np.random.default_rng(0)
    ones = twos = 0
    for _ in range(30):
        words = {"".join(rng.choice(list("ab"), size=rng.integers(5, 9))) for _ in range(8)}
        rows = {word: int(rng.choice([1, 5, 40])) for word in sorted(words)}
        found = {one for one, _ in similar_pairs(rows)}
        near = [(a, b, distance(a, b)) for a in rows for b in rows if rows[a] == 1 and rows[b] >= COMMON]
        assert found == {a for a, _, d in near if d == 1}
        ones, twos = ones + len(found), twos + sum(d == 2 for *_, d in near)
    assert ones > 10 and twos > 10
    for _ in range(2000):
        one, other = ("".join(rng.choice(list("ab"), size=rng.integers(0, 6))) for _ in range(2))
        assert is_one_edit(one, other) == (distance(one, other) == 1), (one, other)


def test_the_cost_is_of_the_order_of_the_labels(monkeypatch):
    """Labels at one edit from all others, which share a key: a loop over pairs would compare 10^8 of them."""
    compared = Counter()

    def count(one, other):
        compared["pairs"] += 1
        return is_one_edit(one, other)

    monkeypatch.setattr(by_label, "is_one_edit", count)
    letters = [chr(0x4E00 + i) for i in range(10_000)]
    rows = {f"plain{letter}": 1 + 30 * (i % 2) for i, letter in enumerate(letters)}
    assert len(list(similar_pairs(rows))) == 5000
    assert compared["pairs"] <= 4 * 5000 * 7


COLUMNS = {"state": "s", "action": "a", "next_state": "n"}


def frame(states, actions="go", following=None):
    return pd.DataFrame({"s": states, "a": actions, "n": states if following is None else following})


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_every_reader_warns_with_the_same_sentence(kind, tmp_path):
    table = frame(["mild"] * 30 + ["Mild"] * 2 + ["severe"] * 25 + ["sevree"])
    source = table
    if kind == "csv":
        source = tmp_path / "log.csv"
        table.to_csv(source, index=False)
    elif kind == "parquet":
        source = tmp_path / "log.parquet"
        table.to_parquet(source)
    where = "the DataFrame" if kind == "frame" else source.name
    said = (
        f"{where}: state 's' has the labels 'Mild' (2 rows) and 'mild' (30 rows), and 1 more such pair, which may be "
        "two spellings of one and are now two states: correct the log, or name all labels if they differ "
        "(states=[...]; in the shell --states A,B,C) (see how-to/read-a-log in the documentation)"
    )
    with pytest.warns(UserWarning) as told:
        bm.read_log(source, **COLUMNS)
    assert [str(one.message) for one in told] == [said] and told[0].filename == __file__
    for chunksize in (3, 1000):
        with pytest.warns(UserWarning) as told:
            bm.read_log(source, **COLUMNS, chunksize=chunksize)
        assert [str(one.message) for one in told] == [said] and told[0].filename == __file__
    labels = {"states": ["Mild", "mild", "severe", "sevree"]}
    assert bm.read_log(source, **COLUMNS, **labels).states == fold_log(source, **COLUMNS, **labels).states
    list(bm.envs.read_chunks(source, **COLUMNS, **labels, actions=["go"], chunksize=5))


def test_rows_are_those_of_the_column_that_has_most():
    """A misspelt next state is the state of the next row: twice in the log, once in each column."""
    states = ["broken", "new"] * 20 + ["brokne", "new"]
    table = frame(states, following=np.roll(states, -1))
    with pytest.warns(UserWarning, match=r"'brokne' \(1 row\) and 'broken' \(20 rows\), which"):
        bm.read_log(table, **COLUMNS)
    with pytest.warns(UserWarning, match=r"'brokne' \(1 row\) and 'broken' \(20 rows\), which"):
        fold_log(table, **COLUMNS, chunksize=7)
    # A label that stands in ignored cells alone is none.
    ended = table.assign(end=False)
    ended.loc[len(ended) - 2, "s"], ended.loc[len(ended) - 3, "end"] = "broken", True
    for read in (bm.read_log, fold_log):
        assert read(ended, **COLUMNS, terminated="end").states == ("broken", "new")


def test_logs_of_which_each_has_one_spelling():
    parts = [frame(["mild", "severe"]), frame(["Mild", "severe"])]
    with pytest.warns(UserWarning, match=r"2 logs, DataFrame 0 first: state 's' has the labels 'Mild' \(1 row\) and"):
        fold_log(parts, **COLUMNS)


def test_logs_that_are_merged():
    one, two = (fold_log(frame([label] * 3 + ["new"]), **COLUMNS) for label in ("mild", "Mild"))
    said = r"2 logs, the DataFrame first: state has the labels 'Mild' \(3 rows\) and 'mild' \(3 rows\), which"
    with pytest.warns(UserWarning, match=said) as told:
        one.merge(two)
    assert len(told) == 1 and told[0].filename == __file__
    one.merge(fold_log(frame(["mild", "old"]), **COLUMNS))
    right, left = (fold_log(frame(["x"] * 20, word), **COLUMNS) for word in ("right", "left"))
    wrong = fold_log(frame(["x"], ["rihgt"]), **COLUMNS)
    with pytest.warns(UserWarning, match=r"'rihgt' \(1 row\) and 'right' \(20 rows\), which .* two actions"):
        right.merge(left).merge(wrong)


def test_actions_and_choices():
    table = frame(["a", "b"], ["Go", "go"])
    said = r"action 'a' has the labels .* now two actions: .*\(actions=\[\.\.\.\]; in the shell --actions A,B,C\)"
    with pytest.warns(UserWarning, match=said):
        bm.read_log(table, **COLUMNS)
    choices = pd.DataFrame({"who": ["P1", "p1"], "what": ["Left", "left"], "paid": 0.0})
    with pytest.warns(UserWarning, match="action 'what' has the labels 'Left'") as told:
        read_choices(choices, subject="who", action="what", reward="paid")
    assert len(told) == 1  # persons are not looked at: their labels cannot be given


def test_labels_that_are_no_text_are_not_looked_at():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bm.read_log(frame([1, 2, 11]), **COLUMNS)
        bm.read_log(frame([("a", 1), ("A", 1), ("a ", 1)]), **COLUMNS)


def test_the_command_says_it_in_one_line(tmp_path, capsys):
    frame(["mild", "Mild"] * 5).to_csv(tmp_path / "log.csv", index=False)
    given = ["fit", str(tmp_path / "log.csv"), "--state", "s", "--action", "a", "--next-state", "n"]
    known = ["--known-reward", str(tmp_path / "known.csv")]
    pd.DataFrame({"s": ["mild", "Mild"], "reward": 0.0}).to_csv(tmp_path / "known.csv", index=False)
    assert main([*given, *known]) == 0
    said = capsys.readouterr().err
    assert said.startswith("bayes-mdp: warning: log.csv: state 's' has the labels 'Mild' (5 rows) and 'mild' (5 rows)")
    assert said.count("\n") == 1
    assert main([*given, *known, "--states", "mild,Mild"]) == 0
    assert capsys.readouterr().err == ""
