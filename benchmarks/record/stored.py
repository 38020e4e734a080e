"""The file of a run: JSON with the machine, the versions, every ratio of every turn, and what each benchmark cost."""

import datetime
import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import bayes_mdp
from bayes_mdp.utils.files import read_bytes, write_beside
from benchmarks.record.turns import LEAST_SECONDS, REPEATS, SIZES, Measured, Size, Skipped

FORMAT = "bayes_mdp benchmarks, 1"
PEERS = ("numba", "quantecon", "pandas", "polars", "heormodel", "mdpsolver", "stormpy", "simuk")
PACKAGES = ("jax", "jaxlib", "numpy", "scipy", *PEERS)

NUMBERS = re.compile(r"\[[\d\s.,e+-]+\]")
"""A list of numbers in a JSON text: it takes one line."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class Cost(NamedTuple):
    """What a benchmark's process took: wall and CPU seconds, and megabytes at most; 0 where it did not end."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0


class Finished(NamedTuple):
    """One benchmark: its lines, what was skipped, its cost, why it failed if it did, and the variables it was given."""

    lines: tuple[Measured, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    cost: Cost = Cost()
    failed: str | None = None
    environment: Mapping[str, str] = MappingProxyType({})


class Record(NamedTuple):
    """A run.

    Args:
        size: of the run.
        started: date and time, UTC.
        settings: turns of a line, and the CPU seconds of one turn at least.
        machine: processor, cores, system.
        versions: of Python, this package, and the peers that are installed.
        benchmarks: those that were run, in turn.
        complete: all that were asked for were run.
    """

    size: Size
    started: str
    settings: dict[str, str]
    machine: dict[str, str]
    versions: dict[str, str]
    benchmarks: dict[str, Finished]
    complete: bool = False

    def lines(self) -> Iterator[tuple[str, Measured]]:
        """Every line, with the name of its benchmark."""
        for name, one in self.benchmarks.items():
            for line in one.lines:
                yield name, line


def new_record(size: Size) -> Record:
    """Of this machine, nothing measured yet."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    settings = {"turns": str(REPEATS[size]), "seconds_of_a_turn": str(LEAST_SECONDS)}
    return Record(size, now, settings, this_machine(), versions(), {})


def this_machine() -> dict[str, str]:
    """Processor, cores that this process may use, system."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    return {"processor": _processor(), "cores": str(cores), "system": platform.system()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Of Python, of this package, and of those of `PACKAGES` that are installed."""
    found = {"python": platform.python_version(), "bayes_mdp": bayes_mdp.__version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def save(record: Record, path: Path) -> None:
    """Write the file beside its place, and rename it: whenever the run is stopped, there is a whole file."""
    text = NUMBERS.sub(lambda found: " ".join(found[0].split()), json.dumps(to_json(record), indent=1))
    write_beside(path, lambda beside: beside.write_text(text + "\n"))


def to_json(record: Record) -> Json:
    """Numbers with six digits."""
    return {"format": FORMAT, **record._asdict(), "benchmarks": {k: _plain(v) for k, v in record.benchmarks.items()}}


def _plain(one: Finished) -> Json:
    return {
        "lines": [
            line._replace(
                ours=_six(line.ours), theirs=_six(line.theirs), ratios=tuple(map(_six, line.ratios))
            )._asdict()
            for line in one.lines
        ],
        "skipped": [line._asdict() for line in one.skipped],
        "cost": {name: round(number, 2) for name, number in one.cost._asdict().items()},
        "failed": one.failed,
        "environment": dict(one.environment),
    }


def _rounded(line: Measured) -> Measured:
    return line._replace(ours=_six(line.ours), theirs=_six(line.theirs), ratios=tuple(map(_six, line.ratios)))


def _six(x: float) -> float:
    return float(f"{x:.6g}")


def load(path: Path) -> Record:
    """Read a file that `save` wrote.

    Raises:
        FileNotFoundError: there is none. ValueError: it is no such file, broken, or of another format.
    """
    content = read_bytes(path)
    try:
        data = json.loads(content)
    except ValueError:
        raise ValueError(f"{str(path)!r} is not JSON, expected a file that `python -m benchmarks` wrote") from None
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise ValueError(f"{str(path)!r} has the format {found!r}, expected {FORMAT!r}: measure it again")
    try:
        return _from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise ValueError(f"{str(path)!r} is broken ({what}), expected what `python -m benchmarks` wrote") from None


def _from_json(data: dict) -> Record:
    fields = {name: data[name] for name in Record._fields}
    if fields["size"] not in SIZES:
        raise ValueError(f"size is {fields['size']!r}")
    done = {
        name: Finished(
            tuple(_line(line) for line in one["lines"]),
            tuple(Skipped(**line) for line in one["skipped"]),
            Cost(**one["cost"]),
            one["failed"],
            dict(one["environment"]),
        )
        for name, one in fields["benchmarks"].items()
    }
    return Record(**{**fields, "benchmarks": done})


def _line(data: dict) -> Measured:
    line = Measured(**{**data, "ratios": tuple(map(float, data["ratios"]))})
    if not line.ratios or not all(0 < x < float("inf") for x in (line.ours, line.theirs, *line.ratios)):
        raise ValueError(f"{line.name!r} has no positive ratio")
    return line
