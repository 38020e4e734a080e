"""Writes the tables of the sections Papers and Measured from stored results; a file that has not changed is left.

Papers: `reproductions/stored/NAME-SCALE.json`, what `python -m reproductions NAME` writes beside its result. Measured:
`benchmarks/record.json` of `python -m benchmarks`, and the CSV files of `python -m benchmarks.validation`.
"""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from api_pages import cited, write_page

from benchmarks.record import stored as stored_benchmarks
from benchmarks.record.tables import describe_record, table
from reproductions.reproduce import REPRODUCTIONS, find_reproduction
from reproductions.reproduction import Scale
from reproductions.verdicts import expected_verdicts

VERDICTS = ("agrees", "undecided", "differs")


def write_paper_tables(folder: Path, *, stored: Path) -> None:
    """A table for each published experiment, and `overview.md` with a line for each.

    Args:
        folder: of the tables, `NAME.md`.
        stored: folder of the JSON files.
    """
    lines = []
    for name in REPRODUCTIONS:
        results = [json.loads(path.read_text()) for path in _of(name, stored)]
        parts = list(map(_experiment, results)) or [_unknown(name)]
        write_page(folder / f"{name}.md", cited("\n\n".join([f"### `{name}`", *parts])))
        lines += [
            (f"`{name}`", _source(name), *_numbers(result), *_times(name, result["configuration"]["scale"]))
            for result in results
        ] or [(f"`{name}`", _source(name), "not stored", "", "", "", "", "", _time(name, "full"))]
    heads = ("experiment", "paper", "scale", *VERDICTS, "not as expected", "time", "time at full scale")
    write_page(folder / "overview.md", cited(table(heads, lines)))


def _of(name: str, stored: Path) -> list[Path]:
    """The stored results of an experiment, full scale first."""
    return [path for scale in ("full", "quick") if (path := stored / f"{name}-{scale}.json").is_file()]


def _source(name: str) -> str:
    return find_reproduction(name).source


def _unknown(name: str) -> str:
    expected = Counter(expected_verdicts(name).values())
    words = ", ".join(f"{expected[verdict]} {verdict}" for verdict in VERDICTS if expected[verdict])
    return (
        f"{_source(name)}. No result is stored; `python -m reproductions {name}` makes it."
        + (f" Verdicts expected of its rows: {words}." if words else "")
    )  # fmt: skip


def _numbers(result: dict[str, Any]) -> tuple[str, ...]:
    found = Counter(row["verdict"] for row in result["verdicts"])
    counts = (str(found[verdict]) if found[verdict] else "" for verdict in VERDICTS)
    return (result["configuration"]["scale"], *counts, str(len(result["unexpected"]) or ""))


def _times(name: str, scale: Scale) -> tuple[str, str]:
    """What the stored run takes, and one at full scale."""
    return _time(name, scale), "" if scale == "full" else _time(name, "full")


def _time(name: str, scale: Scale) -> str:
    """On two idle cores, as the experiment estimates it."""
    seconds = find_reproduction(name).seconds[scale]
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.0f} h"


def _experiment(result: dict[str, Any]) -> str:
    """One result: how it was made, its rows, what was not as expected."""
    configuration, versions = result["configuration"], result["versions"]
    made = f"{configuration['source']}; {configuration['scale']} scale"
    made += "".join(f"; {result[name]}" for name in ("finished", "machine") if name in result)
    made += f"; bayes_mdp {versions['bayes_mdp']}, jax {versions['jax']}, numpy {versions['numpy']}."
    rows = [
        (
            _cell(row["quantity"]),
            _number(row["published"]),
            "none" if row["ours"] is None else _number(row["ours"]),
            _interval(row["half"]),
            _band(row["band"]),
            f"**{row['verdict']}**" if row["verdict"] == "differs" else row["verdict"] or "",
        )
        for row in result["verdicts"]
    ]
    heads = ("quantity", "published", "ours", "95 %", "asked for", "verdict")
    surprises = [f"* Not as expected: {_cell(sentence)}" for sentence in result["unexpected"]]
    return "\n\n".join([made, table(heads, rows), *(["\n".join(surprises)] if surprises else [])])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _interval(half: float | None) -> str:
    """Half the width of the interval; None: not finite, one seed or a level that nobody reached."""
    return "" if half is None else f"± {_number(half) if half >= 1000 else f'{half:.2g}'}" if half else "exact"


def _band(band: Sequence[str] | None) -> str:
    if band is None:
        return ""
    low, high = map(float, band)
    if low == -float("inf"):
        return f"at most {_number(high)}"
    return f"at least {_number(low)}" if high == float("inf") else f"{_number(low)} to {_number(high)}"


def write_measured_pages(folder: Path, *, record: Path, validation: Path) -> None:
    """`benchmarks.md`, speed beside other libraries, and the tables `accuracy_table.md` and `scorecard_table.md`.

    Args:
        folder: of the section.
        record: the JSON file of a run of the benchmarks.
        validation: folder of the CSV files.
    """
    about = (
        "CPU time of a task by this library and by a peer, which take turns in one process; the ratio is the peer's "
        "time divided by ours: above 1 we are faster, below 1 slower. `python -m benchmarks` measures it on your "
        "machine, `--compare` beside this run. [Speed](speed.md) describes many of the tasks; the first lines of "
        "`benchmarks/NAME.py` describe each of them."
    )
    text = describe_record(stored_benchmarks.load(record))
    write_page(folder / "benchmarks.md", f"# Speed beside other libraries\n\n{about}\n\n{text}\n")
    for name, file in (("accuracy_table", "measured_accuracy.csv"), ("scorecard_table", "scorecard.csv")):
        with (validation / file).open(newline="") as lines:
            rows = list(csv.reader(lines))
        write_page(folder / f"{name}.md", table(rows[0], rows[1:]))


def _cell(text: str) -> str:
    """Text that stays in its cell, and as it is."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
