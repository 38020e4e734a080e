"""`read_log`: transitions from a CSV or Parquet file or a pandas DataFrame with named columns."""

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.envs.logs.columns import (
    is_empty,
    read_episodes,
    read_flags,
    read_labels,
    read_rewards,
    read_steps,
)
from bayes_mdp.envs.logs.episodes import Columns, EpisodeOrder, FollowedRows, episode_order, first_gap, follow
from bayes_mdp.envs.logs.tables import Table, file_digest, open_table
from bayes_mdp.envs.logs.transition_chunks import Missing, log_chunks
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.utils.messages import see, warn_user
from bayes_mdp.utils.validation import check_name

if TYPE_CHECKING:
    import os

    import pandas as pd


@overload
def read_log(
    source: "str | os.PathLike[str] | pd.DataFrame",
    *,
    state: str,
    action: str,
    reward: str | None = None,
    cost: str | None = None,
    next_state: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    step: str | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    missing_reward: Literal["error", "ignore"] = "error",
    missing_state: Literal["error", "gap"] = "error",
    gaps: Literal["error", "cut"] = "error",
    chunksize: None = None,
) -> Log: ...
@overload
def read_log(
    source: "str | os.PathLike[str] | pd.DataFrame",
    *,
    state: str,
    action: str,
    reward: str | None = None,
    cost: str | None = None,
    next_state: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    step: str | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    missing_reward: Literal["error", "ignore"] = "error",
    missing_state: Literal["error", "gap"] = "error",
    gaps: Literal["error", "cut"] = "error",
    chunksize: int,
) -> Iterator[Log]: ...
def read_log(  # noqa: PLR0913 - the columns of a file are named one by one, as a person would guess them
    source: "str | os.PathLike[str] | pd.DataFrame",
    *,
    state: str,
    action: str,
    reward: str | None = None,
    cost: str | None = None,
    next_state: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    step: str | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    missing_reward: Literal["error", "ignore"] = "error",
    missing_state: Literal["error", "gap"] = "error",
    gaps: Literal["error", "cut"] = "error",
    chunksize: int | None = None,
) -> Log | Iterator[Log]:
    """Read one transition per row. `state`, `action`, ... are names of columns.

    State and action labels are any hashable values; they are numbered in natural order (2 before 10, "s2" before
    "s10"), or in the order of `states` and `actions` where these are given. Labels of integer columns stay
    integers.

    Args:
        source: a path (`.parquet`, `.pq`: Parquet; `.tsv`: tab-separated; else CSV with a header line), or a
            DataFrame.
        reward: larger is better. None, and `cost` None: the log has no rewards (they are known to the user).
        cost: in place of `reward`, smaller is better: the rewards of the log are minus this column.
        next_state: None: the state of the episode's next row (`episode` is then needed, rows in order of time). Of an
            episode's last row that did not terminate, and of a truncated one, it is not known what followed: the action
            and the reward count, as transitions that are not `next_observed`. A last row without an action says which
            state came last, and is left out.
        terminated, truncated: true / false or 1 / 0. With `episode`, the last row of an episode that did not terminate
            counts as truncated. What follows a truncated row is not its next state, unless `next_state` says so.
        episode: label of the episode of each row; rows of one episode are in order of time, those of others may stand
            between them. Without `step`, the step is the row's place in its episode. A `UserWarning` says where the
            next state is not the state of the episode's next row.
        step: step of the episode, 0 at its first. Where next states are those of the next rows, steps have to go up by
            one from row to row: a gap, or rows in another order, would join states that do not follow each other.
        states, actions: all labels, in order, others are refused; None: those of the log. A `UserWarning` then names
            labels that may be two spellings of one: text that differs in case, blanks, hyphens or underscores alone,
            and a word of letters in one row that is one edit from one in 20 rows.
        missing_reward: what an empty reward or cost is: an error, or a transition whose reward was not observed.
        missing_state: what a row without a state is: an error, or a gap, which ends one run of transitions and begins
            another. Such a row is left out; of the row before, action and reward count. Where whether a state is
            missing depends on which it is, what is left of the log is no fair sample.
        gaps: what a `step` is that is more than one above the step of the row before: an error, or a gap as above.
        chunksize: None, or rows to be read at once of a log that is larger than memory; `states` and `actions` are
            then needed. See `fold_log`, which keeps no transitions.

    Returns:
        A `Log` of numpy arrays (int32, float64), with the labels behind the indices. With `chunksize` an iterator of
        them: together exactly these transitions, those of an episode in order. A row whose next state, or whose
        truncation, depends on rows that follow it comes with the chunk of these.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: `reward` and `cost` are both given; no rows, a column that is missing, a cell that cannot be read, a
            step that does not follow the one before: which row, column, what was there.
        ImportError: Parquet without pyarrow.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": ["a", "b"], "a": ["go", "go"], "r": [0.0, 1.0], "t": ["b", "a"]})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t")
        >>> log.states, log.transitions.next_state.tolist()
        (('a', 'b'), [1, 0])
    """
    if next_state is None and episode is None:
        raise ValueError(
            "next_state and episode are both None, expected one: next states, or episodes to shift states in "
            "(in the shell --next-state or --episode)"
        )
    check_name("missing_reward", missing_reward, ("error", "ignore"))
    check_name("missing_state", missing_state, ("error", "gap"))
    check_name("gaps", gaps, ("error", "cut"))
    roles: dict[str, Any] = {"state": state, "action": action, "reward": reward, "cost": cost, "next_state": next_state}
    roles |= {"terminated": terminated, "truncated": truncated, "episode": episode, "step": step}
    if chunksize is not None:
        missing = Missing(missing_reward == "ignore", missing_state == "gap", gaps == "cut")
        return log_chunks(source, roles, states, actions, chunksize, missing)
    table = open_table(source, roles)
    ends, cut = read_flags(table, "terminated"), read_flags(table, "truncated")
    ended = np.zeros(len(table.frame), bool) if ends is None else ends
    roles_of_states = ("state",) if next_state is None else ("state", "next_state")
    skipped = {"state": np.zeros(len(ended), bool), "next_state": ended}
    if missing_state == "gap":
        skipped = {role: skipped[role] | is_empty(table, role) for role in roles_of_states}
    (state_index, *given), state_names = read_labels(table, roles_of_states, states, skipped)
    columns = {
        "state": np.where(skipped["state"], -1, state_index),
        "action": np.where(is_empty(table, "action"), -1, 0),
        "terminated": ended,
    }
    if given:
        columns["next_state"] = np.where(skipped["next_state"], -1, given[0])
    steps = read_steps(table)
    columns |= {k: v for k, v in (("truncated", cut), ("step", steps)) if v is not None}
    episodes = read_episodes(table)
    along = None if episodes is None else episode_order(episodes)
    if along is None:
        followed = FollowedRows(columns["next_state"], (columns["next_state"] >= 0) | ended, cut, columns["state"] >= 0)
    else:
        _check_order(table, along, columns, gaps == "cut")
        followed = follow(along, columns, steps is not None)
        steps = along.place if steps is None else steps
    keep, led = followed.keep, followed.next_observed
    untold = ~keep & (columns["action"] < 0)
    (action_index,), action_names = read_labels(table, ("action",), actions, {"action": untold})
    rewards, observed = read_rewards(table, missing_reward == "ignore", keep, led)
    reached = np.where(led & ~ended, followed.next_state, 0)
    # Episodes one after the other, also where the rows of the source are by time: what is by episode (splits, returns,
    # where episodes start) goes by neighbouring rows.
    kept = np.flatnonzero(keep) if along is None else along.order[keep[along.order]]
    rows = (state_index, action_index, rewards, reached, ends, followed.truncated, steps, observed, led)
    *rows, observed, led = (None if x is None else x[kept] for x in rows)
    if not led.any():
        raise ValueError(f"{table.name} has no episode of two rows, expected at least one transition")
    transitions = Transitions(*rows, reward_observed=observed, next_observed=None if led.all() else led)
    notes = _notes(columns["state"] < 0, untold, keep & ~followed.next_observed, rewards)
    return Log(transitions, state_names, action_names, table.name, file_digest(source), columns=roles, notes=notes)


