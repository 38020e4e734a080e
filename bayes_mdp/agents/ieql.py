"""IEQL+: global interval estimation with Q-learning (Meuleau and Bourgine 1999), as far as it can be reconstructed.

SPEC 2.17 of the project, low confidence: the original was not available, and no fidelity to it is claimed.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.learner import first_table, moved_towards, place_of, table_shape
from bayes_mdp.agents.optimism import check_inside, effective_horizon, warn_of_lost_optimism
from bayes_mdp.agents.policies import Greedy
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.mdp import Objective, Problem, Transitions
from bayes_mdp.mdp.validation import (
    check_finite,
    check_fraction,
    check_not_negative,
    check_positive,
    is_concrete,
    require,
)


def local_uncertainty(visits: Any, *, theta: Any, sigma_max: Any, horizon: Any) -> Any:
    """d0 = z sigma_max / (horizon sqrt(n)), z the upper theta / 2 quantile of a standard normal law.

    Args:
        visits: n, from 1 on.
        theta: level of the interval, between 0 and 1.
        sigma_max: bound on the standard deviation of a return.
        horizon: 1 / (1 - discount), so that d0 is in units of the reward.
    """
    return norm.isf(jnp.asarray(theta, float) / 2.0) * sigma_max / (horizon * jnp.sqrt(visits))


class UpperTable(eqx.Module):
    """The state of `IEQLPlus`: upper values q [*H S A] (-inf: illegal) and visits [*H S A]."""

    q: Float[Array, "*H S A"]
    visits: Float[Array, "*H S A"]


class IEQLPlus(eqx.Module):
    """IEQL+, after SPEC 2.17: the original was not available, and no fidelity is claimed.

    q(s, a) <- q(s, a) + alpha (r + d0 + discount max_b q(s', b) - q(s, a)), d0 = `local_uncertainty` at the n-th visit,
    alpha = learning_rate / n^rate_power; greedy. Nothing follows an end. Under `Episodic(H)` the table has a step axis
    and H stands where 1 / (1 - discount) does.

    Args:
        theta: level of the interval; smaller explores more.
        sigma_max: bound on the standard deviation of a return; None: (max_reward - min_reward) / (1 - discount).
        max_reward, min_reward: bounds on the reward of one step.
        learning_rate: of the first visit, in [0, 1].
        rate_power: 0: the rate is constant; 1 with a `learning_rate` of 1: it is 1 / n.
        initial_value: of every entry; None: max_reward / (1 - discount) + z sigma_max, where every d0 is that of n = 1.
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: a number outside its range.
    """

    theta: float | Array = 0.05
    sigma_max: float | Array | None = None
    max_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    min_reward: float | Array = eqx.field(default=0.0, kw_only=True)
    learning_rate: float | Array = eqx.field(default=0.1, kw_only=True)
    rate_power: float | Array = eqx.field(default=0.0, kw_only=True)
    initial_value: float | Array | None = eqx.field(default=None, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_inside("theta", self.theta)
        check_fraction("learning_rate", self.learning_rate)
        check_not_negative("rate_power", self.rate_power)
        for name in ("max_reward", "min_reward"):
            if is_concrete(getattr(self, name)):
                check_finite(name, getattr(self, name))
        if self.initial_value is not None and is_concrete(self.initial_value):
            check_finite("initial_value", self.initial_value)
        if self.sigma_max is not None and is_concrete(self.sigma_max):
            check_positive("sigma_max", self.sigma_max)
        if is_concrete(self.max_reward, self.min_reward):
            largest = np.asarray(self.max_reward)
            require(~(largest > self.min_reward), "max_reward", largest, f"more than min_reward, {self.min_reward}")

    def check_optimism(self, max_reward: float) -> None:
        """Warn where optimism is lost: `max_reward` below the largest reward of one step."""
        warn_of_lost_optimism("max_reward", self.max_reward, max_reward)

    def _uncertainty(self, objective: Objective, visits: Any) -> Any:
        horizon = effective_horizon(objective, "IEQLPlus")
        widest = (self.max_reward - self.min_reward) * horizon
        sigma_max = widest if self.sigma_max is None else self.sigma_max
        return local_uncertainty(visits, theta=self.theta, sigma_max=sigma_max, horizon=horizon)

    def init(self, key: PRNGKeyArray, problem: Problem) -> UpperTable:
        """The first values, no visits.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        objective = problem.objective
        ceiling = effective_horizon(objective, "IEQLPlus") * (self.max_reward + self._uncertainty(objective, 1.0))
        value = ceiling if self.initial_value is None else self.initial_value
        return UpperTable(first_table(problem, value, "IEQLPlus"), jnp.zeros(table_shape(problem, "IEQLPlus")))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: UpperTable, belief: Any = None
    ) -> tuple[Greedy, UpperTable]:
        """Greedy for the upper values."""
        del key, problem, belief
        return Greedy(state.q), state

    def observe(self, problem: Problem, state: UpperTable, transition: Transitions, weight: Any = 1.0) -> UpperTable:
        """The table after one transition; unchanged where `weight` is 0 (another weight counts as one)."""
        here, there, over, discount = place_of(problem, transition)
        seen = jnp.asarray(weight) != 0
        visits = state.visits[here] + 1.0
        upper = jnp.asarray(transition.reward) + self._uncertainty(problem.objective, visits)
        target = upper + discount * jnp.where(over, 0.0, jnp.max(state.q[there]))
        rate = self.learning_rate / visits**self.rate_power
        return UpperTable(moved_towards(state.q, here, target, rate, seen), state.visits.at[here].add(seen))
