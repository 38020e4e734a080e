"""Ties at random: a learner that meets the actions of every state in an order of its own, drawn for every run.

Our policies give a tie to the first action. In Chain that is the action that pays, in Loop the one that does not, and a
method that never tries the second would look very good in one and very bad in the other ([OIM08] does not mention
ties).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.learner import ChecksLearnt
from bayes_mdp.agents.common.replan import ReplanRule
from bayes_mdp.mdp import Problem, Transitions


class Shuffled(eqx.Module):
    """The state of `RandomTies`: order [S A], the action of the environment behind each of the learner's; its state."""

    order: Int[Array, "S A"]
    inner: Any


class ShuffledPolicy(eqx.Module):
    """A policy over the learner's actions, as one over those of the environment."""

    order: Int[Array, "S A"]
    inner: Any

    def act(self, key: PRNGKeyArray, state: Any, step: Any = 0) -> Int[Array, ""]:
        """An action of the environment."""
        return self.order[state, self.inner.act(key, state, step)]

    def log_prob(self, state: Any, action: Any, step: Any = 0) -> Float[Array, ""]:
        """Log-probability of an action of the environment."""
        return self.inner.log_prob(state, jnp.argmax(self.order[state] == action), step)


class RandomTies(eqx.Module):
    """A learner with a belief of its own, behind a random order of the actions of every state. All must be legal.

    Args:
        agent: the learner.
    """

    agent: Any

    @property
    def replan(self) -> ReplanRule | None:
        """The learner's."""
        return self.agent.replan

    def init(self, key: PRNGKeyArray, problem: Problem) -> Shuffled:
        """A new order, and the learner's first state."""
        key_order, key_agent = jax.random.split(key)
        number, size = problem.space.n_states, problem.space.n_actions
        order = jax.vmap(lambda key: jax.random.permutation(key, size))(jax.random.split(key_order, number))
        return Shuffled(order, self.agent.init(key_agent, problem))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Shuffled, belief: Any = None
    ) -> tuple[ShuffledPolicy, Shuffled]:
        """The learner's plan."""
        policy, inner = self.agent.plan(key, problem, state.inner, belief)
        return ShuffledPolicy(state.order, policy), Shuffled(state.order, inner)

    def observe(self, problem: Problem, state: Shuffled, transition: Transitions, weight: Any = 1.0) -> Shuffled:
        """The learner's state after one transition; unchanged where `weight` is 0."""
        action = jnp.argmax(state.order[transition.state] == transition.action)
        observed = eqx.tree_at(lambda x: x.action, transition, action)
        return Shuffled(state.order, self.agent.observe(problem, state.inner, observed, weight))

    def check_learnt(self, state: Shuffled) -> None:
        """The learner's warning. (Its `check_optimism` is left out: the constants of the tables are meant.)"""
        if isinstance(self.agent, ChecksLearnt):
            self.agent.check_learnt(state.inner)
