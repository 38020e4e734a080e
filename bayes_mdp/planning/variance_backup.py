"""The backup that every variance equation shares: u = local + discount^2 sum pbar pi u."""

import sys

from jaxtyping import Array, Float

from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Objective, PolicyLike, SparseMDP
from bayes_mdp.planning.other_rewards import evaluate_reward
from bayes_mdp.planning.solution import PolicyEvaluation


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
    return evaluate_reward(mdp, local, policy, objective)
