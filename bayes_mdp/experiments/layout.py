"""How a run is cut up: rows (checkpoints or episodes) of segments (steps under one plan), and chunks of rows."""

import math
from dataclasses import dataclass, replace

from bayes_mdp.agents.replan import period_of
from bayes_mdp.experiments.case import Case

NUM_CHUNKS = 100
LEAST_SEGMENTS = 64  # of a chunk: a call costs about 0.1 ms


@dataclass(frozen=True)
class Layout:
    """The static shape of a run: it decides what is compiled.

    A row is an episode of `row_length` steps under `Episodic`, otherwise the steps between two checkpoints. A segment
    is `segment_length` steps under one plan, learnt from as one block. A chunk is what one compiled call plays; between
    two chunks beliefs that wear out are renewed.

    Args:
        episodic: rows are episodes, which start afresh.
        ends: transitions can end an episode.
        row_length: steps of a row (the last checkpoint may be shorter).
        segment_length: divides `row_length`.
        always: a plan before every segment; otherwise the rule is asked, in a branch.
        ragged: the number of steps is no multiple of the segment length.
        chunk_rows: rows of a chunk.
        num_rows: rows of the run.
        num_steps: steps of the run, those that an early end leaves unused included.
        values: every plan is evaluated, for the regret (see `regret.py`).
    """

    episodic: bool
    ends: bool
    row_length: int
    segment_length: int
    always: bool
    ragged: bool
    chunk_rows: int
    num_rows: int
    num_steps: int
    values: bool

    @property
    def segments(self) -> int:
        """Segments of a full row."""
        return self.row_length // self.segment_length

    @property
    def whole_episodes(self) -> bool:
        """A segment is an episode."""
        return self.episodic and self.segment_length == self.row_length

    @property
    def restarts(self) -> bool:
        """An end is followed by a new first state at once (in a row of `Episodic`, by nothing)."""
        return self.ends and not self.episodic


def layout_of(case: Case, *, ends: bool, values: bool, wears: bool = False) -> Layout:
    """The layout of a run; `wears`: the belief may have to be refitted."""
    period = period_of(case.rule, case.objective)
    layout = (_steps if case.horizon is None else _episodes)(case, period, ends=ends, values=values)
    if not wears:
        return layout
    rows = case.options.refit_every or math.ceil(layout.num_rows / NUM_CHUNKS)
    return replace(layout, chunk_rows=min(layout.num_rows, rows))


def _episodes(case: Case, period: int | None, *, ends: bool, values: bool) -> Layout:
    """Rows are episodes; one plan an episode needs no branch."""
    horizon, episodes = case.horizon or 0, case.length
    segment = 1 if period is None else math.gcd(period, horizon)
    return Layout(
        episodic=True,
        ends=ends,
        row_length=horizon,
        segment_length=segment,
        always=period == horizon,
        ragged=False,
        chunk_rows=_chunk_rows(episodes, horizon // segment),
        num_rows=episodes,
        num_steps=episodes * horizon,
        values=values,
    )


def _steps(case: Case, period: int | None, *, ends: bool, values: bool) -> Layout:
    """Rows are the steps between checkpoints: about as many as asked for, a whole number of segments each."""
    steps = case.length
    segment = min(period or 1, steps)
    row = segment * max(1, round(steps / segment / case.options.num_checkpoints))
    rows = math.ceil(steps / row)
    return Layout(
        episodic=False,
        ends=ends,
        row_length=row,
        segment_length=segment,
        always=period is not None,
        ragged=steps % segment != 0,
        chunk_rows=_chunk_rows(rows, row // segment),
        num_rows=rows,
        num_steps=steps,
        values=values,
    )


def _chunk_rows(num_rows: int, segments: int) -> int:
    """Rows of a chunk: about a hundred chunks, none of them too short, none longer than the run."""
    return min(num_rows, max(math.ceil(num_rows / NUM_CHUNKS), math.ceil(LEAST_SEGMENTS / segments)))
