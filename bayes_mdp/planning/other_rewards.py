"""A policy's values for rewards that are not those of the MDP."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.mdp import MDP, Episodic, Objective, PolicyLike, SparseMDP
from bayes_mdp.planning.episodic import induce
from bayes_mdp.planning.policy_arrays import policy_probs
from bayes_mdp.planning.rounding import Rounding
from bayes_mdp.planning.solution import PolicyEvaluation
from bayes_mdp.planning.solve import evaluate
from bayes_mdp.utils.validation import check_shape


def evaluate_reward(
    mdp: MDP | SparseMDP, reward: Float[Array, "*H S A"], policy: PolicyLike, objective: Objective
) -> PolicyEvaluation:
    """`evaluate` with other rewards, which may depend on the step where the MDP does not. Traceable.

    Args:
        mdp: its rewards are not used.
        reward: [*H S A]; H only with `Episodic`.
        policy, objective: as in `evaluate`.

    Raises:
        ValueError: another shape; as `evaluate`.
    """
    if isinstance(objective, Episodic) and reward.ndim > mdp.reward.ndim:
        return _by_step(mdp, reward, policy, objective)
    return evaluate(eqx.tree_at(lambda m: m.reward, mdp, reward), policy, objective)


def _by_step(
    mdp: MDP | SparseMDP, reward: Float[Array, "H S A"], policy: PolicyLike, objective: Episodic
) -> PolicyEvaluation:
    """One row for all steps, a reward for each: the rows are not repeated."""
    horizon, rate = objective.horizon, objective.discount
    check_shape("reward", reward, (horizon, *mdp.reward.shape), "step, state, action")
    # Rounding is bounded by the largest reward of all steps.
    largest = eqx.tree_at(lambda m: m.reward, mdp, jnp.max(jnp.abs(reward), 0))
    probs = policy_probs(policy, mdp, horizon=horizon)
    q, v, gap = induce(mdp, horizon, Rounding.of(largest, mixed=largest), probs, reward=reward, discount=rate)
    gain = jnp.full((), jnp.nan, q.dtype)
    return PolicyEvaluation(q, v, gain, jnp.isfinite(gap), jnp.int32(horizon), gap)
