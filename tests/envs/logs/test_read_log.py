"""`read_log`: what comes in, and what each bad cell is called."""

import gzip
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayes_mdp.envs import read_log
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.data.log_split import episode_numbers, first_states
from bayes_mdp.mdp.data.transitions import check_transitions
from tests.envs.logs.random_logs import fold_log

COLUMNS: dict[str, Any] = {"state": "s", "action": "a", "reward": "r", "next_state": "s2"}


@pytest.fixture
def write(tmp_path):
    def file(text, name="log.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return file


def test_a_csv_becomes_transitions(write):
    path = write("t,s,a,r,s2\n0,10,left,1.5,2\n1,2,right,-1,10\n2,10,left,0,10\n")
    log = read_log(path, **COLUMNS)
    assert log.states == (2, 10)
    assert log.actions == ("left", "right")
    assert log.source == "log.csv"
    assert dict(log.columns) == {"state": "s", "action": "a", "reward": "r", "next_state": "s2"}
    data: Any = log.transitions
    np.testing.assert_array_equal(data.state, [1, 0, 1])
    np.testing.assert_array_equal(data.action, [0, 1, 0])
    np.testing.assert_array_equal(data.next_state, [0, 1, 1])
    np.testing.assert_array_equal(data.reward, [1.5, -1.0, 0.0])
    assert (data.state.dtype, data.reward.dtype) == (np.int32, np.float64)
    assert data.terminated is data.truncated is data.step is data.reward_observed is None
    check_transitions(data, StateActionSpace.from_log(log))


def test_the_sources_agree(write, tmp_path):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    n = 500
    frame = pd.DataFrame({"s": rng.integers(-3, 12, n), "a": rng.choice(["stop", "go"], n)})
    frame = frame.assign(r=rng.normal(size=n), s2=rng.integers(-3, 12, n), d=rng.random(n) < 0.1)
    frame.to_parquet(tmp_path / "log.parquet")
    csv, tsv = write(frame.to_csv(index=False)), write(frame.to_csv(index=False, sep="\t"), "log.tsv")
    logs = [read_log(x, **COLUMNS, terminated="d") for x in (frame, csv, str(csv), tsv, tmp_path / "log.parquet")]
    for log in logs:
        assert log.states == tuple(range(-3, 12))
        assert all(type(label) is int for label in log.states)
        for name in ("state", "action", "reward", "next_state", "terminated"):
            np.testing.assert_array_equal(getattr(log.transitions, name), getattr(logs[0].transitions, name))
    np.testing.assert_array_equal(logs[1].transitions.reward, frame.r)


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["s10", "s2", "s1"], ("s1", "s2", "s10")),
        (["007", "7", "08"], ("007", "7", "08")),
        (["0.5", "10", "2"], (0.5, 2, 10)),
        (["3.0", "1", "2.0"], (1, 2, 3)),
        (["9007199254740993", "9007199254740992", "1e3"], (1000, 9007199254740992, 9007199254740993)),
    ],
)
def test_labels_of_a_csv_are_numbered_naturally(write, cells, names):
    log = read_log(write("s,a,s2\n" + "".join(f"{c},0,{c}\n" for c in cells)), state="s", action="a", next_state="s2")
    assert log.states == names
    assert [type(label) for label in log.states] == [type(label) for label in names]


def test_labels_of_a_frame_are_any_hashable():
    cells = [(1, "b"), (1, "a"), (0, "z")]
    frame = pd.DataFrame({"s": cells, "a": pd.Categorical(["x", "y", "x"]), "s2": [*cells[1:], cells[0]]})
    log = read_log(frame, state="s", action="a", next_state="s2")
    assert log.states == ((0, "z"), (1, "a"), (1, "b"))
    np.testing.assert_array_equal(log.transitions.next_state, [1, 0, 2])
    assert read_log(pd.DataFrame({"s": [True, False], "a": [0, 0], "s2": [True, True]}), state="s", action="a",
                    next_state="s2").states == (False, True)  # fmt: skip


