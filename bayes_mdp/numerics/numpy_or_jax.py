"""What is concrete is computed by NumPy, in float64; what is traced by JAX. One set of formulas serves both.

`xp` has the functions of `numpy` and `jax.numpy`: NumPy's, unless an argument is an array of JAX. So formulas of a
belief in NumPy arrays, as `infer` makes it, run in NumPy, and inside a trace they are traced.

`in_numpy` and `concrete_in_numpy` are the doors from outside: they hand concrete arrays of JAX over as NumPy's.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, update_wrapper
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Float, Int, PyTree, Real

from bayes_mdp.numerics import products
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index
from bayes_mdp.utils.validation import is_concrete

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_inside: ContextVar[bool] = ContextVar("_inside", default=False)


_PLAIN = (np.ndarray, np.generic, float, int, str, type, np.dtype, type(None))


def has_jax_array(*values: PyTree) -> bool:
    """Whether one of the leaves is an array of JAX, traced or not."""
    if all(isinstance(value, _PLAIN) for value in values):  # as most often: three times as fast
        return False
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(values))


def _either(host: Callable[..., Any], device: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return (device if has_jax_array(*args, *kwargs.values()) else host)(*args, **kwargs)

    return update_wrapper(call, device)


def _cholesky(matrix: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "D D"]:
    """nan, as in JAX, where there is no root."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)


class _NumpyOrJax:
    """The functions of `numpy`, which are `jax.numpy`'s where an argument is an array of JAX."""

    gammaln = staticmethod(_either(scipy.special.gammaln, jax.scipy.special.gammaln))
    digamma = staticmethod(_either(scipy.special.digamma, jax.scipy.special.digamma))
    softmax = staticmethod(_either(scipy.special.softmax, jax.nn.softmax))
    cholesky = staticmethod(_either(_cholesky, jnp.linalg.cholesky))
    pinv = staticmethod(_either(np.linalg.pinv, jnp.linalg.pinv))
    cho_solve = staticmethod(_either(partial(scipy.linalg.cho_solve, check_finite=False), jax.scipy.linalg.cho_solve))
    solve_triangular = staticmethod(
        _either(partial(scipy.linalg.solve_triangular, check_finite=False), jax.scipy.linalg.solve_triangular)
    )
    matmul = staticmethod(_either(np.matmul, products.matmul))
    tensordot = staticmethod(_either(np.tensordot, products.tensordot))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = _either(getattr(np, name), getattr(jnp, name))
        setattr(self, name, function)  # from now on it is found without this method
        return function


xp = _NumpyOrJax()


def pick(table: AnyArray, index: Any) -> AnyArray:
    """`table[index]`, where the index may be traced and the table is NumPy's; beyond an axis, as in JAX, its last one.

    Args:
        table: any.
        index: whole numbers, for the first axis; or a tuple of them, one for each of the first axes.
    """
    if has_jax_array(table, index):
        return jnp.asarray(table)[index]
    try:
        return np.asarray(table[index])
    except IndexError:  # of data of weight zero, which may be anything
        places = index if isinstance(index, tuple) else (index,)
        inside = tuple(np.clip(place, 0, size - 1) for place, size in zip(places, table.shape, strict=False))
        return np.asarray(table[inside])


def index_of_entry(
    table: Int[AnyArray, "*cells"] | None, cell: Index, shape: tuple[int, ...], size: int
) -> Int[AnyArray, "..."]:
    """What `table` says of cells, an index below `size`; `size` where it is negative, which `add_at` drops.

    Args:
        table: [*shape], whole numbers; None: the cells are numbered in row-major order.
        cell: one integer array for each axis.
        shape: of the table.
        size: how many entries the cells are about.
    """
    if table is not None:
        # An index out of range in place of -1, which NumPy and JAX would take for the last one.
        index = pick(table, cell)
        return xp.where(index < 0, size, index)
    index = xp.asarray(cell[0])
    # Horner's rule over the axes.
    for i, axis_size in zip(cell[1:], shape[1:], strict=True):
        index = index * axis_size + i
    return xp.asarray(index)


def as_numpy(tree: Result) -> Result:
    """The same tree with arrays of NumPy in place of those of JAX, and of its scalars; keys of random numbers stay."""
    return jax.tree.map(_host_array, tree)


def _host_array(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return np.asarray(leaf) if isinstance(leaf, (jax.Array, np.generic)) else leaf


def in_numpy(function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    """`function` of concrete arrays, given as NumPy's; what it does with `xp` alone is in NumPy, and so is the answer.

    Divisions by zero are as silent as in JAX. JAX, where it is used, has 64 bits.

    Args:
        function: of trees of arrays, and other arguments.
    """
    token = _inside.set(True)
    try:
        # Concrete values stay so inside a user's trace, where what JAX does would be traced with the rest.
        with np.errstate(all="ignore"), jax.enable_x64(True), jax.ensure_compile_time_eval():
            host_args, host_kwargs = as_numpy((args, kwargs))
            return as_numpy(function(*host_args, **host_kwargs))
    finally:
        _inside.reset(token)


def concrete_in_numpy(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Of concrete arrays `function` is computed in NumPy; its answer is given as arrays of JAX, of JAX's default width.

    Inside another such call, and inside `in_numpy`, the answer stays NumPy's. Traced it is the function itself.
    """

    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if _inside.get() or not is_concrete(args, kwargs):
            return function(*args, **kwargs)
        # Copied to the device as they are: no program is needed for that.
        return jax.tree.map(jax.device_put, in_numpy(function, *args, **kwargs))

    return update_wrapper(call, function)


def add_at(table: Real[AnyArray, "..."], index: Any, values: ArrayLike) -> Real[AnyArray, "..."]:
    """`table` with `values` added at `index`, one after the other; what lies beyond an axis is dropped.

    Args:
        table: any.
        index: whole numbers from 0, for the first axis; or a tuple of them, one for each of the first axes.
        values: of the shape of the index, then of the rest of the table.
    """
    if has_jax_array(table, index, values):
        table = jnp.asarray(table)
        return table.at[index].add(jnp.asarray(values).astype(table.dtype), mode="drop")
    places = np.broadcast_arrays(*(index if isinstance(index, tuple) else (index,)))
    lead, rest = table.shape[: len(places)], table.shape[len(places) :]
    inside = np.logical_and.reduce([(place >= 0) & (place < size) for place, size in zip(places, lead, strict=True)])
    flat = np.ravel_multi_index(tuple(place[inside] for place in places), lead)
    total = np.array(table).reshape(-1, *rest)
    np.add.at(total, flat, np.broadcast_to(values, (*places[0].shape, *rest))[inside].astype(table.dtype, copy=False))
    return total.reshape(table.shape)
