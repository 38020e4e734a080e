"""Episodes of a log, and its two parts: every row once, episodes whole."""

from itertools import groupby
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.mdp.data.log_split import (
    episode_numbers,
    first_rows,
    first_states,
    has_episodes,
    returns_of,
    split_log,
)

KEY = jax.random.key(0)


def log_of(state: Any, next_state: Any, terminated: Any = None, truncated: Any = None, **more: Any) -> Log:
    """A log whose rewards number its rows."""
    rows = len(state)
    data = Transitions(
        np.asarray(state, int),
        np.zeros(rows, int),
        np.arange(float(rows)),
        np.asarray(next_state, int),
        None if terminated is None else np.asarray(terminated, bool),
        None if truncated is None else np.asarray(truncated, bool),
        **more,
    )
    return Log(data, tuple(range(10)), ("go",), "some log")


def rows_of(log: Log) -> list[int]:
    """The numbers of its rows in the log they come from."""
    return np.asarray(log.transitions.reward).astype(int).tolist()


def by_loop(state, next_state, terminated, truncated) -> list[int]:
    """The episode of each row, one row at a time."""
    number, found = 0, []
    for row in range(len(state)):
        if row and (
            (terminated is not None and terminated[row - 1])
            or (truncated is not None and truncated[row - 1])
            or next_state[row - 1] != state[row]
        ):
            number += 1
        found.append(number)
    return found


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (([0, 1, 2, 3], [1, 2, 3, 4]), [0, 0, 0, 0]),
        (([0, 1, 2, 2], [1, 2, 2, 2], [0, 1, 0, 0]), [0, 0, 1, 1]),
        (([0, 1, 2, 2], [1, 2, 2, 2], None, [0, 1, 0, 0]), [0, 0, 1, 1]),
        (([0, 0, 5, 6], [0, 1, 6, 7]), [0, 0, 1, 1]),  # 1 is not 5
        (([0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 0, 1]), [0, 1, 2]),
        (([0], [0]), [0]),
        (([], []), []),
    ],
)
def test_an_episode_begins_after_a_flag_or_a_jump(columns, expected):
    np.testing.assert_array_equal(episode_numbers(log_of(*columns).transitions), expected)


def test_first_states_are_counted_by_episodes():
    log = log_of([0, 1, 0, 3, 3], [1, 2, 3, 3, 3], [0, 1, 0, 1, 1])
    np.testing.assert_allclose(first_states(log), [2 / 3, 0, 0, 1 / 3, *[0] * 6])


def test_a_log_without_rows_begins_nowhere():
    np.testing.assert_array_equal(first_states(log_of([], [])), np.zeros(10))


def random_columns(rng: np.random.Generator, kind: int) -> tuple[Any, ...]:
    """Columns that are hard to split: short, all ended, without flags, in jumps, in one stretch."""
    rows, states = int(rng.integers(2, 12)), int(rng.integers(1, 5))
    state, next_state = rng.integers(states, size=rows), rng.integers(states, size=rows)
    if kind != 0:  # a walk, but for the flags
        next_state[:-1] = state[1:]
    flags = rng.random((2, rows)) < rng.choice([0.0, 0.2, 0.5, 1.0], size=(2, 1))
    return (
        (state, next_state),
        (state, next_state, np.ones(rows, bool)),
        (state, next_state),
        (state, next_state, flags[0]),
        (state, next_state, None, flags[1]),
        (state, next_state, *flags),
    )[kind]


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", range(6))
def test_every_row_is_in_one_part_and_no_episode_in_two(kind):
    rng = np.random.default_rng(kind)
    refused = 0
    for trial in range(30):
        columns = random_columns(rng, kind)
        log = log_of(*columns)
        number = np.asarray(by_loop(*columns, *[None] * (4 - len(columns))))
        np.testing.assert_array_equal(episode_numbers(log.transitions), number)
        assert first_states(log).sum() == pytest.approx(1)
        share = float(rng.choice([0.01, 0.5, 0.99, rng.uniform(0.01, 0.99)]))
        ends = any(
            flag is not None and np.any(flag) for flag in columns[2:3]
        )  # terminated: one that is cut is a stretch
        if number[-1] == 0 and ends:
            refused += 1
            with pytest.raises(ValueError, match="log has 1 episode, expected at least 2"):
                split_log(KEY, log, share)
            continue
        parts = split_log(jax.random.key(trial), log, share)
        taken = [rows_of(part) for part in parts]
        assert all(taken) and sorted(taken[0] + taken[1]) == list(range(len(number)))
        assert all(rows == sorted(rows) for rows in taken)  # in the order of time
        if number[-1] > 0:
            first, second = (set(number[rows]) for rows in taken)
            assert not first & second
            assert len(first) == np.clip(round(share * (number[-1] + 1)), 1, number[-1])
        else:
            assert len(taken[0]) == np.clip(round(share * len(number)), 1, len(number) - 1)
        for part in parts:
            assert (part.states, part.actions) == (log.states, log.actions)
            assert part.digest is None and part.source.startswith("some log, ")
    assert refused < 30


def test_all_columns_go_along():
    log = log_of([0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], step=[0, 1, 0, 1], reward_observed=[1, 1, 0, 1])
    for part in split_log(KEY, log):
        rows = rows_of(part)
        for column in ("state", "next_state", "terminated", "step", "reward_observed"):
            np.testing.assert_array_equal(
                getattr(part.transitions, column), np.asarray(getattr(log.transitions, column))[rows]
            )


def test_every_episode_is_as_likely_in_the_first_part():
    """400 splits of 8 episodes into halves: each is in the first 200 +- 10 times; the bound is five of them wide."""
    log = log_of(np.zeros(8), np.zeros(8), np.ones(8))
    inside = np.zeros(8)
    for key in jax.random.split(KEY, 400):
        inside[rows_of(split_log(key, log)[0])] += 1
    assert np.abs(inside - 200).max() < 55


