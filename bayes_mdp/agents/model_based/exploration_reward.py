"""Rewards of exploration, by frequency and by recency: a second value table with its own optimum and discount.

Wiering and Schmidhuber, *Efficient model-based exploration*, 1998, rows of the tables of [OIM08]. Reconstructed: the
original and its constants were not available, results may differ.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.common.optimism_terms import check_above_zero, warn_of_lost_optimism
from bayes_mdp.agents.common.table_policies import Greedy, TablePolicy, lookup
from bayes_mdp.agents.model_based.empirical import Local, Stats
from bayes_mdp.agents.model_based.empirical_optimism import ModelBased
from bayes_mdp.mdp import Problem
from bayes_mdp.planning.solution import best_action
from bayes_mdp.utils.typing import IntScalar, Scalar
from bayes_mdp.utils.validation import check_fraction, check_not_negative, check_that


class Alternates(TablePolicy):
    """Greedy for one of two tables, drawn anew at every step; ties go to the first action.

    Args:
        explore: followed with probability `prob`; -inf where an action is illegal.
        real: values followed otherwise.
        prob: in [0, 1].
    """

    explore: Float[Array, "*H S A"]
    real: Float[Array, "*H S A"]
    prob: Float[Array, ""]

    def _best(self, state: IntScalar, step: IntScalar) -> tuple[Int[Array, ""], Int[Array, ""]]:
        return best_action(lookup(self.explore, 1, state, step)), best_action(lookup(self.real, 1, state, step))

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """An action."""
        explore, real = self._best(state, step)
        return jnp.where(jax.random.uniform(key) < self.prob, explore, real)

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """Log-probability, exact."""
        explore, real = self._best(state, step)
        return jnp.log(self.prob * (action == explore) + (1.0 - self.prob) * (action == real))


class ExplorationReward(ModelBased):
    """Two optima of the empirical model: of the rewards, Qr, and of a reward of exploration, Qe. See the subclasses.

    Args:
        scale: by which the cost of a pair is divided; greater than zero.
        v_max: value in Qe of a pair never tried, units of the return; zero or greater.
        bonus_discount: discount of the exploration values, in [0, 1); None: that of the objective.
        explore_prob: probability of acting on Qe; None: greedy for the sum Qr + Qe.

    Raises:
        ValueError: a number outside its range. TypeError: no number.
    """

    scale: eqx.AbstractVar[float | Array]
    v_max: eqx.AbstractVar[float | Array]
    bonus_discount: eqx.AbstractVar[float | Array | None]
    explore_prob: eqx.AbstractVar[float | Array | None]
    joint: ClassVar[Any] = False

    def __check_init__(self) -> None:
        check_not_negative("v_max", self.v_max)
        check_above_zero("scale", self.scale)
        if self.explore_prob is not None:
            check_fraction("explore_prob", self.explore_prob)
        if self.bonus_discount is not None:
            expected = "a number from 0 up to, but not including, 1"
            check_that("bonus_discount", self.bonus_discount, lambda x: (x >= 0) & (x < 1), expected)

    @property
    def discount_of_bonus(self) -> Scalar | None:
        """`bonus_discount`."""
        return self.bonus_discount

    @abc.abstractmethod
    def cost(self, stats: Stats) -> Float[Array, "*pairs"]:
        """The cost of a pair that was used, before division by `scale`.

        Args:
            stats: of the pairs.
        """

    def local(self, stats: Stats, values: Float[Array, "*pairs K"]) -> Local:
        """The mean reward; -cost / scale, or `v_max` where a pair was never tried; the empirical rows."""
        del values
        bonus = jnp.where(stats.visits > 0, -self.cost(stats) / self.scale, self.v_max)
        return Local(stats.reward, bonus, stats.probs)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: object = None
    ) -> tuple[Greedy | Alternates, PyTree]:
        """Greedy for Qr + Qe, or `Alternates`."""
        del key, belief
        policy, state = self._planned(problem, state)
        if self.explore_prob is None:
            return policy, state
        split = self.split(problem, state)
        return Alternates(split.qe, split.qr, jnp.asarray(self.explore_prob, split.qr.dtype)), state

    def check_optimism(self, max_reward: float) -> None:
        """Warn where the sum does not favour what is untried: `v_max` below the largest reward of one step."""
        if self.explore_prob is None:
            warn_of_lost_optimism("v_max", self.v_max, max_reward)


class FrequencyBonus(ExplorationReward):
    """Pairs that were used often are avoided: the reward of exploration is -n / scale, n the visits of a pair.

    From [WS98], after [OIM08].

        Qr = mean reward + discount sum_y N(y) / n max Qr(y, .)
        Qe = -n / scale + bonus_discount sum_y N(y) / n max Qe(y, .)

    The two optima are separate; the agent is greedy for Qr + Qe. A pair that was never tried has Qr = 0, Qe = `v_max`;
    no other has a reward of exploration above zero, so that Qe always prefers it, and the sum does where `v_max` is
    large enough. An end has value 0, above every used pair in Qe: alone, Qe prefers ends.

    Args:
        scale: visits that cost one unit of the reward.
        v_max: value in Qe of a pair never tried, zero or greater; units of the return.
        bonus_discount: of Qe under `Discounted`, in [0, 1); None: that of the objective. Under `Episodic` it is the
            factor of every step of Qe; None: 1.
        explore_prob: None: greedy for the sum. A probability: greedy for Qe with it, drawn at every step, else for Qr.
        planner, replan: as in `ModelBased`.

    Raises:
        ValueError: a number outside its range.
    """

    scale: float | Array = 100.0
    v_max: float | Array = 100.0
    bonus_discount: float | Array | None = None
    explore_prob: float | Array | None = None

    def cost(self, stats: Stats) -> Float[Array, "*pairs"]:
        """n, the number of visits.

        Args:
            stats: of the pairs.
        """
        return stats.visits


class RecencyBonus(ExplorationReward):
    """Pairs that were used lately are avoided: the reward of exploration is -t / scale, t the step of the last use.

    From [WS98], after [OIM08].

        Qr = mean reward + discount sum_y N(y) / n max Qr(y, .)
        Qe = -t / scale + bonus_discount sum_y N(y) / n max Qe(y, .)

    Steps are counted from the beginning of the run, so that a reward of exploration changes only where its pair is
    used. A pair that was never tried has Qr = 0, Qe = `v_max`; no other has a reward of exploration above zero, so that
    Qe always prefers it.

    Args:
        scale: steps that cost one unit of the reward.
        v_max, bonus_discount, explore_prob, planner, replan: as in `FrequencyBonus`.

    Raises:
        ValueError: a number outside its range.
    """

    scale: float | Array = 1000.0
    v_max: float | Array = 100.0
    bonus_discount: float | Array | None = None
    explore_prob: float | Array | None = None

    def cost(self, stats: Stats) -> Float[Array, "*pairs"]:
        """t, the time of the last use.

        Args:
            stats: of the pairs.
        """
        return stats.last_use.astype(stats.visits.dtype)
