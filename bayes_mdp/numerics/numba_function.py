"""How plain loops are compiled: by numba, to machine code for one element after the other.

Other threads run meanwhile (the lock of the interpreter is released). Arithmetic is as written: no reordering, no
multiply-add in one rounding, and a division by zero gives inf or nan as in NumPy.
"""

import inspect
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compile_loop(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: machine code, made in every process at the first call."""
    return numba.njit(nogil=True, error_model="numpy")(_inner(function))


def cache_on_disk(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: machine code that numba keeps on disk, in its usual place, with that of all that it calls.

    Numba compiles again where the file of the function is newer, or a number that it closes over is another; it does
    not look at the files of what it calls. So let it close over `code_of` them.
    """
    try:
        return numba.njit(nogil=True, error_model="numpy", cache=True)(_inner(function))
    except RuntimeError:  # there is no folder that can be written
        return compile_loop(function)


def _inner(function: Callable[P, R]) -> Callable[P, R]:
    """The function below whatever a type checker has wrapped around it."""
    return inspect.unwrap(function)


def code_of(*files: str | Path) -> int:
    """A number of the text of files, for functions that are `cache_on_disk` to close over.

    Args:
        files: paths; of a folder all its Python files.
    """
    named = [Path(file) for file in files]
    paths = [path for file in named for path in (sorted(file.glob("*.py")) if file.is_dir() else [file])]
    return zlib.crc32(b"".join(path.read_bytes() for path in paths))