def _notes(
    gaps: Bool[np.ndarray, " N"],
    untold: Bool[np.ndarray, " N"],
    unknown: Bool[np.ndarray, " N"],
    rewards: Float[np.ndarray, " N"] | None,
) -> tuple[str, ...]:
    """What of the source is no transition, in words.

    Args:
        gaps: rows without a state.
        untold: rows that are left out, without an action.
        unknown: rows that are kept, of which it is not known what followed.
        rewards: of all rows; None: there are none.
    """
    last = untold & ~gaps
    paid = 0 if rewards is None else int((rewards[last] != 0).sum())
    lost = f", and the rewards of {paid} of them are left out" if paid else ""
    said = (
        (gaps, "rows without a state are left out"),
        (unknown, "rows do not say what followed, and count by their action and reward alone"),
        (last, f"rows without an action say which state an episode reached last{lost}"),
    )
    return tuple(f"{int(rows.sum())} {what}" for rows, what in said if rows.any())


def _check_order(table: Table, along: EpisodeOrder, columns: Columns, may_jump: bool) -> None:
    """Refuse steps that do not follow each other, or warn of next states that are not those of the next rows."""
    _, next_row, _, last = along
    state, next_state = columns["state"], columns.get("next_state")
    if next_state is not None:
        over = last | columns["terminated"] | columns.get("truncated", False)
        told = (next_state >= 0) & (state >= 0) & (state[next_row] >= 0)
        _warn_of_breaks(table, told & ~over & (next_state != state[next_row]))
    elif "step" in columns:
        gap = first_gap(columns["step"], next_row, last, np.arange(len(state)), may_jump=may_jump)
        if gap is not None:
            gap.refuse(table)


def _warn_of_breaks(table: Table, breaks: Bool[np.ndarray, " N"]) -> None:
    """Warn where an episode goes on from another state than the one that it was led to."""
    number = int(breaks.sum())
    if number:
        first = table.first + int(np.argmax(breaks)) + 1
        warn_user(
            f"{table.name}: in {number} of {len(breaks)} rows, first in row {first}, next_state is not the state of "
            "the episode's next row, and the episode counts as cut there: put the rows of each episode in order of "
            f"time, and see whether some are missing {see('how-to/read-a-log')}"
        )
