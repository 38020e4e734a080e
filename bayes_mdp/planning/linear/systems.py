"""Linear systems of Markov chains: direct for small chains, preconditioned Krylov iterations beyond."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.numerics.fusion import on_demand
from bayes_mdp.planning.linear.elimination import eliminate
from bayes_mdp.planning.linear.neighbours import neighbour_solver
from bayes_mdp.utils.typing import RealScalar

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
        rows = chain.to_dense() if isinstance(chain, SparseMDP) else chain
        matrix = jnp.eye(rhs.shape[0], dtype=rhs.dtype) - discount * rows.transition_probs[:, 0]
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
        return or_direct(_krylov(operator, rhs, guess, None, _DENSE_ITERATIONS, RESTARTS))
    if chain.n_states <= _SMALL:
        return direct((chain, rhs))
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

    def noise(x: Vector) -> Float[Array, ""]:
        return _noise(x, rhs)

    def body(carry: Carry) -> Carry:
        x, error, residual, restarts, _ = carry
        # Solve for the correction, not for x: the restart removes the drift of the recursive residual.
        floor = noise(x) * len(rhs) ** 0.5
        correction = jax.scipy.sparse.linalg.bicgstab(
            operator, residual, tol=1e-4, atol=floor, maxiter=iterations, M=precondition
        )[0]
        new = x + correction
        new_residual = rhs - operator(new)
        new_error = jnp.max(jnp.abs(new_residual))
        better = (new_error < error) & jnp.all(jnp.isfinite(new))  # XLA's maximum may overlook a NaN
        going = (new_error < error / 2) & (new_error > 4 * noise(new))
        x, residual = jnp.where(better, new, x), jnp.where(better, new_residual, residual)
        return x, jnp.where(better, new_error, error), residual, restarts + 1, going

    # One sweep first: where the right side is a single state that ends at once, BiCGSTAB would break down from it.
    residual = rhs - operator(guess)
    error = jnp.max(jnp.abs(residual))
    swept = guess + residual
    left = rhs - operator(swept)
    nearer = jnp.max(jnp.abs(left)) < error
    guess, residual = jnp.where(nearer, swept, guess), jnp.where(nearer, left, residual)
    error = jnp.max(jnp.abs(residual))
    if precondition is not None:
        guess, error, residual = _refine(operator, rhs, guess, precondition, residual, _REFINEMENTS)
    start = (guess, error, residual, jnp.int32(0), error > 4 * noise(guess))
    return jax.lax.while_loop(lambda carry: carry[-1] & (carry[3] < rounds), body, start)[0]


def _noise(x: Vector, rhs: Vector) -> Float[Array, ""]:
    """A unit of rounding in the residual of x."""
    return float(jnp.finfo(x.dtype).eps) * (jnp.max(jnp.abs(x)) + jnp.max(jnp.abs(rhs)))


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

    def refine(carry: Carry) -> Carry:
        x, error, residual, steps, _ = carry
        new = x + correct(residual)
        new_residual = rhs - operator(new)
        new_error = jnp.max(jnp.abs(new_residual))
        better = (new_error < error) & jnp.all(jnp.isfinite(new))
        going = (new_error < error / 10) & (new_error > 4 * _noise(new, rhs)) & (steps < most)
        x, residual = jnp.where(better, new, x), jnp.where(better, new_residual, residual)
        return x, jnp.where(better, new_error, error), residual, steps + 1, going

    error = jnp.max(jnp.abs(residual))
    start = (guess, error, residual, jnp.int32(0), error > 4 * _noise(guess, rhs))
    x, error, residual, *_ = jax.lax.while_loop(lambda carry: carry[-1], refine, start)
    return x, error, residual
