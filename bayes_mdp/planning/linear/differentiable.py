"""Systems of Markov chains whose solution is differentiated: forward and reverse, any order, under `vmap`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning.linear.elimination import eliminate
from bayes_mdp.planning.linear.systems import DIRECT, LISTED_DIRECT, solve_chain
from bayes_mdp.utils.typing import RealScalar

_SWEEPS = 200_000  # of a large sparse chain on which Krylov iterations fail: enough for a discount of .9999
_NEAR = 64  # units of rounding in a residual that counts as solved

Vector = Float[Array, " S"]
Operator = Callable[[Vector], Vector]


def solve_with_derivatives(
    chain: MDP | SparseMDP, discount: RealScalar, rhs: Vector, *, anchored: bool = False
) -> Vector:
    """Solve x - discount P x = rhs for a chain (an MDP with one action).

    Dense and S <= 512: by the inverse, worked out once for all right sides of a batch, forward and adjoint, and one
    step of refinement. Otherwise as `solve_chain`, and by sweeps where that fails (a sparse chain of more than 2048
    states). The answer is NaN where no method comes near a solution.

    Args:
        anchored: for discount 1 and one recurrent class: x - P (x - x[0]) = rhs, which is h + g = rhs + P h with
            x = h + g and h[0] = 0.
    """

    def apply(x: Vector) -> Vector:
        later = x - x[0] if anchored else x
        return x - discount * chain.expected_next(later)[:, 0]

    # The solvers see constants: JAX differentiates the equation, not the solvers.
    fixed, factor = jax.lax.stop_gradient((chain, discount))
    if isinstance(fixed, MDP) and fixed.n_states <= DIRECT:
        inverse = _inverse(fixed, factor, anchored)
        solve = lambda operator, b: _refined(inverse, operator, b)  # noqa: E731
        solve_adjoint = lambda operator, b: _refined(inverse.T, operator, b)  # noqa: E731
    else:
        solve = lambda operator, b: _iterated(fixed, factor, operator, b, anchored, False)  # noqa: E731
        solve_adjoint = lambda operator, b: _iterated(fixed, factor, operator, b, anchored, True)  # noqa: E731
    return jax.lax.custom_linear_solve(apply, rhs, solve, solve_adjoint)


def _inverse(chain: MDP, discount: RealScalar, anchored: bool) -> Float[Array, "S S"]:
    rows = chain.transition_probs[:, 0]
    eye = jnp.eye(chain.n_states, dtype=rows.dtype)
    matrix = eye - discount * rows
    # x[0] P 1, in column 0.
    matrix = matrix.at[:, 0].add(jnp.sum(rows, -1)) if anchored else matrix
    return eliminate(matrix, eye, pivot=anchored)


def _refined(inverse: Float[Array, "S S"], operator: Operator, b: Vector) -> Vector:
    x = matmul(inverse, b)
    return x + matmul(inverse, b - operator(x))


def _iterated(
    chain: MDP | SparseMDP, discount: RealScalar, operator: Operator, b: Vector, anchored: bool, adjoint: bool
) -> Vector:
    x = solve_chain(chain, discount, b, jnp.zeros_like(b), anchored=anchored, adjoint=adjoint)
    eps = float(jnp.finfo(b.dtype).eps)

    def error(x: Vector) -> Float[Array, ""]:
        """Residual, in units of what rounding allows."""
        allowed = _NEAR * eps * (jnp.max(jnp.abs(x)) + jnp.max(jnp.abs(b)))
        return jnp.max(jnp.abs(b - operator(x))) / jnp.where(allowed > 0, allowed, 1.0)

    if isinstance(chain, SparseMDP) and chain.n_states > LISTED_DIRECT and not anchored:
        # x + (b - M x) = b + discount P x, or its adjoint: both converge, geometrically under a discount.
        sweep = lambda loop: (loop[0] + (b - operator(loop[0])), loop[1] + 1)  # noqa: E731
        going = lambda loop: (error(loop[0]) > 1) & (loop[1] < _SWEEPS)  # noqa: E731
        x = jax.lax.while_loop(going, sweep, (x, jnp.int32(0)))[0]
    # No number rather than a wrong one: 64 units are what a solution has, 1e-3 of the values no longer is one.
    return jnp.where(error(x) * _NEAR * eps <= 1e-3, x, jnp.nan)
