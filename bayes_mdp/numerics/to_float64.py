"""`to_float64`: the arrays of a tree in double precision."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")


def to_float64(tree: Tree) -> Tree:
    """Every array and number of `tree` as a JAX array, floats in float64; call it inside `jax.enable_x64(True)`."""

    def widen(leaf: object) -> object:
        if isinstance(leaf, float) or (eqx.is_array_like(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.floating)):
            return jnp.asarray(leaf, jnp.float64)
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf

    return jax.tree.map(widen, tree)
