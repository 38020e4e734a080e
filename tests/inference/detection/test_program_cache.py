"""`program_cache` by stand-ins for programs: what is kept, what is forgotten, and threads."""

import math
import threading

from bayes_mdp.inference.detection.trace import CELLS, PROGRAMS, Program, program_cache
from bayes_mdp.mdp import StateActionSpace


class Stand(Program):
    """A program by its fingerprint, over a space of so many cells (a square, about)."""

    def __init__(self, name: object, cells: int = 1) -> None:
        object.__setattr__(self, "fingerprint", str(name))
        object.__setattr__(self, "space", StateActionSpace(math.isqrt(cells), 1))


def counted():
    """A cached function that answers with the fingerprint, and what it was really asked for."""
    calls: list[str] = []

    def fingerprint(program: Program) -> str:
        calls.append(program.fingerprint)
        return program.fingerprint

    return program_cache(fingerprint), calls


def test_equal_programs_are_one():
    found, calls = counted()
    assert found(Stand("a")) == found(Stand("a")) == "a" and calls == ["a"]


def test_the_oldest_of_many_is_forgotten():
    found, calls = counted()
    for i in range(PROGRAMS + 1):
        found(Stand(i))
    found(Stand(1))
    found(Stand(0))
    assert calls == [*map(str, range(PROGRAMS + 1)), "0"]


def test_large_programs_are_forgotten_by_size_and_the_last_one_is_kept():
    found, calls = counted()
    found(Stand("small"))
    for name in ("a", "b", "b", "a", "c", "a"):
        found(Stand(name, CELLS // 2))
    assert calls == ["small", "a", "b", "c"]  # b was the oldest when c came
    found(Stand("huge", 3 * CELLS))
    found(Stand("huge", 3 * CELLS))
    found(Stand("a", CELLS // 2))
    assert calls == ["small", "a", "b", "c", "huge", "a"]


def test_threads():
    found, calls = counted()
    names = [i % 80 for i in range(2000)]
    threads = [threading.Thread(target=lambda: [found(Stand(i)) for i in names]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(calls) == set(map(str, range(80))) and found(Stand(5)) == "5"
