"""Derivatives of optimal values, by one linear system of the policy's chain instead of a walk through the iterations.

At a solution v = M(r + discount P v), with M the maximum, hard or soft. Its gradient is the policy, so that

    dv = (I - discount P_policy)^-1 [what one sweep changes when the MDP changes and v does not]

For the hard maximum this is the envelope theorem: a policy that stays best has no derivative of its own. The planners
run on numbers without derivatives; `with_derivatives` and `with_gain_derivatives` hand their answer on and attach the
rule. The rule is made of the same functions, so it can be differentiated again, and it is linear in the change of the
MDP, so that JAX turns it round for reverse mode: one adjoint system for every output that is asked for. (Rust 1988;
Puterman 1994, theorem 6.1.1 for the system; average reward: Schweitzer 1968, relative values by a bordered system.)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.planning.linear.differentiable import solve_with_derivatives
from bayes_mdp.planning.max_operator import Max
from bayes_mdp.planning.policy_chain import action_values
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
def where_solved(values: PyTree[Array], solved: Bool[Array, ""]) -> PyTree[Array]:
    """`values`, whose derivatives are NaN unless `solved`: those of a wrong answer mean nothing."""
    return values


@where_solved.defjvp
def _solved_rule(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[PyTree, PyTree]:
    values, solved = primals
    # A product, not a selection: in reverse mode a selection would hand on zero.
    factor = jnp.where(solved, 1.0, jnp.nan)
    return where_solved(values, solved), jax.tree.map(lambda t: t * factor.astype(t.dtype), tangents[0])


def near_enough(values: Float[Array, " S"], done: Bool[Array, ""], gap: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether the planner converged, or came within a thousandth of its values."""
    return done | (gap <= 1e-3 * jnp.max(jnp.abs(values)))
