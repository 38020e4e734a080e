"""Write `tests/thorough.txt`, the tests that are not in the default run, from what a run has measured (Python 3.12).

    python3.12 -m pytest -p tools.thorough -m 'not slow and not thorough' -n 2 --dist loadfile
    python3.12 tools/thorough.py build/thorough/*.json --left 550

As a plugin of pytest it writes of every test its seconds of the processor and the functions of the package that it
calls. In the default run stays what together calls every function that some measured test calls (unless that takes
`DEAR` seconds a function), the quickest test of every file, then the quickest tests, until `--left` seconds are filled;
the others are listed, beside what is listed and was not measured.
"""

import argparse
import gc
import heapq
import importlib
import json
import os
import pkgutil
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "thorough.txt"
MEASURED = ROOT / "build" / "thorough"
HEADER = """\
# Tests that take longest: not in the default run, CI runs them beside it (pytest -m thorough).
# Written by tools/thorough.py from measured times.
"""
DEAR = 0.6
"""Seconds: a test that takes longer for each function that no other calls does not stay in the default run for it."""
LONGEST = 4.0
"""Seconds: the quickest test of a file stays if it takes no longer."""
GUARDS = ("tests/test_structure.py", "tests/test_face.py")
"""They hold for the whole package and always stay."""
WRITTEN_EVERY = 200
"""Tests after which a process writes what it has measured."""
Tests = dict[str, tuple[float, frozenset[str]]]
_called: set[types.CodeType] = set()
_tests: dict[str, tuple[float, list[str]]] = {}


def _name(code: types.CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno}"


def _watch(code: types.CodeType) -> None:
    """Note the calls of a function and of those inside it."""
    sys.monitoring.set_local_events(sys.monitoring.COVERAGE_ID, code, sys.monitoring.events.PY_START)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _watch(inner)


def pytest_collection_finish() -> None:
    """Watch every function of the package."""
    import bayes_mdp

    for module in pkgutil.walk_packages(bayes_mdp.__path__, "bayes_mdp."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    sys.monitoring.use_tool_id(sys.monitoring.COVERAGE_ID, __name__)
    sys.monitoring.register_callback(
        sys.monitoring.COVERAGE_ID, sys.monitoring.events.PY_START, lambda code, _: _called.add(code)
    )
    package = str(ROOT / "bayes_mdp")
    for found in gc.get_objects():
        if isinstance(found, types.FunctionType) and found.__code__.co_filename.startswith(package):
            _watch(found.__code__)


def _seconds() -> float:
    return sum(os.times()[:4])  # of child processes too


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins."""
    _called.clear()
    _tests[nodeid] = _seconds(), []


def pytest_runtest_logfinish(nodeid: str) -> None:
    """A test has ended."""
    if _called or nodeid in _tests:
        _tests[nodeid] = _seconds() - _tests[nodeid][0], sorted(map(_name, _called))
    if len(_tests) % WRITTEN_EVERY == 0:
        pytest_sessionfinish()


def pytest_sessionfinish() -> None:
    """One file of a process; also now and then before, since a run that is stopped ends without a word."""
    if any(functions for _, functions in _tests.values()):
        MEASURED.mkdir(parents=True, exist_ok=True)
        (MEASURED / f"{os.getpid()}.json").write_text(json.dumps(_tests))


def read(reports: list[Path]) -> Tests:
    """Of every measured test its seconds and what it calls."""
    return {
        name: (seconds, frozenset(functions))
        for report in reports
        for name, (seconds, functions) in json.loads(report.read_text()).items()
    }


def cover(tests: Tests) -> set[str]:
    """Tests that together call what all call: always that of the most functions a second that none before it calls."""
    chosen: set[str] = set()
    met: set[str] = set()
    queue = [(seconds / max(len(functions), 1), name) for name, (seconds, functions) in tests.items()]
    heapq.heapify(queue)
    while queue:
        _, name = heapq.heappop(queue)
        seconds, functions = tests[name]
        new = len(functions - met)
        if new == 0 or seconds / new > DEAR:
            continue
        if queue and seconds / new > queue[0][0]:
            heapq.heappush(queue, (seconds / new, name))
            continue
        chosen.add(name)
        met |= functions
    return chosen


def staying(tests: Tests, left: float) -> set[str]:
    """Names of the default run: those that `cover`, the quickest of every file, and then the quickest of all."""
    chosen = cover(tests)
    order = sorted(tests, key=lambda name: tests[name][0])
    quickest = {name.partition("::")[0]: name for name in reversed(order)}
    chosen.update(name for name in quickest.values() if tests[name][0] < LONGEST)
    chosen.update(name for name in tests if name.startswith(GUARDS))
    rest = left - sum(tests[name][0] for name in chosen)
    for name in order:
        rest -= tests[name][0] if name not in chosen else 0.0
        if rest < 0.0:
            break
        chosen.add(name)
    return chosen


def entries(tests: Tests, chosen: set[str]) -> set[str]:
    """What is to be listed: cases, and functions none of whose cases is chosen."""
    kept = {name.partition("[")[0] for name in chosen}
    functions = ((name, name.partition("[")[0]) for name in tests if name not in chosen)
    return {name if function in kept else function for name, function in functions}


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description="List the tests that take longest.")
    parser.add_argument("reports", type=Path, nargs="+", help="written by pytest -p tools.thorough")
    parser.add_argument("--left", type=float, default=550.0, help="seconds of the default run, over all workers")
    options = parser.parse_args()
    tests = read(options.reports)
    chosen = staying(tests, options.left)
    listed = {line for line in LIST.read_text().splitlines() if not line.startswith("#")}
    before = {name for name in listed if name not in tests and not any(x.partition("[")[0] == name for x in tests)}
    LIST.write_text(HEADER + "".join(f"{name}\n" for name in sorted(before | entries(tests, chosen))))
    print(
        f"{len(chosen)} of {len(tests)} tests stay: {sum(tests[name][0] for name in chosen):.0f} of "
        f"{sum(seconds for seconds, _ in tests.values()):.0f} seconds"
    )


if __name__ == "__main__":
    main()
