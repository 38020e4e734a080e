"""Policies and first states as text: what is read, and what is refused in one sentence."""

from argparse import Namespace

import numpy as np
import pandas as pd
import pytest

from bayes_mdp.cli.problem import baseline_of, initial_of, start_of
from bayes_mdp.mdp import Log, StateActionSpace, Transitions

SPACE = StateActionSpace(2, 3, states=(0, 1), actions=("go", "jump", "stay"))
WORDS = StateActionSpace(2, 2, states=("a=b", "c"), actions=("x", "y"))


def baseline(text: object, space: StateActionSpace = SPACE) -> object:
    """What --baseline means, of a log with the columns s and a."""
    return baseline_of(Namespace(baseline=str(text), state="s", action="a"), space)


@pytest.fixture
def table(tmp_path):
    """columns -> a file."""

    def written(**columns):
        path = tmp_path / "today.csv"
        pd.DataFrame(columns).to_csv(path, index=False)
        return path

    return written


def test_baselines(table):
    assert baseline("behaviour") is None
    for same in ("go", "0=go,1=go", " 1 = go , 0=go", table(a=["go", "go"], s=[1, 0])):
        assert baseline(same) == {0: "go", 1: "go"}
    assert baseline("0=stay,1=jump") == {0: "stay", 1: "jump"}
    random = table(s=[0, 0, 1], a=["go", "stay", "jump"], probability=[0.5, 0.5, 1.0])
    assert baseline(random) == {0: {"go": 0.5, "stay": 0.5}, 1: {"jump": 1.0}}
    np.testing.assert_array_equal(SPACE.policy(baseline(random)), [[0.5, 0, 0.5], [0, 1, 0]])  # type: ignore[arg-type] - a mapping


def test_labels_that_are_no_pairs_need_a_file(table):
    assert baseline(table(s=["a=b", "c"], a=["x", "y"]), WORDS) == {"a=b": "x", "c": "y"}
    assert start_of("--initial", "a=b", WORDS) == "a=b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fly", "^--baseline is 'fly', expected 'behaviour' or an action of the log, STATE=ACTION,... or a CSV file$"),
        ("jmp", r"did you mean 'jump'\?$"),
        ("0=go,1=jmp", r"^--baseline is 'jmp', expected an action of the log; did you mean 'jump'\?$"),
        ("0=go,2=go", "^--baseline is '2', expected a state of the log$"),
        ("0=go,0=go", "^--baseline has '0' twice, expected each once$"),
        ("0=go,1", "^--baseline has '1', expected STATE=ACTION,STATE=ACTION$"),
        ("0=go,1=", "^--baseline has '1=', expected STATE=ACTION,STATE=ACTION$"),
    ],
)
def test_wrong_baselines(text, message):
    with pytest.raises(ValueError, match=message):
        baseline(text)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"s": [0, 1], "a": ["go", "fly"]}, r"--baseline: a\[1\] is 'fly', expected an action of the log"),
        ({"s": [0, 2], "a": ["go", "go"]}, r"--baseline: s\[1\] is '2', expected a state of the log"),
        ({"s": [0, 0], "a": ["go", "go"]}, "--baseline has 0 twice, expected each once"),
        ({"s": [0, 1], "b": ["go", "go"]}, "has no column 'a', expected 's', 'a'"),
        (
            {"s": [0, 0], "a": ["go", "go"], "probability": [1, 0]},
            r"--baseline has \(0, 'go'\) twice, expected",
        ),
    ],
)
def test_wrong_tables(table, columns, message):
    with pytest.raises(ValueError, match=message):
        baseline(table(**columns))


def test_starts():
    log = Log(Transitions([0, 1], [0, 0], [0.0, 0.0], [1, 0]), SPACE.state_names, SPACE.action_names)
    start = lambda text: initial_of(Namespace(initial=text), SPACE, log)  # noqa: E731
    assert start(None) is None and start("logged") is log and start("1") == 1  # of one stretch without an end
    assert start("0=0.25,1=0.75") == {0: 0.25, 1: 0.75}
    for text, message in (
        ("2", r"^--initial is '2', expected 'logged', STATE=PROBABILITY,\.\.\. or a state of the log$"),
        ("0=x,1=1", "^--initial has 'x', expected a probability$"),
        ("0=1,2=0", "^--initial is '2', expected a state of the log$"),
    ):
        with pytest.raises(ValueError, match=message):
            start(text)


def test_labels_of_tables_are_text(table):
    """ "007" is not 7, and "NA" is a label."""
    space = StateActionSpace(3, 2, states=("007", "7", "NA"), actions=("01", "1"))
    assert baseline(table(s=["007", "7", "NA"], a=["01", "1", "1"]), space) == {"007": "01", "7": "1", "NA": "1"}
    assert baseline(table(s=[1.0, 0.0], a=["go", "jump"])) == {0: "jump", 1: "go"}
    same = StateActionSpace(2, 2, states=(1, "1"), actions=("x", "y"))
    assert baseline("x", same) == {1: "x", "1": "x"}
    with pytest.raises(ValueError, match=r"^--baseline is '1', which 1, '1' are all written as, expected labels that"):
        baseline("1=x", same)
