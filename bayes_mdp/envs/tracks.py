"""Tracks of the racetrack as text maps: those of the papers, and a reader for others."""

import os
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from bayes_mdp.mdp.validation import did_you_mean

TRACK_CELLS = "#x.SF"
WALL, GRAY, FREE, START, FINISH = TRACK_CELLS

_CLIFF = """
##############
#............#
#............#
#............#
#............#
#SxxxxxxxxxxF#
##############
"""
_CORNER = """
##############
#...........F#
#...........F#
#...........F#
#....xxxxxxxx#
#....x########
#....x########
#....x########
#SS..x########
##############
"""
_CURVES = """
####################
#SS......xxxx......#
#SS......xxxx......#
#SS......xxxx......#
#xxxx....xxxx..xx..#
#xxxx....xxxx..xx..#
#xxxx..........xx..#
#xxxx..........xx..#
#xxxxxxxxxxxxxxxxFF#
####################
"""
_BARTO_L = """
################################FFF
################################...
################################...
################################...
################################...
S..................................
S..................................
S..................................
S..................................
####...............................
########...........................
############.......................
"""
_BARTO_R = """
##########.......#############
######..............##########
##.....................#######
##.......................#####
##.......................#####
##.......................#####
##..........##...........#####
##........#####..........#####
##.......#######.........#####
##......#####...........######
##.....####...........########
##.....####.........##########
##.....####.......############
##.....####.....##############
#......####............#######
#......###...............#####
#.....####................####
#.....####.................###
#.....####..................##
#.....#####..................#
#.....######..................
#.....################........
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
......#################.......
SSSSSS#################FFFFFFF
"""
TRACKS = {"cliff": _CLIFF, "corner": _CORNER, "curves": _CURVES, "barto_l": _BARTO_L, "barto_r": _BARTO_R}
"""Name -> text of a built-in map."""

_COUNTED = "(lines and columns are counted from 1)"


@dataclass(frozen=True)
class Track:
    """A text map: `#` wall, `x` gray, `.` track, `S` start, `F` finish. Beyond its border all is wall.

    Whether a finish can be reached depends on the rules: `racetrack` sees to it.

    Args:
        name: for tables and files.
        cells: the lines of the map, all of one length; the cell in row 3, column 5 (from 0) is `cells[3][5]`.

    Raises:
        ValueError: no lines, an unknown character, lines of different lengths, no start, no finish.
    """

    name: str
    cells: tuple[str, ...]

    def __post_init__(self) -> None:
        if not any(self.cells):
            raise ValueError(f"track {self.name!r} is empty, expected the lines of a map")
        for line, row in enumerate(self.cells, 1):
            for column, cell in enumerate(row, 1):
                if cell not in TRACK_CELLS:
                    raise ValueError(
                        f"track {self.name!r} has {cell!r} at line {line}, column {column}, "
                        f"expected one of {' '.join(TRACK_CELLS)} {_COUNTED}"
                    )
        width = len(self.cells[0])
        for line, row in enumerate(self.cells, 1):
            if len(row) != width:
                raise ValueError(
                    f"track {self.name!r} has {len(row)} cells in line {line}, "
                    f"expected {width}, as in line 1 (lines are counted from 1)"
                )
        for cell, what in ((START, "start"), (FINISH, "finish")):
            if not self._where(cell):
                lines = f"the {len(self.cells)} lines" if len(self.cells) > 1 else "its line"
                raise ValueError(f"track {self.name!r} has no {what}, expected at least one {cell} in {lines}")

    @property
    def starts(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of every start, counted from 0, in reading order."""
        return self._where(START)

    @property
    def finishes(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of every finish, counted from 0, in reading order."""
        return self._where(FINISH)

    def _where(self, wanted: str) -> tuple[tuple[int, int], ...]:
        found = ((r, c) for r, row in enumerate(self.cells) for c, cell in enumerate(row) if cell == wanted)
        return tuple(found)


def read_track(source: "str | os.PathLike[str]", *, name: str | None = None) -> Track:
    """A track by its name, from the text of a map, or from a file with one.

    The built-in maps (`TRACKS`) are "cliff", "corner" and "curves" [TDBMA10], as drawn for this package: the paper's
    are a figure without numbers; and "barto_l" and "barto_r", the two tracks of Barto, Bradtke and Singh (1995), after
    a transcription that was not checked against the paper. `Track` says what the characters mean. Blank lines around a
    map, common indentation and blanks at the end of a line are dropped; lines and columns in messages are counted
    from 1 in what is left.

    Args:
        source: a name; a map (a str with several lines, or with nothing but the characters of a map); or a path.
        name: of the track; None: that of the built-in map, the file's without its suffix, or "custom".

    Raises:
        TypeError: `source` is neither a str nor a path.
        ValueError: no such name or file, a file that is no text, or a map that is none (see `Track`).
        FileNotFoundError: a path object without a file.
    """
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source).__name__
        raise TypeError(f"track is of type {kind}, expected a name, a map as text, a path, or a Track")
    if isinstance(source, str) and source in TRACKS:
        return Track(name or source, _lines(TRACKS[source]))
    if isinstance(source, str) and (len(source.splitlines()) > 1 or not source.strip(f" {TRACK_CELLS}\n")):
        return Track(name or "custom", _lines(source))
    path = Path(source)
    if not os.path.isfile(path):  # unlike `Path.is_file`, false for what is too long to be a name
        if not isinstance(source, str):
            raise FileNotFoundError(f"track is {str(path)!r}, expected a file that exists")
        names = ", ".join(TRACKS)
        expected = f"one of {names}, a map of several lines, or a file that exists{did_you_mean(source, TRACKS)}"
        raise ValueError(f"track is {source!r}, expected {expected}")
    try:
        return Track(name or path.stem, _lines(path.read_text(encoding="utf-8-sig")))
    except UnicodeDecodeError as error:
        raise ValueError(f"track is {str(path)!r}, expected a file of text ({error})") from error


def _lines(text: str) -> tuple[str, ...]:
    """The lines of a map, without what does not belong to it."""
    lines = [line.rstrip() for line in text.splitlines()]
    used = [i for i, line in enumerate(lines) if line]
    return tuple(dedent("\n".join(lines[used[0] : used[-1] + 1])).split("\n")) if used else ()
