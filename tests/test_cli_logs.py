"""What the commands that read a log have in common: costs, labels that are given, warnings."""

import argparse

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.cli import build_parser
from bayes_mdp.cli.options import fold_logs, labels_of, log_of
from bayes_mdp.cli.problem import known_rewards_of, space_of
from tests.test_cli import refused, run

COLUMNS = ["--state", "s", "--action", "a", "--next-state", "s2"]


@pytest.fixture
def log(tmp_path):
    """Four states in a ring; `go` costs 2, `stay` 1."""
    rng = np.random.default_rng(0)
    state, action = rng.integers(4, size=80), rng.choice(["stay", "go"], size=80)
    path = tmp_path / "log.csv"
    next_state = np.where(action == "go", (state + 1) % 4, state)
    frame = pd.DataFrame({"s": state, "a": action, "cost": 1.0 + (action == "go"), "s2": next_state})
    frame.assign(reward=-frame["cost"]).to_csv(path, index=False)
    return path


def parsed(*words):
    return build_parser().parse_args([str(word) for word in words])


def test_costs_are_read_as_minus_rewards(capsys, log):
    code, by_cost, _ = run(capsys, "fit", log, *COLUMNS, "--cost", "cost")
    assert code == 0 and by_cost.startswith("Rewards are minus column 'cost': larger is better.\n\n")
    code, by_reward, _ = run(capsys, "fit", log, *COLUMNS, "--reward", "reward")
    assert code == 0 and by_cost.split("\n\n", 1)[1] == by_reward
    refused(capsys, "expected one of them", "fit", log, *COLUMNS, "--cost", "cost", "--reward", "reward")
    refused(capsys, "cost is column 'price', which log.csv has not", "fit", log, *COLUMNS, "--cost", "price")


@pytest.fixture
def started(tmp_path):
    """Ten episodes of three rows: eight begin `new`, two `worn`, none `broken`, where each row costs most."""
    rows = [("worn" if e % 5 == 0 else "new", "worn", "broken") for e in range(10)]
    state = np.array(rows).ravel()
    cost = np.select([state == "new", state == "worn"], [1.0, 3.0], 50.0)
    frame = pd.DataFrame({"s": state, "a": np.tile(["run", "fix"], 15), "cost": cost})
    frame = frame.assign(s2=np.append(state[1:], "new"), cut=np.tile([0, 0, 1], 10))
    path = tmp_path / "episodes.csv"
    frame.to_csv(path, index=False)
    return path


STARTED = (*COLUMNS, "--cost", "cost", "--truncated", "cut", "--discount", 0.5)
AS_LOGGED = "start: the first states of the log's 10 episodes (new 0.8, worn 0.2)"


@pytest.mark.slow
def test_every_command_starts_where_the_log_does_and_says_it(capsys, started):
    """`fit` and `next-experiment` started uniformly where `decide` started as logged: one file had two values."""
    of_decide = ("--draws", 100, "--no-checks", "--prior", "dirichlet_normal")
    for command, *more in (("fit", "--draws", 200), ("next-experiment", "--data-sets", 2), ("decide", *of_decide)):
        code, out, _ = run(capsys, command, started, *STARTED, *more)
        assert code == 0 and AS_LOGGED in out and "uniform over" not in out
    code, out, _ = run(capsys, "fit", started, *STARTED, "--draws", 200, "--initial", "broken")
    assert code == 0 and "start: the given distribution (state broken)" in out


def test_fit_has_the_values_of_python_from_the_log(capsys, started):
    code, out, _ = run(capsys, "fit", started, *STARTED, "--draws", 200)
    log = bm.read_log(started, state="s", action="a", cost="cost", next_state="s2", truncated="cut")
    space, key = bm.StateActionSpace.from_log(log), jax.random.key(0)
    posterior = bm.infer(key, bm.models.default_prior(log, space=space), log, space=space)
    policies = {"logged": bm.behaviour_policy(log, space=space), "greedy": bm.greedy(posterior, bm.Discounted(0.5))}
    compared = bm.compare_policies(key, posterior, policies, bm.Discounted(0.5), initial=log, num_draws=200)
    assert code == 0 and AS_LOGGED in out and str(compared) in out
    np.testing.assert_allclose(compared.values["logged"].initial, [0.0, 0.8, 0.2])  # broken, new, worn


