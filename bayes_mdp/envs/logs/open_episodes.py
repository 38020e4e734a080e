"""`OpenEpisodes`: the last rows of episodes that may go on in the next chunk, carried over its boundary."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int, Shaped

from bayes_mdp.envs.logs.episode_order import episode_order
from bayes_mdp.envs.logs.step_gaps import StepGap, first_gap

if TYPE_CHECKING:
    import pandas as pd

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