def test_given_labels_fix_set_and_order(write):
    path = write("s,a,s2\n1,0,0\n0,0,1\n")
    log = read_log(path, state="s", action="a", next_state="s2", states=[2, 1, 0], actions=range(3))
    assert (log.states, log.actions) == ((2, 1, 0), (0, 1, 2))
    np.testing.assert_array_equal(log.transitions.state, [1, 2])
    assert read_log(path, state="s", action="a", next_state="s2", states=["0", "1"]).states == ("0", "1")


def test_the_next_state_of_a_terminated_row_is_not_looked_at(write):
    path = write("s,a,r,s2,d\n0,0,1,1.0,False\n1,0,1,,True\n1,0,1,the end,1\n")
    log = read_log(path, **COLUMNS, terminated="d")
    assert log.states == (0, 1)
    np.testing.assert_array_equal(log.transitions.terminated, [False, True, True])
    space = StateActionSpace.from_log(log)
    assert space.ends
    check_transitions(log.transitions, space)


def test_missing_rewards(write):
    path = write("s,a,r,s2\n0,0,1,1\n1,0,,0\n1,0,NA,0\n")
    log = read_log(path, **COLUMNS, missing_reward="ignore")
    np.testing.assert_array_equal(log.transitions.reward_observed, [True, False, False])
    np.testing.assert_array_equal(log.transitions.reward, [1.0, 0.0, 0.0])
    assert read_log(path, state="s", action="a", next_state="s2").transitions.reward is None
    with pytest.raises(ValueError, match=r"log.csv, row 2 \(line 3\): reward 'r' is empty, expected a number"):
        read_log(path, **COLUMNS)


EPISODES = "e,s,a,d,c\nx,0,0,0,0\ny,5,1,0,0\nx,1,0,0,0\nx,2,0,1,0\ny,6,1,0,0\ny,7,1,0,1\nz,9,0,0,0\n"


def test_states_are_shifted_within_interleaved_episodes(write):
    log = read_log(write(EPISODES), state="s", action="a", episode="e", terminated="d")
    data: Any = log.transitions
    states = np.array(log.states)
    np.testing.assert_array_equal(states[data.state], [0, 1, 2, 5, 6, 7, 9])
    np.testing.assert_array_equal(data.next_observed, [True, True, True, True, True, False, False])
    np.testing.assert_array_equal(states[data.next_state][data.next_observed & ~data.terminated], [1, 2, 6, 7])
    np.testing.assert_array_equal(data.terminated, [False, False, True, False, False, False, False])
    np.testing.assert_array_equal(data.truncated, [False, False, False, False, False, True, True])
    np.testing.assert_array_equal(data.step, [0, 1, 2, 0, 1, 2, 0])
    assert str(log).startswith(
        "5 transitions of "
    ) and "; rows that do not say what followed, which count by action and reward alone: 2" in str(log)


