"""The mark `thorough` for the tests that take longest.

`thorough.txt` lists them, a function of a file a line. `tools/thorough.py` writes it from measured times.
"""

from pathlib import Path

import pytest

LIST = Path(__file__).parent / "thorough.txt"


def listed() -> frozenset[str]:
    """Their names, as pytest writes them without parameters."""
    lines = LIST.read_text().splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def mark_thorough(items: list[pytest.Item]) -> None:
    """Mark what is listed."""
    names = listed()
    for item in items:
        if item.nodeid.partition("[")[0] in names:
            item.add_marker(pytest.mark.thorough)
