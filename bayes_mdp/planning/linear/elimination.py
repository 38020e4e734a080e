"""Gauss-Jordan elimination for dense systems of up to a hundred or so unknowns, without LAPACK.

Two independent batched `jnp.linalg.solve` in one compiled program can wait for each other for ever on a CPU of two
cores (seen with jaxlib 0.10: both hold a thread of the pool that both wait for), and a planner has no control over what
else its caller compiles. This loop calls no library. It is as fast as LAPACK to 40 unknowns and takes 4 times as long
at 128.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from bayes_mdp.mdp.typing import IntScalar


def eliminate(matrix: Float[Array, "S S"], rhs: Float[Array, "S *K"], *, pivot: bool = False) -> Float[Array, "S *K"]:
    """Solve `matrix @ x = rhs`.

    Args:
        rhs: one right side, or several as columns.
        pivot: exchange rows by size; not needed where the diagonal dominates its row or column (I - discount P).
    """
    size = rhs.shape[0]
    rows = jnp.arange(size)

    def body(k: IntScalar, table: Float[Array, "S T"]) -> Float[Array, "S T"]:
        if pivot:
            # The largest entry of column k at or below the diagonal comes up.
            best = jnp.argmax(jnp.where(rows >= k, jnp.abs(table[:, k]), -1.0))
            top, table = table[best], table.at[best].set(table[k])
        else:
            top = table[k]
        # Row k is normalised and subtracted from all others: what is left is the identity, and the solution beside it.
        top = top / top[k]
        factor = jnp.where(rows == k, 0.0, table[:, k])
        return jnp.where((rows == k)[:, None], top, table - factor[:, None] * top)

    columns = rhs.reshape(size, -1)
    return lax.fori_loop(0, size, body, jnp.concatenate([matrix, columns], axis=1))[:, size:].reshape(rhs.shape)
