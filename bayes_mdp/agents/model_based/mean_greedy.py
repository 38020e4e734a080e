"""Epsilon-greedy for the posterior-mean model: undirected exploration (the epsilon-greedy agent of TabulaRL)."""

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import no_plan, plan_for_rewards
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import EpsilonGreedy
from bayes_mdp.mdp import CanMean, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.validation import check_fraction


class EpsilonGreedyMean(eqx.Module):
    """Epsilon-greedy for the optimal plan of the posterior-mean MDP, under any objective.

    Args:
        epsilon: in [0, 1].
        replan: as in `PSRL`.

    Raises:
        ValueError: `epsilon` lies outside [0, 1].
        TypeError: no number, no rule of replanning.
    """

    epsilon: float | Array = 0.1
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_fraction("epsilon", self.epsilon)

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without a mean.

        Raises:
            TypeError: no mean.
        """
        require_ability(belief, CanMean, "EpsilonGreedyMean")

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes)."""
        del key
        return no_plan(problem)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CanMean
    ) -> tuple[EpsilonGreedy, Solution | None]:
        """Epsilon-greedy for the plan. No random number is used.

        Raises:
            TypeError: `belief` has no mean. ValueError: as `planning.solve`.
        """
        del key
        self.check_belief(belief)
        q, _, state = plan_for_rewards(belief, problem, lambda reward: reward, state, "EpsilonGreedyMean")
        return EpsilonGreedy(q, self.epsilon, problem.space.legal), state
