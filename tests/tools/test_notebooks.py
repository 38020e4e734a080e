"""Which notebooks of the documentation a build runs."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SPEC = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
assert SPEC is not None and SPEC.loader is not None
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)


def test_every_page_with_cells_is_found():
    found = MODULE.notebooks(DOCS)
    with_cells = [
        page.relative_to(DOCS).as_posix()
        for page in sorted(DOCS.rglob("*.md"))
        if "_build" not in page.parts and "```{code-cell}" in page.read_text()
    ]
    assert found == sorted(with_cells) and "start.md" in found


def test_parts_are_disjoint_and_together_all():
    every = set(MODULE.notebooks(DOCS))
    run = [every - set(MODULE.notebooks_to_leave(DOCS, f"{k}/6")) for k in range(6)]
    assert sum(map(len, run)) == len(every) and set().union(*run) == every
    assert MODULE.notebooks_to_leave(DOCS, "0/1") == [] and set(MODULE.notebooks_to_leave(DOCS, "0/0")) == every


@pytest.mark.parametrize("part", ["6/6", "1/0", "x", "1", "-1/6", ""])
def test_other_parts_are_refused(part):
    with pytest.raises(ValueError, match="expected K/N with K < N, or 0/0"):
        MODULE.notebooks_to_leave(DOCS, part)
