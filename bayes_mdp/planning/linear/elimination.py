"""Gauss-Jordan elimination for dense systems, without LAPACK.

Two independent batched `jnp.linalg.solve` in one compiled program can wait for each other for ever on a CPU of two
cores (seen with jaxlib 0.10: both hold a thread of the pool that both wait for), and a planner has no control over what
else its caller compiles. These loops call no library but for products of matrices. Measured beside LAPACK on two cores,
one system at a time: up to three times as long from 90 to 128 unknowns, half as long or less from 175 on. In batches of
16 to 32 systems of 90 and 128 unknowns: three times as long.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import IntScalar

_ROW_BY_ROW = 48  # unknowns; beyond, columns are eliminated 16 at a time
_BLOCK = 16

Blocks = tuple[Float[Array, "N T"], Int[Array, " N"], Bool[Array, " N"]]
"""Matrix and right sides, the row that solves for each unknown, which rows no unknown has taken."""


def eliminate(matrix: Float[Array, "S S"], rhs: Float[Array, "S *K"], *, pivot: bool = False) -> Float[Array, "S *K"]:
    """Solve `matrix @ x = rhs`.

    Args:
        rhs: one right side, or several as columns.
        pivot: choose rows by size; not needed where the diagonal dominates its row or column (I - discount P).
    """
    size = rhs.shape[0]
    table = jnp.concatenate([matrix, rhs.reshape(size, -1)], axis=1)
    solved = _by_rows(table, pivot) if size <= _ROW_BY_ROW else _by_blocks(table, pivot)
    return solved.reshape(rhs.shape)


def _by_rows(table: Float[Array, "S T"], pivot: bool) -> Float[Array, "S K"]:
    """One column after another; what is left beside the identity is the solution."""
    size = table.shape[0]
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

    return lax.fori_loop(0, size, body, table)[:, size:]


def _by_blocks(table: Float[Array, "S T"], pivot: bool) -> Float[Array, "S K"]:
    """Sixteen columns at a time: nearly all of the work is one product of matrices each."""
    size = table.shape[0]
    total = size + -size % _BLOCK
    # Unknowns x = 0 of their own fill the last block.
    own = jnp.eye(total, total + table.shape[1] - size, dtype=table.dtype)
    table = own.at[:size].set(jnp.insert(table, jnp.full(total - size, size), 0.0, axis=1))
    rows = jnp.arange(total)

    def body(k: IntScalar, carry: Blocks) -> Blocks:
        table, place, free = carry
        panel = lax.dynamic_slice_in_dim(table, k * _BLOCK, _BLOCK, 1)
        chosen = _pivots(panel, free) if pivot else k * _BLOCK + rows[:_BLOCK]
        top = table[chosen] if pivot else lax.dynamic_slice_in_dim(table, k * _BLOCK, _BLOCK, 0)
        # The rows of the block are normalised, and subtracted from all others.
        square = lax.dynamic_slice_in_dim(top, k * _BLOCK, _BLOCK, 1)
        top = _by_rows(jnp.concatenate([square, top], axis=1), pivot)
        taken = jnp.zeros(total, bool).at[chosen].set(True) if pivot else rows // _BLOCK == k
        table = table - matmul(jnp.where(taken[:, None], 0.0, panel), top)
        if not pivot:
            return lax.dynamic_update_slice_in_dim(table, top, k * _BLOCK, 0), place, free
        place = lax.dynamic_update_slice_in_dim(place, chosen, k * _BLOCK, 0)
        return table.at[chosen].set(top), place, free & ~taken

    table, place, _ = lax.fori_loop(0, total // _BLOCK, body, (table, rows, jnp.ones(total, bool)))
    return (table[place] if pivot else table)[:size, total:]


def _pivots(panel: Float[Array, "N B"], free: Bool[Array, " N"]) -> Int[Array, " B"]:
    """The rows that elimination with partial pivoting takes for the columns of the panel."""

    def body(
        j: IntScalar, carry: tuple[Float[Array, "N B"], Bool[Array, " N"], Int[Array, " B"]]
    ) -> tuple[Float[Array, "N B"], Bool[Array, " N"], Int[Array, " B"]]:
        panel, free, chosen = carry
        best = jnp.argmax(jnp.where(free, jnp.abs(panel[:, j]), -1.0)).astype(chosen.dtype)
        row = panel[best] / panel[best, j]
        free = free & (jnp.arange(len(free)) != best)
        panel = jnp.where(free[:, None], panel - panel[:, j][:, None] * row, panel)
        return panel, free, chosen.at[j].set(best)

    none = jnp.arange(panel.shape[1])
    return lax.fori_loop(0, panel.shape[1], body, (panel, free, none))[2]
