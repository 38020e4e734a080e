"""A user's program runs beside the user's own code: with its own arrays (`isolated`), one at a time (`traced_alone`).

JAX keeps one copy of a numpy array of 64 bits, in the precision in which it was first traced, for as long as anything
that was traced with it lives; the same array traced in the other precision then fails, or gets the wrong one. The
library infers in 64 bits whatever its user works in. So it never traces an array object of its user: a program is run
with its own copies of the arrays that its closures, defaults, attributes and globals hold, one set for each precision.
And NumPyro keeps its handlers in one stack for the whole process: programs are traced one after the other.
"""

import functools
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeGuard, TypeVar

import jax
import numpy as np

from bayes_mdp.models.as_prior import as_prior

_WIDE = tuple(np.dtype(name) for name in ("float64", "int64", "uint64", "complex128"))
_LIBRARIES = frozenset(
    {*sys.stdlib_module_names, "bayes_mdp", "equinox", "jax", "jaxlib", "jaxtyping", "matplotlib"}
    | {"numpy", "numpyro", "optax", "pandas", "scipy", "xarray"}
)
"""Packages whose globals hold no array of the user."""
_HELD = (dict, list, tuple, set, frozenset)


class _Wrapper(Protocol):
    """Another callable around a function."""

    __wrapped__: Callable[..., object]


class Isolated:
    """A program with arrays of its own (built by `isolated`).

    Args:
        program: the user's.
    """

    def __init__(self, program: Callable[..., Any]) -> None:
        self.program = program
        self._copies: dict[bool, Callable[..., Any]] = {}
        functools.update_wrapper(
            self, program, assigned=("__name__", "__qualname__", "__module__", "__doc__"), updated=()
        )
        # At once: what the user changes later belongs to another program.
        self._reaching = _reaching(program)
        # One set of copies a precision: an array is traced in one of them only.
        for in_float64 in (False, True):
            self._copies[in_float64] = _Copier(self._reaching).copy(program)

    def __call__(self, *args: object) -> Any:
        in_float64 = jax.dtypes.canonicalize_dtype(float) == np.float64
        # The precision that JAX works in now.
        return self._copies[in_float64](*args)


def isolated_prior(prior: Callable[..., Any]) -> Isolated:
    """A prior of the user's, `isolated`, and read `as_prior`."""
    return prior if isinstance(prior, Isolated) else Isolated(as_prior(prior))


def isolated(program: Callable[..., Any]) -> Isolated:
    """`program` with its own copies of all 64-bit numpy arrays that it reaches.

    Arrays are found in closures, defaults, containers, attributes, methods, partial functions, and in the globals and
    modules of the user's that the code names.
    """
    return program if isinstance(program, Isolated) else Isolated(program)


def _reaching(root: object) -> frozenset[int]:
    """The ids of all objects from which a 64-bit array can be reached."""
    # Forward: all that is reached, with the edges backwards. Then backwards from the arrays.
    holders: dict[int, list[int]] = {}
    stack, seen, arrays = [root], {id(root): root}, []
    while stack:
        item = stack.pop()
        if isinstance(item, np.ndarray):
            if item.dtype in _WIDE:
                arrays.append(id(item))
            continue
        for child in _children(item):
            holders.setdefault(id(child), []).append(id(item))
            # By identity: arrays and functions have no hash, or no equality.
            if id(child) not in seen:
                seen[id(child)] = child
                stack.append(child)
    reached: set[int] = set()
    while arrays:
        number = arrays.pop()
        # Marked once: objects may hold each other.
        if number not in reached:
            reached.add(number)
            arrays.extend(holders.get(number, ()))
    return frozenset(reached)


def _children(item: object) -> Iterator[object]:
    """What an object holds that a program may use."""
    if isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, _HELD):
        yield from item
    elif isinstance(item, types.FunctionType):
        yield from _cells(item)
        yield from item.__defaults__ or ()
        yield from (item.__kwdefaults__ or {}).values()
        yield from (value for *_, value in _globals(item))
    elif isinstance(item, functools.partial):
        yield from (item.func, *item.args, *item.keywords.values())
    elif isinstance(item, types.MethodType):
        yield from (item.__func__, item.__self__)
    # What is jitted has an inner function, which holds the arrays.
    elif _is_wrapper(item):
        yield item.__wrapped__
    elif _has_attributes(item):
        yield from vars(item).values()


