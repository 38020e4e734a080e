"""Text maps: the built-in ones against their description, texts, files, and every refusal."""

from pathlib import Path
from typing import Any

import pytest

from bayes_mdp.envs import TRACKS, read_track
from bayes_mdp.envs.papers.racetrack import Track

pytestmark = pytest.mark.numerics

MAP = """
    #####
    #S.F#
    #####
"""


def test_the_paper_tracks_have_their_cells():
    """Sizes, starts, finishes and numbers of gray cells, counted by hand in the description."""
    found = {
        name: ((len(t.cells), len(t.cells[0])), len(t.starts), len(t.finishes), sum(r.count("x") for r in t.cells))
        for name, t in ((name, read_track(name)) for name in ("cliff", "corner", "curves"))
    }
    assert found == {
        "cliff": ((7, 14), 1, 1, 10),
        "corner": ((10, 14), 2, 3, 12),
        "curves": ((10, 20), 6, 2, 60),
    }
    assert read_track("corner").starts == ((8, 1), (8, 2))
    assert read_track("cliff").finishes == ((5, 12),)


L_TRACK = {**{r: [(32, 34)] for r in range(5)}, **{r: [(0, 34)] for r in range(5, 9)}}
L_TRACK |= {9: [(4, 34)], 10: [(8, 34)], 11: [(12, 34)]}
R_TRACK = {0: [(10, 16)], 1: [(6, 19)], 2: [(2, 22)], **{r: [(2, 24)] for r in (3, 4, 5)}}
R_TRACK |= {6: [(2, 11), (14, 24)], 7: [(2, 9), (15, 24)], 8: [(2, 8), (16, 24)], 9: [(2, 7), (13, 23)]}
R_TRACK |= {10: [(2, 6), (11, 21)], 11: [(2, 6), (11, 19)], 12: [(2, 6), (11, 17)], 13: [(2, 6), (11, 15)]}
R_TRACK |= {14: [(1, 6), (11, 22)], 15: [(1, 6), (10, 24)], 16: [(1, 5), (10, 25)], 17: [(1, 5), (10, 26)]}
R_TRACK |= {18: [(1, 5), (10, 27)], 19: [(1, 5), (11, 28)], 20: [(1, 5), (12, 29)], 21: [(1, 5), (22, 29)]}
R_TRACK |= {r: [(0, 5), (23, 29)] for r in range(22, 33)}


@pytest.mark.parametrize(
    ("name", "ranges", "starts", "finishes"),
    [
        ("barto_l", L_TRACK, [(r, 0) for r in range(5, 9)], [(0, c) for c in range(32, 35)]),
        ("barto_r", R_TRACK, [(32, c) for c in range(6)], [(32, c) for c in range(23, 30)]),
    ],
)
def test_barto_tracks_have_their_ranges(name, ranges, starts, finishes):
    """The maps against the transcription's ranges of columns by row."""
    track = read_track(name)
    assert len(track.cells) == len(ranges) and {len(row) for row in track.cells} == {35 if name == "barto_l" else 30}
    for r, row in enumerate(track.cells):
        inside = {c for first, last in ranges[r] for c in range(first, last + 1)}
        assert {c for c, cell in enumerate(row) if cell != "#"} == inside
    assert list(track.starts) == starts and list(track.finishes) == finishes


def test_texts_and_files(tmp_path):
    """Indentation, blank lines around, blanks at the end, Windows line ends and a byte-order mark do not matter."""
    cells = ("#####", "#S.F#", "#####")
    assert read_track(MAP) == Track("custom", cells)
    assert read_track("S.F") == Track("custom", ("S.F",))
    assert read_track(MAP, name="straight").name == "straight"
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeff#####  \r\n#S.F#\r\n#####\r\n\r\n".encode())
    assert read_track(path) == read_track(str(path)) == Track("mine", cells)
    assert {name: read_track(name).name for name in TRACKS} == {name: name for name in TRACKS}


NAMES = "cliff, corner, curves, barto_l, barto_r"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "track 'custom' is empty, expected the lines of a map"),
        ("\n  \n", "track 'custom' is empty, expected the lines of a map"),
        (
            "\n\n  #S.\n  #.?F",
            "track 'custom' has '?' at line 2, column 3, expected one of # x . S F "
            "(lines and columns are counted from 1)",
        ),
        ("S .\n..F", "track 'custom' has ' ' at line 1, column 2, expected one of # x . S F (lines and columns are "),
        ("S.F\n....\n..", "track 'custom' has 4 cells in line 2, expected 3, as in line 1 (lines are counted from 1)"),
        ("S.F\n\n...", "track 'custom' has 0 cells in line 2, expected 3, as in line 1 (lines are counted from 1)"),
        ("...\n..F", "track 'custom' has no start, expected at least one S in the 2 lines"),
        ("S..x", "track 'custom' has no finish, expected at least one F in its line"),
        (
            "cornr",
            f"track is 'cornr', expected one of {NAMES}, a map of several lines, or a file that exists; "
            "did you mean 'corner'?",
        ),
        ("S" * 400 + "?", "SSS?', expected one of cliff, "),
    ],
)
def test_bad_maps_are_refused(source, message):
    with pytest.raises(ValueError) as error:
        read_track(source)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert len(message) < 60 or str(error.value).startswith(message)


def test_other_bad_sources_are_refused(tmp_path):
    number: Any = 3
    with pytest.raises(TypeError, match="track is of type int, expected a name, a map as text, a path, or a Track"):
        read_track(number)
    with pytest.raises(FileNotFoundError, match=r"nothing\.txt', expected a file that exists"):
        read_track(Path(tmp_path / "nothing.txt"))
    with pytest.raises(FileNotFoundError, match="expected a file that exists"):
        read_track(tmp_path)
    (tmp_path / "image").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(ValueError, match=r"image', expected a file of text \("):
        read_track(tmp_path / "image")
    (tmp_path / "short.txt").write_text("###\n#S#\n")
    with pytest.raises(ValueError, match="track 'short' has no finish, expected at least one F in the 2 lines"):
        read_track(tmp_path / "short.txt")
