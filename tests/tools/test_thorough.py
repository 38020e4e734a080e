"""The list of long tests: what stays in the default run calls every function; cases and functions are marked."""

import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from tests import thorough
from tools.thorough import DEAR, cover, entries, staying

TESTS = {
    "a.py::both": (1.0, frozenset("xy")),
    "a.py::first[1]": (0.2, frozenset("x")),
    "a.py::first[2]": (0.3, frozenset("x")),
    "b.py::second": (0.1, frozenset("y")),
    "b.py::alone": (DEAR - 0.1, frozenset("z")),
    "b.py::dear": (9 * DEAR, frozenset("w")),
    "c.py::only": (1.1, frozenset("x")),
}


def test_together_they_call_what_all_call_at_a_price():
    """x, y and z by the quickest; w is called by a test that is too dear."""
    assert cover(TESTS) == {"b.py::second", "a.py::first[1]", "b.py::alone"}


def test_the_quickest_fill_the_time():
    met = {"b.py::second", "a.py::first[1]", "b.py::alone", "c.py::only"}  # and one of every file
    assert staying(TESTS, 0.0) == met
    taken = sum(TESTS[name][0] for name in met)
    assert staying(TESTS, taken + 0.4) == met | {"a.py::first[2]"}
    assert staying(TESTS, taken + 1.4) == met | {"a.py::first[2]", "a.py::both"}


def test_a_function_is_listed_where_none_of_its_cases_stays():
    assert entries(TESTS, {"a.py::first[1]"}) == set(TESTS) - {"a.py::first[1]"}
    assert "a.py::first" in entries(TESTS, {"a.py::both"})


@pytest.mark.parametrize("number", [1, 3])
def test_marks(number, monkeypatch):
    """In one part of all parts each: what is listed runs there alone, the rest has its turn there."""
    monkeypatch.setattr(thorough, "listed", lambda: frozenset({"a.py::f", "a.py::g[2]"}))
    names = ["a.py::f[1]", "a.py::g[1]", "a.py::g[2]", "a.py::h"]
    seen: dict[str, list[int]] = {name: [] for name in names}
    for index in range(number):
        items: Any = [SimpleNamespace(nodeid=name, marks=set()) for name in names]
        for item in items:
            item.add_marker = lambda mark, item=item: item.marks.add(mark.name)
        thorough.mark_thorough(items, f"{index}/{number}")
        for item in items:
            of_part = {"thorough"} if item.nodeid in ("a.py::f[1]", "a.py::g[2]") else {"turn"}
            if item.marks == of_part:
                seen[item.nodeid].append(index)
            else:
                assert item.marks == of_part - {"turn"} | ({"slow"} if "thorough" in of_part else set())
    parts = ["a.py::f", "a.py::g", "a.py::g[2]", "a.py::h"]
    assert list(seen.values()) == [[zlib.crc32(part.encode()) % number] for part in parts]
