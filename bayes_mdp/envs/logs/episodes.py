"""Rows of episodes: which one follows which, whether steps go up by one, which episodes go on in the next chunk.

Rows of an episode may stand anywhere in a log (`episode_order`). `follow` says what each row leads to. Where next
states are those of the next rows, steps go up by one from row to row (`first_gap`). `OpenEpisodes` carries the last
rows of episodes over the boundary of a chunk.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from bayes_mdp.envs.logs.tables import Table

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


REPEATED = "each step of an episode once: row {} has it too"


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
        if self.found == self.expected - 1:
            expected = REPEATED.format(self.before + 1)
        cut = "" if self.found < self.expected else " (gaps='cut' ends a run there; in the shell --gaps cut)"
        step_words = repr(self.found)
        if table.raw is not None and not table.first:
            cell = table.raw[table.columns["step"]].iloc[self.row]
            step_words = step_words if str(cell) == step_words else f"{str(cell)!r} (step {step_words})"  # a date
        table.refuse(self.row, "step", step_words, f"{expected}{cut}")


def first_gap(
    step: Int[np.ndarray, " N"],
    next_row: Int[np.ndarray, " N"],
    last: Bool[np.ndarray, " N"],
    row: Int[np.ndarray, " N"],
    *,
    may_jump: bool = False,
) -> StepGap | None:
    """The gap that comes first in the source; None: there is none.

    Args:
        step: of each row.
        next_row: the next row of its episode, as an index of these arrays.
        last: whether there is none.
        row: of the source, 0-based.
        may_jump: whether steps may be left out; they still go up.
    """
    after = np.asarray(step, np.int64) + 1  # 2^31 is the step after the largest one
    wrong = step[next_row] < after if may_jump else step[next_row] != after
    wrong = np.flatnonzero(~last & wrong)
    if not wrong.size:
        return None
    before = int(wrong[row[next_row[wrong]].argmin()])
    position = int(next_row[before])
    return StepGap(int(row[position]), int(row[before]), int(step[position]), int(after[before]))


def next_in_time(along: EpisodeOrder, rows: "Columns") -> Bool[np.ndarray, " N"]:
    """Whether the next row of its episode is one step after a row, as far as the log tells.

    Args:
        along: the rows of episodes.
        rows: "truncated" and, where next states are those of the next rows, "step", as far as they are given.
    """
    follows = ~along.last & ~rows.get("truncated", np.zeros(len(along.last), bool))
    if "step" in rows and "next_state" not in rows:  # beside next states, steps may be of any unit
        follows &= rows["step"][along.next_row] == np.asarray(rows["step"], np.int64) + 1
    return follows


class FollowedRows(NamedTuple):
    """What each row leads to.

    Args:
        next_state: where that was observed; else any.
        next_observed: whether it was, or the episode ended.
        truncated: whether the episode was cut after the row; None: not told.
        keep: whether the row is part of the log: it has a state, and an action or, where it is not known what followed,
            none that is missing.
    """

    next_state: Int[np.ndarray, " N"]
    next_observed: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"] | None
    keep: Bool[np.ndarray, " N"]


def follow_rows(
    along: EpisodeOrder,
    state: Int[np.ndarray, " N"],
    *,
    known: Bool[np.ndarray, " N"],
    without_action: Bool[np.ndarray, " N"],
    ended: Bool[np.ndarray, " N"],
    cut: Bool[np.ndarray, " N"] | None,
    step: Int[np.ndarray, " N"] | None,
) -> FollowedRows:
    """Rows whose next state is the state of the next row of their episode.

    Args:
        along: the rows of episodes.
        state: of each row.
        known: whether it is known.
        without_action: whether the action is missing.
        ended, cut: whether the episode terminated, or was truncated there; None: not told.
        step: as given; None: it was not, and rows follow each other.
    """
    _, next_row, _, last = along
    flagged = np.zeros(len(state), bool) if cut is None else cut
    joined = ~last & ~flagged & known[next_row]
    if step is not None:
        joined &= step[next_row] == np.asarray(step, np.int64) + 1
    observed = joined | ended
    keep = known & (observed | ~without_action)
    # Where the next row is left out, the episode is cut although it is known what followed.
    stops = ~ended & (~observed | ~keep[next_row])
    return FollowedRows(state[next_row], observed, flagged | stops, keep)


def follow_next_states(
    along: EpisodeOrder,
    *,
    known: Bool[np.ndarray, " N"],
    led: Bool[np.ndarray, " N"],
    ended: Bool[np.ndarray, " N"],
    cut: Bool[np.ndarray, " N"] | None,
    next_state: Int[np.ndarray, " N"],
) -> FollowedRows:
    """Rows whose next state is given: an episode that goes on in a row without a state is cut before it.

    Args:
        along: the rows of episodes.
        known, led: whether state and next state of each row are known.
        ended, cut: as of `follow_rows`.
        next_state: of each row.
    """
    stops = (along.last | ~known[along.next_row] | ~(led | ended)) & ~ended
    return FollowedRows(next_state, led | ended, stops if cut is None else cut | stops, known)


Columns = dict[str, Shaped[np.ndarray, " N"]]


@dataclass(frozen=True)
class Settled:
    """Rows whose transition is known.

    Args:
        columns: of these rows.
        place: place of the row in its episode.
        followed: what they lead to.
        gap: steps that do not follow each other, if they are checked and some do not.
    """

    columns: Columns
    place: Int[np.ndarray, " N"]
    followed: FollowedRows
    gap: StepGap | None = None


@dataclass
class OpenEpisodes:
    """Rows that wait for what follows. Memory: one or two rows for each episode that may go on.

    Args:
        looks_ahead: whether rows wait for the next one of their episode: the next state is its state, or it says
            whether the episode was cut.
        counts_places: whether `place` must be known: a row of every episode is kept to the end.
        checks_steps: whether steps must follow each other (columns "step" and "row"): likewise.
        may_jump: whether steps may be left out: a gap.
    """

    looks_ahead: bool
    counts_places: bool
    checks_steps: bool = False
    may_jump: bool = False

    def __post_init__(self) -> None:
        self._held: Columns | None = None
        self._labels: pd.Index | None = None

    def advance(self, codes: Int[np.ndarray, " N"], labels: "pd.Index | range", columns: Columns) -> Settled:
        """The rows that are settled by one more chunk, earlier ones first.

        Args:
            codes: the episode of each row, an index into `labels`.
            labels: of the episodes.
            columns: state, action, next_state (Int[N], -1: missing; next_state only where it is given), terminated
                (Bool[N]), and others that are carried along.
        """
        import pandas as pd

        labels = pd.Index(labels)
        codes = np.asarray(codes, np.intp)
        rows = {**columns, "place": np.zeros(len(codes), np.int64), "given_out": np.zeros(len(codes), bool)}
        if self._held is not None and self._labels is not None:
            # Episodes that are met again keep their rows in front; the others are numbered behind the chunk's own.
            known = labels.get_indexer(self._labels)
            new_codes, distinct = pd.factorize(self._labels[known < 0])
            known[known < 0] = len(labels) + new_codes
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
        order = episode_order(codes)
        _, next_row, place, last = order
        # The first row of an episode here is the one that was held, if any: it knows its place.
        base = np.zeros(len(labels), np.int64)
        base[codes[::-1]] = rows["place"][::-1]
        rows = {**rows, "place": base[codes] + place}
        followed = follow(order, rows, self.checks_steps)
        settled = ~last | rows["terminated"] if self.looks_ahead and not final else np.ones(len(codes), bool)
        now = settled & ~rows["given_out"]
        # A row that was held is the one before the first of its episode here: no pair of rows is left out.
        gap = None
        if self.checks_steps:
            gap = first_gap(rows["step"], next_row, last, rows["row"], may_jump=self.may_jump)
        next_state, led, cut, keep = followed
        result = Settled(
            {name: column[now] for name, column in rows.items() if name not in ("place", "given_out")},
            rows["place"][now].astype(np.int32),
            FollowedRows(next_state[now], led[now], None if cut is None else cut[now], keep[now]),
            gap,
        )
        rows["given_out"] = rows["given_out"] | now
        keeps_last = self.counts_places or self.checks_steps
        stays = ~rows["given_out"] | last if keeps_last else ~rows["given_out"]
        self._held = {name: column[stays] for name, column in rows.items()}
        self._labels = labels[codes[stays]]
        return result


def follow(along: EpisodeOrder | None, rows: Columns, checks_steps: bool) -> FollowedRows:
    """What rows lead to, by their next rows or by their next states, where these are given.

    Args:
        along: the rows of episodes; None: each row stands alone, with its next state.
        rows: their columns, as of `OpenEpisodes.advance`.
        checks_steps: whether steps say which rows follow each other.
    """
    known, ended, cut = rows["state"] >= 0, rows["terminated"], rows.get("truncated")
    if along is None:
        return FollowedRows(rows["next_state"], (rows["next_state"] >= 0) | ended, cut, known)
    if "next_state" in rows:
        led = rows["next_state"] >= 0
        return follow_next_states(along, known=known, led=led, ended=ended, cut=cut, next_state=rows["next_state"])
    step = rows["step"] if checks_steps else None
    without_action = rows["action"] < 0
    return follow_rows(
        along, rows["state"], known=known, without_action=without_action, ended=ended, cut=cut, step=step
    )
