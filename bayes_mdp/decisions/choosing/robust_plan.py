"""The policy that is best in the worst MDP of a credible set: robust dynamic programming (Iyengar 2005)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.decisions.choosing.credible_set import CredibleSet
from bayes_mdp.decisions.choosing.policy_set import PolicySet
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Objective

_SWEEPS = 100_000
_NEAR = 1e-13  # change of a sweep, as a share of the largest value, that ends the sweeps

Loop = tuple[Float[Array, " S"], Float[Array, ""], Int[Array, ""]]
"""Values, largest change, sweeps."""


class RobustPlan(eqx.Module):
    """The plan.

    Args:
        choice: Int[*H S], the free action in every state.
        values: [S], the worst values of the policy from every first state.
        gap: bound on the error of `values`, in exact arithmetic; infinite where none is proven.
    """

    choice: Int[np.ndarray, "*H S"]
    values: Float[np.ndarray, " S"]
    gap: float


def robust_plan(members: CredibleSet, objective: Objective, policies: PolicySet) -> RobustPlan:
    """The best policy of the set in the worst MDP, whose rows the adversary chooses pair by pair (and step by step).

    Raises:
        ValueError: `AverageReward`, for which no bound is known here; sweeps that do not settle (`FirstExit`, where the
            worst MDP need not end).
    """
    if isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected Discounted, Episodic or FirstExit with Robust")
    with jax.enable_x64(True):
        free, fixed, mass = (jnp.asarray(x) for x in (policies.free, policies.fixed, policies.mass))
        if isinstance(objective, Episodic):
            shape = (objective.horizon, *free.shape)
            fixed, mass = jnp.broadcast_to(fixed, shape), jnp.broadcast_to(mass, shape[:-1])
            q = _backward(members, objective.discount, free, fixed, mass)
            choice = np.argmax(np.where(np.asarray(free), np.asarray(q), -np.inf), -1)
            return RobustPlan(choice, np.asarray(_state_values(q[0], free, fixed[0], mass[0])), 0.0)
        discounted = isinstance(objective, Discounted)
        discount = jnp.asarray(objective.discount if discounted else 1.0)
        values, change, sweeps = _sweeps(members, discount, free, fixed, mass)
        scale = max(float(jnp.max(jnp.abs(values))), 1e-300)
        if not np.isfinite(scale) or (float(change) > 1e-6 * scale and int(sweeps) >= _SWEEPS):
            raise ValueError(
                f"objective is {type(objective).__name__}: the worst values did not settle in {_SWEEPS} sweeps, "
                "expected a set in which every policy ends (or Discounted)"
            )
        q = members.worst_values(values, discount)
        choice = np.argmax(np.where(np.asarray(free), np.asarray(q), -np.inf), -1)
    rate = float(discount)
    # The sweep is a contraction: what is left is at most change * discount / (1 - discount).
    gap = float(change) * rate / (1 - rate) if discounted and rate < 1 else np.inf
    return RobustPlan(choice, np.asarray(values), gap)


def _state_values(
    q: Float[Array, "S A"], free: Bool[Array, "S A"], fixed: Float[Array, "S A"], mass: Float[Array, " S"]
) -> Float[Array, " S"]:
    """The fixed part of the policy, and the best free action with the rest of the probability."""
    known = jnp.where(fixed > 0, q, 0.0)
    best = jnp.max(jnp.where(free, q, -jnp.inf), -1)
    return jnp.sum(fixed * known, -1) + jnp.where(mass > 0, mass * jnp.where(mass > 0, best, 0.0), 0.0)


@eqx.filter_jit
def _sweeps(
    members: CredibleSet,
    discount: Float[Array, ""],
    free: Bool[Array, "S A"],
    fixed: Float[Array, "S A"],
    mass: Float[Array, " S"],
) -> Loop:
    def body(loop: Loop) -> Loop:
        values, _, count = loop
        new = _state_values(members.worst_values(values, discount), free, fixed, mass)
        return new, jnp.max(jnp.abs(new - values)), count + 1

    def going(loop: Loop) -> Bool[Array, ""]:
        values, change, count = loop
        return (change > _NEAR * jnp.max(jnp.abs(values))) & (count < _SWEEPS)

    return jax.lax.while_loop(going, body, body((jnp.zeros(members.n_states), jnp.array(jnp.inf), jnp.int32(0))))


@eqx.filter_jit
def _backward(
    members: CredibleSet,
    discount: float,
    free: Bool[Array, "S A"],
    fixed: Float[Array, "H S A"],
    mass: Float[Array, "H S"],
) -> Float[Array, "H S A"]:
    def step(values: Float[Array, " S"], layer: tuple[Array, Array]) -> tuple[Array, Array]:
        q = members.worst_values(values, discount)
        return _state_values(q, free, *layer), q

    return jax.lax.scan(step, jnp.zeros(members.n_states), (fixed, mass), reverse=True)[1]
