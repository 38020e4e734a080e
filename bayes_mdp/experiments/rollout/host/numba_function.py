"""How the loops of this folder are compiled: by numba, for one element after the other."""

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: the function as numba's machine code, made at its first call for every set of types.

    Other threads run meanwhile (the lock of the interpreter is released). Arithmetic is as written: no reordering, no
    multiply-add in one rounding, and a division by zero gives inf or nan as in NumPy. Code is not kept on disk: numba
    looks at the date of one file alone, and would go on with the old code of another.
    """
    # Below whatever a type checker has wrapped around it.
    return numba.njit(nogil=True, error_model="numpy")(inspect.unwrap(function))
