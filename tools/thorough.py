"""Write `tests/thorough.txt`, the tests that are not in the default run, from measured times.

    python -m pytest -m 'not slow' -n auto --dist loadfile --junitxml=times.xml
    python tools/thorough.py times.xml --left 700

The functions that take longest (all their cases together) are listed until those that are left take so many seconds.
"""

import argparse
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).parent.parent / "tests" / "thorough.txt"
HEADER = """\
# Tests that take longest: not in the default run, CI runs them beside it (pytest -m thorough).
# Written by tools/thorough.py from measured times.
"""


def seconds(report: Path) -> Counter[str]:
    """Seconds of every test function, fixtures included, from a JUnit report."""
    found: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        found[f"{file}::{case.attrib['name'].partition('[')[0]}"] += float(case.attrib["time"])
    return found


def longest(times: Counter[str], left: float) -> list[str]:
    """The functions that take longest, as few as leave at most `left` seconds."""
    rest, chosen = sum(times.values()), []
    for name, taken in times.most_common():
        if rest <= left:
            break
        chosen.append(name)
        rest -= taken
    return sorted(chosen)


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description="List the tests that take longest.")
    parser.add_argument("report", type=Path, help="JUnit report of a run of all tests that are not slow")
    parser.add_argument("--left", type=float, default=700.0, help="seconds of the default run, over all workers")
    options = parser.parse_args()
    times = seconds(options.report)
    names = longest(times, options.left)
    LIST.write_text(HEADER + "".join(f"{name}\n" for name in names))
    taken = sum(times[name] for name in names)
    print(f"{len(names)} of {len(times)} test functions, {taken:.0f} of {sum(times.values()):.0f} seconds")


if __name__ == "__main__":
    main()
