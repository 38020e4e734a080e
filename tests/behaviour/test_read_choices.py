from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayes_mdp.behaviour import TwoStep, TwoStepTask, read_choices, simulate

COLUMNS: Any = {"subject": "id", "action": "move", "reward": "paid"}


def frame():
    return pd.DataFrame(
        {
            "id": ["s10", "s2", "s10", "s2", "s2"],
            "t": [2, 1, 1, 3, 2],
            "move": ["right", "left", "left", "left", "right"],
            "paid": [1.0, 0.0, 0.5, 2.0, 1.0],
            "cue": ["x", "y", "y", "x", "x"],
        }
    )


def test_rows_are_sorted_by_subject_and_trial_and_padded():
    log = read_choices(frame(), **COLUMNS, state="cue", trial="t")
    assert log.subjects == ("s2", "s10") and log.actions == ("left", "right") and log.states == ("x", "y")
    assert np.asarray(log.observed).tolist() == [[True, True, True], [True, True, False]]
    assert log.action.tolist() == [[0, 1, 0], [0, 1, 0]] and log.reward[0].tolist() == [0.0, 1.0, 2.0]
    assert log.state[0].tolist() == [1, 0, 0] and log.next_state[0].tolist() == [0, 0, 0]


def test_a_bandit_has_one_state_and_rows_keep_their_order(tmp_path):
    path = tmp_path / "log.csv"
    frame().to_csv(path, index=False)
    log = read_choices(path, **COLUMNS)
    assert log.states == (0,) and not log.state.any()
    assert log.reward[1, :2].tolist() == [1.0, 0.5]


def test_a_log_survives_being_written_and_read(tmp_path, key):
    params = {"a": 0.4, "beta": 2.0, "pi": 0.2, "w": 0.5}
    log = simulate(key, TwoStep(4), params, TwoStepTask(), 20, subjects=["p1", "p2", "p3"])
    path = tmp_path / "log.parquet"
    log.frame().to_parquet(path)
    names = ("subject", "action", "reward", "state", "next_state", "terminated", "trial")
    columns: Any = {name: name for name in names}
    again = read_choices(path, **columns, states=log.states)
    for name in ("state", "action", "reward", "terminated", "observed"):
        np.testing.assert_array_equal(getattr(again, name), getattr(log, name))
    going = ~np.asarray(log.terminated)
    np.testing.assert_array_equal(again.next_state[going], log.next_state[going])


def test_missed_choices_are_an_error_or_left_out():
    rows = frame().astype({"move": object})
    rows.loc[1, "move"], rows.loc[0, "paid"] = None, np.nan
    with pytest.raises(ValueError, match=r"row 2: action 'move' is empty, expected the label of an action"):
        read_choices(rows, **COLUMNS)
    log = read_choices(rows, **COLUMNS, trial="t", missing="ignore")
    assert np.asarray(log.observed).tolist() == [[False, True, True], [True, False, False]]


def test_trials_that_are_not_there_are_warned_of():
    rows = pd.DataFrame(
        {"id": ["a"] * 4 + ["b"] * 4, "t": [1, 2, 4, 5, 9, 3, 2, 1], "move": ["l", "r"] * 4, "paid": 1.0}
    )
    said = "the DataFrame: subject 'a' has no trial between 2 and 4, and 1 more such gap: it is taken that nothing"
    with pytest.warns(UserWarning, match=said):
        read_choices(rows, **COLUMNS, trial="t")
    with pytest.warns(UserWarning, match="subject 'b' has no trial between 3 and 9: it"):
        read_choices(rows.iloc[4:], **COLUMNS, trial="t")
    # Numbers that are evenly spaced, wherever they begin, have no gap; nor has a missed choice whose row is there.
    read_choices(rows.assign(t=[10, 20, 30, 40, 110, 100, 90, 80]), **COLUMNS, trial="t")
    read_choices(rows.iloc[3:5], **COLUMNS, trial="t")
    missed = rows.assign(t=[1, 2, 3, 4] * 2, move=["l", None] * 4)
    assert read_choices(missed, **COLUMNS, trial="t", missing="ignore").num_choices == 4


def test_wrong_columns_name_column_row_and_subject():
    with pytest.raises(ValueError, match="subject is column 'who', which the DataFrame has not"):
        read_choices(frame(), **COLUMNS | {"subject": "who"})
    with pytest.raises(TypeError, match="subject is None, expected the name of a column"):
        read_choices(frame(), **COLUMNS | {"subject": None})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"row 1: action 'move' is 'right', expected one of the labels given"):
        read_choices(frame(), **COLUMNS, actions=["left", "up"])
    bad = frame()
    bad.loc[3, "paid"] = np.inf
    with pytest.raises(ValueError, match=r"row 4: reward 'paid' is inf, expected a finite number"):
        read_choices(bad, **COLUMNS)
    bad = frame()
    bad.loc[4, "t"] = 3
    with pytest.raises(ValueError, match=r"row 5: trial 't' is 3, expected each trial of a subject once"):
        read_choices(bad, **COLUMNS, trial="t")
    bad = frame()
    bad["id"] = ["a", "a", None, "b", "b"]
    with pytest.raises(ValueError, match=r"row 3: subject 'id' is empty, expected the label of a subject"):
        read_choices(bad, **COLUMNS)


def test_files_are_described_as_for_read_log(tmp_path):
    path = tmp_path / "Versuch.csv"
    text = (
        "id;t;reiz;farbe;wahl;lohn\nä;1;A;rot;links;1,5\nä;2;NA;rot;links;0\nä;3;B;blau;rechts;NA\nä;4;A;rot;links;2\n"
    )
    path.write_bytes(text.encode("latin-1"))
    options: Any = {"subject": "id", "trial": "t", "action": "wahl", "reward": "lohn", "state": ["reiz", "farbe"]}
    options |= {"sep": ";", "encoding": "latin-1", "decimal": ","}
    with pytest.raises(
        ValueError, match=r"row 2 \(line 3\): state .*empty in one of them.*row 3 .*cost 'lohn'.*2 such"
    ):
        read_choices(path, **options | {"reward": None, "cost": "lohn"}, missing="error")
    log = read_choices(path, **options, missing="ignore")
    assert log.subjects == ("ä",) and log.states == (("A", "rot"), ("B", "blau"))
    assert np.asarray(log.observed).tolist() == [[True, False, False, True]]
    assert np.asarray(log.reward)[0, [0, 3]].tolist() == [1.5, 2.0] and log.next_state[0, 0] == log.state[0, 3]


def test_bad_cells_are_told_at_once_with_the_page():
    bad = frame().astype({"move": object, "t": object})
    bad.loc[0, "move"], bad.loc[2, "paid"], bad.loc[3, "t"], bad.loc[4, "cue"] = None, np.inf, "soon", None
    with pytest.raises(ValueError, match="4 such cells in all") as error:
        read_choices(bad, **COLUMNS, state="cue", trial="t")
    for text in ("row 1: action 'move' is empty", "row 3: reward 'paid' is inf", "row 4: trial 't' is 'soon'",
                 "row 5: state 'cue' is empty", "(see how-to/fit-learners-to-people in"):  # fmt: skip
        assert text in str(error.value)
