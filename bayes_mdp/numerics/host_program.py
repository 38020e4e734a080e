"""`HostProgram`: a function of JAX that NumPy code calls many times with small arrays, compiled for that."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiled in half the time; what LLVM could do better does not show in programs of a few thousand numbers."""
QUICKEST = {**QUICK, "xla_cpu_use_fusion_emitters": False}
"""A third less again for long programs; one of few operations on large arrays runs for up to twice as long."""


def quick_jit(
    function: Callable[..., PyTree], *, options: Mapping[str, bool | int] | None = QUICK
) -> Callable[..., PyTree]:
    """`jax.jit(function)` compiled in half the time, for programs that run for less time than they take to compile.

    Args:
        function: traceable, of trees of arrays; called with arguments of one set of shapes after the other.
        options: of XLA's compiler: `QUICK` or `QUICKEST`; None: compiled as usual.
    """
    compiled: dict[Hashable, Any] = {}

    def call(*args: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten(args)
        # With 64 bits or without is another program; so is a Python number, which has no dtype of its own.
        kinds = tuple((np.shape(x), getattr(x, "dtype", type(x))) for x in leaves)
        key = tree, kinds, jax.config.jax_enable_x64
        if key not in compiled:
            lowered = jax.jit(function).lower(*args)
            compiled[key] = _compile(lowered, options)
        return compiled[key](*args)

    return call


class HostProgram:
    """`function` of arrays, from NumPy's to NumPy's: in float64, on the CPU, compiled once for shapes of its arguments.

    Args:
        function: traceable, of trees of arrays.
        quick: compiled in half the time, to run for about twice as long.
    """

    def __init__(self, function: Callable[..., PyTree], *, quick: bool = True) -> None:
        self._compiled = quick_jit(function, options=QUICK if quick else None)

    def __call__(self, *args: PyTree) -> PyTree:
        """The answer for arguments of NumPy, as arrays of NumPy."""
        with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
            return jax.tree.map(np.asarray, self._compiled(*args))

    def in_blocks(self, size: int, rows: PyTree, *rest: PyTree) -> PyTree:
        """The answer [N ...] for many rows, which the function maps one by one: `size` rows a call, for one program.

        Args:
            size: of a block; the last one is filled up with copies of its last row.
            rows: the first argument, arrays [N ...].
            rest: the other arguments, the same for all rows.
        """
        number = len(jax.tree.leaves(rows)[0])
        index = [np.minimum(np.arange(i, i + size), number - 1) for i in range(0, number, size)]
        blocks = [self(jax.tree.map(lambda x, i=i: x[i], rows), *rest) for i in index]
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:number], *blocks)


def _compile(lowered: Any, options: Mapping[str, bool | int] | None) -> Any:
    try:
        return lowered.compile(compiler_options=None if options is None else dict(options))
    except (RuntimeError, ValueError):  # another version of XLA need not know these options
        return lowered.compile()
