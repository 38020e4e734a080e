"""`read_log`: transitions from a CSV or Parquet file or a pandas DataFrame with named columns."""

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from jaxtyping import Bool

from bayes_mdp.envs.logs.episodes import EpisodeOrder, episode_order, first_gap
from bayes_mdp.envs.logs.tables import (
    Table,
    file_digest,
    is_empty,
    open_table,
    read_episodes,
    read_flags,
    read_labels,
    read_rewards,
    read_steps,
)
from bayes_mdp.envs.logs.transition_chunks import log_chunks
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
        next_state: None: the state of the episode's next row (`episode` is then needed, rows in order of time). An
            episode's last row has no next state: it is kept if it terminated, and left out otherwise (its action and
            reward may then be empty).
        terminated, truncated: true / false or 1 / 0. With `episode`, the last row of an episode that did not terminate
            counts as truncated.
        episode: label of the episode of each row; rows of one episode are in order of time, those of others may stand
            between them. Without `step`, the step is the row's place in its episode. A `UserWarning` says where the
            next state is not the state of the episode's next row.
        step: step of the episode, 0 at its first. Where next states are those of the next rows, steps have to go up by
            one from row to row: a gap, or rows in another order, would join states that do not follow each other.
        states, actions: all labels, in order, others are refused; None: those of the log. A `UserWarning` then names
            labels that may be two spellings of one: text that differs in case, blanks, hyphens or underscores alone,
            and a word of letters in one row that is one edit from one in 20 rows.
        missing_reward: what an empty reward or cost is: an error, or a transition whose reward was not observed.
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
    roles: dict[str, Any] = {"state": state, "action": action, "reward": reward, "cost": cost, "next_state": next_state}
    roles |= {"terminated": terminated, "truncated": truncated, "episode": episode, "step": step}
    if chunksize is not None:
        return log_chunks(source, roles, states, actions, chunksize, missing_reward == "ignore")
    table = open_table(source, roles)
    ends = read_flags(table, "terminated")
    if next_state is None:
        (state_index, *given), state_names = read_labels(table, ("state",), states)
    else:
        (state_index, *given), state_names = read_labels(table, ("state", "next_state"), states, ends)
    episodes = read_episodes(table)
    along = None if episodes is None else episode_order(episodes)
    next_index, cut, steps, keep = _follow(table, along, state_index, given[0] if given else None, ends)
    untold = None if keep.all() else ~keep & is_empty(table, "action")
    (action_index,), action_names = read_labels(table, ("action",), actions, untold)
    rewards, observed = read_rewards(table, missing_reward == "ignore", keep)
    rows = (state_index, action_index, rewards, next_index, ends, cut, steps, observed)
    # Episodes one after the other, also where the rows of the source are by time: what is by episode (splits, returns,
    # where episodes start) goes by neighbouring rows.
    kept = np.flatnonzero(keep) if along is None else along.order[keep[along.order]]
    *columns, observed = (None if x is None else x[kept] for x in rows)
    if not keep.any():
        raise ValueError(f"{table.name} has no episode of two rows, expected at least one transition")
    transitions, digest = Transitions(*columns, reward_observed=observed), file_digest(source)
    return Log(transitions, state_names, action_names, table.name, digest, columns=roles)


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


def _follow(
    table: Table,
    along: EpisodeOrder | None,
    state: np.ndarray,
    next_state: np.ndarray | None,
    ends: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray]:
    """Next state, whether truncated, step (given, or place in its episode), and whether kept, of every row.

    None: not known.
    """
    cut = read_flags(table, "truncated")
    keep = np.ones(len(state), bool)
    if along is None:
        assert next_state is not None  # `read_log` refuses a log with neither
        return next_state, cut, read_steps(table), keep
    _, next_row, place, last = along
    given = read_steps(table)
    steps = place if given is None else given
    if next_state is not None:
        over = last.copy()
        for flag in (ends, cut):
            over |= False if flag is None else flag
        _warn_of_breaks(table, ~over & (next_state != state[next_row]))
        stops = last if ends is None else last & ~ends
        return next_state, stops if cut is None else cut | stops, steps, keep
    gap = first_gap(steps, next_row, last, np.arange(len(steps)))
    if gap is not None:
        gap.refuse(table)
    keep = ~last if ends is None else ~last | ends
    leads_out = ~keep[next_row]  # its next row is left out: the episode is cut there
    return state[next_row], leads_out if cut is None else cut | leads_out, steps, keep
