"""Rows of episodes: which one follows which, whether steps go up by one, which episodes go on in the next chunk.

Rows of an episode may stand anywhere in a log (`episode_order`). Where next states are those of the next rows, steps go
up by one from row to row (`first_gap`). `OpenEpisodes` carries the last rows of episodes over the boundary of a chunk.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from bayes_mdp.envs.logs.tables import Table
from bayes_mdp.utils.messages import see

if TYPE_CHECKING:
    import pandas as pd


class EpisodeOrder(NamedTuple):
    """The rows of episodes, which may be interleaved.

    Args:
        order: the rows, those of an episode together, else as they are.
        next_row: of each row the next one of its episode (itself at the last).
        place: of each row in its episode.
        last: whether a row is the last of its episode.
    """

    order: Int[np.ndarray, " N"]
    next_row: Int[np.ndarray, " N"]
    place: Int[np.ndarray, " N"]
    last: Bool[np.ndarray, " N"]


def episode_order(episodes: Int[np.ndarray, " N"]) -> EpisodeOrder:
    """The order of rows by the number of their episode, in which episodes are numbered as they appear."""
    order = np.argsort(episodes, kind="stable")
    is_last = np.append(np.diff(episodes[order]) != 0, True)
    start = np.flatnonzero(np.append(True, is_last[:-1]))
    next_row, place, last = (np.empty(len(order), dtype) for dtype in (np.intp, np.int32, bool))
    next_row[order] = np.where(is_last, order, np.roll(order, -1))
    place[order] = np.arange(len(order)) - np.repeat(start, np.diff(np.append(start, len(order))))
    last[order] = is_last
    return EpisodeOrder(order, next_row, place, last)


class StepGap(NamedTuple):
    """A row whose step is not the one after that of the row before it in its episode.

    Args:
        row: of the source, 0-based.
        before: the row before it in its episode, likewise.
        found, expected: the step of the row, and the one that follows the step before.
    """

    row: int
    before: int
    found: int
    expected: int

    def refuse(self, table: Table) -> None:
        """Refuse the row of the source of `table`.

        Raises:
            ValueError: names both rows.
        """
        expected = f"{self.expected}, the step after that of row {self.before + 1} of its episode"
        table.refuse(self.row, "step", repr(self.found), f"{expected} {see('how-to/read-a-log')}")


def first_gap(
    step: Int[np.ndarray, " N"],
    next_row: Int[np.ndarray, " N"],
    last: Bool[np.ndarray, " N"],
    row: Int[np.ndarray, " N"],
) -> StepGap | None:
    """The gap that comes first in the source; None: there is none.

    Args:
        step: of each row.
        next_row: the next row of its episode, as an index of these arrays.
        last: whether there is none.
        row: of the source, 0-based.
    """
    after = np.asarray(step, np.int64) + 1  # 2^31 is the step after the largest one
    wrong = np.flatnonzero(~last & (step[next_row] != after))
    if not wrong.size:
        return None
    before = int(wrong[row[next_row[wrong]].argmin()])
    at = int(next_row[before])
    return StepGap(int(row[at]), int(row[before]), int(step[at]), int(after[before]))


Columns = dict[str, Shaped[np.ndarray, " N"]]


@dataclass(frozen=True)
class Settled:
    """Rows whose transition is known.

    Args:
        columns: of these rows.
        next_state: the state of the next row of the episode; of a last row its own.
        place: place of the row in its episode.
        last: whether it is the last of its episode.
        leads_out: whether its next row is left out (the last row of an episode that did not terminate).
        gap: steps that do not follow each other, if they are checked and some do not.
    """

    columns: Columns
    next_state: Int[np.ndarray, " N"]
    place: Int[np.ndarray, " N"]
    last: Bool[np.ndarray, " N"]
    leads_out: Bool[np.ndarray, " N"]
    gap: StepGap | None = None


@dataclass
class OpenEpisodes:
    """Rows that wait for what follows. Memory: one or two rows for each episode that may go on.

    Args:
        shifts: whether the next state is that of the next row; then a last row that did not terminate is left out.
        looks_ahead: whether `last` (or, where it `shifts`, `leads_out`) must be known: rows wait for it.
        counts_places: whether `place` must be known: a row of every episode is kept to the end.
        checks_steps: whether steps must follow each other (columns "step" and "row"): likewise.
    """

    shifts: bool
    looks_ahead: bool
    counts_places: bool
    checks_steps: bool = False

    def __post_init__(self) -> None:
        self._held: Columns | None = None
        self._labels: pd.Index | None = None

    def advance(self, codes: Int[np.ndarray, " N"], labels: "pd.Index | range", columns: Columns) -> Settled:
        """The rows that are settled by one more chunk, earlier ones first.

        Args:
            codes: the episode of each row, an index into `labels`.
            labels: of the episodes.
            columns: state (Int[N]), terminated (Bool[N]), and others that are carried along.
        """
        import pandas as pd

        labels = pd.Index(labels)
        codes = np.asarray(codes, np.intp)
        rows = {**columns, "place": np.zeros(len(codes), np.int64), "given_out": np.zeros(len(codes), bool)}
        if self._held is not None and self._labels is not None:
            # Episodes that are met again keep their rows in front; the others are numbered behind the chunk's own.
            known = labels.get_indexer(self._labels)
            other, distinct = pd.factorize(self._labels[known < 0])
            known[known < 0] = len(labels) + other
            codes = np.concatenate([known, codes])
            rows = {name: np.concatenate([self._held[name], rows[name]]) for name in rows}
            labels = labels.append(pd.Index(distinct)) if len(distinct) else labels
        return self._settle(codes, labels, rows, final=False)

    def finish(self) -> Settled | None:
        """The rows that were still waiting, at the end of the log; None: there are none."""
        if self._held is None or self._labels is None:
            return None
        import pandas as pd

        codes, labels = pd.factorize(self._labels)
        return self._settle(codes, pd.Index(labels), self._held, final=True)

    def _settle(self, codes: Int[np.ndarray, " N"], labels: "pd.Index", rows: Columns, *, final: bool) -> Settled:
        _, next_row, place, last = episode_order(codes)
        # The first row of an episode here is the one that was held, if any: it knows its place.
        base = np.zeros(len(labels), np.int64)
        base[codes[::-1]] = rows["place"][::-1]
        rows = {**rows, "place": base[codes] + place}
        ends = rows["terminated"]
        keep = ~last | ends if self.shifts else np.ones(len(codes), bool)
        leads_out = ~keep[next_row]
        settled = keep
        if self.looks_ahead and not final:
            settled = ~last & ~leads_out if self.shifts else ~last
        now = settled & ~rows["given_out"]
        # A row that was held is the one before the first of its episode here: no pair of rows is left out.
        gap = first_gap(rows["step"], next_row, last, rows["row"]) if self.checks_steps else None
        result = Settled(
            {name: column[now] for name, column in rows.items() if name not in ("place", "given_out")},
            rows["state"][next_row][now],
            rows["place"][now].astype(np.int32),
            last[now],
            leads_out[now],
            gap,
        )
        rows["given_out"] = rows["given_out"] | now
        keeps_last = self.counts_places or self.checks_steps
        stays = ~rows["given_out"] | last if keeps_last else ~rows["given_out"]
        self._held = {name: column[stays] for name, column in rows.items()}
        self._labels = labels[codes[stays]]
        return result
