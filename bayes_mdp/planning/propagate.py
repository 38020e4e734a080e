"""The backup that every variance equation shares: u = local + discount^2 sum pbar pi u."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.mdp import MDP, AverageReward, Discounted, Objective, SparseMDP
from bayes_mdp.planning.solution import PolicyEvaluation
from bayes_mdp.planning.solve import evaluate


def propagate(
    mdp: MDP | SparseMDP, local: Float[Array, "*H S A"], policy: Any, objective: Objective
) -> PolicyEvaluation:
    """Solve u(s, a) = local(s, a) + discount^2 sum_s' P(s' | s, a) sum_a' pi(a' | s') u(s', a').

    It is policy evaluation with `local` as reward and the square of the discount; undiscounted objectives stay so.

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
    if local.ndim > mdp.reward.ndim:
        mdp = _at_every_step(mdp, local.shape[0])
    return evaluate(eqx.tree_at(lambda m: m.reward, mdp, local), policy, objective)


def _at_every_step(mdp: MDP | SparseMDP, horizon: int) -> MDP | SparseMDP:
    """The same rows at each of `horizon` steps, for a local variance that depends on the step."""

    def rows(m: MDP | SparseMDP) -> list[Array]:
        listed = [m.successor, m.probability] if isinstance(m, SparseMDP) else [m.transition_probs]
        return [*listed, m.reward] if m.end_probs is None else [*listed, m.reward, m.end_probs]

    repeated = [jnp.broadcast_to(x, (horizon, *x.shape)) for x in rows(mdp)]
    return eqx.tree_at(rows, mdp, repeated)
