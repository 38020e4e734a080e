# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalMemberAccess=false, reportIncompatibleMethodOverride=false
"""Files as they come: what is missing in them, written twice or in another form is read for what it is, or named.

The last tests compare with a reader in plain Python, and read six real forms whose sizes and sums are counted by hand.
"""

import ast
import datetime
import importlib
import inspect
import itertools
import pickle
import re
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import read_choices
from bayes_mdp.envs import read_chunks, read_log
from bayes_mdp.envs.logs.tables import ABSENT, MISSING, MOST_TOLD, BadCells
from bayes_mdp.mdp import Counts, StateActionSpace
from tests.envs.logs.random_logs import fold_log

PAIR: dict[str, Any] = {"state": "s", "action": "a"}
NEXT: dict[str, Any] = {**PAIR, "next_state": "n"}
EPISODES: dict[str, Any] = {**PAIR, "episode": "e"}
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "read-a-log.md"


@pytest.fixture
def write(tmp_path):
    def file(text, name="log.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return file


def chunked(source, **options):
    return list(read_chunks(source, chunksize=2, **options))


def labelled(log):
    """(state, action, next state) of every row of which it is known what followed, by label."""
    t = log.transitions
    known = np.ones(len(t.state), bool) if t.next_observed is None else np.asarray(t.next_observed)
    columns = (np.asarray(x)[known].tolist() for x in (t.state, t.action, t.next_state))
    return [(log.states[s], log.actions[a], log.states[n]) for s, a, n in zip(*columns, strict=True)]


# What is missing.


@pytest.mark.parametrize("word", [*MISSING, " NA ", str(ABSENT), f"{ABSENT}.0"])
def test_words_for_nothing_are_no_labels(write, word):
    """R's NA was a state."""
    for other in ("x", "1"):
        path = write(f"s,a,n\n{other},go,{other}\n{word},go,{other}\n{other},go,{other}\n")
        for source in (path, pd.read_csv(path, keep_default_na=False)):
            for read in (read_log, fold_log):
                with pytest.raises(ValueError, match=r"row 2.*: state 's' is .*empty, expected the label of a state"):
                    read(source, **NEXT)
            with pytest.raises(ValueError, match=r"row 2.*: state 's' is .*empty"):
                chunked(source, **NEXT, states=[int(other) if other == "1" else other, "y"], actions=["go"])


@pytest.mark.parametrize("word", ["NA", ".", "None", str(ABSENT)])
def test_a_word_that_is_listed_is_a_label(write, word):
    path = write(f"s,a,n\nx,go,x\n{word},go,x\nx,{word},x\n")
    states, actions = ["x", word], ["go", word]
    log = read_log(path, **NEXT, states=states, actions=actions)
    assert labelled(log) == [("x", "go", "x"), (word, "go", "x"), ("x", word, "x")]
    assert fold_log(path, **NEXT, states=states, actions=actions).n_transitions == 3
    assert len(chunked(path, **NEXT, states=states, actions=actions)) == 2
    with pytest.raises(ValueError, match=r"row 3 \(line 4\): action 'a' is .* is listed in actions= \(in the shell"):
        read_log(path, **NEXT, states=states)


@pytest.mark.parametrize("kind", [int, "Int64", float, str, "category"])
def test_minus_999_is_a_label_beside_other_negative_ones(write, kind):
    cells = [-1, ABSENT, 2]
    frame = pd.DataFrame({"s": pd.Series(cells).astype(kind), "a": "go", "n": pd.Series([2, -1, -1]).astype(kind)})
    assert read_log(frame, **NEXT).states == fold_log(frame, **NEXT).states == (ABSENT, -1, 2)
    positive = frame.assign(s=pd.Series([1, ABSENT, 2]).astype(kind), n=pd.Series([2, 1, 1]).astype(kind))
    for read in (read_log, fold_log):
        with pytest.raises(ValueError, match=r"row 2: state 's' is '?-999(.0)?'?, which counts as empty"):
            read(positive, **NEXT)
    assert read_log(positive, **NEXT, states=[1, 2, ABSENT]).states == (1, 2, ABSENT)


def test_minus_999_in_chunks_is_one_thing_or_the_other():
    """It is not looked at here, in a row that ended; but what it is must be known before the end of the log."""
    ended = pd.DataFrame({"s": [0, 1, 0, -2], "a": 0, "n": [0, ABSENT, 0, 0], "d": [0, 1, 0, 0]})
    with pytest.raises(ValueError, match="has -999, which counts as empty, and later other negative numbers"):
        fold_log(ended, **NEXT, terminated="d", chunksize=2)
    assert fold_log(ended, **NEXT, terminated="d", states=[-2, 0, 1], chunksize=2).n_transitions == 4
    assert read_log(ended, **NEXT, terminated="d").states == (-2, 0, 1)


def test_missing_rewards_in_every_spelling(write):
    cells = [word for word in MISSING if word]
    log = read_log(write("s,a,r,n\n0,0,1,0\n" + "".join(f"0,0,{x},0\n" for x in cells)), **NEXT, reward="r",
                   missing_reward="ignore")  # fmt: skip
    assert np.asarray(log.transitions.reward_observed).tolist() == [True] + len(cells) * [False]
    # -999 is a reward like another.
    assert np.asarray(read_log(write("s,a,r,n\n0,0,-999,0\n"), **NEXT, reward="r").transitions.reward) == ABSENT


def test_bad_cells_are_told_at_once(write):
    rows = ["x,go,1,0", "NA,go,2,0", "x,,oops,0", "y,go,,2", ",go,1,0"]
    path = write("s,a,r,d,n\n" + "".join(f"{row},x\n" for row in rows))
    with pytest.raises(BadCells) as error:
        read_log(path, **NEXT, reward="r", terminated="d")
    found = [(row, role) for row, role, *_ in error.value.cells]
    assert found == [(1, "state"), (2, "action"), (2, "reward"), (3, "reward"), (3, "terminated"), (4, "state")]
    for text in ("row 2 (line 3): state 's' is 'NA'", "row 3 (line 4): reward 'r' is 'oops', expected a finite number",
                 "row 5 (line 6): state 's' is empty; 6 such cells in all"):  # fmt: skip
        assert text in str(error.value)
    many = write("s,a,n\n" + 25 * "NA,go,x\n", "many.csv")
    with pytest.raises(BadCells, match=r"row 10 .*25 such cells in all") as error:
        read_log(many, **NEXT)
    assert len(error.value.cells) == MOST_TOLD and "row 11" not in str(error.value)
    with pytest.raises(BadCells, match=r"row 10 .*25 such cells in all"):
        fold_log(many, **NEXT, chunksize=4)
    for read in (fold_log, chunked):
        labels = {"states": ["x", "y"], "actions": ["go"]} if read is chunked else {}
        with pytest.raises(BadCells) as in_chunks:
            read(path, **NEXT, reward="r", terminated="d", **labels)
        assert [(row, role) for row, role, *_ in in_chunks.value.cells] == found and in_chunks.value.number == 6


def test_one_bad_number_leaves_the_others_alone(write):
    """With decimal commas the others were named too, as the column stayed text."""
    path = write("s;a;r;n\nx;go;1.200,5;x\nx;go;3,5;x\nx;go;;x\n")
    options: dict[str, Any] = {**NEXT, "reward": "r", "sep": ";", "decimal": ",", "missing_reward": "ignore"}
    for read in (read_log, fold_log):
        with pytest.raises(BadCells, match=r"row 1 \(line 2\): reward 'r' is '1.200,5', expected a finite") as error:
            read(path, **options)
        assert error.value.number == 1


def test_what_is_no_table_is_named(write):
    for name in ("log.xlsx", "log.ODS"):
        for read in (read_log, fold_log):
            with pytest.raises(ValueError, match=f"{name} is a spreadsheet, expected a CSV or Parquet file: save it"):
                read(write("PK", name), **NEXT)
    none = pd.DataFrame({"s": ["x"], "a": "go", "n": ["x"], "k": [0]})
    with pytest.raises(ValueError, match="count 'k' is 0 in all rows, expected a transition"):
        read_log(none, **NEXT, count="k")


def test_dates_of_several_time_zones_are_refused():
    """Two days of the calendar on both sides of a change of clocks; pandas' own message named no column."""
    days = ["2026-03-28T01:00+01:00", "2026-03-30T01:00+02:00"]
    frame = pd.DataFrame({"e": 1, "t": days, "s": ["x", "y"], "a": "go"})
    with pytest.raises(
        ValueError, match=r"step 't' has dates of several time zones \(\+01:00, \+02:00\), expected one"
    ):
        read_log(frame, **EPISODES, step="t", every="1D")
    with pytest.raises(ValueError, match=r"several time zones \(\+01:00, none\)"):
        read_log(frame.assign(t=[days[0], "2026-03-30T01:00"]), **EPISODES, step="t", every="1D")
    one = frame.assign(t=["2026-03-29T01:00+02:00", "2026-03-30T01:00+02:00"])
    assert read_log(one, **EPISODES, step="t", every="1D").n_transitions == 1
    read_log(frame, **EPISODES)  # without a role


# What is there twice.


def test_a_step_twice_is_refused_with_both_rows(write):
    path = write("e,t,s,a,n\np,0,x,go,y\nq,0,x,go,y\np,1,y,go,x\nq,0,y,go,x\n")
    with pytest.raises(ValueError, match=r"row 4 \(line 5\): step 't' is 0, expected each step .* once: row 2 has it"):
        read_log(path, **EPISODES, step="t", next_state="n")
    both: dict[str, Any] = {**EPISODES, "step": "t", "next_state": "n"}
    for size in (1, 2, 3, 9):
        with pytest.raises(ValueError, match=r"row 4 \(line 5\): step 't' is 0, expected each step .*: row 2 has it"):
            fold_log(path, **both, chunksize=size)
    backwards = write("e,t,s,a,n\np,2,x,go,y\np,1,y,go,x\nq,1,x,go,y\np,0,x,go,y\n")
    assert len(labelled(read_log(backwards, **both))) == fold_log(backwards, **both, chunksize=1).n_transitions == 4


def visits(number=12, **columns):
    """Two persons with a visit every day; a machine-like log in which states and actions repeat."""
    frame = pd.DataFrame({"e": number // 2 * ["p"] + number // 2 * ["q"], "s": "x", "a": "go"})
    frame.loc[2, "s"] = "y"
    days = pd.date_range("2026-01-01", periods=number // 2).strftime("%Y-%m-%d")
    return frame.assign(day=[*days, *days]).assign(**columns)


def test_rows_that_repeat_are_named_where_time_tells_them_apart(write):
    frame = visits()
    read_log(frame, **EPISODES)  # states repeat, days do not
    again = pd.concat([frame.iloc[:4], frame.iloc[3:]], ignore_index=True)
    twice = pd.concat([frame, frame], ignore_index=True)
    for source in (again, write(again.to_csv(index=False))):
        for read in (read_log, fold_log):
            with pytest.warns(
                UserWarning, match="1 row is equal in all columns to a row before, such as row 5 to row 4"
            ):
                read(source, **EPISODES)
    with pytest.warns(UserWarning, match="12 rows are equal in all columns to a row before, such as row 13 to row 1"):
        read_log(twice, **EPISODES)
    # Without a time, a machine that stays in its state is no error; two events on one day are none either.
    read_log(again.drop(columns="day"), **EPISODES)
    read_log(again.assign(site="here", load=0.5).drop(columns="day"), **EPISODES)
    again.loc[4, "a"] = "stop"
    read_log(again, **EPISODES)


# Time that passes.


def unequal(kind):
    """Rows one year apart under "wait", a quarter under "treat"."""
    rng = np.random.default_rng(3)
    actions = np.array(["wait", "treat"])[rng.integers(2, size=60)]
    years = np.where(actions == "wait", 1.0, 0.25)
    frame = pd.DataFrame({"e": np.repeat(np.arange(6), 10), "s": "alive", "a": actions})
    frame["years"] = years
    frame["years"] = frame.groupby("e")["years"].cumsum() - years
    if kind != "numbers":
        frame["years"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(360 * frame["years"], "D")
        form = {"text": "%Y-%m-%d", "German": "%d.%m.%Y"}
        frame["years"] = frame["years"].dt.strftime(form[kind]) if kind in form else frame["years"]
    return frame


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("numbers", "0.25 apart under 'treat', 1 under 'wait'"),
        ("dates", "90 days apart under 'treat', 360 days under 'wait'"),
        ("text", "90 days apart under 'treat', 360 days under 'wait'"),
        ("German", "90 days apart under 'treat', 360 days under 'wait'"),
    ],
)
def test_time_that_passes_unequally_is_named(write, kind, said):
    """It was not seen, and `decide` recommended with P = 1.000 what loses 1.27 of 4.24."""
    frame = unequal(kind)
    path = write(frame.to_csv(index=False))
    for read, source in ((read_log, frame), (read_log, path), (fold_log, path)):
        with pytest.warns(
            UserWarning, match="column 'years' looks like time: rows are on average .* each counts"
        ) as said_:
            read(source, **EPISODES)
        assert said in str(said_[0].message)
    mixed = frame.sample(frac=1.0, random_state=1).sort_values("years", kind="stable") if kind == "dates" else frame
    with pytest.warns(UserWarning, match="looks like time"):
        read_log(mixed, **EPISODES)
    same = frame.assign(a="wait")
    with pytest.warns(UserWarning, match="rows are (0.25 to 1|90 to 360 days) apart, and each"):
        read_log(same, **EPISODES)


def test_parquet_files_are_looked_at_too(tmp_path):
    pytest.importorskip("pyarrow")
    unequal("dates").assign(x=range(60, 0, -1)).to_parquet(tmp_path / "log.parquet")
    with pytest.warns(UserWarning, match="column 'years' looks like time"):
        read_log(tmp_path / "log.parquet", **EPISODES)


def test_what_is_no_unequal_time_is_not_named():
    frame = unequal("numbers")
    rng = np.random.default_rng(0)
    place = frame.groupby("e").cumcount()
    others = {
        "equal": place * 0.5,
        "nearly": place * 30.0 + place % 2,
        "falls": frame["years"] - (frame.index == 7),
        "stays": place // 2,
        "any": rng.normal(size=60),
        "text": [f"v{i}" for i in range(60)],
        "row": np.arange(60) + 5,
    }
    for name, cells in others.items():
        read_log(frame.drop(columns="years").assign(**{name: cells}), **EPISODES)
        read_log(
            frame.drop(columns="years").assign(**{name: cells}).sample(frac=1.0, random_state=0).sort_index(),
            **EPISODES,
        )
    by_time = frame.assign(time=place).sort_values("time", kind="stable").drop(columns=["years", "time"])
    read_log(by_time.assign(row=range(60)), **EPISODES)  # the number of the row, not the time
    read_log(frame.iloc[:4], **EPISODES)  # so few numbers rise by chance


def test_steps_that_jump_are_named_where_next_states_are_given():
    frame = unequal("numbers").assign(n="alive", t=lambda x: (4 * x["years"]).astype(int)).drop(columns="years")
    with pytest.warns(UserWarning, match="step 't' jumps: rows are on average 1 apart under 'treat', 4 under 'wait'"):
        read_log(frame, **EPISODES, next_state="n", step="t")


# Steps of dates.


@pytest.mark.parametrize(
    ("every", "dates", "steps"),
    [
        ("1D", ["2026-03-30", "2026-03-31", "2026-04-01"], [0, 1, 2]),
        ("D", ["2026-03-30 23:50", "2026-03-31 00:10", "2026-04-01 12:00"], [0, 1, 2]),
        ("1h", ["2026-03-30 22:10", "2026-03-30 23:59", "2026-03-31 00:00"], [0, 1, 2]),
        ("7D", ["2026-03-02", "2026-03-08", "2026-03-17"], [0, 1, 2]),
        ("1W", ["2026-03-01", "2026-03-02", "2026-03-15"], [0, 1, 2]),
        ("1M", ["2025-12-31", "2026-01-01", "2026-02-28"], [0, 1, 2]),
        ("MS", ["2025-12-31", "2026-01-01", "2026-02-28"], [0, 1, 2]),
        ("3M", ["2026-01-10", "2026-04-02", "2026-07-31"], [0, 1, 2]),
        ("1Y", ["2024-12-31", "2025-01-01", "2026-06-01"], [0, 1, 2]),
    ],
)
def test_steps_are_counted_from_dates(write, every, dates, steps):
    frame = pd.DataFrame({"e": 1, "t": dates, "s": ["x", "y", "x"], "a": "go", "n": ["y", "x", "y"]})
    whole = {**EPISODES, "next_state": "n", "step": "t", "every": every}
    for source in (write(frame.to_csv(index=False)), frame, frame.assign(t=pd.to_datetime(frame["t"]))):
        assert np.asarray(read_log(source, **whole).transitions.step).tolist() == steps
        assert labelled(read_log(source, **EPISODES, step="t", every=every)) == [("x", "go", "y"), ("y", "go", "x")]


@pytest.mark.parametrize(
    ("dates", "options", "message"),
    [
        (
            ["2026-03-01", "2026-03-02", "2026-03-04"],
            {"every": "1D"},
            r"row 3: step 't' is '2026-03-04' \(step 3\), expected 2, the step after",
        ),
        (
            ["2026-03-01", "2026-03-02", "2026-03-02"],
            {"every": "1D"},
            r"row 3: step 't' is '2026-03-02' \(step 1\), expected each step of an episode once: row 2 has it too",
        ),
        (
            ["2026-03-02", "2026-03-01", "2026-03-03"],
            {"every": "1D"},
            "'2026-03-01', expected a date not before that of",
        ),
        (
            ["2026-03-01", "soon", None],
            {"every": "1D"},
            "row 2: step 't' is 'soon', expected a date .*row 3: .* is empty",
        ),
        (["2026-03-01", "2026-03-02", "2026-03-03"], {}, "row 1: .*expected a whole number .*every='1D'"),
        (
            ["2026-03-01", "2026-03-02", "2026-03-03"],
            {"every": "soon"},
            "every is 'soon', expected the length of a step",
        ),
        ([0, 1, 2], {"every": "1D"}, "row 1: step 't' is 0, expected a date"),
    ],
)
def test_dates_that_are_no_steps_are_refused(dates, options, message):
    frame = pd.DataFrame({"e": 1, "t": dates, "s": ["x", "y", "x"], "a": "go"})
    with pytest.raises(ValueError, match=message):
        read_log(frame, **EPISODES, step="t", **options)


# How files are written.


def test_semicolons_decimal_commas_and_latin_1(write):
    text = "Fall;Zustand;Maßnahme;Kosten\n1;schwer;röntgen;1,5\n1;leicht;warten;0,25\n1;schwer;warten;0\n"
    path = write(text, encoding="latin-1")
    roles = {"state": "Zustand", "action": "Maßnahme", "episode": "Fall", "cost": "Kosten"}
    options = {"sep": ";", "encoding": "latin-1", "decimal": ","}
    log = read_log(path, **roles, **options)
    assert labelled(log)[:2] == [("schwer", "röntgen", "leicht"), ("leicht", "warten", "schwer")]
    assert np.asarray(log.transitions.reward).tolist()[:2] == [-1.5, -0.25]
    folded = fold_log(path, **roles, **options)
    assert folded.n_transitions == len(labelled(log)) and folded.actions == log.actions
    with pytest.raises(ValueError, match=r"cannot be read as a table: .*, expected the encoding of the file"):
        read_log(path, **roles, sep=";")
    with pytest.raises(ValueError, match=r"which log.csv has not.*cells seem to have ';' between, say sep=';'"):
        read_log(path, **roles, encoding="latin-1")
    with pytest.raises(
        ValueError,
        match=r"row 1 \(line 2\): cost 'Kosten' is '1,5', expected a finite number \(a decimal comma: decimal=','",
    ):
        read_log(path, **roles, sep=";", encoding="latin-1")


@pytest.mark.parametrize("cells", [("1.200", "0,5"), ("1.200", "3"), ("1.200,5", "3"), ("1.000", "2.000")])
def test_a_point_is_no_decimal_where_a_comma_is(write, cells):
    """1.200 would be 1,200 in such a file, and was read as 1.2."""
    rows = "".join(f"x;go;{cell};{cell};1;x\n" for cell in cells)
    options: Any = {"sep": ";", "decimal": ","}
    for role in ("reward", "cost"):
        path = write("s;a;r;k;e;n\n" + rows)
        for read in (read_log, partial(fold_log, chunksize=1)):
            message = rf"row 1 \(line 2\): {role} 'r' is '{cells[0]}', .*a point is no part of a number"
            with pytest.raises(ValueError, match=message):
                read(path, **NEXT, **{role: "r"}, **options)
    with pytest.raises(ValueError, match=rf"row 1.*: step 'k' is '{cells[0]}', expected a whole number"):
        read_log(path, **EPISODES, step="k", **options)
    with pytest.raises(ValueError, match=rf"row 1: covariate 'k' is '{cells[0]}', expected a number without a point"):
        read_log(path, **NEXT, covariates=["k"], **options)


def test_labels_behind_semicolons_keep_their_zeros(write):
    """Chunks parse labels as whole numbers where nothing is lost; "007" is lost."""
    path = write("s;a;n\n007;1;7\n7;1;007\n")
    assert read_log(path, **NEXT, sep=";").states == fold_log(path, **NEXT, sep=";").states == ("007", "7")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": ";;"}, "sep is ';;', expected one character"),
        ({"encoding": "klingon"}, "encoding is 'klingon', expected one that Python knows"),
        ({"decimal": ";"}, "decimal is ';', expected one of"),
    ],
)
def test_a_dialect_that_is_none_is_refused(write, options, message):
    for read in (read_log, fold_log):
        with pytest.raises(ValueError, match=re.escape(message)):
            read(write("s,a,n\nx,go,x\n"), **NEXT, **options)


# Forms of columns.


def test_a_log_without_actions_is_a_chain(write):
    path = write("e,s\n1,x\n1,y\n1,x\n")
    options: dict[str, Any] = {"state": "s", "action": None, "episode": "e"}
    log = read_log(path, **options)
    assert labelled(log)[:2] == [("x", "none", "y"), ("y", "none", "x")] and log.actions == ("none",)
    assert read_log(path, **options, actions=["watch"]).actions == ("watch",)
    assert fold_log(path, **options).actions == ("none",)
    assert fold_log(path, **options).n_transitions == len(labelled(log))
    assert len(chunked(path, **options, states=["x", "y"], actions=["none"])) > 0
    with pytest.raises(ValueError, match="action is None with 2 actions"):
        read_log(path, **options, actions=["x", "y"])


def test_without_episodes_steps_make_one(write):
    path = write("t,s,a\n0,x,go\n1,y,go\n2,x,go\n")
    assert labelled(read_log(path, **PAIR, step="t"))[:2] == [("x", "go", "y"), ("y", "go", "x")]
    assert fold_log(path, **PAIR, step="t").n_transitions == len(labelled(read_log(path, **PAIR, step="t")))
    for read in (read_log, fold_log):
        with pytest.raises(ValueError, match=r"row 2 .*: step 't' is 2, expected 1"):
            read(write("t,s,a\n0,x,go\n2,y,go\n"), **PAIR, step="t")
        with pytest.raises(ValueError, match="or step, if all rows are one episode"):
            read(path, **PAIR)


def test_a_state_of_several_columns(write):
    text = "e,grade,load,a,g2,l2\n1,high,10,go,low,2\n1,low,2,go,high,10\n1,high,10,go,low,007\n"
    path = write(text.replace("007", "2"))
    options: dict[str, Any] = {"state": ["grade", "load"], "action": "a", "next_state": ["g2", "l2"]}
    for source in (path, pd.read_csv(path)):
        log = read_log(source, **options)
        assert log.states == (("high", 10), ("low", 2))
        assert labelled(log)[0] == (("high", 10), "go", ("low", 2))
        assert log.column("state") == ("grade", "load")
        space = StateActionSpace.from_log(log)
        assert space.factors == ("grade", "load") and str(space.state_names[0]) == "grade=high, load=10"
        shifted = read_log(source, state=["grade", "load"], action="a", episode="e")
        assert labelled(shifted)[:2] == labelled(log)[:2]
        listed = [("low", 2), ("high", 10), ("low", 10)]
        assert read_log(source, **options, states=listed).states == tuple(listed)
    assert read_log(write(text), **options).states == (("high", "10"), ("low", "2"), ("low", "007"))
    with pytest.raises(ValueError, match=r"row 1 .*: state \('grade', 'load'\) is empty in one of them"):
        read_log(write(text.replace("high,10,go,low,2", "high,NA,go,low,2")), **options)
    with pytest.raises(ValueError, match=r"state is .*, expected one column of a log that is read in chunks"):
        fold_log(path, **options)
    with pytest.raises(ValueError, match="expected as many columns of each"):
        read_log(path, state=["grade", "load"], action="a", next_state="g2")


def test_ordered_categories_keep_their_order():
    grades = pd.Categorical(
        ["mild", "severe", "mild", "moderate"], ["mild", "moderate", "severe", "fatal"], ordered=True
    )
    bins = pd.cut([1.0, 20.0, 3.0, 7.0], [0.0, 5.0, 10.0, 100.0])
    for cells, order in ((grades, ("mild", "moderate", "severe")), (bins, tuple(bins.categories))):
        frame = pd.DataFrame({"s": cells, "a": "go", "n": cells})
        assert read_log(frame, **NEXT).states == fold_log(frame, **NEXT, chunksize=3).states == order
    plain = frame.assign(s=grades.as_unordered(), n=grades.as_unordered())
    assert read_log(plain, **NEXT).states == ("mild", "moderate", "severe")
    reverse = plain.assign(
        s=grades.reorder_categories(grades.categories[::-1]), n=grades.reorder_categories(grades.categories[::-1])
    )
    assert read_log(reverse, **NEXT).states == fold_log(reverse, **NEXT).states == ("severe", "moderate", "mild")


def test_where_rewards_stand():
    frame = pd.DataFrame({"e": [1, 1, 1, 2, 2], "s": list("xyxyx"), "a": "go", "d": [0, 0, 1, 0, 1]})
    options: dict[str, Any] = {**EPISODES, "terminated": "d", "reward": "r"}
    late = read_log(frame.assign(r=[np.nan, 5.0, 7.0, 9.0, 2.0]), **options, reward_at="next")
    assert np.asarray(late.transitions.reward).tolist() == [5.0, 7.0, 0.0, 2.0, 0.0]
    assert np.asarray(late.transitions.reward_observed).tolist() == [True, True, False, True, False]
    total = read_log(frame.assign(r=[0.0, np.nan, 4.0, np.nan, 6.0]), **options, reward_at="episode")
    assert np.asarray(total.transitions.reward).tolist() == [0.0, 0.0, 4.0, 0.0, 6.0]
    assert total.transitions.reward_observed is None
    cost = read_log(frame.assign(r=[0.0, 0.0, 4.0, 0.0, 6.0]).rename(columns={"r": "c"}), **EPISODES, terminated="d",
                    cost="c", reward_at="episode")  # fmt: skip
    assert np.asarray(cost.transitions.reward).sum() == -10.0
    with pytest.raises(ValueError, match="row 3: reward 'r' is empty, expected a number"):
        read_log(frame.assign(r=[0.0, 1.0, np.nan, 3.0, 4.0]), **options, reward_at="next")
    with pytest.raises(ValueError, match=r"row 2: reward 'r' is 1.0, expected empty or 0"):
        read_log(frame.assign(r=[0.0, 1.0, 4.0, 0.0, 6.0]), **options, reward_at="episode")
    with pytest.raises(ValueError, match="row 5: reward 'r' is empty"):
        read_log(frame.assign(r=[0.0, 0.0, 4.0, 0.0, np.nan]), **options, reward_at="episode")
    unknown = read_log(
        frame.assign(r=[0.0, 0.0, 4.0, 0.0, np.nan]), **options, reward_at="episode", missing_reward="ignore"
    )
    assert np.asarray(unknown.transitions.reward_observed).tolist() == [True, True, True, True, False]
    # The total of an episode is in the log also where its last row is no transition.
    cut = read_log(frame.assign(r=[0.0, 0.0, 4.0, 0.0, 6.0]), **EPISODES, reward="r", reward_at="episode")
    assert np.asarray(cut.transitions.reward).sum() == 10.0
    # Several rows behind the last transition may be none.
    blank: dict[str, Any] = {"missing_state": "gap", "reward": "r", "reward_at": "episode"}
    gone = read_log(frame.assign(s=["x", None, None, "y", "x"], r=[0.0, 0.0, 4.0, 0.0, 6.0]), **EPISODES, **blank)
    assert np.asarray(gone.transitions.reward).tolist() == [4.0, 0.0, 6.0]
    with pytest.raises(ValueError, match="reward_at is 'next', expected episode"):
        read_log(frame.assign(r=0.0, n="x"), **NEXT, reward="r", reward_at="next")


def test_rewards_of_a_step_that_was_left_out_are_not_those_of_the_step_before_the_gap():
    frame = pd.DataFrame({"e": 1, "s": list("xyxy"), "a": "go", "t": [0, 1, 3, 4], "r": [np.nan, 5.0, 7.0, 9.0]})
    options: dict[str, Any] = {**EPISODES, "reward": "r", "reward_at": "next"}

    def rewards(log):
        t = log.transitions
        return np.where(t.reward_observed, t.reward, np.nan).tolist()

    nan = float("nan")
    np.testing.assert_equal(rewards(read_log(frame, **options, step="t", gaps="cut")), [5.0, nan, 9.0, nan])
    cut = frame.assign(c=[0, 1, 0, 0])
    np.testing.assert_equal(rewards(read_log(cut, **options, truncated="c")), [5.0, nan, 9.0, nan])
    # What is not used may be empty; a step without a state is no step that was left out.
    empty = frame.assign(r=[np.nan, 5.0, np.nan, 9.0])
    np.testing.assert_equal(rewards(read_log(empty, **options, step="t", gaps="cut")), [5.0, nan, 9.0, nan])
    hidden = frame.assign(s=["x", "y", None, "y"])
    seen = read_log(hidden, **options, missing_state="gap")
    np.testing.assert_equal(rewards(seen), [5.0, 7.0, nan])


def test_counts_in_long_form(write):
    path = write("from,action,to,n\na,go,a,2\na,go,b,3\nb,go,a,1\nb,stop,b,0\n")
    log = read_log(path, state="from", action="action", next_state="to", count="n")
    counts = Counts.of(log.transitions, StateActionSpace.from_log(log)).transitions
    assert (log.states, log.actions) == (("a", "b"), ("go", "stop"))
    np.testing.assert_array_equal(counts, [[[2, 3], [0, 0]], [[1, 0], [0, 0]]])
    table, space = pd.read_csv(path), StateActionSpace(2, 2, ends=True, states=["a", "b"], actions=["go", "stop"])
    columns: dict[str, Any] = {"state": "from", "action": "action", "next_state": "to", "count": "n"}
    ended = Counts.from_table(table.replace({"to": {"b": "end"}}), space, **columns)
    np.testing.assert_array_equal(ended.transitions, [[[2, 0, 3], [0, 0, 0]], [[1, 0, 0], [0, 0, 0]]])
    assert not np.asarray(ended.reward_count).any()
    stepped = StateActionSpace(2, 2, horizon=2, states=["a", "b"], actions=["go", "stop"])
    by_step = Counts.from_table(table.assign(t=[0, 1, 1, 0]), stepped, **columns, step="t").transitions
    assert by_step[0].sum() == 2 and by_step[1].sum() == 4
    for wrong, message in (
        (table.rename(columns={"n": "k"}), "count is column 'n', which the table has not, expected one of 'from'"),
        (table.replace("a", "c"), r"row 1: state 'from' is 'c', expected one of the labels of the space \('a', 'b'\)"),
        (table.assign(n=[1, -1, 0, 0]), r"row 2: count 'n' is -1.0, expected a number, zero or greater \(see how-to"),
    ):
        with pytest.raises(ValueError, match=message):
            Counts.from_table(wrong, space, **columns)
    with pytest.raises(ValueError, match=r"row 1 .*: count 'k' is -1, expected a whole number"):
        read_log(write("s,a,n,k\nx,go,x,-1\n"), **NEXT, count="k")
    with pytest.raises(ValueError, match="count is column 'k', expected next_state, and neither episode nor step"):
        read_log(write("s,a,n,k,e\nx,go,x,1,1\n"), **NEXT, count="k", episode="e")


# The page that messages name.


def test_every_message_names_a_page_that_has_its_argument(write):
    page = PAGE.read_text()
    time, again = unequal("numbers"), visits()
    again = pd.concat([again.iloc[:4], again.iloc[3:]], ignore_index=True)
    dated = pd.DataFrame({"e": 1, "t": ["2026-03-01", "2026-03-02"], "s": "x", "a": "go"})
    cases: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
        (write("s,a,n\nNA,go,x\n", "a.csv"), NEXT, ("states",)),
        (write("s,a,n\nx,.,x\n", "b.csv"), NEXT, ("actions",)),
        (write("s,a,r,n\nx,go,,x\n", "c.csv"), {**NEXT, "reward": "r"}, ("missing_reward",)),
        (write("s;a;n\nx;go;x\n", "d.csv"), NEXT, ("sep",)),
        (write("s,a,n\nü,go,ü\n", "e.csv", "latin-1"), NEXT, ("encoding",)),
        (write("s;a;n;r\nx;go;x;1,5\n", "f.csv"), {**NEXT, "sep": ";", "reward": "r"}, ("decimal",)),
        (write("e,t,s,a\n1,0,x,go\n1,2,x,go\n", "g.csv"), {**EPISODES, "step": "t"}, ("step",)),
        (write("e,t,s,a\n1,0,x,go\n1,0,x,go\n", "h.csv"), {**EPISODES, "step": "t"}, ("step",)),
        (write("s,a\nx,go\n", "i.csv"), PAIR, ("next_state", "episode", "step")),
        (write("e,s,a\n1,x,go\n2,x,go\n", "j.csv"), EPISODES, ("episode",)),
        (write("e,s,a\n", "k.csv"), EPISODES, ()),
        (write("", "l.csv"), EPISODES, ()),
        (write("e,s,a\n1,x,go,4\n1,x,go,4\n", "m.csv"), EPISODES, ()),
        (dated, {**EPISODES, "step": "t"}, ("every",)),
        (pd.DataFrame({"s": [1, "1"], "a": 0, "n": 1}), NEXT, ()),
        (pd.DataFrame({"s": [2.0**60], "a": 0, "n": 1}), NEXT, ()),
        (time, EPISODES, ("next_state", "reward")),
        (again, EPISODES, ("step",)),
        (pd.DataFrame({"s": ["x y", "x_y"], "a": "go", "n": "x y"}), NEXT, ("states",)),
        (
            pd.DataFrame({"e": 1, "s": ["x", "y"], "a": "go", "n": "x"}),
            {**EPISODES, "next_state": "n"},
            ("next_state",),
        ),
    ]
    for source, options, names in cases:
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                read_log(source, **options)
            message = str(said[0].message)
        except (ValueError, TypeError) as error:
            message = str(error)
        link = re.search(r"\(see (\S+) in the documentation\)$", message)
        assert link is not None and link[1] == "how-to/read-a-log", message
        for name in names:
            assert f"`{name}=" in page, (message, name)


