"""A preconditioner for chains of listed successors: the moves to a neighbour, solved exactly.

Many large chains are numbered along a line: queues, inventories, rivers, ages, rows of a grid. Krylov iterations take
one round for every move along it; elimination of a tridiagonal matrix is the whole way in one (Saad 2003, *Iterative
Methods for Sparse Linear Systems*, chapter 10; line relaxation). Where no move is to a neighbour it changes nothing.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from bayes_mdp.mdp import SparseMDP
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import RealScalar

Vector = Float[Array, " S"]
Operator = Callable[[Vector], Vector]


def neighbour_solver(
    chain: SparseMDP, discount: RealScalar, *, anchored: bool = False, adjoint: bool = False
) -> Operator:
    """b -> x with T x = b, T the three middle diagonals of M = I - discount P; the identity where T is singular.

    Args:
        chain: an MDP with one action.
        anchored: M has x[0] added to every equation (see `solve_chain`).
        adjoint: T' x = b.
    """
    successor, probability = chain.successor[:, 0], chain.probability[:, 0]
    states = jnp.arange(chain.n_states)

    def diagonal(offset: int) -> Vector:
        there = successor == (states + offset)[:, None]
        return jnp.asarray(discount * jnp.sum(jnp.where(there, probability, 0.0), -1))

    # What the solver asks for: the entries left and right of the diagonal, row by row, zero beyond the corners.
    left, middle, right = -diagonal(-1), 1 - diagonal(0), -diagonal(1)
    if adjoint:
        left, right = jnp.roll(right, 1), jnp.roll(left, -1)
    first = (states == 0).astype(middle.dtype)
    if anchored:
        # M = (I - P + e_0 e_0') + (1 - e_0) e_0': the chain that state 0 may end, and a matrix of rank one.
        middle = middle + first
    regular = jnp.all(jnp.isfinite(_tridiagonal(left, middle, right, jnp.ones_like(middle))))
    left, right = jnp.where(regular, left, 0.0), jnp.where(regular, right, 0.0)
    middle = jnp.where(regular, middle, 1.0)

    def solve(b: Vector) -> Vector:
        return _tridiagonal(left, middle, right, b)

    if not anchored:
        return solve
    # Sherman-Morrison: (T + u w')^-1 b = y - z (w' y) / (1 + w' z), with y = T^-1 b and z = T^-1 u.
    u, w = (first, 1 - first) if adjoint else (1 - first, first)
    z = solve(u)
    share = 1 + matmul(w, z)
    share = jnp.where(share > 0, share, 1.0)

    def solve_anchored(b: Vector) -> Vector:
        y = solve(b)
        return y - z * (matmul(w, y) / share)

    return solve_anchored


def _tridiagonal(left: Vector, middle: Vector, right: Vector, b: Vector) -> Vector:
    return lax.linalg.tridiagonal_solve(left, middle, right, b[:, None])[:, 0]
