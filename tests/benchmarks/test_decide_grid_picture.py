"""The picture of the table of `decide`: its numbers are those of the page."""

import json
import re

import pytest

from benchmarks.decide_grid_picture import DOCS, PANELS, read_rows


def test_the_page_has_the_numbers_of_the_file():
    """Row for row, as they are rounded there: both coverages, and what is realised."""
    rows = read_rows(DOCS / "measured" / "decide_grid.json")
    page = (DOCS / "measured" / "decisions.md").read_text(encoding="utf-8")
    table = page.partition("## The default of `decide`")[2]
    shown = re.findall(r"^\| [^|]+, (\d+) \|.*\| ([\d.]+), ([\d.]+) \| ([\d.]+) \|$", table, re.MULTILINE)
    assert len(rows) == len(shown) > 8
    for row, (episodes, *numbers) in zip(rows, shown, strict=True):
        assert row["episodes"] == int(episodes)
        for name, number in zip(("coverage", "coverage_decide", "realised"), numbers, strict=True):
            assert abs(row[name] - float(number)) <= 0.0051, (row, name)


def test_a_row_that_lacks_a_number_is_refused(tmp_path):
    row = dict.fromkeys((*PANELS, "coverage", "family", "episodes"), 1.0)
    (tmp_path / "whole.json").write_text(json.dumps([row]))
    assert read_rows(tmp_path / "whole.json") == [row]
    del row["harm"]
    (tmp_path / "part.json").write_text(json.dumps([row]))
    with pytest.raises(ValueError, match=r"part\.json has a row without 'harm'"):
        read_rows(tmp_path / "part.json")
