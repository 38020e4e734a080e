"""The picture of the table of `decide`: its numbers are those of the page."""

import pytest

from benchmarks.decide_grid_picture import DOCS, HEADING, PANELS, read_table

PAGE = f"""
| another | table |
|---|---|
| 1 | 2 |

{HEADING}

Words.

| worlds, episodes | of the better | harm | coverage: posterior, `decide` | realised | alarm |
|---|---|---|---|---|---|
| one, 20 | 1.00 | **.05** | .86, .94 | .91 | .01 |
| two | .99 | .00 | 0.9, 1 | .69 | 0 |

| a later | table |
"""


def test_the_numbers_are_those_of_the_table():
    names, columns = read_table(PAGE)
    assert names == ["one, 20", "two"] and list(columns) == list(PANELS)
    assert columns["harm"] == [[0.05], [0.0]] and columns["coverage"] == [[0.86, 0.94], [0.9, 1.0]]
    assert columns["of the better"] == [[1.0], [0.99]] and columns["alarm"] == [[0.01], [0.0]]


def test_the_page_has_the_table():
    names, columns = read_table((DOCS / "measured" / "decisions.md").read_text(encoding="utf-8"))
    assert names and all(len(cells) == len(names) for cells in columns.values())
    assert all(0 <= x <= 1 for cells in columns.values() for cell in cells for x in cell)


def test_a_page_without_it_is_refused():
    with pytest.raises(ValueError, match="the page has no table below"):
        read_table(PAGE.replace(HEADING, "## Other"))
    with pytest.raises(ValueError, match="the table has no column 'harm', expected one"):
        read_table(PAGE.replace("| harm |", "| hurt |"))
