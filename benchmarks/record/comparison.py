"""Two runs side by side: which ratio fell. Ratios are compared, never seconds."""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.record.stored import Record

FALL = 0.7
"""A ratio below this share of the stored one fell."""

FALL_ELSEWHERE = 0.5
"""The same on another processor than the stored run's, where compiled loops and NumPy's kernels gain differently: the
backup at L = 20 is 3.7 times as fast as NumPy on the AMD EPYC of the stored run, 2.2 to 2.6 on an Intel Xeon."""


class Change(NamedTuple):
    """One line in both runs; None: not in that run."""

    benchmark: str
    name: str
    peer: str
    old: float | None
    new: float | None
    floor: float = FALL

    @property
    def share(self) -> float | None:
        """New over old."""
        return None if self.old is None or self.new is None else self.new / self.old

    @property
    def fell(self) -> bool:
        """The new ratio is too low."""
        return self.share is not None and self.share < self.floor


def compare(old: Record, new: Record) -> list[Change]:
    """Every line of either run, in the order of the new one; lines of benchmarks that the new run did not have to run
    are left out."""
    before = {(name, line.name, line.peer): line.ratio for name, line in old.lines()}
    after = {(name, line.name, line.peer): line.ratio for name, line in new.lines()}
    expected = [key for key in before if key[0] in new.benchmarks and (new.size != "check" or key in after)]
    floor = FALL if old.machine.get("processor") == new.machine.get("processor") else FALL_ELSEWHERE
    return [Change(*key, before.get(key), after.get(key), floor) for key in dict.fromkeys([*after, *expected])]


def fallen(changes: Sequence[Change]) -> list[Change]:
    """Those that fell."""
    return [one for one in changes if one.fell]
