"""Epsilon-greedy for the posterior-mean model: dithering, with a model (the epsilon-greedy agent of TabulaRL)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.mean_model import mean_model
from bayes_mdp.agents.policies import EpsilonGreedy, check_fraction
from bayes_mdp.agents.replan import ReplanRule, as_rule
from bayes_mdp.mdp import CanMean, Episodic, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution


class EpsilonGreedyMean(eqx.Module):
    """Epsilon-greedy for the optimal plan of the posterior-mean MDP, under any objective.

    Args:
        epsilon: in [0, 1].
        replan: as in `PSRL`.

    Raises:
        ValueError: `epsilon` lies outside [0, 1].
    """

    epsilon: float | Array = 0.1
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_fraction("epsilon", self.epsilon)

    def check_belief(self, belief: Any) -> None:
        """Refuse a belief without a mean.

        Raises:
            TypeError: as said.
        """
        require_ability(belief, CanMean, "EpsilonGreedyMean")

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes)."""
        del key
        if isinstance(problem.objective, Episodic):
            return None
        return Solution.blank(problem.space.shape, legal=problem.space.legal)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CanMean
    ) -> tuple[EpsilonGreedy, Solution | None]:
        """Epsilon-greedy for the plan. No random number is used.

        Raises:
            TypeError: `belief` has no mean. ValueError: as `planning.solve`.
        """
        del key
        self.check_belief(belief)
        if not isinstance(problem.objective, Episodic):
            solution = solve(belief.mean_mdp(), problem.objective, start=state)
            return EpsilonGreedy(solution.q, self.epsilon, problem.space.legal), solution
        model = mean_model(belief, problem.objective, "EpsilonGreedyMean")

        def backup(layer: Any, values: Float[Array, " S"]) -> Float[Array, "S A"]:
            return model.at(model.reward, layer) + model.expected_next(values, layer)

        return EpsilonGreedy(model.backward(backup), jnp.asarray(self.epsilon), problem.space.legal), None
