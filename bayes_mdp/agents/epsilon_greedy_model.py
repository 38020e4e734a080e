"""Epsilon-greedy for the optimum of the empirical model: the baseline of [OIM08] table 3 (Szita and Lorincz 2008)."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from bayes_mdp.agents.empirical import Local, Stats
from bayes_mdp.agents.model_based import ModelBased
from bayes_mdp.agents.planners import ExactPlanner, PrioritizedSweeping, check_planner
from bayes_mdp.agents.policies import EpsilonGreedy
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.mdp import Problem
from bayes_mdp.mdp.validation import check_fraction


class EpsilonGreedyModel(ModelBased):
    """The optimum of the empirical model, followed but for a uniformly drawn action with probability `epsilon`.

    No reward of exploration, no prior (`EpsilonGreedyMean` plans in the mean of a posterior): a pair that was never
    tried is worth 0. Equal values go to the first action.

    Args:
        epsilon: in [0, 1].
        planner: `ExactPlanner()`, or `PrioritizedSweeping(...)` where there are many states.
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: `epsilon` lies outside [0, 1].
    """

    epsilon: float | Array = 0.1
    planner: ExactPlanner | PrioritizedSweeping = eqx.field(default=ExactPlanner(), kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)
    joint: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_fraction("epsilon", self.epsilon)
        check_planner(self.planner)

    def local(self, stats: Stats, worth: Any) -> Local:
        """The empirical model."""
        del worth
        return Local(stats.reward, jnp.zeros_like(stats.reward), stats.probs)

    def plan(self, key: PRNGKeyArray, problem: Problem, state: Any, belief: Any = None) -> tuple[Any, Any]:
        """Epsilon-greedy for the plan."""
        policy, state = super().plan(key, problem, state, belief)
        return EpsilonGreedy(policy.q, self.epsilon, problem.space.legal), state