def test_without_flags_it_is_not_known_what_followed_the_last_row(write):
    data = read_log(write(EPISODES), state="s", action="a", episode="e").transitions
    np.testing.assert_array_equal(data.state, [0, 1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(data.next_observed, [True, True, False, True, True, False, False])
    np.testing.assert_array_equal(data.truncated, [False, False, True, False, False, True, True])
    assert data.terminated is None


def test_a_last_row_that_is_left_out_may_hold_the_final_state_alone(write):
    text = "e,s,a,r\nx,0,7,1\nx,1,9,2\nx,2,,\ny,0,7,3\ny,1,,\n"
    options: dict[str, Any] = {"state": "s", "action": "a", "reward": "r", "episode": "e"}
    log = read_log(write(text), **options)
    assert (log.states, log.actions) == ((0, 1, 2), (7, 9))
    data: Any = log.transitions
    np.testing.assert_array_equal(data.action, [0, 1, 0])
    np.testing.assert_array_equal(data.reward, [1.0, 2.0, 3.0])
    assert data.reward_observed is None
    assert "; last rows without an action, left out: 2" in str(log)
    with pytest.raises(ValueError, match=r"row 2 \(line 3\): action 'a' is empty"):
        read_log(write(text.replace("x,1,9,2", "x,1,,2")), **options)
    with pytest.raises(ValueError, match=r"row 2 \(line 3\): reward 'r' is empty"):
        read_log(write(text.replace("x,1,9,2", "x,1,9,")), **options)


@pytest.mark.parametrize("chunksize", [None, 1, 2, 100])
def test_the_flag_of_a_row_that_says_which_state_came_last_belongs_in_the_row_before(chunksize, write):
    options: dict[str, Any] = {"state": "s", "action": "a", "reward": "r", "episode": "e", "terminated": "d"}
    text = "e,s,a,r,d\nx,0,7,1,0\nx,1,9,2,0\nx,2,,0,1\n"
    message = (
        r"row 3 \(line 4\): action 'a' is empty, expected the label of an action, or terminated false \(true belongs"
    )
    with pytest.raises(ValueError, match=message):
        read_log(write(text), **options, chunksize=chunksize)
    # An action that is missing elsewhere, and the flags of a log that gives next states, are told as before.
    with pytest.raises(ValueError, match=r"row 2 .*expected the label of an action; row 3 .*, or terminated false"):
        read_log(write(text.replace("x,1,9,2,0", "x,1,,2,0")), **options, chunksize=chunksize)
    with pytest.raises(ValueError, match=r"action 'a' is empty, expected the label of an action( \(see|$)"):
        read_log(write("e,s,a,r,d,n\nx,0,,1,1,0\n"), **options, next_state="n", chunksize=chunksize)
    moved = text.replace("x,1,9,2,0", "x,1,9,2,1").replace("x,2,,0,1", "x,2,,,0")
    assert read_log(write(moved), **options, chunksize=chunksize).n_transitions == 2


def test_with_next_states_and_episodes_the_last_row_counts_as_truncated(write):
    path = write("e,s,a,s2,n\n1,0,0,1,4\n1,1,0,0,5\n2,0,0,0,0\n")
    data = read_log(path, state="s", action="a", next_state="s2", episode="e").transitions
    np.testing.assert_array_equal(data.truncated, [False, True, True])
    np.testing.assert_array_equal(data.step, [0, 1, 0])
    data = read_log(path, state="s", action="a", next_state="s2", episode="e", step="n", truncated="s").transitions
    np.testing.assert_array_equal(data.step, [4, 5, 0])
    np.testing.assert_array_equal(data.truncated, [False, True, True])


def test_an_episode_that_only_stops_is_not_joined_with_the_next(write):
    """Patients 1 and 2 are lost where the next one begins: by the states alone all would be one episode."""
    path = write("p,s,a,s2,d\n1,0,0,1,0\n1,1,0,0,0\n2,0,0,1,0\n3,1,0,0,0\n3,0,0,,1\n")
    log = read_log(path, state="s", action="a", next_state="s2", terminated="d", episode="p")
    np.testing.assert_array_equal(log.transitions.truncated, [False, True, True, False, False])
    np.testing.assert_array_equal(episode_numbers(log.transitions), [0, 0, 1, 2, 2])
    np.testing.assert_allclose(first_states(log), [2 / 3, 1 / 3])


GOOD = "s,a,r,s2,d,n,e\n0,0,1,1,0,0,p\n1,0,1,0,0,1,p\n"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "log.csv is empty, expected a header line and at least one transition"),
        ("s,a,r,s2\n", {}, "log.csv has no rows, expected at least one transition"),
        (GOOD, {"reward": "cost"}, "reward is column 'cost', which log.csv has not, expected one of 's', 'a', 'r'"),
        (
            GOOD,
            {"states": [0, 5]},
            r"row 1 \(line 2\): next_state 's2' is '1', expected one of the labels given \(0, 5\); "
            r"row 2 \(line 3\): state 's' is '1'; 2 such cells in all",
        ),
        (GOOD, {"actions": ["x"]}, r"row 1 \(line 2\): action 'a' is '0', expected one of the labels given \('x'\)"),
        (GOOD, {"states": [0, 1, 0]}, r"states\[2\] is 0 again, expected each name once"),
        (GOOD, {"next_state": None}, "next_state and episode are both None, expected one"),
        (GOOD, {"missing_reward": "drop"}, "missing_reward is 'drop', expected one of error, ignore"),
        (GOOD, {"terminated": "e"}, r"row 1 \(line 2\): terminated 'e' is 'p', expected true or false"),
        (GOOD, {"step": "e"}, r"row 1 \(line 2\): step 'e' is 'p', expected a whole number from 0 to 2147483647"),
        ("s,a,r,s2\n0,0,1,1\n,0,1,0\n", {}, r"row 2 \(line 3\): state 's' is empty, expected the label of a state"),
        ("s,a,r,s2\n0,,1,1\n", {}, r"row 1 \(line 2\): action 'a' is empty, expected the label of an action"),
        (
            "s,a,r,s2\n0,0,1,1\n0,0,1\n",
            {},
            r"row 2 \(line 3\): next_state 's2' is empty, expected the label of a state",
        ),
        ("s,a,r,s2\n0,0,inf,1\n", {}, r"row 1 \(line 2\): reward 'r' is inf, expected a finite number"),
        ("s,a,r,s2\n0,0,1,1\n0,0,high,1\n", {}, r"row 2 \(line 3\): reward 'r' is 'high', expected a finite number"),
        ("s,a,r,s2\n0,0,1,1\n0,0,1,1,1,1\n", {}, "log.csv cannot be read as a table: .*line 3"),
        ("s,a,r,s2\n0,0,1,1,2\n0,0,1,1,2\n", {}, "log.csv has rows with more cells than the header line has names"),
        (
            GOOD.replace("p", ""),
            {"episode": "e"},
            r"row 1 \(line 2\): episode 'e' is empty, expected the label of an episode",
        ),
        ("s,a,r,e\n0,0,1,1\n", {"next_state": None, "episode": "e"}, "log.csv has no episode of two rows"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(write, text, options, message):
    with pytest.raises(ValueError, match=message) as error:
        read_log(write(text), **{**COLUMNS, **options})
    assert "\n" not in str(error.value).strip()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("s,a,r,s2\n0,0,1,1\n\n  \n0,0,,1\n", r"row 2 \(line 5\)"),
        ("\n\ns,a,r,s2\n0,0,,1\n", r"row 1 \(line 4\)"),
        ('s,a,r,s2\n"left\nbank",0,1,0\n0,0,,1\n', r"row 2 \(line 4\)"),
        ("s,a,r,s2\r\n0,0,1,1\r\n\r\n0,0,,1\r\n", r"row 2 \(line 4\)"),
    ],
)
def test_the_line_of_a_bad_row(write, text, where):
    with pytest.raises(ValueError, match=rf"log.csv, {where}: reward 'r' is empty"):
        read_log(write(text), **COLUMNS)


