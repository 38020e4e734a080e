"""The same numbers in another form: without repetitions, placed on the device, in double precision, stacked."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Shaped

from bayes_mdp.utils.typing import AnyArray, ArrayLike


def compact(array: np.ndarray) -> np.ndarray:
    """Axes along which a broadcast array repeats one entry, shortened to one."""
    places = [slice(0, 1) if stride == 0 and size > 1 else slice(None) for stride, size in _axes(array)]
    return array[(*places, ...)]  # the ellipsis: an array without axes stays an array


def _axes(array: np.ndarray) -> Iterable[tuple[int, int]]:
    return zip(array.strides, array.shape, strict=True)


def place_as(array: Shaped[AnyArray, "*shape"], dtype: DTypeLike | None = None) -> Shaped[Array, "*shape"]:
    """`jnp.asarray(array, dtype)` of an array with values: converted by NumPy, then copied to the device."""
    target_dtype = jax.dtypes.canonicalize_dtype(np.asarray(array).dtype if dtype is None else dtype)
    return jax.device_put(np.asarray(array).astype(target_dtype))


Tree = TypeVar("Tree")


def stack_trees(trees: Sequence[Tree]) -> Tree:
    """Trees of one structure as one, whose NumPy arrays have them along a new first axis.

    An array that all of them share is not copied: it is repeated by a view, which cannot be written to.
    """
    return jax.tree.map(_stack, *trees)


def _stack(first: object, *others: object) -> np.ndarray:
    array = np.asarray(first)
    if others and all(leaf is first or _is_same_view(array, np.asarray(leaf)) for leaf in others):
        return np.broadcast_to(array, (1 + len(others), *array.shape))
    return np.stack([np.asarray(leaf) for leaf in (first, *others)])


def _is_same_view(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two arrays are the same place in memory, as parts of a stack that repeats one are."""
    return (
        first.ctypes.data == second.ctypes.data
        and (first.shape, first.strides, first.dtype) == (second.shape, second.strides, second.dtype)
        and first.size > 0
    )


def own(tree: Tree) -> Tree:
    """A copy of all arrays; what repeats along whole axes does so in the copy too."""
    return jax.tree.map(lambda x: np.broadcast_to(np.array(compact(np.asarray(x))), np.shape(x)), tree)


def to_host_float64(tree: Tree) -> Tree:
    """Every leaf of `tree` as a NumPy array, floats in float64."""

    def widen(leaf: ArrayLike) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(np.float64, copy=False) if np.issubdtype(array.dtype, np.floating) else array

    return jax.tree.map(widen, tree)


def to_float64(tree: Tree) -> Tree:
    """Every array and number of `tree` as a JAX array, floats in float64; call it inside `jax.enable_x64(True)`."""

    def widen(leaf: object) -> object:
        if isinstance(leaf, float) or (eqx.is_array_like(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.floating)):
            return place_as(np.asarray(leaf), jnp.float64)
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf

    return jax.tree.map(widen, tree)
