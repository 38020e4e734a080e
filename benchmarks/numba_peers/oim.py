"""OIM with prioritized sweeping beside numba (`benchmarks/oim.py`): lines of the record."""

import dataclasses
import itertools
from collections.abc import Iterator

from benchmarks import oim
from benchmarks.record.turns import Measured, Size, in_turns

STEPS = {"FlagMaze": 5_000, "maze": 20_000}
"""Of a run. A shorter one in the larger maze is mostly the making of its tables (see docs/measured/speed.md)."""

KEYS = 4
"""Runs with different random numbers, which the turns go through."""


def measure(size: Size) -> Iterator[Measured]:
    """A step of the environment, by the loop of `run` in numba; the model is swept after each."""
    for task in oim.tasks():
        if size != "full" and not task.name.endswith(" 5 pops"):
            continue
        task = dataclasses.replace(task, num_steps=STEPS[task.name.partition(",")[0]])
        for runs in oim.RUNS:
            mine, theirs = oim.ours(task, runs, "numba", KEYS - 1), oim.peer(task, runs)
            own, other = itertools.cycle(range(KEYS)), itertools.cycle(range(KEYS))
            yield in_turns(
                f"{task.name}, {task.num_steps} steps, {runs} run{'s' if runs > 1 else ''}",
                "step",
                lambda mine=mine, own=own: mine(next(own)),
                "numba, one run at a time",
                lambda theirs=theirs, other=other: theirs(next(other)),
                size,
                units=task.num_steps * runs,
            )
