"""`fold_log`: logs of any length, read chunk by chunk and kept as sufficient statistics alone."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from bayes_mdp.envs.logs.chunked_tables import ChunkedLog, Partitioned, each_log
from bayes_mdp.envs.logs.columns import with_outcomes
from bayes_mdp.envs.logs.tables import Dialect, check_roles
from bayes_mdp.envs.logs.transition_chunks import LabelBook, Missing, Rows, Wanted, transition_chunks
from bayes_mdp.mdp import FoldedLog, Source, StateActionSpace
from bayes_mdp.mdp.data.folded_log import (
    END,
    FIRST_STATE,
    UNKNOWN,
    CellTable,
    Where,
    check_new_sources,
    joined,
    table_of_rows,
)
from bayes_mdp.mdp.space import check_space
from bayes_mdp.utils.messages import ends_with_page, see
from bayes_mdp.utils.validation import as_names, check_bool, check_callable, check_count, check_names

if TYPE_CHECKING:
    import os

    import pandas as pd

LogSource: TypeAlias = "str | os.PathLike[str] | pd.DataFrame | Partitioned"
Progress = Callable[[str, int], object]
_LEAST_PENDING, _FEW_PENDING = 2**12, 2**20


@ends_with_page("how-to/read-a-log")
def fold_log(  # noqa: PLR0913 - the columns of a file are named one by one, as for read_log
    paths: "LogSource | Iterable[LogSource]",
    *,
    state: str,
    action: str | None,
    reward: str | None = None,
    cost: str | None = None,
    outcomes: Sequence[str] | None = None,
    next_state: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    step: str | None = None,
    space: StateActionSpace | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    by_step: bool | None = None,
    missing_reward: Literal["error", "ignore"] = "error",
    missing_state: Literal["error", "gap"] = "error",
    gaps: Literal["error", "cut"] = "error",
    sep: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    chunksize: int = 1_000_000,
    allow_duplicates: bool = False,
    progress: Progress | None = None,
) -> FoldedLog:
    """Read logs that need not fit in memory; keep how often each transition occurred, and the moments of its rewards.

    `infer`, the `update` of a posterior and `StateActionSpace.from_log` take the result in place of a `Log`. Rewards
    are summed without rounding: neither the order of rows, nor the size of chunks, nor how logs are divided among
    calls whose results are merged (`FoldedLog.merge`) changes a bit.

    Memory: one chunk, 100 to 200 bytes for each different transition, and, where next states or steps come from the
    rows of an episode, a row for each episode of the log that may go on (one that terminated does not, but where
    steps are counted or have to follow each other: where next states are those of the next rows, see `read_log`).

    Args:
        paths: a log or several: CSV or Parquet files, DataFrames, Dask dataframes (read partition by partition). An
            episode lies in one log.
        state, action, reward, cost, outcomes, next_state, terminated, truncated, episode, step: as for `read_log`.
            Columns without a role are looked at in the first chunk.
        missing_reward, missing_state, gaps, sep, encoding, decimal: as for `read_log`.
        space: labels are those of this space, others are refused, and steps are kept if it has a horizon.
        states, actions: all labels, in order; None: those found, in natural order, with a warning as in `read_log`.
        by_step: whether the steps of episodes are kept, for spaces with a horizon. None: if `space` has one; without
            `space`, if `step` is given.
        chunksize: rows that are read at once.
        allow_duplicates: whether logs of the same content are counted each time.
        progress: called as progress(name of the log, rows read of it) after each chunk.

    Returns:
        The counts and moments by label, and where they came from.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: as `read_log`, and two logs of the same content (both are named).
        ImportError: Parquet without pyarrow.
        TypeError: an argument of another type.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": ["a", "b"], "a": ["go", "go"], "r": [0.0, 1.0], "t": ["b", "a"]})
        >>> log = bm.envs.fold_log([table], state="s", action="a", reward="r", next_state="t")
        >>> log.n_transitions, log.states
        (2, ('a', 'b'))
    """
    check_count("chunksize", chunksize)
    check_bool("allow_duplicates", allow_duplicates)
    if progress is not None:
        check_callable("progress", progress)
    dialect = Dialect(sep, encoding, decimal)
    dialect.check()
    roles: dict[str, Any] = {"state": state, "action": action, "reward": reward, "cost": cost, "next_state": next_state}
    roles |= {"terminated": terminated, "truncated": truncated, "episode": episode, "step": step}
    roles = with_outcomes(roles, outcomes)
    missing = Missing.of_words(roles, missing_reward, missing_state, gaps)
    check_roles(roles, ("state",))
    for name, labels in (("states", states), ("actions", actions)):
        if labels is not None:
            check_names(name, as_names(labels))
    states, actions, by_step = _labels(space, states, actions, by_step, step is not None)
    if by_step and step is None and episode is None:
        raise ValueError(
            "step and episode are both None, expected one: steps are kept (in the shell --step or --episode) "
            + see("how-to/large-logs")
        )
    fold = _Fold(LabelBook("state", states), LabelBook("action", actions), Wanted(by_step, False, missing))
    for log in each_log(paths, roles, chunksize, {"state": states, "action": actions}, dialect):
        fold.take(log, allow_duplicates, progress)
    return fold.finish(reward is not None or cost is not None)


def _labels(
    space: StateActionSpace | None,
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
    by_step: bool | None,
    has_step: bool,
) -> tuple[Any, Any, bool]:
    """States, actions and whether steps are kept, from what is given of them."""
    if by_step is not None:
        check_bool("by_step", by_step)
    if space is None:
        return states, actions, has_step if by_step is None else by_step
    check_space(space)
    for name, labels in (("states", states), ("actions", actions)):
        if labels is not None:
            raise ValueError(f"space and {name} are both given, expected one of them {see('how-to/large-logs')}")
    return space.logged_states, space.action_names, space.horizon is not None if by_step is None else by_step


class _Fold:
    """What has been read so far. The cells of chunks wait until they are many beside those before, and are merged then.

    Each cell is thus merged a few times, whatever the number of chunks.
    """

    def __init__(self, states: LabelBook, actions: LabelBook, wanted: Wanted) -> None:
        self.states, self.actions, self.wanted = states, actions, wanted
        self.sources: tuple[Source, ...] = ()
        self.tables: list[CellTable] = []
        self.of_outcomes: dict[str, list[CellTable]] = {}  # the same cells, with the moments of another column

    def take(self, log: ChunkedLog, allow_duplicates: bool, progress: Progress | None) -> None:
        """All of a log."""
        # A file is known by its content before it is read, anything else afterwards.
        before, cost = log.known_digest(), log.columns.get("cost")
        if before is not None:
            self._check(Source(log.name, before, 0, cost), allow_duplicates)
        for rows in transition_chunks(log, self.states, self.actions, self.wanted):
            self._add(rows)
            if progress is not None:
                progress(log.name, log.rows)
        source = Source(log.name, log.digest() if before is None else before, log.rows, cost)
        if before is None:
            self._check(source, allow_duplicates)
        self.sources = (*self.sources, source)

    def _check(self, source: Source, allow_duplicates: bool) -> None:
        if not allow_duplicates:
            check_new_sources(self.sources, (source,))

    def _add(self, rows: Rows) -> None:
        ended = False if rows.terminated is None else rows.terminated
        step = np.zeros_like(rows.state) if rows.step is None else rows.step
        outcome = np.where(ended, END, np.where(rows.next_observed, FIRST_STATE + rows.next_state, UNKNOWN))
        where = Where(step, rows.state, rows.action, outcome)
        tables = [(self.tables, rows.reward)]
        tables += [(self.of_outcomes.setdefault(name, []), paid) for name, paid in rows.outcomes.items()]
        for kept, paid in tables:
            kept.append(table_of_rows(where, paid, len(self.sources), rows.row))
            base = len(kept[0])
            most = max(min(4 * base, _FEW_PENDING), base // 2, _LEAST_PENDING)
            if sum(map(len, kept[1:])) > most:
                kept[:] = [joined(kept)]

    def finish(self, has_rewards: bool) -> FoldedLog:
        """The log under its final numbers."""
        (states, state_number), (actions, action_number) = self.states.finish(), self.actions.finish()
        given = (self.states.given is not None, self.actions.given is not None)

        def folded(tables: list[CellTable], sources: tuple[Source, ...], has_rewards: bool) -> FoldedLog:
            cells = joined(tables).renumbered(state_number, action_number)
            return FoldedLog(states, actions, cells, sources, self.wanted.steps, has_rewards, given)

        as_logged = tuple(replace(source, cost=None) for source in self.sources)
        outcomes = {name: folded(tables, as_logged, True) for name, tables in self.of_outcomes.items()}
        return replace(folded(self.tables, self.sources, has_rewards), outcomes=outcomes)
