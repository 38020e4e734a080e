"""Q-learning from optimistic initial values (OIV): what is not yet tried looks as good as anything can be.

One of the rivals of [OIM08] (Szita and Lorincz, *The Many Faces of Optimism*, ICML 2008); SPEC 2.14 of the project.
"""

import warnings
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.learner import first_table
from bayes_mdp.agents.optimism import effective_horizon
from bayes_mdp.agents.policies import Greedy, check_fraction
from bayes_mdp.agents.q_learning import EpsilonGreedyQ
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.mdp import Objective, Problem, Transitions
from bayes_mdp.mdp.validation import check_finite, is_concrete


class OptimisticQ(eqx.Module):
    """Greedy Q-learning whose table starts at V_max; nothing else explores.

    Args:
        max_reward: R_max, the largest reward of one step.
        v_max: the first value of every entry; None: R_max / (1 - discount), or R_max H under `Episodic(H)`, which no
            return exceeds.
        learning_rate: in (0, 1].
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: a number outside its range. It warns (UserWarning) where `v_max` lies below `max_reward`.
    """

    max_reward: float | Array = 1.0
    v_max: float | Array | None = None
    learning_rate: float | Array = eqx.field(default=0.1, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_fraction("learning_rate", self.learning_rate)
        if is_concrete(self.max_reward):
            check_finite("max_reward", self.max_reward)
        if self.v_max is None or not is_concrete(self.v_max, self.max_reward):
            return
        check_finite("v_max", self.v_max)
        if np.any(np.asarray(self.v_max) < np.asarray(self.max_reward)):
            text = (
                f"v_max is {self.v_max}, less than {self.max_reward}, the largest reward of one step: optimism is lost"
            )
            warnings.warn(text, UserWarning, stacklevel=3)

    def first_value(self, objective: Objective) -> Float[Array, ""]:
        """V_max.

        Raises:
            ValueError: `v_max` is None, and the objective neither `Discounted` nor `Episodic`.
        """
        if self.v_max is not None:
            return jnp.asarray(self.v_max, float)
        return jnp.asarray(self.max_reward * effective_horizon(objective, "OptimisticQ without v_max"), float)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Float[Array, "*H S A"]:
        """The table at first, -inf where an action is illegal.

        Raises:
            ValueError: the objective is the average reward, or has no horizon and `v_max` is None.
        """
        del key
        return first_table(problem, self.first_value(problem.objective), "OptimisticQ")

    def plan(self, key: PRNGKeyArray, problem: Problem, state: Any, belief: Any = None) -> tuple[Greedy, Any]:
        """Greedy for the table."""
        del key, problem, belief
        return Greedy(state), state

    def observe(
        self, problem: Problem, state: Float[Array, "*H S A"], transition: Transitions, weight: Any = 1.0
    ) -> Float[Array, "*H S A"]:
        """The table after one step of Q-learning; unchanged where `weight` is 0."""
        return EpsilonGreedyQ(self.learning_rate, 0.0).observe(problem, state, transition, weight)  # pyright: ignore[reportArgumentType]
