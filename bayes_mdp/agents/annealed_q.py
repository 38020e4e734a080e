"""Epsilon-greedy Q-learning whose epsilon falls: the semi-uniform exploration of the older comparisons ([OIM08])."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.policies import EpsilonGreedy
from bayes_mdp.agents.q_learning import EpsilonGreedyQ
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.mdp.validation import check_finite, check_fraction, check_that, is_concrete


class TimedTable(eqx.Module):
    """The state of `AnnealedQ`: q [*H S A] (-inf: illegal), and the steps seen."""

    q: Float[Array, "*H S A"]
    time: Float[Array, ""]


class AnnealedQ(eqx.Module):
    """`EpsilonGreedyQ` whose epsilon is epsilon 2^(-t / half_life) after t steps. The schedule is ours.

    Args:
        learning_rate: in [0, 1].
        epsilon: at first, in [0, 1].
        half_life: steps in which epsilon halves; infinity: it stays.
        initial_q: every entry at first.
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: a number outside its range.
    """

    learning_rate: float | Array = 0.1
    epsilon: float | Array = 1.0
    half_life: float | Array = 1000.0
    initial_q: float | Array = eqx.field(default=0.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_fraction("learning_rate", self.learning_rate)
        check_fraction("epsilon", self.epsilon)
        if is_concrete(self.initial_q):
            check_finite("initial_q", self.initial_q)
        expected = "a number greater than zero (infinity: epsilon stays)"
        check_that("half_life", self.half_life, lambda x: x > 0, expected)

    @property
    def _rule(self) -> Any:
        learning_rate: Any = self.learning_rate
        initial_q: Any = self.initial_q
        return EpsilonGreedyQ(learning_rate, 0.0, initial_q)

    def init(self, key: PRNGKeyArray, problem: Problem) -> TimedTable:
        """The first values.

        Raises:
            ValueError: the objective is the average reward, for which this rule is not defined.
        """
        return TimedTable(self._rule.init(key, problem), jnp.zeros(()))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: TimedTable, belief: Any = None
    ) -> tuple[EpsilonGreedy, TimedTable]:
        """Epsilon-greedy for the table."""
        del key, problem, belief
        return EpsilonGreedy(state.q, self.epsilon * 2.0 ** (-state.time / self.half_life)), state

    def observe(self, problem: Problem, state: TimedTable, transition: Transitions, weight: Any = 1.0) -> TimedTable:
        """The table after one step of Q-learning; unchanged where `weight` is 0."""
        q = self._rule.observe(problem, state.q, transition, weight)
        return TimedTable(q, state.time + (jnp.asarray(weight) != 0))
