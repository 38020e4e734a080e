"""Checks for what a person enters: one sentence with the argument, the index, what was there, what was expected."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

ROW_SUM_TOLERANCE = {"float32": 1e-5, "float64": 1e-6}


def as_int(x: Any) -> Any:
    """A numpy integer as a Python int (numpy scalars make poor static fields); anything else as it is."""
    return int(x) if isinstance(x, np.integer) else x


def is_concrete(*arrays: Any) -> bool:
    """Whether every array holds values (none is a JAX tracer), so that it can be looked into."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arrays))


def first_index(mask: Any) -> tuple[int, ...] | None:
    """Index of the first true entry of `mask` in C order, or None."""
    flat = np.asarray(mask)
    if not flat.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(flat)), flat.shape))


def at(name: str, index: tuple[int, ...]) -> str:
    """`name[i, j]`, or `name` for a scalar."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def require(bad: Any, name: str, values: Any, expected: str) -> None:
    """Raise a ValueError that names the first entry of `values` where `bad` is true."""
    index = first_index(bad)
    if index is not None:
        raise ValueError(f"{at(name, index)} is {np.asarray(values)[index]!s}, expected {expected}")


def check_finite(name: str, values: Any) -> None:
    """Every entry is a finite number."""
    array = np.asarray(values)
    require(~np.isfinite(array), name, array, "a finite number")


def check_positive(name: str, values: Any) -> None:
    """Every entry is finite and greater than zero."""
    array = np.asarray(values)
    require(~(np.isfinite(array) & (array > 0)), name, array, "a finite number greater than zero")


def check_concentration(name: str, values: Any) -> None:
    """Dirichlet concentrations: finite, not negative (zero is a structural zero), some positive entry in every row."""
    array = np.asarray(values)
    require(~(np.isfinite(array) & (array >= 0)), name, array, "a finite number, zero or greater")
    require(array.sum(-1) <= 0, name, array.sum(-1), "a row with at least one positive entry")


def check_probabilities(name: str, values: Any) -> None:
    """Every entry is finite and not negative."""
    array = np.asarray(values)
    require(~(np.isfinite(array) & (array >= 0)), name, array, "a probability (finite, zero or greater)")


def check_probability_rows(name: str, rows: Any, extra: Any = None) -> None:
    """Every row of `rows` (last axis), with `extra` added, is non-negative and sums to one."""
    array = np.asarray(rows)
    tolerance = ROW_SUM_TOLERANCE.get(str(array.dtype), 1e-6)
    check_probabilities(name, array)
    array = array.astype(np.float64)
    total = array.sum(-1) if extra is None else array.sum(-1) + np.asarray(extra, np.float64)
    index = first_index(np.abs(total - 1.0) > tolerance)
    if index is not None:
        what = "" if extra is None else " together with its end probability"
        raise ValueError(f"{at(name, index)} sums to {total[index]:.8g}{what}, expected a row that sums to 1")


def check_index(name: str, values: Any, size: int, what: str) -> None:
    """Every entry is an integer in [0, size)."""
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{name} has dtype {array.dtype}, expected integers (indices of {what}s)")
    article = "an" if what[0] in "aeiou" else "a"
    require((array < 0) | (array >= size), name, array, f"{article} {what} index from 0 to {size - 1}")


def check_shape(name: str, array: Any, expected: tuple[int, ...], axes: str) -> None:
    """`array` has exactly the shape `expected`; `axes` names its axes in the message."""
    if tuple(array.shape) != tuple(expected):
        raise ValueError(f"{name} has shape {tuple(array.shape)}, expected {tuple(expected)} ({axes})")


def check_key(name: str, key: Any) -> None:
    """One typed key."""
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        got = f"an array of dtype {key.dtype}" if isinstance(key, (jax.Array, np.ndarray)) else repr(key)
        raise TypeError(f"{name} is {got}, expected a typed key (jax.random.key)")
    if key.shape:
        raise ValueError(f"{name} has shape {key.shape}, expected one key")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """An integer, `least` or greater."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}, expected an integer of at least {least}")
    if value < least:
        raise ValueError(f"{name} is {value}, expected an integer of at least {least}")


def check_name(what: str, value: Any, known: Iterable[str], also: str = "") -> None:
    """One of the known names; the sentence ends with the nearest one. `also`: what else would do, ", or a number"."""
    names = list(known)
    if value not in names:
        raise ValueError(f"{what} is {value!r}, expected one of {', '.join(names)}{also}{did_you_mean(value, names)}")


def did_you_mean(value: Any, known: Iterable[str]) -> str:
    """A question that names the nearest known name, in any case of letters; empty where none is near."""
    folded = {name.lower(): name for name in known}
    near = get_close_matches(str(value).lower(), folded, n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def check_labels(name: str, labels: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """The names are those of the space, in their order."""
    if labels != expected:
        raise ValueError(f"{name} are {_listed(labels)}, expected those of the space: {_listed(expected)}")


def _listed(labels: tuple[Any, ...]) -> str:
    shown = ", ".join(map(repr, labels[:4]))
    return f"{shown}, ... ({len(labels)})" if len(labels) > 4 else shown