def _cells(function: types.FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not yet filled
            continue


def _is_wrapper(item: object) -> TypeGuard[_Wrapper]:
    """`jax.jit` and `functools.lru_cache` of a function: the copy goes without, it means the same."""
    return type(item).__name__ in ("PjitFunction", "_lru_cache_wrapper") and hasattr(item, "__wrapped__")


def _has_attributes(item: object) -> bool:
    skipped = isinstance(item, type | types.ModuleType | jax.Array | np.random.Generator)
    return not skipped and isinstance(getattr(item, "__dict__", None), dict)


def _globals(function: types.FunctionType) -> Iterator[tuple[str, str | None, object]]:
    """The globals that the code of a user's function names: (name, attribute of a module or None, value)."""
    if _root(function.__module__) in _LIBRARIES:
        return
    names = _names(function.__code__)
    for name in names:
        # Names that the code does not use are not copied.
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            if _root(value.__name__) not in _LIBRARIES:
                yield from (
                    (name, attribute, vars(value)[attribute]) for attribute in names if attribute in vars(value)
                )
        elif value is not None:
            yield name, None, value


def _root(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    # Nested functions are constants of the code around them.
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


class _Copier:
    """Copies what reaches an array, and shares everything else."""

    def __init__(self, reaching: frozenset[int]) -> None:
        self._reaching = reaching
        self._done: dict[int, Any] = {}

    def copy(self, item: object) -> Any:
        if id(item) not in self._reaching:
            return item
        if id(item) not in self._done:
            self._done[id(item)] = self._copy_anew(item)
        return self._done[id(item)]

    def _copy_anew(self, item: object) -> Any:
        if isinstance(item, np.ndarray):
            return np.array(item)
        # Kept before it is filled: an object may hold itself.
        if isinstance(item, dict):
            new: Any = type(item)() if type(item) is dict else item.copy()
            self._done[id(item)] = new
            for key, value in item.items():
                new[key] = self.copy(value)
            return new
        if isinstance(item, list):
            new = item.copy()
            self._done[id(item)] = new
            new[:] = [self.copy(value) for value in item]
            return new
        if isinstance(item, tuple):
            parts = [self.copy(value) for value in item]
            # Named tuples take their fields one by one.
            return item._make(parts) if hasattr(item, "_make") else type(item)(parts)  # type: ignore[attr-defined]
        if isinstance(item, set | frozenset):
            return type(item)(self.copy(value) for value in item)
        if isinstance(item, types.FunctionType):
            return self._function(item)
        if isinstance(item, functools.partial):
            keywords = {name: self.copy(value) for name, value in item.keywords.items()}
            return functools.partial(self.copy(item.func), *map(self.copy, item.args), **keywords)
        if isinstance(item, types.MethodType):
            return types.MethodType(self.copy(item.__func__), self.copy(item.__self__))
        if _is_wrapper(item):
            return self.copy(item.__wrapped__)
        # Without `__init__`, which may do anything: attribute by attribute.
        new = object.__new__(type(item))
        self._done[id(item)] = new
        for name, value in vars(item).items():
            object.__setattr__(new, name, self.copy(value))
        return new

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        # New cells: the old ones are shared with the user's functions.
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        space, views = dict(function.__globals__), {}
        new = types.FunctionType(function.__code__, space, function.__name__, None, cells or None)
        # Kept before its cells are filled: a recursive function holds itself.
        self._done[id(function)] = new
        for cell, old in zip(cells, function.__closure__ or (), strict=True):
            try:
                cell.cell_contents = self.copy(old.cell_contents)
            except ValueError:
                continue
        if function.__defaults__ is not None:
            new.__defaults__ = tuple(map(self.copy, function.__defaults__))
        if function.__kwdefaults__ is not None:
            new.__kwdefaults__ = {name: self.copy(value) for name, value in function.__kwdefaults__.items()}
        for name, attribute, value in _globals(function):
            if attribute is None:
                # A global of its own in place of the user's.
                space[name] = self.copy(value)
                continue
            if name not in views:
                # A module is seen through a copy whose one attribute differs.
                views[name] = types.ModuleType(function.__globals__[name].__name__)
                vars(views[name]).update(vars(function.__globals__[name]))
            setattr(views[name], attribute, self.copy(value))
        space.update(views)
        functools.update_wrapper(new, function, updated=())
        # What `update_wrapper` adds would lead back to the user's function.
        del vars(new)["__wrapped__"]
        new.__module__ = function.__module__
        return new


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_LOCK = threading.RLock()


@contextmanager
def tracing() -> Iterator[None]:
    """Hold this while handlers of NumPyro are on the stack: other threads wait with programs, compiled code runs on."""
    with _LOCK, warnings.catch_warnings():
        # Arrays that a program holds in float32 stay what they are when it is traced in float64.
        warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)
        yield


def traced_alone(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`function`, which runs a NumPyro program, by one thread at a time."""

    @wraps(function)
    def alone(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with tracing():
            return function(*args, **kwargs)

    return alone