def test_a_log_in_chunks_does_not_say_where_episodes_start(capsys, started):
    """It said that no --initial could be given at all."""
    chunks = (*STARTED, "--draws", 200, "--chunksize", 7)
    code, out, _ = run(capsys, "fit", started, *chunks)
    assert code == 0 and "start: uniform over the 3 states (no initial distribution was given)" in out
    code, out, _ = run(capsys, "fit", started, *chunks, "--initial", "new=0.8,worn=0.2")
    assert code == 0 and "start: the given distribution (new 0.8, worn 0.2)" in out
    refused(capsys, "--initial is 'logged' with logs in chunks", "fit", started, *chunks, "--initial", "logged")


@pytest.mark.slow
def test_a_decision_says_that_rewards_are_minus_costs(capsys, log):
    given = ("--cost", "cost", "--discount", 0.5, "--draws", 100, "--no-checks", "--prior", "dirichlet_normal")
    code, out, _ = run(capsys, "decide", log, *COLUMNS, *given)
    assert code == 0
    assert out.startswith("Decision from log.csv (rewards are minus column 'cost'), 80 transitions")
    assert out.count("minus column") == 1


def test_update_learns_costs(capsys, log, tmp_path):
    kept, more = tmp_path / "kept", tmp_path / "more.csv"
    pd.read_csv(log).iloc[:40].to_csv(more, index=False)
    assert run(capsys, "fit", log, *COLUMNS, "--cost", "cost", "--save", kept)[0] == 0
    code, out, _ = run(capsys, "update", kept, more, *COLUMNS, "--cost", "cost", "--save", tmp_path / "two")
    assert code == 0 and out.startswith("Rewards are minus column 'cost'")


@pytest.mark.parametrize(
    ("columns", "given", "sign"),
    [
        (["reward"], [], 1.0),
        (["cost"], [], -1.0),
        (["cost"], ["--cost", "cost"], -1.0),
        (["cost", "reward"], ["--cost", "cost"], -1.0),
        (["cost", "reward"], ["--reward", "reward"], 1.0),
    ],
)
def test_known_costs(log, tmp_path, columns, given, sign):
    table = pd.DataFrame({"s": range(4), **{name: [0.0, 1.0, 2.0, 3.0] for name in columns}})
    table.to_csv(tmp_path / "known.csv", index=False)
    arguments = parsed("fit", log, *COLUMNS, *given, "--known-reward", tmp_path / "known.csv")
    arguments.log = log
    rewards = known_rewards_of(arguments, space_of(arguments, log_of(arguments)))
    assert rewards.tolist() == [[sign * x, sign * x] for x in range(4)]


def test_known_rewards_that_are_not_clear(capsys, log, tmp_path):
    known = tmp_path / "known.csv"
    given = ("fit", log, *COLUMNS, "--known-reward", known)
    pd.DataFrame({"s": range(4), "cost": 0.0, "reward": 0.0}).to_csv(known, index=False)
    refused(capsys, "has the columns 'reward' and 'cost', expected --reward or --cost too", *given)
    pd.DataFrame({"s": range(4), "pay": 0.0}).to_csv(known, index=False)
    refused(capsys, "has no column 'reward' or 'cost', expected one", *given)
    refused(capsys, "has no column 'cost', expected one", *given, "--cost", "cost")


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["a,b,c"], ("a", "b", "c")),
        (["a, b ,c d"], ("a", "b ", "c d")),
        (["0,1,10"], (0, 1, 10)),
        (["0,1.5"], (0, 1.5)),
        (["007,7"], ("007", "7")),
        (["1,2,goal"], ("1", "2", "goal")),
        (["a", "b,c"], ("a", "b", "c")),
        (['"a,b"', "c"], ("a,b", "c")),
        (['"a,b",c'], ("a,b", "c")),
        (['"a,b",", ",d'], ("a,b", ", ", "d")),
    ],
)
def test_labels_are_written_as_in_a_line_of_a_csv_file(words, labels):
    found = labels_of(argparse.Namespace(states=words), "states")
    assert found == labels and found is not None and list(map(type, found)) == list(map(type, labels))
    assert labels_of(argparse.Namespace(states=None), "states") is None


def test_given_labels_are_those_of_python(capsys, log):
    given = ("fit", log, *COLUMNS, "--reward", "reward")
    arguments = parsed(*given, "--states", "4,3,2,1,0", "--actions", "stay,go,jump")
    arguments.log = log
    found = log_of(arguments)
    assert found.states == (4, 3, 2, 1, 0) and found.actions == ("stay", "go", "jump")
    code, out, _ = run(capsys, *given, "--states", "0,1,2,3", "--actions", "go,stay", "--chunksize", 7)
    assert code == 0 and out
    refused(capsys, "state 's' is '3', expected one of the labels given (0, 1, 2)", *given, "--states", "0,1,2")
    refused(capsys, "states[1] is 0 again", *given, "--states", "0,0")
    refused(capsys, "--actions is 'go,,stay', expected labels with commas", *given, "--actions", "go,,stay")
    refused(capsys, "--actions is '\"go', expected labels with commas between", *given, "--actions", '"go')


