"""Tracks of the racetrack as text maps: those of the papers ([TDBMA10], [TRACK95]), and a reader for others."""

import os
from dataclasses import dataclass

from bayes_mdp.envs.papers.maps import FREE, GRAY, START, WALL, cells_with, check_map, read_map
from bayes_mdp.utils.validation import check_type

FINISH = "F"
TRACK_CELLS = WALL + GRAY + FREE + START + FINISH

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


@dataclass(frozen=True)
class Track:
    """A text map: `#` wall, `x` gray, `.` track, `S` start, `F` finish. Beyond its border all is wall.

    Whether a finish can be reached depends on the rules: `racetrack` sees to it. Racetracks are from [TRACK95].

    Args:
        name: for tables and files.
        cells: the lines of the map, all of one length; the cell in row 3, column 5 (from 0) is `cells[3][5]`.

    Raises:
        ValueError: no lines, an unknown character, lines of different lengths, no start, no finish.
        TypeError: a name or a line that is no string.

    Example:
        >>> track = bm.envs.Track("straight", ("#####", "#S.F#", "#####"))
        >>> track.starts, track.finishes
        (((1, 1),), ((1, 3),))
    """

    name: str
    cells: tuple[str, ...]

    def __post_init__(self) -> None:
        check_type("name", self.name, str, "a string")
        check_type("cells", self.cells, tuple, "a tuple of the lines of a map")
        for i, line in enumerate(self.cells):
            check_type(f"cells[{i}]", line, str, "a line of a map")
        check_map(f"track {self.name!r}", self.cells, TRACK_CELLS, ((START, "start"), (FINISH, "finish")))

    @property
    def starts(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of every start, counted from 0, in reading order."""
        return cells_with(self.cells, START)

    @property
    def finishes(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of every finish, counted from 0, in reading order."""
        return cells_with(self.cells, FINISH)


def read_track(source: "str | os.PathLike[str]", *, name: str | None = None) -> Track:
    """A track by its name, from the text of a map, or from a file with one.

    The built-in maps (`TRACKS`) are "cliff", "corner" and "curves" [TDBMA10], as drawn for this package: the paper's
    are a figure without numbers; and "barto_l" and "barto_r", the two tracks of Barto, Bradtke and Singh (1995), after
    a transcription that was not checked against the paper. `Track` documents the characters. Blank lines around a
    map, common indentation and blanks at the end of a line are dropped; lines and columns in messages are counted
    from 1 in what is left.

    Args:
        source: a name; a map (a str with several lines, or with nothing but the characters of a map); or a path.
        name: of the track; None: that of the built-in map, the file's without its suffix, or "custom".

    Raises:
        TypeError: `source` is neither a str nor a path.
        ValueError: no such name or file, a file that is no text, or a map that is none (see `Track`).
        FileNotFoundError: a path object without a file.

    Example:
        >>> track = bm.envs.read_track("barto_l")
        >>> track.name, len(track.starts) > 1
        ('barto_l', True)
    """
    found, cells = read_map("track", source, TRACK_CELLS, TRACKS, ", or a Track")
    return Track(name or found, cells)
