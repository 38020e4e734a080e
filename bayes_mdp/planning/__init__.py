"""Planning: MDP + objective -> `Solution`, with a proven bound on its error."""

from bayes_mdp.planning.episodic import backward_induction
from bayes_mdp.planning.occupancy import occupancy
from bayes_mdp.planning.policy_arrays import policy_probs
from bayes_mdp.planning.soft import solve_soft
from bayes_mdp.planning.solution import PolicyEvaluation, SoftSolution, Solution
from bayes_mdp.planning.solve import evaluate, policy_chain, solve

__all__ = [
    "PolicyEvaluation",
    "SoftSolution",
    "Solution",
    "backward_induction",
    "evaluate",
    "occupancy",
    "policy_chain",
    "policy_probs",
    "solve",
    "solve_soft",
]