def test_every_command_that_finds_labels_in_a_log_takes_them(log):
    shared = ["--states", "0,1,2,3", "--actions", "go,stay"]
    for words in (
        ["fit", log, *COLUMNS],
        ["decide", log, *COLUMNS],
        ["calibrate", "sticky", "--log", log, *COLUMNS],
        ["behaviour", log, "--subject", "s", "--action", "a", "--cost", "cost", "--agent", "q_learning"],
    ):
        arguments = parsed(*words, *shared)
        assert labels_of(arguments, "states") == (0, 1, 2, 3) and labels_of(arguments, "actions") == ("go", "stay")
        assert hasattr(arguments, "cost")


def known(log, tmp_path, table, *more):
    """The array of --known-reward, where the table is this text."""
    (tmp_path / "known.csv").write_text(table)
    arguments = parsed("fit", log, *COLUMNS, *more, "--known-reward", tmp_path / "known.csv")
    arguments.log = log
    return known_rewards_of(arguments, space_of(arguments, log_of(arguments))).tolist()


def test_labels_of_known_rewards_are_text(tmp_path):
    """The labels "007", "7" and "na" are three; a table that was read as numbers would know one of them."""
    log = tmp_path / "log.csv"
    log.write_text("s,a,s2\n007,x,7\n7,x,na\nna,x,007\n")
    assert known(log, tmp_path, "s,a,reward\n007,x,1\n7,x,2\nna,x,3\nelse,x,4\n") == [[1.0], [2.0], [3.0]]
    log.write_text("s,a,s2\n0,x,1\n1,x,0\n")
    assert known(log, tmp_path, "s,reward\n1.0,5\n0.0,6\n") == [[6.0], [5.0]]  # as pandas writes columns with holes


def test_two_known_rewards_of_a_pair_are_refused(log, tmp_path):
    """Rewards by next state, or by actions in a column of another name: no row may win in silence."""
    rows = [f"{s},{a},{s},0" for s in range(4) for a in ("stay", "go")]
    table = "\n".join(["s,a,s2,reward", *rows, "2,go,3,1"])
    with pytest.raises(ValueError, match=r"has two values of 'reward' for s 2, a 'go', expected one mean reward"):
        known(log, tmp_path, table)
    with pytest.raises(ValueError, match=r"has two values of 'reward' for s 2, expected one mean reward"):
        known(log, tmp_path, table.replace("s,a,", "s,move,"))
    assert known(log, tmp_path, table.replace("3,1", "3,0")) == [[0.0] * 2] * 4


def test_how_a_file_is_written(tmp_path):
    path = tmp_path / "claims.csv"
    path.write_bytes("wer;wann;s;a;c\n1;2026-01-01;ü;x;1,5\n1;2026-01-02;u;x;2\n1;2026-01-03;ü;x;\n".encode("latin-1"))
    columns = ("--state", "s", "--action", "a", "--cost", "c", "--episode", "wer")
    written = ("--sep", ";", "--encoding", "latin-1", "--decimal", ",")
    arguments = parsed("fit", path, *columns, *written, "--step", "wann", "--every", "1D")
    arguments.log = path
    log = log_of(arguments)
    assert log.states == ("u", "ü") and np.asarray(log.transitions.reward)[:2].tolist() == [-1.5, -2.0]
    arguments = parsed("fit", path, path, "--allow-duplicates", *columns, *written)
    assert fold_logs(arguments).n_transitions == 4  # what followed the last rows is not known
    arguments = parsed("fit", path, path, *columns, *written, "--step", "wann", "--every", "1D")
    with pytest.raises(ValueError, match="--every is given with logs that are read in chunks of rows"):
        fold_logs(arguments)
    tabs = tmp_path / "log.txt"
    tabs.write_text("s\ta\tn\tk\nx\tgo\ty\t3\n")
    arguments = parsed(
        "decide", tabs, "--state", "s", "--action", "a", "--next-state", "n", "--sep", "\\t", "--count", "k"
    )
    assert len(log_of(arguments).transitions.state) == 3
