"""`HostProgram`: a function of JAX that NumPy code calls many times with small arrays, compiled for that."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiled in half the time; what LLVM could do better does not show in programs of a few thousand numbers."""


class HostProgram:
    """`function` of arrays, from NumPy's to NumPy's: in float64, on the CPU, compiled once for shapes of its arguments.

    Args:
        function: traceable, of trees of arrays.
    """

    def __init__(self, function: Callable[..., PyTree]) -> None:
        self._function = function
        self._compiled: dict[Hashable, Any] = {}

    def __call__(self, *args: PyTree) -> PyTree:
        """The answer for arguments of NumPy, as arrays of NumPy."""
        leaves, tree = jax.tree.flatten(args)
        key = tree, tuple((np.shape(x), np.result_type(x)) for x in leaves)
        with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
            if key not in self._compiled:
                self._compiled[key] = _compile(jax.jit(self._function).lower(*args))
            return jax.tree.map(np.asarray, self._compiled[key](*args))


def quick_jit(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`jax.jit(function)` compiled in half the time, for programs that run for less time than they take to compile.

    Args:
        function: traceable, of trees of arrays; called with arguments of one set of shapes after the other.
    """
    compiled: dict[Hashable, Any] = {}

    def call(*args: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten(args)
        key = (
            tree,
            tuple((np.shape(x), jax.dtypes.result_type(x)) for x in leaves),
            jax.dtypes.canonicalize_dtype(float),
        )
        if key not in compiled:
            compiled[key] = _compile(jax.jit(function).lower(*args))
        return compiled[key](*args)

    return call


def _compile(lowered: Any) -> Any:
    try:
        return lowered.compile(compiler_options=QUICK)
    except (RuntimeError, ValueError):  # another version of XLA need not know these options
        return lowered.compile()
