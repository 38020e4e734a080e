"""OIM with prioritized sweeping beside numba (`benchmarks/oim.py`): lines of the record."""

import importlib
import itertools
import sys
from collections.abc import Iterator

from benchmarks import oim
from benchmarks.record.turns import Measured, Size, in_turns

RUNS = {"check": (20,), "quick": (1, 20), "full": oim.RUNS}


def measure(size: Size) -> Iterator[Measured]:
    """A step of the environment; the model is swept after each."""
    # As a program `oim` finds the file of its peer beside itself.
    sys.modules.setdefault("oim_numba", importlib.import_module("benchmarks.oim_numba"))
    for task in oim.tasks():
        if size != "full" and not task.name.endswith(" 5 pops"):
            continue
        for runs in RUNS[size]:
            mine, theirs, seeds = oim.ours(task, runs), oim.peer(task, runs), itertools.count()
            yield in_turns(
                f"{task.name}, {task.num_steps} steps, {runs} run{'s at once' if runs > 1 else ''}",
                "step",
                lambda mine=mine, seeds=seeds: mine(next(seeds)),
                "numba, one run at a time",
                lambda theirs=theirs, seeds=seeds: theirs(next(seeds)),
                size,
                units=task.num_steps * runs,
            )
