"""What the methods with a reward of exploration share (Wiering and Schmidhuber 1998, *Efficient model-based
exploration*): a second table, with an optimum and a discount of its own, and two ways to act on both.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.agents.empirical import Local, Stats
from bayes_mdp.agents.model_based import ModelBased
from bayes_mdp.agents.optimism import warn_of_lost_optimism
from bayes_mdp.agents.planners import ExactPlanner, PrioritizedSweeping, check_planner
from bayes_mdp.agents.policies import lookup
from bayes_mdp.agents.replan import ReplanRule
from bayes_mdp.mdp import Problem
from bayes_mdp.mdp.validation import check_fraction, check_not_negative, check_positive, check_that, is_concrete
from bayes_mdp.planning.solution import best_action


class Alternates(eqx.Module):
    """Greedy for one of two tables, drawn afresh at every step; ties go to the first action.

    Args:
        explore: followed with probability `prob`; -inf where an action is illegal.
        real: followed otherwise.
        prob: in [0, 1].
    """

    explore: Float[Array, "*H S A"]
    real: Float[Array, "*H S A"]
    prob: Float[Array, ""]

    @property
    def horizon(self) -> int | None:
        """H where the actions depend on the step of an episode, else None."""
        return self.real.shape[0] if self.real.ndim == 3 else None

    @property
    def n_states(self) -> int:
        """S."""
        return self.real.shape[-2]

    @property
    def n_actions(self) -> int:
        """A."""
        return self.real.shape[-1]

    def _best(self, state: Any, step: Any) -> tuple[Any, Any]:
        return best_action(lookup(self.explore, 1, state, step)), best_action(lookup(self.real, 1, state, step))

    def act(self, key: PRNGKeyArray, state: Any, step: Any = 0) -> Int[Array, ""]:
        """An action."""
        explore, real = self._best(state, step)
        return jnp.where(jax.random.uniform(key) < self.prob, explore, real)

    def log_prob(self, state: Any, action: Any, step: Any = 0) -> Float[Array, ""]:
        """Log-probability, exact."""
        explore, real = self._best(state, step)
        return jnp.log(self.prob * (action == explore) + (1.0 - self.prob) * (action == real))


class ExplorationReward(ModelBased):
    """Two optima of the empirical model: of the rewards, Qr, and of a reward of exploration, Qe. See the subclasses."""

    v_max: eqx.AbstractVar[float | Array]
    scale: eqx.AbstractVar[float | Array]
    explore_prob: eqx.AbstractVar[float | Array | None]
    planner: eqx.AbstractVar[ExactPlanner | PrioritizedSweeping]
    replan: eqx.AbstractVar[ReplanRule | None]
    joint: ClassVar[bool] = False

    def __check_init__(self) -> None:
        check_not_negative("v_max", self.v_max)
        check_planner(self.planner)
        if is_concrete(self.scale):
            check_positive("scale", self.scale)
        if self.explore_prob is not None:
            check_fraction("explore_prob", self.explore_prob)
        if self.bonus_discount is not None:
            expected = "a number from 0 up to, but not including, 1"
            check_that("bonus_discount", self.bonus_discount, lambda x: (x >= 0) & (x < 1), expected)

    @abc.abstractmethod
    def cost(self, stats: Stats) -> Any:
        """What is taken from a pair that was used, before it is divided by `scale`."""

    def local(self, stats: Stats, worth: Any) -> Local:
        """The mean reward; -cost / scale, or `v_max` where a pair was never tried; the empirical rows."""
        del worth
        bonus = jnp.where(stats.visits > 0, -self.cost(stats) / self.scale, self.v_max)
        return Local(stats.reward, bonus, stats.probs)

    def plan(self, key: PRNGKeyArray, problem: Problem, state: Any, belief: Any = None) -> tuple[Any, Any]:
        """Greedy for Qr + Qe, or `Alternates`."""
        policy, state = super().plan(key, problem, state, belief)
        if self.explore_prob is None:
            return policy, state
        split = self.split(problem, state)
        return Alternates(split.qe, split.qr, jnp.asarray(self.explore_prob, split.qr.dtype)), state

    def check_optimism(self, max_reward: float) -> None:
        """Warn where the sum does not favour what is untried: `v_max` below the largest reward of one step."""
        if self.explore_prob is None:
            warn_of_lost_optimism("v_max", self.v_max, max_reward)
