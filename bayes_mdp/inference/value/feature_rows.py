"""Checks of the inputs of a belief about a last layer. Values are checked where they are not traced."""

from collections.abc import Callable

import numpy as np
from jax import Array
from jax.core import Tracer

AnyArray = Array | np.ndarray


def check_rows(
    features: AnyArray, action: AnyArray, target: AnyArray | None, weight: AnyArray | None, shape: tuple[int, ...]
) -> None:
    """Shapes of K rows for a belief of `shape` (A, D): static, at no cost in a compiled loop."""
    n_actions, width = shape
    if features.ndim != 2 or features.shape[1] != width:
        raise ValueError(
            f"features has shape {features.shape}, expected (K, {width}) (row, feature); actions: {n_actions}"
        )
    for name, values in (("action", action), ("target", target), ("weight", weight)):
        if values is not None and values.shape != features.shape[:1]:
            raise ValueError(f"{name} has shape {values.shape}, expected {features.shape[:1]} (row)")


def check_row_values(
    features: AnyArray, action: AnyArray, target: AnyArray | None, weight: AnyArray | None, n_actions: int
) -> None:
    """Entries of those rows."""
    for name, values in (("features", features), ("target", target)):
        require(name, values, np.isfinite, "a finite number")
    require("action", action, lambda a: (a >= 0) & (a < n_actions), f"an action index from 0 to {n_actions - 1}")
    require("weight", weight, lambda w: np.isfinite(w) & (w >= 0), "a finite number, zero or greater")


def check_positive(name: str, value: object) -> None:
    """Finite and greater than zero."""
    require(name, value, lambda x: np.isfinite(x) & (x > 0), "a finite number greater than zero")


def check_sizes(**sizes: int) -> None:
    """Each is an integer of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"{name} is {size!r}, expected an integer of at least 1")
        if size < 1:
            raise ValueError(f"{name} is {size}, expected an integer of at least 1")


def require(name: str, values: object, holds: Callable[[np.ndarray], np.ndarray], expected: str) -> None:
    """Raise a ValueError that names the first entry for which `holds` is false. Tracers and None pass."""
    if values is None or isinstance(values, Tracer):
        return
    array = np.asarray(values)
    bad = np.argwhere(~holds(array))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        place = f"[{', '.join(map(str, index))}]" if index else ""
        raise ValueError(f"{name}{place} is {array[index]!s}, expected {expected}")