READERS = (read_log, fold_log, read_choices)


def messages_about_logs():
    """(place, text) of every error and warning in the files that read logs, as far as it is known before it is made."""
    package = Path(bm.__file__).parent
    files = [*sorted((package / "envs" / "logs").glob("*.py")), package / "behaviour" / "choice_log.py"]
    for file in files:
        tree = ast.parse(file.read_text())
        raised = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call))
        called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        told = [node for node in called if node.func.id in ("warn_user", "require_cells", "require_all")]
        for node in (*raised, *told):
            parts = [x.value for x in ast.walk(node) if isinstance(x, ast.Constant) and isinstance(x.value, str)]
            yield f"{file.name}:{node.lineno}", "".join(parts), node.func


def test_arguments_that_messages_speak_of_are_on_their_page():
    """All of them, by their text in the source; and every argument of the readers is on one of the pages."""
    stems = (PAGE.stem, "large-logs", "fit-learners-to-people")
    pages = "".join((PAGE.parent / f"{stem}.md").read_text() for stem in stems)
    names = {name for reader in READERS for name in inspect.signature(reader).parameters}
    names -= {"source", "paths", "progress", "columns"}
    for name in names:
        assert f"`{name}=" in pages or f"{name}=" in pages, name
    number = 0
    for place, text, _ in messages_about_logs():
        for name in names & {*re.findall(r"\b(\w+)=", text), *re.findall(r"^(\w+) (?:is|and)", text)}:
            assert f"`{name}=" in pages, (place, name)
        number += 1
    assert number > 60
    # Warnings name their page themselves, errors where they leave a reader.
    for place, text, function in messages_about_logs():
        if isinstance(function, ast.Name) and function.id == "warn_user":
            assert any(f"how-to/{stem}" in text for stem in stems), place


