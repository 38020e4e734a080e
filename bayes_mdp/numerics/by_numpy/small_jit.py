"""`small_jit`: as `equinox.filter_jit`, but a program that is small is answered by NumPy, and never compiled."""

from collections.abc import Callable, Hashable
from functools import partial, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from bayes_mdp.numerics.by_numpy.evaluation import TooLongError, evaluate, seconds, supported
from bayes_mdp.utils.validation import is_concrete

MOST_SECONDS = 0.03
"""Programs that NumPy takes longer for, roughly, are compiled: that takes ten times as long or more, but only once."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class SmallJit(Generic[Parameters, Result]):
    """See `small_jit`."""

    def __init__(
        self, function: Callable[Parameters, Result], most: float, compiled: Callable[Parameters, Result] | None
    ) -> None:
        update_wrapper(self, function)
        self.__wrapped__, self._most = function, most
        self.compiled: Callable[Parameters, Result] = eqx.filter_jit(function) if compiled is None else compiled
        self._traced: dict[Hashable, tuple[ClosedJaxpr, Any] | None] = {}

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not is_concrete(args, kwargs):
            return self.__wrapped__(*args, **kwargs)
        arrays, rest = eqx.partition((args, kwargs), eqx.is_array)
        traced = self._trace(arrays, rest)
        if traced is None:
            return self.compiled(*args, **kwargs)
        program, tree = traced
        try:
            found = evaluate(program, [np.asarray(x) for x in jax.tree.leaves(arrays)], self._most)
        except TooLongError:
            return self.compiled(*args, **kwargs)
        # Copied to the device as they are: no program is needed for that.
        return jax.tree.unflatten(tree, [jax.device_put(x) for x in found])

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Result]:
        """As a method."""
        call: Any = self
        return call if instance is None else partial(call, instance)

    def _trace(self, arrays: Any, rest: Any) -> tuple[ClosedJaxpr, Any] | None:
        """The program for arguments of these shapes, and the tree of its results; None: it is compiled."""
        leaves, tree = jax.tree.flatten(arrays)
        others, other_tree = jax.tree.flatten(rest)
        shapes = tuple((x.shape, x.dtype, bool(getattr(x, "weak_type", False))) for x in leaves)
        # In another width it is another program.
        key = tree, shapes, other_tree, tuple(others), jax.dtypes.canonicalize_dtype(float)
        if key not in self._traced:
            self._traced[key] = self._small(arrays, rest)
        return self._traced[key]

    def _small(self, arrays: Any, rest: Any) -> tuple[ClosedJaxpr, Any] | None:
        function: Callable[..., Any] = self.__wrapped__

        def run(arrays: Any) -> Any:
            args, kwargs = eqx.combine(arrays, rest)
            return function(*args, **kwargs)

        program, out = jax.make_jaxpr(run, return_shape=True)(arrays)
        keys = any(jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in program.out_avals)
        if keys or not supported(program.jaxpr) or seconds(program.jaxpr) > self._most:
            return None
        return program, jax.tree.structure(out)


def small_jit(
    function: Callable[Parameters, Result],
    *,
    most: float = MOST_SECONDS,
    compiled: Callable[Parameters, Result] | None = None,
) -> Callable[Parameters, Result]:
    """`function` of arrays and other arguments, by NumPy where it is small, else compiled.

    Small: it has no random numbers, no derivative, and takes NumPy no more than `most` seconds.
    Results of a small program are those of the compiled one but for rounding. Under tracing it
    is the function itself. Which way is taken depends on the shapes of the arguments, and on how long loops go on.

    Args:
        function: traceable; it returns arrays alone.
        most: seconds.
        compiled: the function where it is not small; None: `equinox.filter_jit(function)`.
    """
    return SmallJit(function, most, compiled)
