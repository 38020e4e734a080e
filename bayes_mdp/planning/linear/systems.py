"""Linear systems of Markov chains: direct for small dense chains, Krylov beyond."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.mdp.typing import RealScalar
from bayes_mdp.planning.linear.elimination import eliminate

DIRECT = 128  # up to so many states elimination beats Krylov iterations
LISTED_DIRECT = 1024  # up to so many states a sparse chain may become dense where Krylov iterations fail
_RESTARTS = 8
_NEAR = 64  # units of rounding in a residual that counts as solved

Vector = Float[Array, " S"]
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
) -> Vector:
    """Solve M x = rhs, M = I - discount P for a chain (an MDP with one action).

    Dense and S <= 128: elimination. Otherwise BiCGSTAB from `guess` with restarts; where it fails (deterministic cycles
    make Krylov methods stagnate) a direct solution, except for sparse chains of more than 1024 states: there the
    iterate of least residual comes back, and the caller measures the residual.

    Args:
        anchored: add x[0] to every equation, which makes M regular for discount 1 and one recurrent class.
        adjoint: solve M' x = rhs.
    """

    def apply(x: Vector) -> Vector:
        y = x - discount * chain.expected_next(x)[:, 0]
        return y + x[0] if anchored else y

    def direct() -> Vector:
        # I - discount P; anchored: x[0] is added to every equation, ones in column 0.
        rows = chain.to_dense() if isinstance(chain, SparseMDP) else chain
        matrix = jnp.eye(rhs.shape[0], dtype=rhs.dtype) - discount * rows.transition_probs[:, 0]
        matrix = matrix.at[:, 0].add(1.0) if anchored else matrix
        matrix = matrix.T if adjoint else matrix
        small = rhs.shape[0] <= DIRECT
        return eliminate(matrix, rhs, pivot=anchored) if small else jnp.linalg.solve(matrix, rhs)

    if isinstance(chain, MDP) and chain.n_states <= DIRECT:
        return direct()
    operator = (lambda x: jax.linear_transpose(apply, x)(x)[0]) if adjoint else apply
    x = _krylov(operator, rhs, guess)
    if isinstance(chain, SparseMDP) and chain.n_states > LISTED_DIRECT:
        return x
    return _or_direct(direct, operator, rhs, x)


def _krylov(operator: Callable[[Vector], Vector], rhs: Vector, guess: Vector) -> Vector:
    """Restarted BiCGSTAB: corrections of `guess`, until the largest residual is near rounding or no longer halves."""
    eps = float(jnp.finfo(guess.dtype).eps)

    def noise(x: Vector) -> Float[Array, ""]:
        return eps * (jnp.max(jnp.abs(x)) + jnp.max(jnp.abs(rhs)))

    def body(carry: Carry) -> Carry:
        x, error, residual, restarts, _ = carry
        # Solve for the correction, not for x: the restart removes the drift of the recursive residual.
        floor = noise(x) * len(rhs) ** 0.5
        new = x + jax.scipy.sparse.linalg.bicgstab(operator, residual, tol=1e-4, atol=floor, maxiter=100)[0]
        new_residual = rhs - operator(new)
        new_error = jnp.max(jnp.abs(new_residual))
        better = new_error < error  # false for NaN
        going = (new_error < error / 2) & (new_error > 4 * noise(new))
        x, residual = jnp.where(better, new, x), jnp.where(better, new_residual, residual)
        return x, jnp.where(better, new_error, error), residual, restarts + 1, going

    residual = rhs - operator(guess)
    error = jnp.max(jnp.abs(residual))
    start = (guess, error, residual, jnp.int32(0), error > 4 * noise(guess))
    return jax.lax.while_loop(lambda carry: carry[-1] & (carry[3] < _RESTARTS), body, start)[0]


def _or_direct(direct: Callable[[], Vector], operator: Callable[[Vector], Vector], rhs: Vector, x: Vector) -> Vector:
    """`x`, or the direct solution where x is no solution. A while loop, so that a batch without failures skips it."""
    scale = jnp.max(jnp.abs(x)) + jnp.max(jnp.abs(rhs))
    error = jnp.max(jnp.abs(rhs - operator(x)))
    failed = ~(error <= _NEAR * float(jnp.finfo(x.dtype).eps) * scale)
    return jax.lax.while_loop(lambda c: c[1], lambda c: (direct(), jnp.array(False)), (x, failed))[0]
