"""`read_log`: transitions from a CSV or Parquet file or a pandas DataFrame with named columns."""

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from jaxtyping import Bool

from bayes_mdp.envs.logs.columns import (
    NO_ACTION,
    is_empty,
    moved_rewards,
    read_episodes,
    read_flags,
    read_labels,
    read_rewards,
    read_steps,
    refuse_repeated_steps,
    reward_role,
    warn_of_time,
    with_counted_steps,
    with_joined_labels,
)
from bayes_mdp.envs.logs.episodes import EpisodeOrder, episode_order, first_gap
from bayes_mdp.envs.logs.tables import MOST_TOLD, BadCells, Dialect, Several, Table, file_digest, open_table
from bayes_mdp.envs.logs.transition_chunks import log_chunks
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import see, warn_user
from bayes_mdp.utils.validation import check_name

if TYPE_CHECKING:
    import os

    import pandas as pd


@overload
def read_log(
    source: "str | os.PathLike[str] | pd.DataFrame",
    *,
    state: str | list[str],
    action: str | None,
    reward: str | None = None,
    cost: str | None = None,
    next_state: str | list[str] | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    step: str | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    missing_reward: Literal["error", "ignore"] = "error",
    reward_at: Literal["step", "next", "episode"] = "step",
    every: str | None = None,
    count: str | None = None,
    sep: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    chunksize: None = None,
) -> Log: ...
@overload
def read_log(
    source: "str | os.PathLike[str] | pd.DataFrame",
    *,
    state: str | list[str],
    action: str | None,
    reward: str | None = None,
    cost: str | None = None,
    next_state: str | list[str] | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    step: str | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    missing_reward: Literal["error", "ignore"] = "error",
    reward_at: Literal["step", "next", "episode"] = "step",
    every: str | None = None,
    count: str | None = None,
    sep: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    chunksize: int,
) -> Iterator[Log]: ...
def read_log(  # noqa: PLR0913 - the columns of a file are named one by one, as a person would guess them
    source: "str | os.PathLike[str] | pd.DataFrame",
    *,
    state: str | list[str],
    action: str | None,
    reward: str | None = None,
    cost: str | None = None,
    next_state: str | list[str] | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    step: str | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    missing_reward: Literal["error", "ignore"] = "error",
    reward_at: Literal["step", "next", "episode"] = "step",
    every: str | None = None,
    count: str | None = None,
    sep: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    chunksize: int | None = None,
) -> Log | Iterator[Log]:
    """Read one transition per row. `state`, `action`, ... are names of columns.

    State and action labels are any hashable values; they are numbered in natural order (2 before 10, "s2" before
    "s10"), or in the order of `states` and `actions` where these are given. Labels of integer columns stay
    integers.

    Args:
        source: a path (`.parquet`, `.pq`: Parquet; `.tsv`: tab-separated; else CSV with a header line), or a
            DataFrame.
        state: the column, or several: with ["grade", "load"] labels are tuples (and `next_state` has as many).
        action: None: there are none, and the log is a chain of states, whose only action is called "none" (or as
            `actions` names it).
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
        step: step of the episode, 0 at its first; without `episode` and `next_state` all rows are one episode. Where
            next states are those of the next rows, steps have to go up by one from row to row: a gap, or rows in
            another order, would join states that do not follow each other.
        states, actions: all labels, in order, others are refused; None: those of the log (of ordered categories in
            their order). A `UserWarning` then names labels that may be two spellings of one: text that differs in case,
            blanks, hyphens or underscores alone, and a word of letters in one row that is one edit from one in 20 rows.
            Empty cells, words such as NA, null or ".", and -999 where no other label is a negative number are missing
            labels, unless they are listed here.
        missing_reward: what an empty reward or cost is: an error, or a transition whose reward was not observed.
        reward_at: "step": a reward stands in the row of its action. "next": in the next row of the episode, as the
            reward of the row before; that of its last row is not observed. "episode": the last row of an episode has
            its total, the others are empty or zero; it becomes the reward of its last transition.
        every: the length of a step where `step` is a column of dates or times: "1D", "12h", "1W", "1M" (of the
            calendar).
        count: how many transitions a row stands for, where rows are (state, action, next state, number).
        sep, encoding, decimal: of a text file: what is between cells (";"), its characters ("latin-1"; None: UTF-8),
            and the sign of decimals (",").
        chunksize: None, or rows to be read at once of a log that is larger than memory; `states` and `actions` are
            then needed. See `fold_log`, which keeps no transitions.

    A `UserWarning` says where a column without a role (or `step`) looks like time that passes unequally from row to
    row, and where rows are equal in all columns to others, although such a column tells all others apart.

    Returns:
        A `Log` of numpy arrays (int32, float64), with the labels behind the indices. With `chunksize` an iterator of
        them: together exactly these transitions, those of an episode in order. A row whose next state, or whose
        truncation, depends on rows that follow it comes with the chunk of these.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: `reward` and `cost` are both given; no rows, a column that is missing, cells that cannot be read
            (the first ten are named), a step that does not follow the one before, or twice in an episode: which row,
            column, what was there.
        ImportError: Parquet without pyarrow.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": ["a", "b"], "a": ["go", "go"], "r": [0.0, 1.0], "t": ["b", "a"]})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t")
        >>> log.states, log.transitions.next_state.tolist()
        (('a', 'b'), [1, 0])
    """
    if next_state is None and episode is None and step is None:
        raise ValueError(
            "next_state and episode are both None, expected one: next states, or episodes to shift states in "
            f"(in the shell --next-state or --episode); or step, if all rows are one episode {see('how-to/read-a-log')}"
        )
    check_name("missing_reward", missing_reward, ("error", "ignore"))
    check_name("reward_at", reward_at, ("step", "next", "episode"))
    dialect = Dialect(sep, encoding, decimal)
    dialect.check()
    roles: dict[str, Any] = {"state": state, "action": action, "reward": reward, "cost": cost, "next_state": next_state}
    roles |= {"terminated": terminated, "truncated": truncated, "episode": episode, "step": step}
    if action is None and actions is not None and len(actions) != 1:
        raise ValueError(f"action is None with {len(actions)} actions, expected the name of the only one, or None")
    if chunksize is not None:
        for name, value in (
            ("every", every),
            ("count", count),
            ("reward_at", None if reward_at == "step" else reward_at),
        ):
            if value is not None:
                raise ValueError(f"{name} is {value!r} with chunksize, expected a log that is read as a whole")
        return log_chunks(source, roles, states, actions, chunksize, missing_reward == "ignore", dialect)
    if count is not None and (episode is not None or step is not None or next_state is None):
        raise ValueError(f"count is column {count!r}, expected next_state, and neither episode nor step")
    if reward_at != "step" and episode is None and (next_state is not None or step is None):
        raise ValueError(f"reward_at is {reward_at!r}, expected episode, whose rows are in order of time")
    required = ("state",) if action is None else ("state", "action")
    given = {"state": states, "action": actions}
    table = with_joined_labels(open_table(source, roles | {"count": count}, required, given, dialect), states)
    try:
        return _read(table, states, actions, missing_reward == "ignore", reward_at, every, file_digest(source))
    except BadCells as first:
        raise _all_bad(first, table, states, actions, missing_reward == "error" and reward_at == "step") from None