@pytest.mark.parametrize("error", [ValueError, TypeError, ImportError, FileNotFoundError])
def test_whatever_a_reader_refuses_names_its_page(monkeypatch, error):
    """All errors, whichever function raises them."""

    def fail(*_, **__):
        raise error("something is wrong")

    for name in ("read_log", "transition_chunks", "chunked_tables"):
        module = importlib.import_module(f"bayes_mdp.envs.logs.{name}")
        for function in {"open_table", "open_log"} & vars(module).keys():
            monkeypatch.setattr(module, function, fail)
    monkeypatch.setattr(importlib.import_module("bayes_mdp.behaviour.choice_log"), "open_table", fail)
    frame = pd.DataFrame({"s": ["x"], "a": "go", "n": "x"})
    calls = {
        "read-a-log": [
            lambda: read_log(frame, **NEXT),
            lambda: chunked(frame, **NEXT, states=["x"], actions=["go"]),
            lambda: fold_log(frame, **NEXT),
        ],
        "fit-learners-to-people": [lambda: read_choices(frame, subject="s", action="a", reward="n")],
    }
    for page, some in calls.items():
        for call in some:
            with pytest.raises(error, match=rf"^something is wrong \(see how-to/{page} in the documentation\)$"):
                call()


def test_a_chunk_that_is_refused_names_the_page():
    frame = pd.DataFrame({"s": ["x", "y"], "a": "go", "n": "x"})
    chunks = read_chunks(frame, **NEXT, states=["x"], actions=["go"], chunksize=1)
    assert labelled(next(chunks)) == [("x", "go", "x")]
    page = r"\(see how-to/read-a-log in the documentation\)$"
    with pytest.raises(ValueError, match=rf"row 2: state 's' is 'y', expected .* {page}"):
        next(chunks)


