"""Logs of any length, read chunk by chunk and kept as sufficient statistics alone: `read_log` with `chunksize`."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from bayes_mdp.envs.logs.chunked_tables import ChunkedLog, Partitioned, each_log
from bayes_mdp.envs.logs.columns import labels_of_user
from bayes_mdp.envs.logs.tables import Dialect, Missing, check_roles, file_digest
from bayes_mdp.envs.logs.transition_chunks import LabelBook, LeftOpen, Rows, Wanted, transition_chunks
from bayes_mdp.mdp import FoldedLog, StateActionSpace
from bayes_mdp.mdp.data.folded_log import (
    END,
    FIRST_STATE,
    UNKNOWN,
    CellTable,
    Source,
    Where,
    check_new_sources,
    joined,
    table_of_rows,
)
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.validation import check_bool, check_callable, check_count

if TYPE_CHECKING:
    import os

    import pandas as pd

LogSource: TypeAlias = "str | os.PathLike[str] | pd.DataFrame | Partitioned"
Progress = Callable[[str, int], object]
_LEAST_PENDING, _FEW_PENDING = 2**12, 2**20
_MOST_LACKING = 3


class Folding(NamedTuple):
    """How logs are read in chunks; see `read_log`.

    Args:
        chunksize: rows that are read at once.
        space: whose labels they have, or None.
        by_step: whether steps are kept; None: where they are needed.
        allow_duplicates: whether logs of the same content are counted each time.
        progress: called after each chunk, or None.
    """

    chunksize: int
    space: StateActionSpace | None
    by_step: bool | None
    allow_duplicates: bool
    progress: Progress | None


def fold(
    source: "LogSource | Iterable[LogSource]",
    roles: dict[str, Any],
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
    missing: Missing,
    dialect: Dialect,
    folding: Folding,
) -> FoldedLog:
    """Read logs that need not fit in memory; keep how often each transition occurred, and the moments of its rewards.

    Args:
        source: a log or several.
        roles: role -> name of a column, or None.
        states, actions: all labels in order, or None.
        missing: what may be missing.
        dialect: of files.
        folding: how they are read.

    Raises:
        FileNotFoundError, ImportError, TypeError, ValueError: as `read_log`.
    """
    chunksize, space, by_step, allow_duplicates, progress = folding
    check_count("chunksize", chunksize)
    check_bool("allow_duplicates", allow_duplicates)
    if progress is not None:
        check_callable("progress", progress)
    if by_step is not None:
        check_bool("by_step", by_step)
    check_roles(roles, ("state",))
    states, actions = labels_of_user(space, states, actions)
    step, episode = roles["step"], roles["episode"]
    if by_step is None:
        by_step = step is not None if space is None else space.horizon is not None
    if by_step and step is None and episode is None:
        raise ValueError(
            "step and episode are both None, expected one: steps are kept (in the shell --step or --episode) "
            + see("how-to/large-logs")
        )
    folded = _Fold(LabelBook("state", states), LabelBook("action", actions), Wanted(by_step, False, missing))
    for log in each_log(source, roles, chunksize, {"state": states, "action": actions}, dialect):
        folded.take(log, allow_duplicates, progress)
    return folded.finish(roles["reward"] is not None or roles["cost"] is not None)


class _Fold:
    """What has been read so far. The cells of chunks wait until they are many beside those before, and are merged then.

    Each cell is thus merged a few times, whatever the number of chunks.
    """

    def __init__(self, states: LabelBook, actions: LabelBook, wanted: Wanted) -> None:
        self.states, self.actions, self.wanted = states, actions, wanted
        self.sources: tuple[Source, ...] = ()
        self.has_transitions = False
        self.lacking: list[str] = []  # of the first logs without transitions, what they lack
        self.left_open = LeftOpen()
        self.tables: list[CellTable] = []
        self.of_outcomes: dict[str, list[CellTable]] = {}  # the same cells, with the moments of another column

    def take(self, log: ChunkedLog, allow_duplicates: bool, progress: Progress | None) -> None:
        """All of a log; one without rows leaves no trace, not even its content, which others without rows share."""
        # A file is known by its content before it is read, anything else afterwards.
        before, cost = file_digest(log.content), log.columns.get("cost")
        if before is not None:
            self._check(Source(log.name, before, 0, cost), allow_duplicates)
        followed = False
        for rows in transition_chunks(log, self.states, self.actions, self.wanted, self.left_open):
            self._add(rows)
            followed |= bool(rows.next_observed.any())
            if progress is not None:
                progress(log.name, log.rows)
        self.has_transitions |= followed
        if not followed and len(self.lacking) <= _MOST_LACKING:
            self.lacking.append(log.what_it_lacks())
        if not log.rows:
            return
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
        index = Where(step, rows.state, rows.action, outcome)
        tables = [(self.tables, rows.reward)]
        tables += [(self.of_outcomes.setdefault(name, []), paid) for name, paid in rows.outcomes.items()]
        for parts, paid in tables:
            parts.append(table_of_rows(index, paid, len(self.sources), rows.row))
            base = len(parts[0])
            limit = max(min(4 * base, _FEW_PENDING), base // 2, _LEAST_PENDING)
            if sum(map(len, parts[1:])) > limit:
                parts[:] = [joined(parts)]

    def finish(self, has_rewards: bool) -> FoldedLog:
        """The log under its final numbers.

        Raises:
            ValueError: none of the logs has a transition.
        """
        if not self.has_transitions:
            more = ["..."] if len(self.lacking) > _MOST_LACKING else []
            raise ValueError(f"{'; '.join(self.lacking[:_MOST_LACKING] + more)}, expected at least one transition")
        (states, state_number), (actions, action_number) = self.states.finish(), self.actions.finish()
        declared = (self.states.given is not None, self.actions.given is not None)

        def folded(tables: list[CellTable], sources: tuple[Source, ...], has_rewards: bool) -> FoldedLog:
            cells = joined(tables).renumber(state_number, action_number)
            return FoldedLog(states, actions, cells, sources, self.wanted.steps, has_rewards, declared)

        as_logged = tuple(replace(source, cost=None) for source in self.sources)
        outcomes = {name: folded(tables, as_logged, True) for name, tables in self.of_outcomes.items()}
        return replace(folded(self.tables, self.sources, has_rewards), outcomes=outcomes)
