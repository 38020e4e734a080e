"""The natural order of labels: 2 before 10, "s2" before "s10"."""

import re
from collections.abc import Hashable
from typing import Any


def natural_key(label: Hashable) -> tuple[Any, ...]:
    """Sorting key: numbers by size, text with its digits as numbers, tuples entry by entry, the rest by its text."""
    if isinstance(label, (bool, int, float)):
        return (0, label)
    if isinstance(label, tuple):
        return (2, *(natural_key(entry) for entry in label))
    text = label if isinstance(label, str) else repr(label)
    return (1, *((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text)), text)
