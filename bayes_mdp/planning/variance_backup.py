"""The backup that every variance equation shares: u = local + discount^2 sum pbar pi u."""

import sys

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Objective, PolicyLike, SparseMDP
from bayes_mdp.mdp.validation import check_shape
from bayes_mdp.planning.episodic import induce
from bayes_mdp.planning.policy_arrays import policy_probs
from bayes_mdp.planning.rounding import Rounding
from bayes_mdp.planning.solution import PolicyEvaluation
from bayes_mdp.planning.solve import evaluate


def propagate(
    mdp: MDP | SparseMDP, local: Float[Array, "*H S A"], policy: PolicyLike, objective: Objective
) -> PolicyEvaluation:
    """Solve u(s, a) = local(s, a) + discount^2 sum_s' P(s' | s, a) sum_a' pi(a' | s') u(s', a').

    It is policy evaluation with `local` as reward and the square of the discount; what is undiscounted stays so.

    Args:
        mdp: the (mean) transition probabilities; its rewards are not used.
        local: [*H S A], the variance that each pair adds; it may depend on the step where `mdp` does not.
        policy: as in `evaluate`.
        objective: `Discounted`, `Episodic` or `FirstExit`.

    Raises:
        ValueError: `AverageReward`: the sum of local variances along a run without end does not exist; as `evaluate`.
    """
    if isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected Discounted, Episodic or FirstExit for a variance")
    if isinstance(objective, Discounted):
        objective = Discounted(objective.discount**2)
    if isinstance(objective, Episodic):
        rate = max(objective.discount**2, sys.float_info.min)  # a square may be too small for a float
        objective = Episodic(objective.horizon, rate)
        if local.ndim > mdp.reward.ndim:
            return _by_step(mdp, local, policy, objective)
    return evaluate(eqx.tree_at(lambda m: m.reward, mdp, local), policy, objective)


def _by_step(
    mdp: MDP | SparseMDP, local: Float[Array, "H S A"], policy: PolicyLike, objective: Episodic
) -> PolicyEvaluation:
    """One row for all steps, a local variance for each: the rows are not repeated."""
    horizon = objective.horizon
    check_shape("local", local, (horizon, *mdp.reward.shape), "step, state, action")
    # Rounding is bounded by the largest local variance of all steps.
    largest = eqx.tree_at(lambda m: m.reward, mdp, jnp.max(jnp.abs(local), 0))
    probs = policy_probs(policy, mdp, horizon=horizon)
    q, v, gap = induce(
        mdp, horizon, Rounding.of(largest, mixed=largest), probs, reward=local, discount=objective.discount
    )
    gain = jnp.full((), jnp.nan, q.dtype)
    return PolicyEvaluation(q, v, gain, jnp.isfinite(gap), jnp.int32(horizon), gap)
