"""The page of `decide`: its tables are those of the file of logs."""

import pytest

from benchmarks.decide_grid import LOGS, read_logs
from benchmarks.decide_grid_picture import (
    ORDINARY_HEAD,
    PAGE,
    PLANTED_HEAD,
    PRIORS_HEAD,
    ordinary_lines,
    planted_lines,
    priors_lines,
    with_table,
)


@pytest.mark.parametrize(
    ("head", "lines"),
    [(ORDINARY_HEAD, ordinary_lines), (PRIORS_HEAD, priors_lines), (PLANTED_HEAD, planted_lines)],
)
def test_the_page_has_the_tables_of_the_file(head, lines):
    made = lines(read_logs(LOGS))
    assert len(made) >= 4
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, head, made) == page
    # Of one log fewer the table is another.
    assert with_table(page, head, lines(read_logs(LOGS).groupby("family").tail(20))) != page


def test_a_page_without_the_table_is_refused():
    with pytest.raises(ValueError, match="page has no table that begins with"):
        with_table("# A page\n", ORDINARY_HEAD, [])
