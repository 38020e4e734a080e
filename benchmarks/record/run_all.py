"""All benchmarks, each in a process of its own; the file is written after each, and a run that was stopped goes on."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.record.registry import Benchmark
from benchmarks.record.stored import Cost, Finished, Record, load, new_record, save
from benchmarks.record.turns import Measured, Size, Skipped

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Of every benchmark: threads of OpenBLAS that wait spin, which would count as the CPU time of numpy."""

Show = Callable[[str], object]


def run_all(benchmarks: Sequence[Benchmark], size: Size, path: Path, show: Show, *, overwrite: bool = False) -> Record:
    """Run what the file does not hold yet.

    Args:
        benchmarks: in this order.
        size: of the run.
        path: JSON, written after each benchmark. An incomplete one is completed.
        show: is given each line of the progress.
        overwrite: begin anew, whatever is there.

    Raises:
        ValueError: the file is complete, or incomplete and of another size, settings, machine or versions.
    """
    record = begin(benchmarks, size, path, overwrite)
    for i, benchmark in enumerate(benchmarks):
        head = f"[{i + 1}/{len(benchmarks)}] {benchmark.name}"
        if benchmark.name in record.benchmarks:
            show(f"{head}: in the file already")
            continue
        show(head)
        done = run_one(benchmark, size, show)
        record = record._replace(benchmarks={**record.benchmarks, benchmark.name: done})
        save(record, path)
    record = record._replace(complete=True)
    save(record, path)
    return record


def begin(benchmarks: Sequence[Benchmark], size: Size, path: Path, overwrite: bool) -> Record:
    """What the file holds, or a new record, which is written at once."""
    new = new_record(size)
    if overwrite or not path.exists():
        save(new, path)
        return new
    there = load(path)
    if there.complete:
        raise ValueError(f"{str(path)!r} is complete, give another --out or --overwrite")
    for name in ("size", "settings", "machine", "versions"):
        if getattr(there, name) != getattr(new, name):
            raise ValueError(f"{str(path)!r} was begun with another {name}, give another --out or --overwrite")
    return there


def run_one(benchmark: Benchmark, size: Size, show: Show) -> Finished:
    """One benchmark in its process."""
    missing = benchmark.missing()
    if missing is not None:
        show(f"    skipped: {missing}")
        return Finished(skipped=(Skipped("all", missing),))
    lines, skipped, cost = [], [], None
    with tempfile.TemporaryFile("w+") as said:
        command = [sys.executable, "-m", "benchmarks.record.one_benchmark", benchmark.module, size]
        with subprocess.Popen(
            command, cwd=ROOT, env=_environment(benchmark), text=True, stdout=subprocess.PIPE, stderr=said
        ) as process:
            try:
                for text in process.stdout or ():
                    ((kind, value),) = json.loads(text).items()
                    if kind == "Measured":
                        lines.append(Measured(**{**value, "ratios": tuple(value["ratios"])}))
                        show(f"    {describe_line(lines[-1])}")
                    elif kind == "Skipped":
                        skipped.append(Skipped(**value))
                        show(f"    {skipped[-1].name} skipped: {skipped[-1].why}")
                    else:
                        cost = Cost(**value)
            except BaseException:
                process.terminate()
                raise
        said.seek(0)
        failed = None if process.returncode == 0 and cost is not None else _last_words(said.read(), process.returncode)
    if failed is not None:
        show(f"    failed: {failed}")
    variables = {**ENVIRONMENT, **benchmark.environment}
    return Finished(tuple(lines), tuple(skipped), cost or Cost(), failed, variables)


def _environment(benchmark: Benchmark) -> dict[str, str]:
    """The checkout comes first among the places of imports."""
    places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": places, **ENVIRONMENT, **benchmark.environment}


def _last_words(said: str, code: int) -> str:
    """The last line on standard error, where an exception is named."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"{lines[-1][:300] if lines else 'it said nothing'} (exit code {code})"


def describe_line(line: Measured) -> str:
    """One line of the progress."""
    spread = f"{min(line.ratios):.3g} to {max(line.ratios):.3g}"
    return f"{line.name}: {line.ratio:.3g} times as fast as {line.peer} ({spread})"
