"""The table of a reproduction, and the verdict that each of its rows must have (`expected_verdicts.toml`)."""

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path

from reproductions.reproduction import Row, Scale


def expected_verdicts(name: str) -> dict[str, str]:
    """Quantity -> verdict, of the experiment `name`; empty where none is kept."""
    text = Path(__file__).with_name("expected_verdicts.toml").read_text(encoding="utf-8")
    return tomllib.loads(text).get(name, {})


def unexpected(rows: Sequence[Row], expected: dict[str, str], scale: Scale) -> list[str]:
    """One sentence for every row whose verdict is not the expected one; both must list the same rows.

    At quick scale "undecided" contradicts nothing: there were too few seeds.
    """
    found = {row.quantity: row.verdict for row in rows if row.verdict is not None}
    sentences = [
        f"{quantity}: the verdict is {verdict!r}, expected {expected.get(quantity, 'no such row')!r}"
        for quantity, verdict in found.items()
        if verdict != expected.get(quantity) and not (quantity in expected and _open(verdict, scale))
    ]
    return sentences + [
        f"{quantity}: there is no such row, expected {expected[quantity]!r}"
        for quantity in expected
        if quantity not in found
    ]


def _open(verdict: str, scale: Scale) -> bool:
    return scale == "quick" and verdict == "undecided"


def table(rows: Sequence[Row]) -> str:
    """The rows as text: published value, ours with its 95 % interval, what was asked for, verdict."""
    lines = [("quantity", "published", "ours", "95 %", "asked for", "verdict")]
    lines += [
        (
            row.quantity,
            "" if row.published is None else f"{row.published:.5g}",
            "none" if math.isnan(row.ours) else f"{row.ours:.5g}",
            _interval(row),
            "" if row.band is None else _band(*row.band),
            row.verdict or "",
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, 5) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _interval(row: Row) -> str:
    if math.isinf(row.half):
        return ""
    return f"+- {row.half:.2g}" if row.half else "exact"


def _band(low: float, high: float) -> str:
    if low == -float("inf"):
        return f"<= {high:.6g}"
    return f">= {low:.6g}" if high == float("inf") else f"{low:.6g} to {high:.6g}"
