"""Epsilon-greedy Q-learning (Watkins 1989): the baseline without a belief about the MDP."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.learner import first_table, moved_towards, place_of
from bayes_mdp.agents.policies import EpsilonGreedy
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.mdp.validation import check_finite, check_fraction, is_concrete


class EpsilonGreedyQ(eqx.Module):
    """Q-learning with a constant learning rate; actions are epsilon-greedy. It carries its own belief: the table q.

    q(s, a) <- q(s, a) + learning_rate (r + discount max_a' q(s', a') - q(s, a)); nothing follows an end. Under
    `Episodic(H)` the table has a step axis, the target of step h is taken from step h + 1, and nothing follows step H.

    Args:
        learning_rate: in (0, 1].
        epsilon: in [0, 1].
        initial_q: every entry at first; optimistic where it is large.
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: a number outside its range.
    """

    learning_rate: float = 0.1
    epsilon: float = 0.1
    initial_q: float = 0.0
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule)

    def __check_init__(self) -> None:
        check_fraction("learning_rate", self.learning_rate)
        check_fraction("epsilon", self.epsilon)
        if is_concrete(self.initial_q):
            check_finite("initial_q", self.initial_q)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Float[Array, "*H S A"]:
        """The table at first, -inf where an action is illegal.

        Raises:
            ValueError: the objective is the average reward, for which this rule is not defined.
        """
        del key
        return first_table(problem, self.initial_q, "Q-learning")

    def plan(self, key: PRNGKeyArray, problem: Problem, state: Any, belief: Any = None) -> tuple[EpsilonGreedy, Any]:
        """Epsilon-greedy for the table."""
        del key, problem, belief
        return EpsilonGreedy(state, self.epsilon), state

    def observe(
        self, problem: Problem, state: Float[Array, "*H S A"], transition: Transitions, weight: Any = 1.0
    ) -> Float[Array, "*H S A"]:
        """The table after one transition; unchanged where `weight` is 0."""
        here, there, over, discount = place_of(problem, transition)
        target = jnp.asarray(transition.reward) + discount * jnp.where(over, 0.0, jnp.max(state[there]))
        return moved_towards(state, here, target, self.learning_rate, weight)