def test_a_compressed_file_has_no_lines(tmp_path):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"s,a,r,s2\n0,0,,1\n"))
    with pytest.raises(ValueError, match=r"log.csv.gz, row 1: reward 'r' is empty"):
        read_log(path, **COLUMNS)


def test_what_is_no_table_is_refused(tmp_path, write):
    with pytest.raises(FileNotFoundError, match=r"no.csv', expected a file that exists"):
        read_log(tmp_path / "no.csv", **COLUMNS)
    with pytest.raises(TypeError, match="source is of type list, expected a path or a pandas DataFrame"):
        read_log([1], **COLUMNS)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(TypeError, match="state 's' has a label that is not hashable"):
        read_log(pd.DataFrame({"s": [[1]], "a": [0], "s2": [[2]]}), state="s", action="a", next_state="s2")
    with pytest.raises(ValueError, match="the DataFrame, row 1: reward 'r' is empty, expected a number"):
        read_log(pd.DataFrame({"s": [0], "a": [0], "r": [np.nan], "s2": [0]}), **COLUMNS)
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=r"log\.parquet cannot be read as a Parquet file"):
        read_log(write("no parquet", "log.parquet"), **COLUMNS)


def test_numbers_and_text_are_not_one_label():
    frame = pd.DataFrame({"s": [1, "1"], "a": ["x", "y"], "s2": [1, 1]})
    with pytest.raises(ValueError, match=r"'s' has the labels 1 and '1', expected numbers or text, not both"):
        read_log(frame, state="s", action="a", next_state="s2")


