"""`program_cache`: what was found out about a program is kept, of large programs no more than fits."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeVar, runtime_checkable

from bayes_mdp.mdp import StateActionSpace


@runtime_checkable
class OfSpace(Protocol):
    """A program of a space, or a prior of one; hashable, and equal where it computes the same."""

    @property
    def space(self) -> StateActionSpace:
        """Sizes, names, masks."""
        ...


Key = TypeVar("Key", bound=OfSpace)
Result = TypeVar("Result")

PROGRAMS = 64
CELLS = 2**25  # outcomes of all pairs, of the kept programs together: proofs hold a few tables of that size each


def program_cache(function: Callable[[Key], Result]) -> Callable[[Key], Result]:
    """`functools.lru_cache` by the size of programs: the last 64 results, and so many that their cells are 2^25.

    The last result is kept whatever its size. Safe under threads; two that ask for the same result at once may both
    compute it.
    """
    kept: OrderedDict[Key, Result] = OrderedDict()
    lock = threading.Lock()

    @wraps(function)
    def cached(program: Key) -> Result:
        with lock:
            if program in kept:
                kept.move_to_end(program)
                return kept[program]
        result = function(program)
        with lock:
            kept[program] = result
            kept.move_to_end(program)
            while len(kept) > 1 and (len(kept) > PROGRAMS or sum(map(_cells, kept)) > CELLS):
                kept.popitem(last=False)
        return result

    return cached


def _cells(program: OfSpace) -> int:
    space = program.space
    return (space.horizon or 1) * space.n_states * space.n_actions * space.n_outcomes
