"""The mark `thorough` for the tests that take longest.

`thorough.txt` lists them, a function of a file a line, or one of its cases. `tools/thorough.py` writes it from measured
times.
"""

import zlib
from pathlib import Path

import pytest

LIST = Path(__file__).parent / "thorough.txt"


def listed() -> frozenset[str]:
    """Their names, as pytest writes them: without parameters all cases of a function, with them one case."""
    lines = LIST.read_text().splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def part_of(text: str) -> tuple[int, int]:
    """I and N of "I/N": the I-th of N parts, from 0 on."""
    index, _, number = text.partition("/")
    if not (index.isdigit() and number.isdigit() and int(index) < int(number)):
        raise pytest.UsageError(f"--part is {text!r}, expected I/N with I from 0 to N - 1, such as 0/2")
    return int(index), int(number)


def mark_thorough(items: list[pytest.Item], part: str | None = None) -> None:
    """Mark what is listed. With `part`, "I/N", those of other parts are slow, and what is not listed has its turn in
    one part (the mark `turn`)."""
    names = listed()
    index, number = (0, 1) if part is None else part_of(part)
    for item in items:
        function = item.nodeid.partition("[")[0]
        name = item.nodeid if item.nodeid in names else function
        in_part = zlib.crc32(name.encode()) % number == index
        if name in names:
            item.add_marker(pytest.mark.thorough)
            if not in_part:
                item.add_marker(pytest.mark.slow)
        elif in_part:
            item.add_marker(pytest.mark.turn)