@pytest.fixture(scope="module")
def long():
    """The function of the page that makes a long table of a wide one."""
    code = next(x for x in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.S | re.M) if "def long" in x)
    names: dict[str, Any] = {"pd": pd}
    exec(code[code.index("def long") : code.index("\n\n\n")], names)
    return names["long"]


# A reader in plain Python.

WORDS = {"", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "NaT", "null", "NULL", "None", "."}
FIRST_DAY = datetime.datetime(2026, 1, 28)
TIMES = {
    "numbers": (None, str),
    "days": ("1D", lambda t: str((FIRST_DAY + datetime.timedelta(days=t)).date())),
    "hours": ("1h", lambda t: str(FIRST_DAY + datetime.timedelta(hours=t, minutes=7 * t % 60))),
    "months": ("1M", lambda t: str(FIRST_DAY.replace(month=1 + t, day=28 - t).date())),
}
NAMES = "etszarnydck"
"""Columns: episode, time, state (two of them), action, reward, next state (two), terminated, truncated, count."""


def random_file(seed, path, long):  # noqa: PLR0912, PLR0915 - a form of a file each
    """(source, arguments of `read_log`, rows as text): a table of some episodes, in one of many forms."""
    rng = np.random.default_rng(seed)
    pick = lambda *items: items[int(rng.integers(len(items)))]  # noqa: E731
    states = pick(("ill", "well", "dead"), ("0", "1", "2"), ("-1", "0", "10"))
    actions = pick(("go", "stay"), ("1", "2"))
    rewards = pick("reward", "cost", None)
    options: dict[str, Any] = {**PAIR, "episode": "e"} | ({rewards: "r"} if rewards else {})
    fault = pick("nothing", "nothing", "blank", "blank", "repeat", "gap", "gap")
    time = pick("none", *TIMES) if fault in ("nothing", "blank") else pick(*TIMES)
    most = 2 if seed % 10 == 0 else 6  # some files of one row, most of which hold no transition
    paid = (*sorted(WORDS), "1.5", "-2", "0") if rng.random() < 0.3 else ("1.5", "-2", "0")
    rows = [
        {
            **{
                "e": f"p{episode}",
                "t": TIMES.get(time, TIMES["numbers"])[1](t),
                "s": pick(*states),
                "a": pick(*actions),
            },
            **{"r": pick(*paid), "n": pick(*states), "z": pick("lo", "hi"), "y": pick("lo", "hi")},
            **{"d": "0", "c": "1" if rng.random() < 0.15 else "0", "k": pick("0", "1", "2")},
        }
        for episode in range(int(rng.integers(1, most)))
        for t in range(int(rng.integers(1, most)))
    ]
    for row, after in itertools.zip_longest(rows, rows[1:]):
        if after is None or after["e"] != row["e"]:
            row["d"] = pick("0", "1")
    # Which columns are named, and what may be missing.
    if rng.random() < 0.5:
        options["next_state"] = "n"
    options |= {role: name for role, name in (("terminated", "d"), ("truncated", "c")) if rng.random() < 0.5}
    if time != "none":
        options |= {"step": "t"} | ({"every": TIMES[time][0]} if time != "numbers" else {})
    options |= {"missing_reward": "ignore"} if rewards and rng.random() < 0.8 else {}
    options |= {"missing_state": "gap"} if rng.random() < 0.4 else {}
    options |= {"gaps": "cut"} if "step" in options and rng.random() < 0.5 else {}
    several = rng.random() < 0.15
    if several:
        options |= {"state": ["s", "z"]} | ({"next_state": ["n", "y"]} if "next_state" in options else {})
    if rng.random() < 0.4 and not several:
        options["states"] = [int(x) if x.lstrip("-").isdigit() else x for x in states]
    if rng.random() < 0.1:
        options["action"] = None
    if rewards and rng.random() < 0.25:
        options["reward_at"] = pick("next", "episode")
    if fault == "nothing" and rng.random() < 0.15:
        options = {**options, "next_state": ["n", "y"] if several else "n", "count": "k"}
        for role in ("episode", "step", "every", "gaps", "reward_at"):
            options.pop(role, None)
    if options.get("reward_at") == "episode" and rng.random() < 0.8:
        for row, after in itertools.zip_longest(rows, rows[1:]):
            row["r"] = row["r"] if after is None or after["e"] != row["e"] else pick("0", "", "NA")
    # What is wrong.
    if fault == "blank":
        for _ in range(int(rng.integers(1, 4))):
            rows[int(rng.integers(len(rows)))][pick("s", "a", "n")] = pick(*sorted(WORDS), "-999")
    elif fault == "repeat":
        at = int(rng.integers(len(rows)))
        rows.insert(at + 1, {**rows[at]})
    elif fault == "gap":
        del rows[int(rng.integers(len(rows)))]
    # How it is written.
    form = pick("csv", "csv", "tsv", "text frame", "typed frame", "parquet", "wide")
    if form == "wide" and time == "numbers" and fault != "repeat" and rows:
        names = [name for name in NAMES if name not in "et"]
        wide = {(row["e"], f"{name}_{row['t']}"): row[name] for row in rows for name in names}
        people, columns = ({key[i]: None for key in wide} for i in (0, 1))
        frame = pd.DataFrame({"e": list(people)} | {c: [wide.get((e, c)) for e in people] for c in columns})
        source = long(frame, "e", *names).rename(columns={"visit": "t"})
        return source, options, source.astype({"t": str}).to_dict("records")
    if rng.random() < 0.5:  # interleaved, each episode in order
        labels = rng.permutation([row["e"] for row in rows])
        each = {label: iter([row for row in rows if row["e"] == label]) for label in set(labels)}
        rows = [next(each[label]) for label in labels]
    frame = pd.DataFrame(rows, columns=list(NAMES), dtype=object)
    if form == "text frame":
        return in_classes(rng, frame, options, rows)
    if form == "parquet":
        if not several and rng.random() < 0.4:
            frame = ordered(rng, frame)
        frame.to_parquet(path := path.with_suffix(".parquet"))
        return path, options, rows
    if form == "csv" and rng.random() < 0.4:
        options |= {"sep": ";", "encoding": "latin-1"} | pick({}, {"decimal": ","})
    path = path.with_suffix(".tsv") if form == "tsv" else path
    text = frame.assign(r=[x.replace(".", options.get("decimal", ".")) if x != "." else x for x in frame["r"]])
    text.to_csv(path, index=False, sep="\t" if form == "tsv" else options.get("sep", ","))
    if form == "typed frame" and rows and not (frame == ".").any(axis=None):
        return in_classes(rng, pd.read_csv(path), options, rows)
    return path, options, rows