def test_a_step_that_would_wrap_around_is_refused():
    frame = pd.DataFrame({"s": [0, 1], "a": [0, 0], "s2": [1, 0], "t": [0, 2**31]})
    with pytest.raises(ValueError, match=r"row 2: step 't' is 2147483648, expected a whole number from 0 to"):
        read_log(frame, state="s", action="a", next_state="s2", step="t")


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("s,s,a,s2\n0,5,0,1\n")
    with pytest.raises(ValueError, match=r"state is column 's', which log\.csv has 2 times, expected one"):
        read_log(path, state="s", action="a", next_state="s2")


@pytest.mark.parametrize("ending", ["gz", "zip", "xz", "bz2"])
def test_what_is_not_compressed_as_its_ending_says_is_refused(tmp_path, ending):
    path = tmp_path / f"log.csv.{ending}"
    path.write_bytes(b"s,a,s2\n0,0,1\n")
    with pytest.raises(ValueError, match=rf"log.csv.{ending} cannot be read as a table") as refusal:
        read_log(path, state="s", action="a", next_state="s2")
    assert "\n" not in str(refusal.value)


def test_many_labels_keep_their_order():
    labels = [f"s{i}" for i in range(30_000)]
    frame = pd.DataFrame({"s": labels, "a": "x", "s2": labels})
    log = read_log(frame, state="s", action="a", next_state="s2", states=labels)
    assert list(log.states) == labels


def test_steps_that_do_not_follow_each_other_are_refused():
    """Next states are those of the next rows: a gap, or another order, would join what does not belong together."""
    table = pd.DataFrame({"e": [1, 2, 1, 2, 1], "n": [0, 3, 1, 4, 2], "s": list("abcab"), "a": 5 * ["go"]})
    columns: dict[str, Any] = {"state": "s", "action": "a", "episode": "e", "step": "n"}
    assert np.asarray(read_log(table, **columns).transitions.step).tolist() == [0, 1, 2, 3, 4]
    for steps, where in (([0, 3, 1, 4, 5], "row 5"), ([0, 4, 1, 3, 2], "row 4"), ([1, 3, 0, 4, 2], "row 3")):
        with pytest.raises(ValueError, match=rf"{where}: step 'n' is .*, expected .*, the step after that of row"):
            read_log(table.assign(n=steps), **columns)
    # With next states of their own, rows say what follows: steps may be anything.
    own = read_log(table.assign(n=[0, 9, 5, 1, 2], s2=list("cabba")), next_state="s2", **columns)
    assert len(own.transitions.state) == 5


