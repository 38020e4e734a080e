"""`lifted_jit`: compile a function with the arrays that it closes over as arguments.

As constants of a program they would be folded when it is compiled, in seconds for a million numbers (XLA evaluates
`gammaln` of them one by one), and kept in memory a second time.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from bayes_mdp.numerics.by_numpy.small_jit import small_jit

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class LiftedJit(Generic[Parameters, Result]):
    """See `lifted_jit`."""

    def __init__(self, function: Callable[Parameters, Result]) -> None:
        self.function = function
        self._traced: dict[Hashable, Callable[Parameters, Result]] = {}

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        leaves, tree = jax.tree.flatten((args, kwargs))
        wide = jax.dtypes.canonicalize_dtype(float)  # in another width it is another program
        shapes = tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)
        traced = self._traced.get((tree, shapes, wide))
        if traced is None:
            traced = eqx.filter_closure_convert(self.function, *args, **kwargs)
            self._traced[tree, shapes, wide] = traced
        call: Any = _call
        return call(traced, *args, **kwargs)


def lifted_jit(function: Callable[Parameters, Result]) -> LiftedJit[Parameters, Result]:
    """`function` of arrays, compiled once for shapes of its arguments; arrays that it closes over are arguments too."""
    return LiftedJit(function)


@small_jit
def _call(function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    return function(*args, **kwargs)
