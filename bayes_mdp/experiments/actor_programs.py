"""The compiled half of an `Actor`: learn from a buffer, plan, write the actions of the next steps into a table.

A table has one action for every state and every step until the next plan, `policy.act(key of the step, state, step)`.
Only one state of a row is visited, and rows have keys of their own: the actions that are taken have the exact law of
the policy, whatever it is, and no random number is drawn on the host. The keys are those of a compiled run.

All arguments are flat lists of leaves: to flatten a tree of records at every call would cost more than the call.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, UInt32

from bayes_mdp.agents import Learner
from bayes_mdp.experiments.rollout.run_beliefs import Refits, on_device
from bayes_mdp.experiments.rollout.time_loop import (
    RngKeys,
    account_block,
    make_plan,
    observe_block,
    streams,
    take_action,
)
from bayes_mdp.experiments.run_config import AgentState, BeliefTree
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.mdp import Agent, CanUpdate, Episodic, KeepsAccount, Policy, Problem, Transitions
from bayes_mdp.mdp.agent import DecisionPoint
from bayes_mdp.random.threefry import fused_key
from bayes_mdp.utils.typing import AnyArray, IntScalar

MOST_BUFFERED = 256
MOST_ACTIONS = 65_536  # of a table

Leaves: TypeAlias = list[PyTree]
"""The leaves of a tree: arrays, and keys."""

Structure: TypeAlias = Hashable
"""The structure of a tree: `Leaves` and `Structure` are the tree."""

Words: TypeAlias = UInt32[AnyArray, "2"]
"""The words of a key."""

Clock: TypeAlias = Int[AnyArray, " B1"]
"""Time of the rule, then that of each of the environments (one or more)."""

Place: TypeAlias = Int[AnyArray, "2"]
"""State and step of the next action."""

Table: TypeAlias = Int[AnyArray, "*num_envs K S"]
"""Actions of K steps, in every state."""


class Buffer(NamedTuple):
    """A buffer of transitions; those from `length` on are masked.

    Args:
        columns: Int[4 N], step of the episode, state, action, outcome (S: the end).
        reward: Float[N].
        length: number of transitions.
    """

    columns: Int[AnyArray, "4 N"]
    reward: Float[AnyArray, " N"]
    length: IntScalar


class Programs(NamedTuple):
    """Compiled functions of (leaves, ...), shared by all actors of one structure.

    Args:
        plan: (leaves, buffer, words, clock, place) -> (changed leaves, policy, table); clock: Int[1 + B],
            time, then that of each environment; place: Int[2], the state (S: none) and step of the next action.
        learn: (leaves, buffer) -> changed leaves.
        act: (leaves, policy, words, clock) -> table.
        num_fixed: the leaves from this one on change: belief and state of the agent.
    """

    plan: Callable[[Leaves, Buffer, Words, Clock, Place], tuple[Leaves, Policy, Table]]
    learn: Callable[[Leaves, Buffer], Leaves]
    act: Callable[[Leaves, Policy, Words, Clock], Table]
    num_fixed: int


@partial(jax.jit, static_argnums=0)
def begin(structure: Structure, leaves: Leaves, words: Words) -> AgentState:
    """The state of an agent before any plan; `leaves` are those of (agent, problem)."""
    agent, problem = jax.tree.unflatten(structure, leaves)
    return agent.init(_streams(words).init, problem)


@lru_cache(maxsize=128)
def programs(structure: Structure, num_fixed: int, num_envs: int | None, num_rows: int) -> Programs:
    """The programs for trees (agent, problem, belief, state) of one structure; cached, so that they are compiled once.

    Args:
        structure: of the tree.
        num_fixed: leaves of (agent, problem).
        num_envs: number of parallel environments, None: one, without an axis.
        num_rows: K, rows of a table [K S] or [num_envs K S].
    """

    def mutable_leaves(belief: BeliefTree, state: AgentState) -> Leaves:
        return jax.tree.leaves((belief, state))

    def learn(leaves: Leaves, buffer: Buffer) -> Leaves:
        agent, problem, belief, state = jax.tree.unflatten(structure, leaves)
        return mutable_leaves(*_learn(agent, problem, belief, state, buffer))

    def act(leaves: Leaves, policy: Policy, words: Words, clock: Clock) -> Table:
        return _table(policy, jax.tree.unflatten(structure, leaves)[1], words, clock, num_envs, num_rows)

    # One program learns from the buffer, plans and fills the table: the belief never leaves the device in between.
    def plan(leaves: Leaves, buffer: Buffer, words: Words, clock: Clock, place: Place) -> tuple[Leaves, Policy, Table]:
        agent, problem, belief, state = jax.tree.unflatten(structure, leaves)
        belief, state = _learn(agent, problem, belief, state, buffer)
        key = jax.random.fold_in(_streams(words).plan, clock[0])
        policy, state = make_plan(agent, key, problem, state, belief, DecisionPoint(place[0], place[1]))
        return mutable_leaves(belief, state), policy, _table(policy, problem, words, clock, num_envs, num_rows)

    return Programs(jax.jit(plan), jax.jit(learn), jax.jit(act), num_fixed)


def _streams(words: Words) -> RngKeys:
    return streams(fused_key(jax.random.wrap_key_data(jnp.asarray(words))))


def _learn(
    agent: Agent, problem: Problem, belief: CanUpdate | None, state: AgentState, buffer: Buffer
) -> tuple[CanUpdate | None, AgentState]:
    """(belief, state of the agent) after the data of a buffer."""
    step, start, action, outcome = jnp.asarray(buffer.columns)
    last = problem.space.n_states
    # The end has index S, which no table has a row for: clipped, and flagged by `terminated`.
    terminated = outcome == last if problem.space.ends else None
    next_state = jnp.minimum(outcome, last - 1)
    step_of_episode = step if isinstance(problem.objective, Episodic) else None
    data = Transitions(start, action, jnp.asarray(buffer.reward), next_state, terminated, None, step_of_episode)
    if isinstance(agent, Learner):
        return belief, observe_block(agent, problem, state, data, _weight(buffer))
    assert belief is not None
    if isinstance(agent, KeepsAccount):
        state = account_block(agent, problem, state, data, _weight(buffer))
    if isinstance(belief, ConjugatePosterior):
        learnt = _one_by_one(belief, data, buffer.length)
    else:
        learnt = belief.update(data, _weight(buffer))
    if jax.tree.structure(learnt) != jax.tree.structure(belief):
        raise TypeError(f"{type(belief).__name__}.update changes its structure, expected arrays like those before")
    return learnt, state


def _weight(buffer: Buffer) -> Float[Array, " N"]:
    """1 for the transitions of the buffer, 0 beyond them."""
    return (jnp.arange(len(buffer.reward)) < buffer.length).astype(buffer.reward.dtype)


def _one_by_one(belief: ConjugatePosterior, data: Transitions, count: IntScalar) -> ConjugatePosterior:
    """`belief` after the first `count` transitions: on CPU, updates in place cost less than one scatter of a buffer.

    The leading axis of one keeps them in place (XLA would copy the tables otherwise).
    """

    def update(i: Int[Array, ""], belief: ConjugatePosterior) -> ConjugatePosterior:
        transition = jax.tree.map(lambda x: x[i][None], data)
        return jax.vmap(lambda b, x: b.update(x))(belief, transition)

    lifted = jax.tree.map(lambda x: x[None], belief)
    return jax.tree.map(lambda x: x[0], lax.fori_loop(0, count, update, lifted))


def _table(policy: Policy, problem: Problem, words: Words, clock: Clock, num_envs: int | None, num_rows: int) -> Table:
    """Actions [K S] (or [num_envs K S]) from the time of each environment on."""
    clock = jnp.asarray(clock)
    states, objective = jnp.arange(problem.space.n_states), problem.objective
    key = _streams(words).act

    def row(key: Key[Array, ""], time: Int[Array, ""]) -> Int[Array, " S"]:
        step = time % objective.horizon if isinstance(objective, Episodic) else jnp.zeros_like(time)
        # One key for all states of a row, as in a compiled run: the action in the state that is visited is the same.
        return jax.vmap(lambda s: take_action(policy, jax.random.fold_in(key, time), s, step))(states)

    def one_env(key: Key[Array, ""], first: Int[Array, ""]) -> Int[Array, "K S"]:
        return jax.vmap(partial(row, key))(first + jnp.arange(num_rows)).astype(jnp.int32)

    if num_envs is None:
        return one_env(key, clock[1])
    # Environments share the plan and draw their actions from keys of their own.
    return jax.vmap(lambda b: one_env(jax.random.fold_in(key, b), clock[1 + b]))(lax.iota(jnp.int32, num_envs))


class ActorCore:
    """Belief and plan of an agent; compiled calls happen in `plan`, `refill` and when the buffer is full.

    Args:
        agent, problem, belief: as in a compiled run (belief None: for agents with a belief of their own).
        key: a typed key; its streams are those of one seed of a compiled run.
        num_envs: number of parallel environments, None: one, whose actions are scalars.
        period: steps until the next plan, where that is known or likely: decides sizes only.
    """

    def __init__(
        self,
        agent: Agent,
        problem: Problem,
        belief: CanUpdate | None,
        *,
        key: PRNGKeyArray,
        num_envs: int | None,
        period: int,
    ) -> None:
        # The agent and the problem come first in the list of leaves, so that a plan replaces the rest of it alone.
        fixed, changing = on_device((agent, problem)), on_device(belief)
        leaves, structure = jax.tree.flatten(fixed)
        self._words = jax.device_put(np.asarray(jax.random.key_data(key)))
        state = begin(structure, leaves, self._words)
        self._leaves, self._structure = jax.tree.flatten((*fixed, changing, state))
        n_states, width = problem.space.n_states, num_envs or 1
        # A table that is refilled costs a call; one that is longer than the period is partly computed for nothing.
        self.num_rows = max(1, min(-(-period // width), MOST_ACTIONS // (n_states * width)))
        # All environments add to one buffer at a step: the last step before a plan may go beyond the period by that
        # many.
        self._size = min(period, MOST_BUFFERED) + width - 1
        self._programs = programs(self._structure, len(leaves), num_envs, self.num_rows)
        self._owns_belief = belief is None
        alone, rest = eqx.partition(changing, eqx.is_array)
        self.refits = Refits(key[None], alone, rest)
        self._dtype = jax.dtypes.canonicalize_dtype(float)
        self._table: Int[np.ndarray, "*num_envs K S"] | None = None
        self.policy: Policy | None = None
        self._empty()

    def _empty(self) -> None:
        # New arrays: the old ones may still be read by a call.
        self._columns = np.zeros((4, self._size), np.int32)
        self._reward = np.zeros(self._size, self._dtype)
        self._count = 0

    def add(self, step: int, state: int, action: int, outcome: int, reward: float) -> None:
        """Keep a transition until the next plan; a full buffer is learnt from at once."""
        if self._count == self._size:
            self._leaves = self._state_leaves()
            self._empty()
        i, columns = self._count, self._columns
        columns[0, i], columns[1, i], columns[2, i], columns[3, i] = step, state, action, outcome
        self._reward[i] = reward
        self._count = i + 1

    def _buffer(self) -> Buffer:
        return Buffer(self._columns, self._reward, self._count)

    def _state_leaves(self) -> Leaves:
        return [*self._leaves[: self._programs.num_fixed], *self._programs.learn(self._leaves, self._buffer())]

    def plan(self, time: int, env_times: list[int], place: tuple[int, int]) -> None:
        """Learn from what is buffered, infer anew a belief whose draws have degenerated, plan, fill the table.

        Args:
            time: of the rule.
            env_times: of the environments.
            place: state (S: none) and step of the next action, for agents that plan for one state.
        """
        if self.refits.needed:
            self._renew(time)
        # One call: learn, plan, fill the table.
        clock = np.array([time, *env_times], np.int32)
        mutable_leaves, self.policy, table = self._programs.plan(
            self._leaves, self._buffer(), self._words, clock, np.array(place, np.int32)
        )
        self._leaves[self._programs.num_fixed :] = mutable_leaves
        # On the host, where an action is one look-up.
        self._table = np.asarray(table)
        self._empty()

    def _renew(self, time: int) -> None:
        # The belief that is judged must hold all data.
        if self._count:
            self._leaves = self._state_leaves()
            self._empty()
        # `Refits` is for the beliefs of many seeds: here an axis of one.
        agent, problem, belief, state = jax.tree.unflatten(self._structure, self._leaves)
        renewed, due = self.refits.renew(jax.tree.map(lambda x: np.asarray(x)[None], belief), time)
        if due.any():
            self._leaves = jax.tree.leaves((agent, problem, jax.tree.map(lambda x: x[0], renewed), state))

    def refill(self, time: int, env_times: list[int]) -> None:
        """Actions of the same plan from `env_times` on."""
        assert self.policy is not None
        clock = np.array([time, *env_times], np.int32)
        self._table = np.asarray(self._programs.act(self._leaves, self.policy, self._words, clock))

    def action(self, *where: int) -> int:
        """The entry (environment,) row, state of the table."""
        assert self._table is not None
        return self._table.item(*where)

    @property
    def belief(self) -> BeliefTree:
        """The posterior (or the state of the agent), buffered data included, without a change of either."""
        leaves = self._state_leaves() if self._count else self._leaves
        return jax.tree.unflatten(self._structure, leaves)[3 if self._owns_belief else 2]