def ordered(rng, frame):
    """The frame with ordered categories of states and actions, in any order; some of them do not occur."""
    changed = {}
    for names in (("s", "n"), ("a",)):
        cells = pd.concat([frame[name] for name in names]).dropna()
        categories = list(rng.permutation(np.asarray([*cells.unique().tolist(), *([] if cells.dtype.kind in "if" else ["never"])], object)))  # fmt: skip # noqa: E501
        kind = pd.CategoricalDtype(categories, ordered=True)
        changed |= {name: frame[name].astype(kind) for name in names if name != "n" or rng.random() < 0.8}
    return frame.assign(**changed)


def in_classes(rng, frame, options, rows):
    """A table whose states are ordered categories, or classes that `pd.cut` makes of numbers, or as they were."""
    form = rng.random()
    if isinstance(options["state"], list) or form < 0.4:
        return frame, options, rows
    if form < 0.7:
        return ordered(rng, frame), options, rows
    # The number of the state, at the middle of its class; what is no state is empty. The highest class is empty.
    number = {
        label: i for i, label in enumerate(sorted({row[name] for row in rows for name in "sn"} - WORDS - {"-999"}))
    }
    text = {i: f"({i}, {i + 1}]" for i in number.values()}
    classes = {}
    for name in "sn":
        values = [number.get(row[name], np.nan) + 0.5 for row in rows]
        classes[name] = pd.cut(pd.Series(values, frame.index, float), range(len(number) + 2))
    rows = [row | {name: text.get(number.get(row[name], -1), "") for name in "sn"} for row in rows]
    return frame.assign(**classes), {k: v for k, v in options.items() if k != "states"}, rows


