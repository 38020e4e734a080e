"""`tools/docstrings.py`: it finds what is left out, and in the package finds nothing."""

import subprocess
import sys

import pytest

from tests import undocumented
from tools import docstrings
from tools.docstrings import RULES, Miss, check, cites, entries, says_what_returns

MISSES = {
    "no_docstring": {
        ("sentence", "no docstring"),
        ("parameters", "share"),
        ("returns", "what comes back"),
        ("units", "what comes back"),
    },
    "no_sentence": {
        ("sentence", "A line that goes on after its end, as if a sentence that is too long were no matter, until it")
    },
    "no_parameter": {("parameters", "size")},
    "no_result": {("returns", "what comes back")},
    "no_shape": {("shapes", "values")},
    "no_shape_of_result": {("shapes", "what comes back")},
    "no_unit": {("units", "height"), ("units", "when")},
    "no_unit_of_result": {("units", "what comes back")},
    "no_error": {("errors", "ValueError")},
    "no_error_of_check": {("errors", "TypeError")},
    "no_source": {("source", "no paper is cited")},
    "no_example": {("example", "no example")},
    "complete": set(),
    "NoField": {("parameters", "height")},
}


@pytest.mark.parametrize("name", MISSES)
def test_what_is_left_out_is_found(name):
    report = check({name: getattr(undocumented, name)}, {"no_source", "complete"}, {"no_example", "complete"})
    assert {(miss.rule, miss.what) for miss in report.misses} == MISSES[name]
    assert {miss.name for miss in report.misses} <= {name}


def test_every_rule_has_a_twin():
    assert {rule for found in MISSES.values() for rule, _ in found} == set(RULES)


def test_what_a_base_says_counts_and_no_more():
    report = check({"Plant": undocumented.Plant}, (), ())
    assert report.misses == [Miss("parameters", "Plant.watered", "litres")]


def test_sections_are_read():
    doc = "A thing.\n\nArgs:\n    a, b: two\n        lines.\n    *rest: others.\n\nReturns:\n    c: nothing.\n"
    assert entries(doc) == {"a": " two\n        lines.", "b": " two\n        lines.", "rest": " others."}
    assert (
        says_what_returns("The sum.")
        and not says_what_returns("Sum up.")
        and says_what_returns("Sum it.\n\nReturns:\n    x.")
    )
    assert cites("As in [UBE18].") and not cites("Float[A]")


def test_the_package_leaves_nothing_out():
    # In a process of its own: to import all of the package with its annotations checked takes far longer.
    run = subprocess.run([sys.executable, docstrings.__file__], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    rows = [line.split() for line in run.stdout.splitlines()]
    assert [row[0] for row in rows] == ["rule", *RULES]
    assert all(int(checked) > 100 and missing == "0" and share == "100.0%" for _, checked, missing, share in rows[1:])


def test_the_exit_status_says_that_something_is_missing(monkeypatch, capsys):
    report = check({"no_result": undocumented.no_result}, (), ())
    monkeypatch.setattr(docstrings, "check_all", lambda: report)
    assert docstrings.main([]) == 1
    assert "no_result: what comes back" in capsys.readouterr().out
    assert docstrings.main(["--rule", "errors"]) == 0
