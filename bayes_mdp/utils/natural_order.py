"""The natural order of labels: 2 before 10, "s2" before "s10"."""

import re
from collections.abc import Hashable, Iterable
from typing import Any

_LONGEST = 1000


def natural_order(labels: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Labels in order: numbers by size, text with its digits as numbers, tuples by entry, the rest by its text."""
    found: list[Any] = list(labels)
    return tuple(sorted(found) if all(type(label) is int for label in found) else sorted(found, key=_key))


def _key(label: Hashable) -> tuple[Any, ...]:
    if isinstance(label, (bool, int, float)):
        return (0, label)
    if isinstance(label, tuple):
        return (2, *(_key(entry) for entry in label))
    text = label if isinstance(label, str) else repr(label)
    return (1, *map(_part, re.split(r"(\d+)", text)), text)


def _part(part: str) -> tuple[int, int, str]:
    """A run of digits as a number. Not superscripts, which are no decimals; longer runs than Python turns into one."""
    return (0, int(part), "") if part.isdecimal() and len(part) <= _LONGEST else (1, 0, part)