def test_the_same_key_gives_the_same_parts():
    log = log_of(np.zeros(8), np.zeros(8), np.ones(8))
    assert [rows_of(part) for part in bm.mdp.split_log(KEY, log)] == [rows_of(part) for part in split_log(KEY, log)]
    assert len({tuple(rows_of(split_log(jax.random.key(seed), log)[0])) for seed in range(9)}) > 1


def test_episodes_of_a_file_are_kept(tmp_path):
    """By the file's own column of episodes, also where one begins in the state the last one reached."""
    import pandas as pd

    names = [name for name, _ in groupby("aabbbccd")]
    frame = pd.DataFrame({"e": list("aabbbccd"), "s": list("xyyxxxyx"), "z": list("yyxxxyxy"), "a": "go", "r": 0.0})
    frame["r"] = np.arange(8.0)
    log = bm.read_log(frame, state="s", action="a", reward="r", next_state="z", episode="e")
    parts = split_log(KEY, log)
    episodes = [set(frame["e"].iloc[rows_of(part)]) for part in parts]
    assert not episodes[0] & episodes[1] and episodes[0] | episodes[1] == set(names)


@pytest.mark.parametrize(
    ("log", "share", "kind", "message"),
    [
        (log_of([0, 1], [1, 2], [0, 1]), 0.5, ValueError, "log has 1 episode, expected at least 2 to split it"),
        (log_of([0], [1]), 0.5, ValueError, "log has 1 transition, expected at least 2 to split it"),
        (log_of([], []), 0.5, ValueError, "log has 0 transition, expected at least 2 to split it"),
        (log_of([0, 1], [1, 2]), 0.0, ValueError, "share is 0.0, expected a number between 0 and 1"),
        (log_of([0, 1], [1, 2]), 1.0, ValueError, "share is 1.0, expected a number between 0 and 1"),
        (log_of([0, 1], [1, 2]), np.nan, ValueError, "share is nan, expected a number between 0 and 1"),
        (log_of([0, 1], [1, 2]).transitions, 0.5, TypeError, "log is .*, expected a Log"),
    ],
)
def test_what_cannot_be_split_is_said(log, share, kind, message):
    with pytest.raises(kind, match=message):
        split_log(KEY, log, share)


def visits(begin: int, terminates: bool = True):
    """Sixty episodes of three to six visits, counted from `begin`; actions depend on the visit."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 7, 60)
    visit = np.concatenate([np.arange(n) for n in lengths])
    table = pd.DataFrame(
        {
            "id": np.repeat(np.arange(60), lengths),
            "visit": visit + begin,
            "s": rng.choice(["a", "b", "c"], len(visit)),
            "a": np.where(rng.random(len(visit)) < 0.2 + 0.15 * visit, "x", "y"),
            "r": rng.normal(size=len(visit)).round(2),
        }
    )
    table["over"] = ~table["id"].duplicated(keep="last") & terminates
    roles: Any = {"state": "s", "action": "a", "reward": "r", "episode": "id", "step": "visit", "terminated": "over"}
    return bm.read_log(table, **roles)


@pytest.mark.parametrize("begin", [1, 4])
@pytest.mark.parametrize("terminates", [True, False])
def test_where_visits_are_counted_from_changes_nothing(begin, terminates):
    """Starts, episodes, halves, returns and a decision of the same log with visits counted from 0."""
    first, other = visits(0, terminates), visits(begin, terminates)
    assert first_states(first).sum() == pytest.approx(1.0)
    assert first_states(other).tolist() == first_states(first).tolist()
    assert len(first_rows(other.transitions)) == 60 and has_episodes(other) and has_episodes(first)
    for one, two in zip(split_log(KEY, first), split_log(KEY, other), strict=True):
        assert rows_of(one) == rows_of(two)
    for objective in (bm.Discounted(0.9), bm.Episodic(3), bm.Episodic(6)):
        np.testing.assert_array_equal(returns_of(first, objective), returns_of(other, objective))
    space = bm.StateActionSpace.from_log(first)
    posterior = bm.infer(KEY, bm.models.dirichlet_normal_gamma(), first, space=space)
    values = [bm.policy_value(KEY, posterior, [0, 1, 0], bm.Discounted(0.9), initial=x).mean for x in (first, other)]
    assert values[0] == values[1]
    # What is by step counts from 0, and is not guessed.
    message = f"log has steps from {begin}, expected 0 at the first step of an episode"
    with pytest.raises(ValueError, match=message):
        bm.StateActionSpace.from_log(other, horizon=6 + begin)
    with pytest.raises(ValueError, match=message):
        bm.behaviour_policy(other, by_step=True)
    assert bm.StateActionSpace.from_log(first, horizon=6).horizon == 6
    assert len(bm.behaviour_policy(first, by_step=True)) == 6


def test_years_in_place_of_steps_are_told():
    """One who enters later has no start that is known."""
    table = pd.DataFrame(
        {"id": [1, 1, 2, 2], "year": [2001, 2002, 2004, 2005], "s": ["a", "b"] * 2, "a": "x", "r": 1.0}
    )
    roles: Any = {"state": "s", "action": "a", "reward": "r", "episode": "id"}
    with pytest.warns(UserWarning, match=r"step 'year' begins at 2001, and in 1 of 2 episodes later, which are taken"):
        bm.read_log(table, step="year", **roles)
    bm.read_log(table.assign(year=[2001, 2002] * 2), step="year", **roles)
    bm.read_log(table.assign(year=[1, 2, 4, 5]), step="year", **roles)  # first seen at the fourth visit