def in_order(log, source):
    """Whether states and actions are in the order of the categories of a table, where they have one."""
    for role, names in (("states", "sn"), ("actions", "a")):
        kinds = [source[name].dtype for name in names]
        if isinstance(kinds[0], pd.CategoricalDtype) and all(kind == kinds[0] for kind in kinds):
            order = [as_text(category) for category in kinds[0].categories]
            places = [order.index(as_text(label)) for label in getattr(log, role)]
            if places != sorted(places):
                return False
    return True


def as_text(label):
    return f"{label:g}" if isinstance(label, float) else str(label)


class Reading(NamedTuple):
    """What a plain reader makes of rows.

    Args:
        bad: (row, role) of cells that cannot be read.
        wrong: rows whose step does not follow.
        moves: (state, action, reward or None, next state or None at an end, step) of each transition.
        alone: (state, action, reward or None) of each row of which it is not known what followed.
        notes: what is no transition, as the printed log says it.
    """

    bad: set[tuple[int, str]]
    wrong: set[int]
    moves: list[tuple[Any, ...]]
    alone: list[tuple[Any, ...]]
    notes: list[str]


def reference(options, rows):  # noqa: PLR0912, PLR0915 - a form of a file each
    """What the rows say, by the words of the page."""
    size, shifts, gaps = len(rows), "next_state" not in options, options.get("missing_state") == "gap"
    names = {role: options[role] for role in ("state", "next_state", "action") if options.get(role)}
    columns = {role: name if isinstance(name, list) else [name] for role, name in names.items()}
    listed = {str(x) for x in options.get("states", ())}
    of_states = columns["state"] + columns.get("next_state", [])
    negative = {
        kind: any(row[name].startswith("-") and row[name] != "-999" for name in some for row in rows)
        for kind, some in (("action", columns.get("action", [])), ("state", of_states))
    }

    def empty(role, i):
        kept, kind = (set(), "action") if role == "action" else (listed, "state")
        texts = [rows[i][name] for name in columns[role]]
        nothing = [x not in kept and (bool(kept) or not negative[kind] if x == "-999" else x in WORDS) for x in texts]
        return any(nothing)

    def label(role, i):
        texts = [rows[i][name] for name in columns[role]]
        return tuple(texts) if len(texts) > 1 else texts[0]

    episodes: dict[Any, list[int]] = {}
    for i, row in enumerate(rows):
        episodes.setdefault(row["e"] if "episode" in options else i, []).append(i)
    after = {i: j for numbers in episodes.values() for i, j in itertools.zip_longest(numbers, numbers[1:])}
    place = {i: k for numbers in episodes.values() for k, i in enumerate(numbers)}
    numbers_of = {i: numbers for numbers in episodes.values() for i in numbers}
    over = ["terminated" in options and row["d"] == "1" for row in rows]
    cut = ["truncated" in options and row["c"] == "1" for row in rows]
    known = [not empty("state", i) for i in range(size)]
    acted = ["action" not in names or not empty("action", i) for i in range(size)]
    step = {}
    for numbers in episodes.values():
        for i in numbers:
            texts = [rows[j]["t"] for j in (numbers[0], i)]
            if "step" in options and "every" not in options:
                step[i] = int(texts[1])
            elif "step" in options:
                first, now = map(datetime.datetime.fromisoformat, texts)
                months = 12 * (now.year - first.year) + now.month - first.month
                hour = lambda t: t.replace(minute=0)  # noqa: E731
                passed = {"1D": (now.date() - first.date()).days, "1M": months}
                step[i] = passed.get(options["every"], (hour(now) - hour(first)) // datetime.timedelta(hours=1))
            else:
                step[i] = place[i]
    # Where a row leads, and whether it is part of the log.
    led, to = [], []
    for i, j in sorted(after.items()):
        if not shifts:
            there = not empty("next_state", i)
            leads, where = over[i] or there or not gaps, None if over[i] or not there else label("next_state", i)
        else:
            there = j is not None and not cut[i] and (known[j] or not gaps)
            there = there and ("step" not in options or step[j] == step[i] + 1)
            leads, where = over[i] or there, None if over[i] or not there else label("state", j)
        led.append(leads)
        to.append(where)
    keep = [(known[i] or not gaps) and (not shifts or led[i] or acted[i]) for i in range(size)]
    # What is wrong.
    bad = set()
    for i in range(size):
        for role in columns:
            if role == "action":
                wrong_there = keep[i] and not acted[i]
            elif role == "next_state" and over[i]:
                wrong_there = False
            else:
                wrong_there = not gaps if empty(role, i) else bool(listed) and label(role, i) not in listed
            if wrong_there:
                bad.add((i, role))
    paid_by = "reward" if "reward" in options else "cost" if "cost" in options else None
    at, strict = options.get("reward_at", "step"), options.get("missing_reward") != "ignore"
    number = lambda i: None if rows[i]["r"] in WORDS else float(rows[i]["r"])  # noqa: E731

    def one_later(i, j):
        return j is not None and not cut[i] and (not shifts or "step" not in options or step[j] == step[i] + 1)

    follows = {i: j for i, j in after.items() if one_later(i, j)}
    unpaid = set()
    for i, j in after.items():
        missing = number(i) is None
        if at == "step":
            refused = missing and strict and keep[i] and led[i]
        elif at == "next":
            refused = missing and strict and i in follows.values()
        else:
            refused = number(i) not in (None, 0.0) if j is not None else missing and strict
        if paid_by and refused:
            unpaid.add((i, paid_by))
    wrong = set()
    for numbers in episodes.values():
        pairs = list(itertools.pairwise(numbers))
        if "step" in options and not shifts:
            wrong |= {j for k, j in enumerate(numbers) if step[j] in [step[i] for i in numbers[:k]]}
        elif "step" in options and options.get("gaps") == "cut":
            wrong |= {j for i, j in pairs if step[j] <= step[i]}
        elif "step" in options:
            wrong |= {j for i, j in pairs if step[j] != step[i] + 1}
    if at == "step" or not (bad or wrong):  # else they are told when the other cells are right
        bad |= unpaid
    # What is counted, episode by episode.
    moves, alone, lost = [], [], Counter()
    for i in (i for numbers in episodes.values() for i in numbers):
        j = after[i]
        worth = number(i)
        if at == "next":
            worth = number(follows[i]) if i in follows else None
        elif at == "episode":
            rest = numbers_of[i]
            worth = 0.0 if any(keep[k] for k in rest[rest.index(i) + 1 :]) else number(rest[-1])
        if not keep[i]:
            lost["gap" if not known[i] else "last"] += 1
            lost["paid"] += known[i] and at == "step" and bool(number(i))
            continue
        sign = -1.0 if paid_by == "cost" else 1.0
        paid = None if paid_by is None or worth is None else sign * worth + 0.0
        if not led[i]:
            lost["unknown"] += 1
            act = label("action", i) if "action" in names else "none"
            alone += [(label("state", i), act, paid)] * (int(rows[i]["k"]) if "count" in options else 1)
        else:
            move = (label("state", i), label("action", i) if "action" in names else "none", paid, to[i], step[i])
            moves += [move] * (int(rows[i]["k"]) if "count" in options else 1)
    notes = [f"rows without a state, left out: {lost['gap']}"] * bool(lost["gap"])
    told = "rows that do not say what followed, which count by action and reward alone"
    notes += [f"{told}: {lost['unknown']}"] * bool(lost["unknown"])
    with_reward = f" (with a reward: {lost['paid']})" if paid_by and lost["paid"] else ""
    notes += [f"last rows without an action, left out: {lost['last']}{with_reward}"] * bool(lost["last"])
    return Reading(bad, wrong, moves, alone, notes)


def observed(log):
    """The transitions of a log with a next state or an end, in the form of `reference`."""
    t, size = log.transitions, len(log.transitions.state)
    known = t.next_observed
    seen = np.ones(size, bool) if t.reward_observed is None else np.asarray(t.reward_observed)
    text = lambda label: tuple(map(str, label)) if isinstance(label, tuple) else str(label)  # noqa: E731
    moves = []
    for i in range(size):
        if known is not None and not known[i]:
            continue
        paid = None if t.reward is None or not seen[i] else float(t.reward[i])
        ended = t.terminated is not None and bool(t.terminated[i])
        after = None if ended else text(log.states[int(t.next_state[i])])
        step = 0 if t.step is None else int(t.step[i])
        moves.append((text(log.states[int(t.state[i])]), str(log.actions[int(t.action[i])]), paid, after, step))
    return moves


def without_sequel(log):
    """State, action and reward of the rows of which it is not known what followed."""
    t = log.transitions
    rows = [] if t.next_observed is None else np.flatnonzero(~np.asarray(t.next_observed))
    seen = np.ones(len(t.state), bool) if t.reward_observed is None else np.asarray(t.reward_observed)
    text = lambda label: tuple(map(str, label)) if isinstance(label, tuple) else str(label)  # noqa: E731
    paid = [None if t.reward is None or not seen[i] else float(t.reward[i]) for i in rows]
    return [
        (text(log.states[int(t.state[i])]), str(log.actions[int(t.action[i])]), worth)
        for i, worth in zip(rows, paid, strict=True)
    ]


def quietly(read, *arguments, **options):
    """Without warnings: of next states that contradict the next row, of times."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(*arguments, **options)


def refused(error):
    """(row, role) of the cells that an error names."""
    return [(row, role) for row, role, *_ in error.cells]


@pytest.mark.parametrize("part", range(4))
def test_a_plain_reader_finds_the_same(tmp_path, long, part):  # noqa: PLR0915 - what is compared
    """500 tables: the same transitions, with a line for what is none, or the same cells and rows refused."""
    seen: Counter[str] = Counter()
    for seed in range(125 * part, 125 * (part + 1)):
        source, options, rows = random_file(seed, tmp_path / "log.csv", long)
        bad, wrong, moves, alone, notes = reference(options, rows)
        # In chunks: not what needs the whole log, and -999 there needs all labels.
        whole = {"every", "count", "reward_at"} & options.keys() or isinstance(options["state"], list)
        doubtful = any("-999" in (row["s"], row["n"], row["a"]) for row in rows)
        chunks = {"chunksize": seed % 5 + 1}
        in_pieces = not (whole or doubtful)
        try:
            log = quietly(read_log, source, **options)
        except BadCells as error:
            cells = refused(error)
            steps = {row for row, role in cells if role == "step"}
            assert steps <= wrong and len(steps) == (bool(wrong) and all(role in ("action", "reward", "cost") for _, role in bad)), (seed, cells, wrong, bad)  # fmt: skip # noqa: E501
            assert error.number == len(bad) + len(steps) and len(cells) == min(error.number, MOST_TOLD), (seed, cells, bad)  # fmt: skip # noqa: E501
            rest = bad - set(cells)
            assert set(cells) - {(row, "step") for row in steps} <= bad, (seed, cells, bad)
            assert not rest or max(cells)[0] <= min(rest)[0], (seed, cells, bad)
            seen["step" if steps else "blank"] += 1
            if in_pieces:
                with pytest.raises(BadCells) as again:
                    quietly(fold_log, source, **options, **chunks)
                assert (refused(again.value), again.value.number) == (cells, error.number), (seed, refused(again.value), cells)  # fmt: skip # noqa: E501
                seen["refused in chunks"] += 1
            continue
        except ValueError as error:
            assert re.search("no episode of two rows|no rows|is 0 in all rows", str(error)), (seed, str(error))
            assert not moves and not bad and not wrong, seed
            seen["short"] += 1
            continue
        assert not bad and not wrong, (seed, bad, wrong)
        assert observed(log) == [(*move[:4], 0) for move in moves] if "count" in options else observed(log) == moves, (
            seed
        )
        assert without_sequel(log) == alone, seed
        assert list(log.notes) == notes and all(note in str(log) for note in notes), (seed, log.notes, notes)
        left_out = sum(int(re.search(r": (\d+)", note)[1]) for note in notes)
        assert "count" in options or log.n_transitions + left_out == len(rows), seed
        seen.update(
            ["read", *options, *(f"{name}: {options[name]}" for name in ("reward_at", "gaps") if name in options)]
        )
        seen["lines"] += len(notes)
        if isinstance(source, pd.DataFrame) and "states" not in options and options["action"] is not None:
            assert isinstance(options["state"], list) or in_order(log, source), seed
            classes = getattr(source["s"].dtype, "categories", None) if len(source) else None
            seen["categories"] += isinstance(classes, pd.Index)
            seen["pd.cut"] += isinstance(classes, pd.IntervalIndex)
        if in_pieces:
            folded = quietly(fold_log, source, **options, **chunks)
            told = sum(int(re.search(r": (\d+)", note)[1]) for note in folded.notes)
            assert (folded.n_transitions, told) == (len(moves), len(rows) - len(moves)), seed
            listed = {"states": log.states, "actions": log.actions}
            pieces = list(quietly(read_chunks, source, **(options | listed), **chunks))
            assert Counter(move for piece in pieces for move in observed(piece)) == Counter(moves), seed
            seen["read in chunks"] += 1
    kinds = ("read", "blank", "step", "short", "refused in chunks", "read in chunks", "lines", "missing_state", "gaps")
    assert (
        min(
            seen[kind]
            for kind in (*kinds, "count", "reward_at", "truncated", "every", "cost", "sep", "categories", "pd.cut")
        )
        > 0
    ), seen


# Six real forms, one call each; sizes and sums by hand.


def sizes(log):
    """How many rows of each pair of a state and an action have a next state or an end, and the sum of all rewards."""
    t = log.transitions
    number = Counter(move[:2] for move in observed(log))
    return dict(number), 0.0 if t.reward is None else float(np.asarray(t.reward, float).sum())


def test_a_claims_export(write):
    """German: semicolons, Latin-1, decimal commas, dates as text, costs; patient 4 died at home."""
    path = write(
        "Patient;Monat;Schweregrad;Maßnahme;Kosten;verstorben\n"
        "17;2025-11;leicht;Gespräch;80,50;0\n17;2025-12;schwer;Röntgen;210;0\n17;2026-01;leicht;Gespräch;80,5;0\n"
        "4;2025-12;schwer;Röntgen;199,99;0\n4;2026-01;schwer;keine;0;1\n",
        "Abrechnung.csv",
        "latin-1",
    )
    log = read_log(
        path, state="Schweregrad", action="Maßnahme", cost="Kosten", terminated="verstorben", episode="Patient",
        step="Monat", every="1M", sep=";", encoding="latin-1", decimal=",",
    )  # fmt: skip
    number, _ = sizes(log)
    assert number == {("leicht", "Gespräch"): 1, ("schwer", "Röntgen"): 2, ("schwer", "keine"): 1}
    paid = np.asarray(log.transitions.reward)[np.asarray(log.transitions.state) == log.states.index("schwer")]
    assert paid.sum() == -(210 + 199.99)


def test_a_data_frame_of_r(write):
    """`write.csv` writes row names without a name of their column, strings in quotes, and NA."""
    path = write(
        '"","id","health","drug","benefit","after"\n"1",1,"good","A",1.5,"bad"\n"2",1,"bad","B",NA,"good"\n'
        '"3",2,"good","A",0.5,"good"\n"7",2,"good",NA,2,"bad"\n'
    )
    options: dict[str, Any] = {"state": "health", "action": "drug", "reward": "benefit", "next_state": "after"}
    with pytest.raises(
        BadCells, match=r"row 2 \(line 3\): reward .*row 4 \(line 5\): action 'drug' is 'NA'.*2 such"
    ) as error:
        read_log(path, **options, episode="id")
    assert [(row, role) for row, role, *_ in error.value.cells] == [(1, "reward"), (3, "action")]
    log = read_log(write(path.read_text().replace("NA,2", '"A",2')), **options, missing_reward="ignore")
    assert sizes_of_next(log) == ({("good", "A"): 3, ("bad", "B"): 1}, 4.0)
    assert np.asarray(log.transitions.reward_observed).tolist() == [True, False, True, True]


def sizes_of_next(log):
    """`sizes` of a log without steps."""
    number = Counter((state, action) for state, action, _ in labelled(log))
    return dict(number), float(np.asarray(log.transitions.reward, float).sum())


def test_a_trial_file_with_missed_trials(write):
    """Tab-separated; a missed trial has no choice and no reward, written "." as by SAS, and the file says where."""
    text = "subject\ttrial\tcue\tchoice\tpay\n1\t0\tA\tleft\t1\n1\t1\tB\t.\t.\n1\t2\tA\tright\t0\n1\t3\tB\tleft\t1\n"
    options: dict[str, Any] = {
        "state": "cue",
        "action": "choice",
        "reward": "pay",
        "episode": "subject",
        "step": "trial",
    }
    with pytest.raises(BadCells, match="2 such cells in all") as error:
        read_log(write(text, "trials.tsv"), **options)
    assert {(row, role) for row, role, *_ in error.value.cells} == {(1, "action"), (1, "reward")}
    # What was missed as an action of its own.
    log = read_log(write(text, "trials.tsv"), **options, actions=[".", "left", "right"], missing_reward="ignore")
    number, _ = sizes(log)
    assert number == {("A", "left"): 1, ("B", "."): 1, ("A", "right"): 1}


def test_a_wide_panel(long):
    wide = pd.DataFrame(
        {
            "person": [7, 8, 9],
            **{"state_1": ["ill", "well", "ill"], "action_1": ["treat", "wait", "wait"], "pay_1": [-1.0, 1.0, 0.0]},
            **{"state_2": ["well", "ill", "ill"], "action_2": ["wait", "treat", None], "pay_2": [1.0, -1.0, None]},
            **{"state_3": ["well", "ill", None], "action_3": [None, None, None], "pay_3": [None, None, None]},
        }
    )
    rows = long(wide, "person", "state", "action", "pay")
    assert len(rows) == 8 and rows["visit"].tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    log = read_log(rows, state="state", action="action", reward="pay", episode="person", step="visit")
    number, total = sizes(log)
    assert number == {("ill", "treat"): 2, ("well", "wait"): 2, ("ill", "wait"): 1} and total == 0.0
    gone = wide.assign(state_2=["well", None, "ill"], action_2=["wait", None, None], pay_2=[1.0, None, None])
    with pytest.raises(ValueError, match="row 5: step 'visit' is 3, expected 2"):
        read_log(
            long(gone, "person", "state", "action", "pay"),
            state="state",
            action="action",
            episode="person",
            step="visit",
        )


def test_an_event_log_with_two_stays_of_a_patient(write):
    """Events of all patients by time; the stay is the episode: patient 1 came twice."""
    path = write(
        "time,patient,stay,ward,order,left\n"
        "2026-01-01 08:00,1,100,emergency,scan,0\n2026-01-01 09:00,2,101,emergency,rest,0\n"
        "2026-01-01 09:00,1,100,surgery,operate,0\n2026-01-01 10:00,1,100,surgery,rest,1\n"
        "2026-01-01 10:00,2,101,emergency,scan,1\n2026-02-01 08:00,1,102,emergency,rest,0\n"
        "2026-02-01 09:00,1,102,surgery,rest,1\n"
    )
    options: dict[str, Any] = {"state": "ward", "action": "order", "terminated": "left"}
    log = read_log(path, **options, episode="stay", step="time", every="1h")
    assert sizes(log)[0] == {
        ("emergency", "scan"): 2,
        ("emergency", "rest"): 2,
        ("surgery", "operate"): 1,
        ("surgery", "rest"): 2,
    }
    assert np.asarray(log.transitions.terminated).sum() == 3
    # With the patient as the episode, the month between the stays is a gap, and not one step.
    with pytest.raises(
        ValueError,
        match=r"row 6 .*: step 'time' is '2026-02-01 08:00' \(step 744\), expected 3, the step after that of row 4",
    ):
        read_log(path, **options, episode="patient", step="time", every="1h")


def test_counts_of_cells(write):
    path = write(
        "grade,treated,after,n,site\nmild,no,mild,40,x\nmild,no,severe,10,x\nsevere,yes,mild,7,x\nsevere,yes,dead,0,x\n"
    )
    log = read_log(path, state="grade", action="treated", next_state="after", count="n")
    assert Counter(labelled(log)) == {
        ("mild", "no", "mild"): 40,
        ("mild", "no", "severe"): 10,
        ("severe", "yes", "mild"): 7,
    }
    assert log.states == ("dead", "mild", "severe")


def test_a_state_of_several_columns_keeps_the_names_of_its_parts(tmp_path):
    """In what is printed, in a stored posterior, in a policy by label."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"e": np.repeat(range(20), 5), "grade": rng.choice(["hi", "lo"], 100), "load": 1})
    frame = frame.assign(a=rng.choice(["go", "stay"], 100), r=rng.normal(size=100))
    log = read_log(frame, state=["grade", "load"], action="a", reward="r", episode="e")
    assert "2 states ((grade='hi', load=1), (grade='lo', load=1))" in str(log)
    prior = bm.models.dirichlet_normal_gamma()
    posterior = bm.infer(jax.random.key(0), prior, log, space=StateActionSpace.from_log(log))
    assert posterior.space.factors == ("grade", "load")
    bm.save(posterior, tmp_path / "posterior.bmdp")
    again = bm.load(tmp_path / "posterior.bmdp")
    assert again.space.factors == ("grade", "load") and again.space.state_names == posterior.space.state_names
    assert pickle.loads(pickle.dumps(posterior.space.state_names))[0].names == ("grade", "load")
    policy = {("hi", 1): "go", ("lo", 1): "stay"}
    value = bm.policy_value(jax.random.key(1), posterior, policy, bm.Discounted(0.9), initial=("hi", 1), num_draws=20)
    assert "state grade=hi, load=1" in str(value)
    objective = bm.Discounted(0.5)
    decision = bm.decide(
        jax.random.key(1),
        "default",
        log,
        objective,
        policies={"this": policy},
        options=bm.recommend.DecideOptions(num_draws=100),
    )
    assert len(decision.differences) and "grade=" in str(decision) and "(hi, 1)" not in str(decision)
    given = read_log(frame, state=["grade", "load"], action="a", episode="e", states=[("lo", 1), ("hi", 1), ("hi", 2)])
    assert StateActionSpace.from_log(given).factors == ("grade", "load") and given.states[2] == ("hi", 2)