def _read(
    table: Table,
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
    ignore_missing: bool,
    reward_at: str,
    every: str | None,
    digest: str | None,
) -> Log:
    episodes = read_episodes(table)
    if episodes is None and "next_state" not in table.columns:
        episodes = np.zeros(len(table.frame), np.intp)
    along = None if episodes is None else episode_order(episodes)
    if every is not None:
        table = with_counted_steps(table, every, along)
    ends = read_flags(table, "terminated")
    if "next_state" not in table.columns:
        (state_index, *following), state_names = read_labels(table, ("state",), states)
    else:
        (state_index, *following), state_names = read_labels(table, ("state", "next_state"), states, ends)
    if episodes is not None and along is not None and "step" in table.columns:
        refuse_repeated_steps(table, episodes, along)
    next_index, cut, steps, keep = _follow(table, along, state_index, following[0] if following else None, ends)
    if "action" in table.columns:
        untold = None if keep.all() else ~keep & is_empty(table, "action")
        (action_index,), action_names = read_labels(table, ("action",), actions, untold)
    else:
        action_index, action_names = np.zeros(len(keep), np.int32), (NO_ACTION,) if actions is None else tuple(actions)
    if reward_at == "step":
        rewards, observed = read_rewards(table, ignore_missing, keep)
    else:
        assert along is not None  # `read_log` has looked
        rewards, observed = moved_rewards(table, reward_at, along, ignore_missing, keep)
    if episodes is not None and along is not None:
        warn_of_time(table, episodes, along, action_index, action_names)
    rows = (state_index, action_index, rewards, next_index, ends, cut, steps, observed)
    # Episodes one after the other, also where the rows of the source are by time: what is by episode (splits, returns,
    # where episodes start) goes by neighbouring rows.
    kept = np.flatnonzero(keep) if along is None else along.order[keep[along.order]]
    times = read_steps(table, "count")
    if times is not None:
        check_memory(f"{table.name} has {int(times.sum(dtype=np.int64))} transitions", 100.0 * times.sum(dtype=float))
        kept = np.repeat(kept, times[kept])
    *columns, observed = (None if x is None else x[kept] for x in rows)
    if not len(kept):
        raise ValueError(
            f"{table.name} has no episode of two rows, expected at least one transition {see('how-to/read-a-log')}"
        )
    columns_named = {role: tuple(name) if isinstance(name, Several) else name for role, name in table.columns.items()}
    return Log(
        Transitions(*columns, reward_observed=observed),
        state_names,
        action_names,
        table.name,
        digest,
        columns=columns_named,
    )


def _all_bad(
    first: BadCells,
    table: Table,
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
    needs_rewards: bool,
) -> BadCells:
    """The error, with the bad cells of the other columns."""

    def ends() -> np.ndarray | None:
        return read_flags(table, "terminated")

    def left_out() -> np.ndarray:
        """The rows that are no transitions: the last ones, without a next state."""
        if "next_state" in table.columns:
            return np.zeros(len(table.frame), bool)
        episodes, over = read_episodes(table), ends()
        last = episode_order(np.zeros(len(table.frame), np.intp) if episodes is None else episodes).last
        return last if over is None else last & ~over

    checks: dict[str, Callable[[], object]] = {
        "terminated": ends,
        "truncated": lambda: read_flags(table, "truncated"),
        "episode": lambda: read_episodes(table),
        "state": lambda: read_labels(table, ("state",), states),
        "next_state": lambda: read_labels(table, ("next_state",), states, ends()),
        "action": lambda: read_labels(table, ("action",), actions, left_out() & is_empty(table, "action")),
        reward_role(table): lambda: read_rewards(table, not needs_rewards, ~left_out()),
    }
    errors = {first.cells[0][1]: first}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for role, check in checks.items():
            if role in table.columns:
                try:
                    check()
                except BadCells as error:
                    errors.setdefault(error.cells[0][1], error)
                except (ValueError, TypeError):  # of no single cell: it is told when the cells are right
                    pass
    cells = sorted((cell for error in errors.values() for cell in error.cells), key=lambda cell: cell[0])
    return BadCells(table, cells[:MOST_TOLD], sum(error.number for error in errors.values()))


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
