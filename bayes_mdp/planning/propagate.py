"""The backup that every variance equation shares: u = local + discount^2 sum pbar pi u."""

from typing import Any

import equinox as eqx
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
        local: [*H S A], the variance that each pair adds.
        policy: as in `evaluate`.
        objective: `Discounted`, `Episodic` or `FirstExit`.

    Raises:
        ValueError: `AverageReward`: the sum of local variances along a run without end does not exist; as `evaluate`.
    """
    if isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected Discounted, Episodic or FirstExit for a variance")
    if isinstance(objective, Discounted):
        objective = Discounted(objective.discount**2)
    return evaluate(eqx.tree_at(lambda m: m.reward, mdp, local), policy, objective)
