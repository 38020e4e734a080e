"""Derivatives of optimal values, by one linear system of the policy's chain instead of a walk through the iterations.

At a solution v = M(r + discount P v), with M the maximum, hard or soft. Its gradient is the policy, so that

    dv = (I - discount P_policy)^-1 [what one sweep changes when the MDP changes and v does not]

For the hard maximum this is the envelope theorem: a policy that stays best has no derivative of its own. The planners
run on numbers without derivatives; `with_derivatives` and `with_gain_derivatives` hand their answer on and attach the
rule. The rule is made of the same functions, so it can be differentiated again, and it is linear in the change of the
MDP, so that JAX turns it round for reverse mode: one adjoint system for every output that is asked for. (Rust 1988;
Puterman 1994, theorem 6.1.1 for the system; average reward: Schweitzer 1968, relative values by a bordered system.)

The systems of chains (`solve_with_derivatives`) are differentiated forward and reverse, to any order, under `vmap`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning.bellman import Max
from bayes_mdp.planning.linear_systems import DIRECT, LISTED_DIRECT, eliminate, solve_chain
from bayes_mdp.planning.policy_arrays import action_values
from bayes_mdp.utils.typing import RealScalar

Values = tuple[Float[Array, "S A"], Float[Array, " S"]]
"""q and v."""

Relative = tuple[Float[Array, "S A"], Float[Array, " S"], Float[Array, ""]]
"""q, relative values, gain."""


@jax.custom_jvp
def with_derivatives(values: Values, mdp: MDP | SparseMDP, discount: RealScalar, maximum: Max) -> Values:
    """The solution `values` of v = maximum(q), q = reward + discount E v, with its derivatives.

    Args:
        values: constant (`jax.lax.stop_gradient`), as a planner found them.
        mdp, discount, maximum: what they depend on. Discount 1: the chain of the policy ends.
    """
    return values


@with_derivatives.defjvp
def _values_rule(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[Values, Values]:
    # The answer, differentiable again.
    q, v = with_derivatives(*primals)
    _, mdp, discount, maximum = primals
    # What one sweep over fixed values changes: the right side.
    sweep = lambda mdp, discount, maximum: maximum.value(action_values(mdp, v, discount))  # noqa: E731
    rhs = jax.jvp(sweep, (mdp, discount, maximum), tangents[1:])[1]
    # Differentiate v = T v at the fixed point: (I - discount P_pi) dv = dT, with P_pi the chain of the greedy policy.
    dv = solve_with_derivatives(maximum.chain(mdp, q), discount, rhs)
    dq = jax.jvp(action_values, (mdp, v, discount), (tangents[1], dv, tangents[2]))[1]
    return (q, v), (dq, dv)


@jax.custom_jvp
def with_gain_derivatives(values: Relative, mdp: MDP | SparseMDP, maximum: Max) -> Relative:
    """The solution of v + gain = maximum(reward + E v), v[0] = 0, q = reward - gain + E v, with its derivatives.

    Args:
        values: constant, as a planner found them.
        mdp, maximum: what they depend on.
    """
    return values


@with_gain_derivatives.defjvp
def _gain_rule(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[Relative, Relative]:
    q, v, gain = with_gain_derivatives(*primals)
    _, mdp, maximum = primals
    sweep = lambda mdp, maximum: maximum.value(action_values(mdp, v))  # noqa: E731
    rhs = jax.jvp(sweep, (mdp, maximum), tangents[1:])[1]
    # dv + dgain = rhs + P dv with dv[0] = 0: x = dv + dgain solves x - P x + x[0] = rhs.
    x = solve_with_derivatives(maximum.chain(mdp, q), jnp.ones((), v.dtype), rhs, anchored=True)
    dgain, dv = x[0], x - x[0]
    dq = jax.jvp(action_values, (mdp, v), (tangents[1], dv))[1] - dgain
    return (q, v, gain), (dq, dv, dgain)


@jax.custom_jvp
def poison_unless(values: PyTree[Array], solved: Bool[Array, ""]) -> PyTree[Array]:
    """`values`, whose derivatives are NaN unless `solved`: those of a wrong answer mean nothing."""
    return values


@poison_unless.defjvp
def _poison_rule(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[PyTree, PyTree]:
    values, solved = primals
    # A product, not a selection: in reverse mode a selection would hand on zero.
    factor = jnp.where(solved, 1.0, jnp.nan)
    return poison_unless(values, solved), jax.tree.map(lambda t: t * factor.astype(t.dtype), tangents[0])


def near_enough(values: Float[Array, " S"], done: Bool[Array, ""], gap: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether the planner converged, or came within a thousandth of its values."""
    return done | (gap <= 1e-3 * jnp.max(jnp.abs(values)))


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
        # Inverted once: the solver and its adjoint share the inverse.
        inverse = _inverse(fixed, factor, anchored)
        solve = lambda operator, b: _refine_once(inverse, operator, b)  # noqa: E731
        solve_adjoint = lambda operator, b: _refine_once(inverse.T, operator, b)  # noqa: E731
    else:
        solve = lambda operator, b: _solve_iteratively(fixed, factor, operator, b, anchored, False)  # noqa: E731
        solve_adjoint = lambda operator, b: _solve_iteratively(fixed, factor, operator, b, anchored, True)  # noqa: E731
    return jax.lax.custom_linear_solve(apply, rhs, solve, solve_adjoint)


def _inverse(chain: MDP, discount: RealScalar, anchored: bool) -> Float[Array, "S S"]:
    rows = chain.transition_probs[:, 0]
    eye = jnp.eye(chain.n_states, dtype=rows.dtype)
    matrix = eye - discount * rows
    # x[0] P 1, in column 0.
    # Anchored, P (x - x[0]) stands for P x: the row sums move to column 0.
    matrix = matrix.at[:, 0].add(jnp.sum(rows, -1)) if anchored else matrix
    return eliminate(matrix, eye, pivot=anchored)


def _refine_once(inverse: Float[Array, "S S"], operator: Operator, b: Vector) -> Vector:
    x = matmul(inverse, b)
    # One step of iterative refinement takes the residual down to rounding.
    return x + matmul(inverse, b - operator(x))


def _solve_iteratively(
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
