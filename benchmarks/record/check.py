"""The small subset that continuous integration runs: does a ratio fall below the stored one?

A machine with other work to do can disturb a ratio for seconds. A benchmark of which a ratio fell is therefore run
again, and each ratio counts as the best of its runs: only one that fell in all of them has fallen.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.record.comparison import compare, fallen
from benchmarks.record.registry import Benchmark
from benchmarks.record.run_all import Show, run_all, run_one
from benchmarks.record.stored import Finished, Record, save

RERUNS = 2


def check(benchmarks: Sequence[Benchmark], old: Record, path: Path, show: Show) -> Record:
    """Run the subset, and again what fell; the record holds the best run of each line."""
    record = run_all([one for one in benchmarks if one.in_check], "check", path, show, overwrite=True)
    for _ in range(RERUNS):
        fell = {one.benchmark for one in fallen(compare(old, record))}
        for benchmark in benchmarks:
            if benchmark.name in fell:
                show(f"{benchmark.name} again: a ratio fell")
                best = best_of(record.benchmarks[benchmark.name], run_one(benchmark, "check", show))
                record = record._replace(benchmarks={**record.benchmarks, benchmark.name: best})
    save(record, path)
    return record


def best_of(first: Finished, second: Finished) -> Finished:
    """Each line where its ratio was larger."""
    again = {(line.name, line.peer): line for line in second.lines}
    lines = [max(line, again.get((line.name, line.peer), line), key=lambda one: one.ratio) for line in first.lines]
    return first._replace(lines=tuple(lines))
