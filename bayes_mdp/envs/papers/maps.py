"""Text maps of grids, and moves on them.

Characters have the same meaning in every map; `read_map` and `check_map` say what is wrong with one, line and column.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

import numpy as np

from bayes_mdp.utils.messages import did_you_mean

WALL, GRAY, FREE, START = "#x.S"


def read_map(
    what: str, source: "str | os.PathLike[str]", known: str, built_in: "dict[str, str] | None" = None, also: str = ""
) -> tuple[str, tuple[str, ...]]:
    """(name, lines) of a map: a built-in one by its name, the text of one, or a file with one.

    Blank lines around it, common indentation and blanks at the end of a line are dropped.

    Args:
        what: "track", for the messages.
        source: a name; a map (a str with several lines, or with nothing but the characters of a map); or a path.
        known: the characters of a map.
        built_in: name -> text.
        also: what else the caller takes, ", or a Track".

    Raises:
        TypeError: `source` is neither a str nor a path.
        ValueError: no such name or file, or a file that is no text. The lines are not looked into: see `check_map`.
        FileNotFoundError: a path object without a file.
    """
    maps = built_in or {}
    if not isinstance(source, (str, os.PathLike)):
        kinds = f"{'a name, ' if maps else ''}a map as text, a path{also}"
        raise TypeError(f"{what} is of type {type(source).__name__}, expected {kinds}")
    if isinstance(source, str) and source in maps:
        return source, _lines(maps[source])
    if isinstance(source, str) and (len(source.splitlines()) > 1 or not source.strip(f" {known}\n")):
        return "custom", _lines(source)
    path = Path(source)
    if not os.path.isfile(path):  # unlike `Path.is_file`, false for what is too long to be a name
        if not isinstance(source, str):
            raise FileNotFoundError(f"{what} is {str(path)!r}, expected a file that exists")
        names = f"one of {', '.join(maps)}, " if maps else ""
        expected = f"{names}a map of several lines, or a file that exists{did_you_mean(source, maps)}"
        raise ValueError(f"{what} is {source!r}, expected {expected}")
    try:
        return path.stem, _lines(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} is {str(path)!r}, expected a file of text ({error})") from error


def check_map(what: str, cells: tuple[str, ...], known: str, needed: "Iterable[tuple[str, str]]") -> None:
    """A map has lines of one length, of known characters, and at least one of each that is needed.

    Args:
        what: "track 'corner'", for the messages.
        cells: the lines.
        known: the characters of a map.
        needed: (character, its name).

    Raises:
        ValueError: it is not so; the message names the line and the column.
    """
    if not any(cells):
        raise ValueError(f"{what} is empty, expected the lines of a map")
    for line, row in enumerate(cells, 1):
        for column, cell in enumerate(row, 1):
            if cell not in known:
                raise ValueError(
                    f"{what} has {cell!r} at line {line}, column {column}, "
                    f"expected one of {' '.join(known)} (lines and columns are counted from 1)"
                )
    for line, row in enumerate(cells, 1):
        if len(row) != len(cells[0]):
            raise ValueError(
                f"{what} has {len(row)} cells in line {line}, "
                f"expected {len(cells[0])}, as in line 1 (lines are counted from 1)"
            )
    for cell, name in needed:
        if not cells_with(cells, cell):
            lines = f"the {len(cells)} lines" if len(cells) > 1 else "its line"
            raise ValueError(f"{what} has no {name}, expected at least one {cell} in {lines}")


def cells_with(cells: tuple[str, ...], wanted: str) -> tuple[tuple[int, int], ...]:
    """(row, column) of every cell of a kind, counted from 0, in reading order."""
    places = ((r, c) for r, row in enumerate(cells) for c, cell in enumerate(row) if cell == wanted)
    return tuple(places)


def _lines(text: str) -> tuple[str, ...]:
    """The lines of a map, without what does not belong to it."""
    lines = [line.rstrip() for line in text.splitlines()]
    used = [i for i, line in enumerate(lines) if line]
    return tuple(dedent("\n".join(lines[used[0] : used[-1] + 1])).split("\n")) if used else ()


UP, RIGHT, DOWN, LEFT = range(4)
STEPS = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
"""(rows down, columns to the right) of every action."""


def moves(free: np.ndarray) -> np.ndarray:
    """Int[R C 4]: the cell that each action leads to, as row * C + column; the cell itself where the way is barred.

    Args:
        free: Bool[R C], free cells; those beyond the border are not.
    """
    cells = np.moveaxis(np.indices(free.shape), 0, -1)
    target = cells[:, :, None] + STEPS
    row, column = np.moveaxis(target + 1, -1, 0)
    target = np.where(np.pad(free, 1)[row, column][..., None], target, cells[:, :, None])
    return target[..., 0] * free.shape[1] + target[..., 1]
