"""One line of the record: CPU time of ours and of a peer, who take turns within one process.

What slows the machine down slows both: their ratio says more than the seconds do.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, get_args

Size = Literal["check", "quick", "full"]
SIZES: tuple[Size, ...] = get_args(Size)
REPEATS: dict[Size, int] = {"check": 5, "quick": 5, "full": 11}
"""Turns of a line."""
LEAST_SECONDS = 0.05
"""CPU time of one turn: a shorter call is repeated within it."""


class Measured(NamedTuple):
    """Ours beside one peer.

    The name says everything that the ratio depends on: lines of equal name and peer are compared, whatever the size of
    the run.

    Args:
        name: what is done.
        peer: beside whom.
        unit: of what there are so many CPU seconds: "step", "solve".
        ours, theirs: CPU seconds a unit, medians over the turns.
        ratios: theirs over ours in each turn; above 1 ours is faster.
    """

    name: str
    peer: str
    unit: str
    ours: float
    theirs: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)


class Skipped(NamedTuple):
    """A line that was not measured, and why."""

    name: str
    why: str


def from_turns(name: str, unit: str, peer: str, turns: Iterable[tuple[float, float]]) -> Measured:
    """The line of CPU seconds a unit, (ours, theirs) in each turn."""
    ours, theirs = zip(*turns, strict=True)
    ratios = tuple(b / a for a, b in zip(ours, theirs, strict=True))
    return Measured(name, peer, unit, statistics.median(ours), statistics.median(theirs), ratios)


def in_turns(
    name: str,
    unit: str,
    ours: Callable[[], object],
    peer: str,
    theirs: Callable[[], object],
    size: Size,
    *,
    units: float | tuple[float, float] = 1.0,
) -> Measured:
    """Measure a line.

    Args:
        name, unit, peer: see `Measured`.
        ours, theirs: each does the whole task. The first call, which may compile, is left out.
        size: says how many turns.
        units: that one call does; of ours and theirs where they differ.
    """
    units_of = units if isinstance(units, tuple) else (units, units)
    sides = [(call, _calls_in_a_turn(call), n) for call, n in zip((ours, theirs), units_of, strict=True)]

    def turn() -> tuple[float, float]:
        a, b = (_cpu_seconds(call, calls) / n for call, calls, n in sides)
        return a, b

    return from_turns(name, unit, peer, [turn() for _ in range(REPEATS[size])])


def _calls_in_a_turn(call: Callable[[], object]) -> int:
    """So many calls take `LEAST_SECONDS`; the first one is not counted."""
    _cpu_seconds(call, 1)
    return min(max(1, math.ceil(LEAST_SECONDS / max(_cpu_seconds(call, 1), 1e-9))), 10_000)


def _cpu_seconds(call: Callable[[], object], calls: int) -> float:
    """Of one call, all threads; what JAX does later is waited for."""
    jax = sys.modules.get("jax")  # a benchmark without JAX need not import it
    began = time.process_time()
    for _ in range(calls):
        answer = call()
        if jax is not None:
            jax.block_until_ready(answer)
    return (time.process_time() - began) / calls