def test_rows_by_time_are_read_as_rows_by_episode():
    """What goes by episode (splits, first states) must not depend on how the rows of episodes are interleaved."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        lengths = rng.integers(1, 7, size=6)
        episode = np.repeat(np.arange(6), lengths)
        walks = [rng.integers(4, size=n + 1) for n in lengths]
        table = pd.DataFrame(
            {
                "e": episode,
                "s": np.concatenate([walk[:-1] for walk in walks]),
                "n": np.concatenate([walk[1:] for walk in walks]),
                "a": rng.integers(2, size=len(episode)),
                "t": np.concatenate([np.arange(n) for n in lengths]),
            }
        )
        mixed = table.iloc[rng.permutation(len(table))].sort_values("t", kind="stable")
        columns: dict[str, Any] = {"state": "s", "action": "a", "next_state": "n", "episode": "e"}
        log, other = (read_log(frame, **columns, states=range(4), actions=(0, 1)) for frame in (table, mixed))
        np.testing.assert_array_equal(first_states(log), first_states(other))
        starts = np.bincount([walk[0] for walk in walks], minlength=4) / 6
        np.testing.assert_allclose(first_states(other), starts, err_msg=str(seed))
        assert episode_numbers(other.transitions)[-1] == 5


def test_a_next_state_that_is_not_the_state_of_the_next_row_is_told():
    table = pd.DataFrame({"e": [1, 1, 1, 2, 2], "s": list("abcab"), "n": list("bacbb"), "a": "go"})
    columns: dict[str, Any] = {"state": "s", "action": "a", "next_state": "n"}
    message = "in 1 of 5 rows, first in row 2, next_state is not the state of the episode's next row"
    with pytest.warns(UserWarning, match=message) as caught:
        log = read_log(table, episode="e", **columns)
    assert caught[0].filename == __file__
    assert episode_numbers(log.transitions).tolist() == [0, 0, 1, 2, 2]
    # No episode, or one that is over there: nothing follows.
    read_log(table, **columns)
    read_log(table.assign(cut=[0, 1, 0, 0, 1]), episode="e", truncated="cut", **columns)
    read_log(table.assign(end=[0, 1, 0, 0, 1]), episode="e", terminated="end", **columns)


@pytest.mark.parametrize("read", [read_log, fold_log])
def test_large_integers_are_not_rounded_to_one_label(read, tmp_path):
    """2^53 and 2^53 + 1 are one float: columns of other dtypes must not be joined as floats."""
    large = [2**53, 2**53 + 1]
    columns = {"state": "s", "action": "a", "next_state": "s2", "terminated": "d"}
    frame = pd.DataFrame({"s": large, "a": [0, 0], "s2": np.array(large[::-1], np.uint64), "d": [False, True]})
    assert read(frame, **columns).states == tuple(large)
    frame["s2"] = pd.array([large[1], None], "Int64")
    frame.to_parquet(tmp_path / "log.parquet")  # numpy has no integers with holes
    for source in (frame, tmp_path / "log.parquet"):
        assert read(source, **columns).states == tuple(large)
    assert read(frame.assign(s2=[0.5, 2.0**53]), **columns).states == (0.5, *large)  # where it ended: not looked at
    with pytest.raises(ValueError, match=r"s2' has the label 9007199254740992\.0, a float so large that several"):
        read(frame.assign(s2=[2.0**53, np.nan]), **columns)


@pytest.mark.parametrize("unit", ["ns", "us"])
@pytest.mark.parametrize("read", [read_log, fold_log])
def test_dates_stay_dates(read, unit):
    days = pd.to_datetime(["2026-01-01", "2026-01-02"]).as_unit(unit)
    frame = pd.DataFrame({"s": days, "a": days - days[0], "s2": days[::-1]})
    log = read(frame, state="s", action="a", next_state="s2")
    assert (log.states, log.actions) == (tuple(days), (pd.Timedelta(0), pd.Timedelta(1, "D")))
    assert isinstance(log.states[0], pd.Timestamp)


@pytest.mark.parametrize("cells", [pd.to_timedelta([1, 2], "h"), pd.to_datetime(["2026-01-01", None]), [1 + 2j, 0]])
@pytest.mark.parametrize("read", [read_log, fold_log])
def test_a_reward_that_is_no_real_number_is_refused(read, cells):
    """The number of a duration goes by the unit of its dtype; that of a complex one would lose a part."""
    frame = pd.DataFrame({"s": ["a", "b"], "a": [0, 0], "s2": ["b", "a"], "r": cells})
    with pytest.raises(ValueError, match=r"row 1: reward 'r' is .*, expected a finite number"):
        read(frame, **COLUMNS, missing_reward="ignore")


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["1.1", "1.10"], ("1.1", "1.10")),
        (["250.0", "250.00", "7"], ("7", "250.0", "250.00")),
        (["1", "1.0", "2.5"], (1, 2.5)),
        (["-0.0", "0.0", "0.5"], (0, 0.5)),
    ],
)
def test_two_texts_of_one_number_may_be_codes(write, cells, names):
    path = write("s,a,s2\n" + "".join(f"{c},0,{c}\n" for c in cells))
    if isinstance(names[0], str):
        with pytest.warns(UserWarning, match="two spellings of one and are now two states"):
            log = read_log(path, state="s", action="a", next_state="s2")
    else:
        log = read_log(path, state="s", action="a", next_state="s2")
    assert log.states == names


@pytest.mark.parametrize("label", ["²", "x²", "9" * 5000])
def test_digits_that_python_does_not_read_are_text(label):
    frame = pd.DataFrame({"s": [label, "b"], "a": [0, 0], "s2": ["b", label]})
    assert set(read_log(frame, state="s", action="a", next_state="s2").states) == {label, "b"}


@pytest.mark.parametrize("read", [read_log, fold_log])
def test_state_and_next_state_of_one_column_are_refused(read):
    """Every state would stay what it is."""
    frame = pd.DataFrame({"s": ["a", "b"], "a": ["x", "y"]})
    with pytest.raises(ValueError, match="state and next_state are both column 's', expected two columns"):
        read(frame, state="s", action="a", next_state="s")


@pytest.mark.parametrize("seed", range(12))
def test_columns_of_every_backend_of_pandas_are_the_same_log(seed, tmp_path):
    """Labels, dates, flags, gaps and missing rewards in NumPy's columns, in nullable ones and in those of pyarrow."""
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, rng.integers(2, 8))
    size, episode = lengths.sum(), np.repeat(np.arange(len(lengths)), lengths)
    step = np.concatenate([np.arange(n) for n in lengths])
    state = rng.integers(1, 5, size)
    frame = pd.DataFrame(
        {
            "e": episode,
            "s": [state, state + 0.5, np.char.add("s", state.astype(str))][seed % 3],
            "a": rng.choice(["x", "y"], size),
            "r": np.where(rng.random(size) < 0.2, np.nan, rng.normal(size=size).round(2)),
            "end": np.append(np.diff(episode) != 0, True) & (rng.random(size) < 0.7),
            "t": pd.Timestamp("2021-03-01") + pd.to_timedelta(step, "D") if seed % 2 else step,
        }
    )
    options: Any = {"state": "s", "action": "a", "reward": "r", "terminated": "end", "episode": "e", "step": "t"}
    options |= {"missing_reward": "ignore", "every": "1D" if seed % 2 else None}
    if seed % 4 > 1:
        frame["s"] = frame["s"].astype(object).where(rng.random(size) > 0.1, None)
        options["missing_state"] = "gap"
    frame.to_csv(tmp_path / "log.csv", index=False)
    expected = read_log(frame, **options)
    for other in (
        pd.read_csv(tmp_path / "log.csv", dtype_backend="pyarrow"),
        pd.read_csv(tmp_path / "log.csv", dtype_backend="numpy_nullable"),
        frame.convert_dtypes(dtype_backend="pyarrow"),
    ):
        log = read_log(other, **options)
        assert (log.states, log.actions) == (expected.states, expected.actions)
        for name in ("state", "action", "reward", "next_state", "terminated", "step", "reward_observed"):
            one, two = getattr(log.transitions, name), getattr(expected.transitions, name)
            np.testing.assert_array_equal(one, two, err_msg=name)
