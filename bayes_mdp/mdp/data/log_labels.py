"""Labels of a log: their natural order, 2 before 10, "s2" before "s10"; and a warning of two spellings of one.

Each spelling becomes a state or an action of its own.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Real

from bayes_mdp.utils.messages import see, warn_user

_LONGEST = 1000


class ProductLabel(tuple[Hashable, ...]):
    """The label of a state of several columns: the tuple of its parts, printed with the names of the columns.

    Example:
        >>> label = ProductLabel(("high", 10), ("grade", "load"))
        >>> print(label, label == ("high", 10))
        grade=high, load=10 True
    """

    names: tuple[str, ...]

    def __new__(cls, parts: Iterable[Hashable], names: Iterable[Hashable]) -> "ProductLabel":
        """From the parts and as many names."""
        label = super().__new__(cls, parts)
        label.names = tuple(map(str, names))
        return label

    def __str__(self) -> str:
        return ", ".join(f"{name}={part}" for name, part in zip(self.names, self, strict=True))

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={part!r}' for name, part in zip(self.names, self, strict=True))})"

    def __reduce__(self) -> tuple[type["ProductLabel"], tuple[tuple[Hashable, ...], tuple[str, ...]]]:
        """With its names."""
        return ProductLabel, (tuple(self), self.names)


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


COMMON = 20
"""Rows from which on a label is taken as spelt right."""
SHORTEST, LONGEST = 5, 40
"""Letters of the labels in which a misspelling is looked for."""
_PER_KEY = 4
_SIGN = re.compile(r"(?<![^\W_])-(?=[\d.])")  # "pos -1", "-1"; not "room-1"
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)  # not "007"
_DIGITS = 15  # of so many, all numbers differ as floats
_BETWEEN = re.compile(r"[\s_-]+")


def warn_of_similar(
    what: str, role: str, labels: Sequence[Hashable], columns: Iterable[Real[np.ndarray, " L"]]
) -> None:
    """One warning, if some of the labels that were found may be two spellings of one.

    Args:
        what: the source, the role and its column, for the message.
        role: "state" or "action".
        labels: distinct ones.
        columns: for each column of these labels the number of rows that each label is in.
    """
    rows = np.max(list(columns), axis=0)
    counts = {x: int(n) for x, n in zip(labels, rows, strict=True) if isinstance(x, str)}
    pairs = list(similar_pairs(counts))
    if not pairs:
        return
    found = " and ".join(f"{label!r} ({_rows(counts[label])})" for label in pairs[0])
    more = len(pairs) - 1
    found += f", and {more} more such {'pairs' if more > 1 else 'pair'}" if more else ""
    warn_user(
        f"{what} has the labels {found}, which may be two spellings of one and are now two {role}s: correct the log, "
        f"or name all labels if they differ ({role}s=[...]; in the shell --{role}s A,B,C) {see('how-to/read-a-log')}"
    )


def similar_pairs(rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs of labels that may be one, the rarer first: other case, blanks or separators; or a misspelling.

    A misspelling is a label in one row that is one edit (a letter inserted, left out or replaced, or two neighbours
    exchanged) from one in `COMMON` rows, both of `SHORTEST` letters at least and nothing but letters.

    Args:
        rows: label -> number of its rows.
    """
    spellings: dict[str, list[str]] = {}
    for label in rows:
        if any(map(str.isalnum, label)):
            spellings.setdefault(_spelling(label), []).append(label)
    for same in spellings.values():
        if len(same) > 1:
            *rarer, most = sorted(same, key=lambda label: (rows[label], label))
            yield from ((label, most) for label in rarer)
    yield from _misspelt(rows)


def _misspelt(rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """By keys: words at one edit from each other share one of what is left of them without one of their letters, or
    one is what is left of the other."""
    words = [label for label in rows if SHORTEST <= len(label) <= LONGEST and label.isalpha()]
    once = [label for label in words if rows[label] == 1]
    if not once:
        return
    known: dict[str, list[str]] = {}
    for label in sorted((x for x in words if rows[x] >= COMMON), key=lambda x: -rows[x]):
        for key in _keys(label):
            some = known.setdefault(key, [])
            if len(some) < _PER_KEY:  # the commonest ones, so that no key costs more than that
                some.append(label)
    for label in once:
        near = {common for key in _keys(label) for common in known.get(key, ()) if is_one_edit(label, common)}
        near = {common for common in near if _spelling(common) != _spelling(label)}  # these are pairs already
        if near:
            yield label, max(near, key=lambda common: (rows[common], common))


def is_one_edit(one: str, other: str) -> bool:
    """Whether one text becomes the other by one insertion, deletion, replacement or exchange of neighbours."""
    short, long = sorted((one, other), key=len)
    if short == long or len(long) > len(short) + 1:
        return False
    i = next((k for k, (x, y) in enumerate(zip(short, long, strict=False)) if x != y), len(short))
    if len(short) < len(long):
        return short[i:] == long[i + 1 :]
    return short[i + 1 :] == long[i + 1 :] or (short[i + 1 : i + 2] + short[i] + short[i + 2 :] == long[i:])


def _keys(label: str) -> set[str]:
    return {label, *(label[:i] + label[i + 1 :] for i in range(len(label)))}


def _spelling(label: str) -> str:
    """The label without what is written in one way or another: case, blanks around it, what separates its words.

    Of text that is a number: how Python writes it.
    """
    if len(label) <= _DIGITS and _NUMBER.fullmatch(label.strip()):
        return repr(float(label) + 0.0)  # -0.0 + 0.0 is 0.0
    return _BETWEEN.sub(" ", _SIGN.sub("\N{MINUS SIGN}", label.strip().casefold()))


def _rows(number: int) -> str:
    return f"{number} row" if number == 1 else f"{number} rows"
