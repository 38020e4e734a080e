"""Q-learning from optimistic initial values (OIV): what is not yet tried looks as good as anything can be.

One of the rivals of [OIM08] (Szita and Lorincz, *The Many Faces of Optimism*, ICML 2008); SPEC 2.14 of the project.
"""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.learner import first_table
from bayes_mdp.agents.optimism import check_value, warn_of_lost_optimism
from bayes_mdp.agents.policies import Greedy
from bayes_mdp.agents.q_learning import EpsilonGreedyQ
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.mdp.validation import check_fraction


class OptimisticQ(eqx.Module):
    """Greedy Q-learning whose table starts at V_max; nothing else explores.

    Args:
        v_max: the first value of every entry, units of the return: R_max / (1 - discount), or R_max H under
            `Episodic(H)`, is exceeded by no return.
        learning_rate: in (0, 1].
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: a number outside its range.
    """

    v_max: float | Array = 100.0
    learning_rate: float | Array = 0.1
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule)

    def __check_init__(self) -> None:
        check_fraction("learning_rate", self.learning_rate)
        check_value("v_max", self.v_max)

    def check_optimism(self, max_reward: float) -> None:
        """Warn where optimism is lost: `v_max` below the largest reward of one step."""
        warn_of_lost_optimism("v_max", self.v_max, max_reward)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Float[Array, "*H S A"]:
        """The table at first, -inf where an action is illegal.

        Raises:
            ValueError: the objective is the average reward.
        """
        del key
        return first_table(problem, self.v_max, "OptimisticQ")

    def plan(self, key: PRNGKeyArray, problem: Problem, state: Any, belief: Any = None) -> tuple[Greedy, Any]:
        """Greedy for the table."""
        del key, problem, belief
        return Greedy(state), state

    def observe(
        self, problem: Problem, state: Float[Array, "*H S A"], transition: Transitions, weight: Any = 1.0
    ) -> Float[Array, "*H S A"]:
        """The table after one step of Q-learning; unchanged where `weight` is 0."""
        return EpsilonGreedyQ(self.learning_rate, 0.0).observe(problem, state, transition, weight)  # pyright: ignore[reportArgumentType]
