"""Linear systems of Markov chains: direct for small chains, preconditioned Krylov iterations beyond.

Preconditioner, for chains of listed successors: the moves to a neighbour, solved exactly. Many large chains are
numbered along a line: queues, inventories, rivers, ages, rows of a grid. Krylov iterations take one round for every
move along it; elimination of a tridiagonal matrix is the whole way in one (Saad 2003, *Iterative Methods for Sparse
Linear Systems*, chapter 10; line relaxation). Where no move is to a neighbour it changes nothing.

Direct: Gauss-Jordan elimination without LAPACK. Two independent batched `jnp.linalg.solve` in one compiled program can
wait for each other for ever on a CPU of two cores (seen with jaxlib 0.10: both hold a thread of the pool that both wait
for), and a planner has no control over what else its caller compiles. These loops call no library but for products of
matrices. Measured beside LAPACK on two cores, one system at a time: up to three times as long from 90 to 128 unknowns,
half as long or less from 175 on. In batches of 16 to 32 systems of 90 and 128 unknowns: three times as long.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.numerics.fusion import on_demand
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import IntScalar, RealScalar

DIRECT = 512  # up to so many states elimination beats Krylov iterations on a dense chain
_SMALL = 128  # ... on a sparse one, made dense
LISTED_DIRECT = 2048  # up to so many states a sparse chain may become dense where Krylov iterations fail
RESTARTS = 8
_ITERATIONS = 100  # of BiCGSTAB between restarts, on a sparse chain
_DENSE_ITERATIONS = 25  # on a dense one: two or three restarts take as long as elimination
_REFINEMENTS = 8  # steps x + T^-1 residual with a preconditioner T that nearly solves the system
_NEAR = 64  # units of rounding in a residual that counts as solved

Vector = Float[Array, " S"]
Operator = Callable[[Vector], Vector]
Carry = tuple[Vector, Float[Array, ""], Vector, Int[Array, ""], Bool[Array, ""]]
"""x, its largest residual, its residual, restarts, whether to go on."""


def solve_chain(
    chain: MDP | SparseMDP,
    discount: RealScalar,
    rhs: Vector,
    guess: Vector,
    *,
    anchored: bool = False,
    adjoint: bool = False,
    rounds: int = RESTARTS,
) -> Vector:
    """Solve M x = rhs, M = I - discount P for a chain (an MDP with one action).

    Up to 512 states (sparse: 128): elimination. Otherwise BiCGSTAB from `guess` with restarts, on a sparse chain with
    the moves to neighbours as preconditioner; where it fails (cycles make Krylov methods stagnate) elimination, except
    for sparse chains of more than 2048 states: there the iterate of least residual comes back, and the caller measures
    the residual.

    Args:
        anchored: add x[0] to every equation, which makes M regular for discount 1 and one recurrent class.
        adjoint: solve M' x = rhs.
        rounds: the most restarts of a sparse chain; each is meant to divide the residual by 10^4. Fewer are an inexact
            solution, for a caller that will ask again with the answer as guess.
    """

    def apply(x: Vector) -> Vector:
        y = x - discount * chain.expected_next(x)[:, 0]
        return y + x[0] if anchored else y

    def direct(system: tuple[MDP | SparseMDP, Vector]) -> Vector:
        chain, rhs = system
        # I - discount P; anchored: x[0] is added to every equation, ones in column 0.
        matrix = jnp.eye(rhs.shape[0], dtype=rhs.dtype) - discount * chain.transition_probs[:, 0]
        matrix = matrix.at[:, 0].add(1.0) if anchored else matrix
        return eliminate(matrix.T if adjoint else matrix, rhs, pivot=anchored)

    def or_direct(x: Vector, enough: RealScalar = 0.0) -> Vector:
        """`x`, or the direct solution where the residual of x is neither `enough` nor near rounding."""
        scale = jnp.max(jnp.abs(x)) + jnp.max(jnp.abs(rhs))
        error = jnp.max(jnp.abs(rhs - operator(x)))
        failed = ~(error <= jnp.maximum(enough, _NEAR * float(jnp.finfo(x.dtype).eps) * scale))
        failed = failed | ~jnp.all(jnp.isfinite(x))
        return on_demand(failed, x, direct, (chain, rhs))

    operator = (lambda x: jax.linear_transpose(apply, x)(x)[0]) if adjoint else apply
    if isinstance(chain, MDP):
        if chain.n_states <= DIRECT:
            return direct((chain, rhs))
        # Large dense chain: a few Krylov restarts, elimination where these fail.
        return or_direct(_krylov(operator, rhs, guess, None, _DENSE_ITERATIONS, RESTARTS))
    if chain.n_states <= _SMALL:
        return direct((chain, rhs))
    # Sparse chain: where most transitions lead to neighbours, the three middle diagonals nearly are M.
    precondition = neighbour_solver(chain, discount, anchored=anchored, adjoint=adjoint)
    x = _krylov(operator, rhs, guess, precondition, _ITERATIONS, rounds)
    if chain.n_states > LISTED_DIRECT:
        return x
    # An inexact solution has failed where it is no better than the guess.
    enough = 0.0 if rounds == RESTARTS else jnp.max(jnp.abs(rhs - operator(guess))) / 2
    return or_direct(x, enough)


def _krylov(
    operator: Operator, rhs: Vector, guess: Vector, precondition: Operator | None, iterations: int, rounds: int
) -> Vector:
    """Restarted BiCGSTAB: corrections of `guess`, until the largest residual is near rounding or no longer halves."""

    def body(carry: Carry) -> Carry:
        x, _, residual, *_ = carry
        # Solve for the correction, not for x: the restart removes the drift of the recursive residual.
        floor = _noise(x, rhs) * len(rhs) ** 0.5
        correction = jax.scipy.sparse.linalg.bicgstab(
            operator, residual, tol=1e-4, atol=floor, maxiter=iterations, M=precondition
        )[0]
        return _step_to(carry, operator, rhs, x + correction, 2)

    # One sweep first: where the right side is a single state that ends at once, BiCGSTAB would break down from it.
    residual = rhs - operator(guess)
    error = jnp.max(jnp.abs(residual))
    swept = guess + residual
    left = rhs - operator(swept)
    nearer = jnp.max(jnp.abs(left)) < error
    # Keep the sweep only where it helped.
    guess, residual = jnp.where(nearer, swept, guess), jnp.where(nearer, left, residual)
    error = jnp.max(jnp.abs(residual))
    if precondition is not None:
        guess, error, residual = _refine(operator, rhs, guess, precondition, residual, _REFINEMENTS)
    start = (guess, error, residual, jnp.int32(0), error > 4 * _noise(guess, rhs))
    return jax.lax.while_loop(lambda carry: carry[-1] & (carry[3] < rounds), body, start)[0]


def _noise(x: Vector, rhs: Vector) -> Float[Array, ""]:
    """A unit of rounding in the residual of x."""
    return float(jnp.finfo(x.dtype).eps) * (jnp.max(jnp.abs(x)) + jnp.max(jnp.abs(rhs)))


def _step_to(carry: Carry, operator: Operator, rhs: Vector, new: Vector, factor: float) -> Carry:
    """The better of the last x and a `new` one; it goes on while the largest residual falls by the factor."""
    x, error, residual, steps, _ = carry
    new_residual = rhs - operator(new)
    new_error = jnp.max(jnp.abs(new_residual))
    better = (new_error < error) & jnp.all(jnp.isfinite(new))  # XLA's maximum may overlook a NaN
    going = (new_error < error / factor) & (new_error > 4 * _noise(new, rhs))
    x, residual = jnp.where(better, new, x), jnp.where(better, new_residual, residual)
    return x, jnp.where(better, new_error, error), residual, steps + 1, going


def _refine(
    operator: Operator, rhs: Vector, guess: Vector, correct: Operator, residual: Vector, most: int
) -> tuple[Vector, Float[Array, ""], Vector]:
    """Steps x + T residual with a T that nearly is the inverse, as long as each divides the residual by ten.

    Args:
        correct: T.
        residual: of `guess`.
        most: the most steps.

    Returns x, its largest residual, its residual.
    """

    refine = lambda carry: _step_to(carry, operator, rhs, carry[0] + correct(carry[2]), 10)  # noqa: E731
    error = jnp.max(jnp.abs(residual))
    start = (guess, error, residual, jnp.int32(0), error > 4 * _noise(guess, rhs))
    x, error, residual, *_ = jax.lax.while_loop(lambda carry: carry[-1] & (carry[3] <= most), refine, start)
    return x, error, residual


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
        is_neighbour = successor == (states + offset)[:, None]
        return jnp.asarray(discount * jnp.sum(jnp.where(is_neighbour, probability, 0.0), -1))

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

    solve = partial(_tridiagonal, left, middle, right)
    if not anchored:
        return solve
    # Sherman-Morrison: (T + u w')^-1 b = y - z (w' y) / (1 + w' z), with y = T^-1 b and z = T^-1 u.
    u, w = (first, 1 - first) if adjoint else (1 - first, first)
    z = solve(u)
    share = 1 + matmul(w, z)
    share = jnp.where(share > 0, share, 1.0)

    def solve_with_anchor(b: Vector) -> Vector:
        y = solve(b)
        return y - z * (matmul(w, y) / share)

    return solve_with_anchor


def _tridiagonal(left: Vector, middle: Vector, right: Vector, b: Vector) -> Vector:
    return lax.linalg.tridiagonal_solve(left, middle, right, b[:, None])[:, 0]


_ROW_BY_ROW = 48  # unknowns; beyond, columns are eliminated 16 at a time
_BLOCK = 16
# 1 + w' z is positive but for rounding; 1 stands for a singular update.

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
    # Few unknowns: one loop over columns compiles and runs faster than blocks.
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
    padding = jnp.eye(total, total + table.shape[1] - size, dtype=table.dtype)
    table = padding.at[:size].set(jnp.insert(table, jnp.full(total - size, size), 0.0, axis=1))
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
        # The row of this column is used up; it is subtracted from the rows that are still free.
        free = free & (jnp.arange(len(free)) != best)
        panel = jnp.where(free[:, None], panel - panel[:, j][:, None] * row, panel)
        return panel, free, chosen.at[j].set(best)

    none = jnp.arange(panel.shape[1])
    return lax.fori_loop(0, panel.shape[1], body, (panel, free, none))[2]
