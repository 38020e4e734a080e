# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`Actor`: an agent that acts step by step in any loop, with one compiled call per plan and plain numbers between.

Replanning rules decide on the host as the compiled `due` does, without a compiled call at every step. The definition of
a rule is not repeated here: its times are its own (`period`, `times()`), and so is the criterion of `Doubling`
(`reached`, evaluated for the one pair that was visited). On the host time can jump: that of parallel environments is
their sum, and an episode of `Episodic(H)` that ends early takes H steps. A plan is due if one was due at any time since
the last one.

What is compiled comes first (`programs`): learn from a buffer, plan, write the actions of the next steps into a table.
A table has one action for every state and every step until the next plan, `policy.act(key of the step, state, step)`.
Only one state of a row is visited, and rows have keys of their own: the actions that are taken have the exact law of
the policy, whatever it is, and no random number is drawn on the host. The keys are those of a compiled run. All
arguments are flat lists of leaves: to flatten a tree of records at every call would cost more than the call.
"""

import abc
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, UInt32

from bayes_mdp.agents import Learner
from bayes_mdp.agents.common.learner import ChecksLearnt
from bayes_mdp.agents.common.replan import (
    Doubling,
    EveryEpisode,
    EveryLearnedEpisode,
    EverySteps,
    Geometric,
    ReplanRule,
    as_rule,
    period_of,
    rule_for,
)
from bayes_mdp.agents.model_free.trial_learning import EpisodeLearner
from bayes_mdp.experiments.rollout.run_beliefs import Refits, initial_belief, learnable_rewards, on_device, thin
from bayes_mdp.experiments.rollout.time_loop import (
    RngKeys,
    make_plan,
    observe_block,
    streams,
    take_action,
)
from bayes_mdp.experiments.run_config import (
    NUM_PARTICLES,
    AgentState,
    BeliefTree,
    PriorLike,
    check_agent,
    check_prior_space,
)
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.mdp import (
    Agent,
    AverageReward,
    CanUpdate,
    Episodic,
    KeepsAccount,
    Objective,
    PlansFromState,
    Policy,
    Problem,
    ReplanContext,
    StateActionSpace,
    Transitions,
)
from bayes_mdp.mdp.agent import DecisionPoint
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_horizon, check_space
from bayes_mdp.models.reward_support import RewardSupport
from bayes_mdp.random.threefry import fused_key, plain_key
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar
from bayes_mdp.utils.validation import as_index, check_initial, check_key, check_shape

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

    def learn(leaves: Leaves, buffer: Buffer) -> Leaves:
        agent, problem, belief, state = jax.tree.unflatten(structure, leaves)
        return jax.tree.leaves(_learn(agent, problem, belief, state, buffer))

    def act(leaves: Leaves, policy: Policy, words: Words, clock: Clock) -> Table:
        return _table(policy, jax.tree.unflatten(structure, leaves)[1], words, clock, num_envs, num_rows)

    # One program learns from the buffer, plans and fills the table: the belief never leaves the device in between.
    def plan(leaves: Leaves, buffer: Buffer, words: Words, clock: Clock, place: Place) -> tuple[Leaves, Policy, Table]:
        agent, problem, belief, state = jax.tree.unflatten(structure, leaves)
        belief, state = _learn(agent, problem, belief, state, buffer)
        key = jax.random.fold_in(_streams(words).plan, clock[0])
        policy, state = make_plan(agent, key, problem, state, belief, DecisionPoint(place[0], place[1]))
        leaves = jax.tree.leaves((belief, state))
        return leaves, policy, _table(policy, problem, words, clock, num_envs, num_rows)

    return Programs(jax.jit(plan), jax.jit(learn), jax.jit(act), num_fixed)


def _streams(words: Words) -> RngKeys:
    return streams(fused_key(jax.random.wrap_key_data(jnp.asarray(words))))


def _learn(
    agent: Agent[Any], problem: Problem, belief: CanUpdate | None, state: AgentState, buffer: Buffer
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
        state = observe_block(agent, problem, state, data, _weight(buffer))
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
        agent: Agent[Any],
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

    def _state_leaves(self) -> Leaves:
        buffer = Buffer(self._columns, self._reward, self._count)
        return [*self._leaves[: self._programs.num_fixed], *self._programs.learn(self._leaves, buffer)]

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
        buffer, clock = Buffer(self._columns, self._reward, self._count), np.array([time, *env_times], np.int32)
        mutable_leaves, self.policy, table = self._programs.plan(
            self._leaves, buffer, self._words, clock, np.array(place, np.int32)
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


_UNKNOWN_PERIOD = 32
MOST_REWARDS_SEEN = 65_536
"""Rewards that were compared with the belief and are remembered."""


class ActorChecks:
    """Checks of states, actions and transitions, in plain numbers (about a microsecond each)."""

    def __init__(self, space: StateActionSpace, held: RewardSupport | None = None) -> None:
        """Checks for a space, and for a belief that holds the rewards `held` (None: all numbers)."""
        # The constant parts are kept as attributes: a check at every step must not ask the space again.
        self._held, self._space = held, space
        self._rewards_seen: set[tuple[float, ...]] = set()
        self._n_states, self._n_actions, self._ends = space.n_states, space.n_actions, space.ends
        self._by_step, self._legal, self._support = space.horizon is not None, space.legal, space.support
        self._successors = space.successors
        self._masked = any(x is not None for x in (space.legal, space.support, space.successors))

    def cell(self, step: int, state: int, action: int) -> int:
        """Position of a pair in a flat list of visits."""
        return ((step * self._n_states if self._by_step else 0) + state) * self._n_actions + action

    def state(self, value: object, name: str) -> int:
        """The index of a state.

        Raises:
            TypeError: no integer. ValueError: out of range.
        """
        return as_index(name, value, self._n_states, "a state")

    def transition(
        self, step: int, observation: object, action: object, reward: object, next_observation: object
    ) -> tuple[int, int, float, int]:
        """State, action, reward and outcome (S: the end) of a transition.

        Args:
            step: of the episode.
            observation, action, reward: as observed.
            next_observation: None: the transition terminated.

        Raises:
            TypeError, ValueError: one sentence about the argument at fault.
        """
        state = self.state(observation, "observation")
        chosen = as_index("action", action, self._n_actions, "an action")
        try:
            number = float(reward)  # pyright: ignore[reportArgumentType] - refused below
        except (TypeError, ValueError) as error:
            raise TypeError(f"reward is {reward!r}, expected a number") from error
        if not isfinite(number):
            raise ValueError(f"reward is {number}, expected a finite number")
        if next_observation is not None:
            outcome = self.state(next_observation, "next_observation")
        elif self._ends:
            outcome = self._n_states
        else:
            raise ValueError("terminated is True, expected a space with ends=True")
        if self._masked:
            self._check_masks(step, state, chosen, outcome)
        if self._held is not None:
            self._check_reward(self._held, step, state, chosen, outcome, number)
        return state, chosen, number, outcome

    def _check_reward(
        self, held: RewardSupport, step: int, state: int, action: int, outcome: int, reward: float
    ) -> None:
        """Refuse a reward that the belief cannot hold. Most rewards were seen before, and are looked up."""
        # Where all cells have one support, the reward alone decides.
        seen = (reward, step, state, action, outcome) if np.ndim(held.low) else (reward,)
        if seen in self._rewards_seen:
            return
        # A support is by pair, and by outcome where the law of rewards is.
        cell = (step, state, action) if self._by_step else (state, action)
        if self._successors is not None:
            outcome = int(self._space.place(tuple(map(np.asarray, cell)), np.asarray(outcome)))
        support = held.at(cell, outcome)
        if not support.holds(reward):
            pair = f"state {state}, action {action}"
            raise ValueError(f"reward is {reward:g} in {pair}, {support.expected(of_env=True)}")
        # A set that is full is kept as it is: rewards from a continuous law would fill the memory.
        if len(self._rewards_seen) < MOST_REWARDS_SEEN:
            self._rewards_seen.add(seen)

    def _check_masks(self, step: int, state: int, action: int, outcome: int) -> None:
        if self._legal is not None and not self._legal[state, action]:
            raise ValueError(f"action is {action}, expected a legal action of state {state}")
        listed = self._successors
        if listed is not None and outcome not in listed[(step, state, action)[-listed.ndim + 1 :]]:
            raise ValueError(
                f"next_observation is {outcome}, expected a listed successor of state {state}, action {action}"
            )
        support = self._support
        if support is not None and not support[(step, state, action, outcome)[-support.ndim :]]:
            raise ValueError(
                f"next_observation is {outcome}, expected an outcome in the known support of state {state}, "
                f"action {action}"
            )


def check_actor(
    agent: Agent[Any],
    space: StateActionSpace,
    objective: Objective,
    key: PRNGKeyArray,
    prior: object,
    initial: Float[AnyArray, " S"] | None,
) -> None:
    """Refuse arguments of an `Actor` (see there).

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    check_agent(agent)
    check_space(space)
    check_objective(objective)
    check_key("key", key)
    check_horizon(space, objective)
    if space.ends and isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected another, or a space with ends=False")
    if prior is None and not isinstance(agent, Learner):
        raise ValueError(f"prior is None, expected a prior or a posterior for {type(agent).__name__}")
    check_prior_space(prior, space)
    check_initial(initial, space.n_states)


def check_num_envs(agent: Agent[Any], num_envs: int | None) -> None:
    """Refuse several parallel environments for an agent of one: it would mix them.

    Raises:
        ValueError: one sentence.
    """
    if num_envs is None or num_envs == 1:
        return
    reasons = {EpisodeLearner: "learns from whole episodes", PlansFromState: "plans for the state it is in"}
    for ability, reason in reasons.items():
        if isinstance(agent, ability):
            raise ValueError(
                f"observation has {num_envs} parallel environments, expected one: {type(agent).__name__} {reason}"
            )


class Actor:
    """An agent that acts and learns step by step, on the host: `reset`, then `act` and `observe` in turn.

    It plans when the agent's rule `replan` says so, from the same belief and with the same random streams as a compiled
    `run`. Between two plans, actions are read from a table, and transitions are collected in a buffer. Under
    `Episodic(H)` the step of the episode is counted, an episode is over after H steps, and it counts as H steps for the
    rule even if it ends early.

    Observations are state indices: numbers, or arrays [B] of B parallel environments that share one belief. The first
    `reset` decides which. For B environments, the rule counts the steps of all of them together, and an episode begins
    for the rule when one begins in any of them.

    A belief by weighted draws whose effective sample size is low is refitted before the next plan, which takes seconds
    and is logged (INFO). A prior program that is inferred by draws is thinned to 64; for another number, or another
    method, pass `infer(...).thinned(key, number)` as the prior.

    Args:
        agent: an agent; its rule `replan` decides when it plans.
        space: sizes and masks, and whether a transition can end an episode (`ends`).
        objective: of the agent.
        key: a typed key.
        prior: a NumPyro program, or a posterior that can `update`. Agents with a belief of their own do not use it.
        initial: Float[S], where episodes start, for agents that plan with it; None: unknown.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.

    Example:
        >>> space = bm.StateActionSpace(2, 2)
        >>> actor = bm.Actor(
        ...     bm.agents.PSRL(),
        ...     space,
        ...     objective=bm.Discounted(0.9),
        ...     key=jax.random.key(0),
        ...     prior=bm.models.dirichlet_normal(),
        ... )
        >>> actor.reset(0)  # an episode begins in state 0
        >>> action = actor.act(0)
        >>> actor.observe(0, action, 0.5, 1, terminated=False, truncated=False)
        >>> int(actor.visits.sum())
        1
    """

    def __init__(
        self,
        agent: Agent[Any],
        space: StateActionSpace,
        *,
        objective: Objective,
        key: PRNGKeyArray,
        prior: PriorLike = None,
        initial: Float[AnyArray, " S"] | None = None,
    ) -> None:
        check_actor(agent, space, objective, key, prior, initial)
        self._agent, self._problem = agent, Problem(space, objective, initial)
        self._horizon = objective.horizon
        self._key = plain_key(key)
        rule = rule_for(as_rule(agent.replan), objective)
        # Always due, as in a run: a trial may be cut at any step. (Under Episodic a trial is an episode.)
        if isinstance(rule, EveryLearnedEpisode) and not isinstance(objective, Episodic):
            rule = EverySteps(1)
        self._belief: CanUpdate | None = None
        if not isinstance(agent, Learner):
            # The number after those of the streams: a key that no stream of the run uses.
            key = jax.random.fold_in(self._key, len(RngKeys._fields))
            belief = initial_belief(key, prior, space, agent)
            self._belief = thin(belief, prior, key, NUM_PARTICLES)
        self._rule = host_rule(rule)
        # The sizes of buffer and table follow from the period; without one, from the horizon.
        self._period = period_of(rule, objective) or self._horizon or _UNKNOWN_PERIOD
        self._stats = ReplanStats(space.shape)
        self._checks, self._ends = ActorChecks(space, learnable_rewards(self._belief)), space.ends
        # Of each environment: its time, that of the first row of its table, steps since a start, whether an episode is
        # in progress.
        self._times, self._table_times, self._steps = [0], [0], [0]
        self._live, self._changed = [False], True
        self._num_envs: int | None = None
        # Where the next action is needed, for agents that plan for one state.
        self._nowhere = self._place = self._planned_place = (space.n_states, 0)
        self._for_one_state = isinstance(agent, PlansFromState)
        self._core: ActorCore | None = None

    def reset(self, observation: ArrayLike, *, mask: ArrayLike | None = None) -> None:
        """A new episode begins.

        Args:
            observation: Int or Int[B], its first state.
            mask: Bool[B], the environments where it does (B environments only); None: all.

        Raises:
            ValueError, TypeError: an observation out of range, or of another shape than the first one.
        """
        if self._core is None:
            self._core = self._first(observation)
        if self._num_envs is None:
            self._checks.state(observation, "observation")
            self._start(0)
            return
        states = self._column("observation", observation)
        for env in self._where(mask):
            self._checks.state(states[env], f"observation[{env}]")
            self._start(env)

    def _first(self, observation: ArrayLike) -> ActorCore:
        shape = np.shape(observation)
        if len(shape) > 1 or shape == (0,):
            raise ValueError(f"observation has shape {shape}, expected a state, or one for each of B environments")
        self._num_envs = shape[0] if shape else None
        check_num_envs(self._agent, self._num_envs)
        # In place: the lists are the attributes, and from now on have an entry for each environment.
        for column in (self._times, self._table_times, self._steps, self._live):
            column *= self._num_envs or 1
        parts = (self._agent, self._problem, self._belief)
        return ActorCore(*parts, key=self._key, num_envs=self._num_envs, period=self._period)

    def _start(self, env: int) -> None:
        if self._live[env] and self._steps[env]:
            self._over(env)
        self._steps[env], self._live[env], self._changed = 0, True, True
        self._stats.starts += 1

    def _over(self, env: int) -> None:
        """The episode of an environment is over; under `Episodic` its time is advanced to H steps."""
        self._live[env] = False
        if self._horizon is not None:
            step = self._times[env] % self._horizon
            rest = self._horizon - step if step else 0
            # A rule may be due at a step that an early end has left out, as it would be in a compiled run.
            for time in self._rule.idle(self._stats, step, rest):
                self._plan(time)
            self._times[env] += rest
            self._stats.time += rest

    def act(self, observation: ArrayLike) -> int | Int[np.ndarray, " B"]:
        """The action in a state: a number, or Int[B].

        Args:
            observation: state of the environment: a number, or Int[B] where `reset` was given B of them.

        Raises:
            ValueError, TypeError: no episode goes on (where that of one of B environments is over, its action has no
                meaning); an observation out of range.
        """
        core = self._core
        if core is None or not (self._live[0] or self._num_envs):
            raise ValueError("act was called where no episode goes on, expected reset(observation) first")
        if self._num_envs is None:
            state = self._checks.state(observation, "observation")
            # Rules depend on counts and times alone: without a transition or a start none becomes due.
            if self._changed:
                self._place = state, 0 if self._horizon is None else self._times[0] % self._horizon
                self._plan_if_due()
                self._place = self._nowhere
            if self._for_one_state:
                self._plan_here(state)
            # The table begins at the time of the plan, or where it was filled last; beyond its end it is filled again.
            row = self._times[0] - self._table_times[0]
            if row >= core.num_rows:
                self._refill(core)
                row = 0
            return core.action(row, state)
        return self._act_all(core, observation)

    def _act_all(self, core: ActorCore, observation: ArrayLike) -> Int[np.ndarray, " B"]:
        column = self._column("observation", observation)
        states = [self._checks.state(s, f"observation[{env}]") for env, s in enumerate(column)]
        if self._changed and any(self._live):
            self._plan_if_due()
        if core.policy is None:
            raise ValueError("act was called where no episode goes on, expected reset(observation) first")
        # Environments of episodes that ended early have run ahead of the others: each has a row of its own in the
        # table.
        rows = [current - previous for current, previous in zip(self._times, self._table_times, strict=True)]
        if max(rows) >= core.num_rows:
            self._refill(core)
            rows = [0] * len(rows)
        action = core.action
        return np.array([action(env, rows[env], state) for env, state in enumerate(states)])

    def _plan_if_due(self) -> None:
        """Plan, if the rule is due (evaluated once after every change)."""
        assert self._core is not None
        stats = self._stats
        # The step of the youngest episode in progress: a rule of episodes is due where any of them has just begun.
        stats.step = min(step for step, live in zip(self._steps, self._live, strict=True) if live)
        self._changed = False
        time = self._rule.due(stats)
        if time is not None or self._core.policy is None:
            self._plan(stats.time if time is None else time)

    def _plan_here(self, state: int) -> None:
        """Plan anew where the plan in force is for another state, without a transition in between."""
        place = state, 0 if self._horizon is None else self._times[0] % self._horizon
        if place != self._planned_place:
            self._place = place
            self._plan(self._stats.time)
            self._place = self._nowhere

    def _plan(self, time: int) -> None:
        assert self._core is not None
        self._core.plan(time, self._times, self._place)
        self._planned_place = self._place
        self._table_times = list(self._times)
        self._stats.note_plan(time)
        self._rule.note_plan(self._stats)

    def _refill(self, core: ActorCore) -> None:
        core.refill(self._stats.time, self._times)
        self._table_times = list(self._times)

    def observe(
        self,
        observation: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        next_observation: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        *,
        mask: ArrayLike | None = None,
    ) -> None:
        """Learn from a transition.

        Terminated: the value beyond is zero; it counts as the end of the space, and `next_observation` is ignored. (At
        the last step of `Episodic(H)` the value beyond is zero in any case: a space without ends counts it as an
        ordinary transition.) Truncated: an ordinary transition, after which the episode is cut. `reset` follows both.

        Args:
            observation, action, reward, next_observation, terminated, truncated: numbers, or arrays [B].
            mask: Bool[B], the environments with a transition (B environments only); None: all.

        Raises:
            ValueError, TypeError: one sentence about the argument at fault.
        """
        if self._num_envs is None:
            self._observe_one(0, observation, action, reward, next_observation, terminated, truncated)
            return
        names = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
        values = (observation, action, reward, next_observation, terminated, truncated)
        columns = [self._column(name, value) for name, value in zip(names, values, strict=True)]
        for env in self._where(mask):
            self._observe_one(env, *(column[env] for column in columns))

    def _observe_one(
        self,
        env: int,
        observation: object,
        action: object,
        reward: object,
        next_observation: object,
        terminated: object,
        truncated: object,
    ) -> None:
        if self._core is None or not self._live[env]:
            raise ValueError("observe was called where no episode goes on, expected reset(observation) first")
        horizon, times, stats = self._horizon, self._times, self._stats
        # Under Episodic(H) the last step ends the episode, whatever the environment says.
        step = 0 if horizon is None else times[env] % horizon
        last = horizon is not None and step == horizon - 1
        next_observation = None if terminated and (self._ends or not last) else next_observation
        transition = self._checks.transition(step, observation, action, reward, next_observation)
        state, chosen, number, outcome = transition
        self._core.add(step, state, chosen, outcome, number)
        cell = self._checks.cell(step, state, chosen)
        stats.visits[cell] += 1
        stats.time += 1
        times[env] += 1
        self._steps[env] += 1
        self._changed = True
        self._rule.note_transition(stats, cell)
        if terminated or truncated or last:
            self._over(env)

    def _where(self, mask: ArrayLike | None) -> Iterable[int]:
        """The environments of a mask."""
        if mask is None:
            return range(self._num_envs or 0)
        return np.flatnonzero(np.asarray(self._column("mask", mask))).tolist()

    def _column(self, name: str, value: ArrayLike) -> list[object]:
        array = np.asarray(value)
        check_shape(name, array, (self._num_envs or 0,), "environment")
        return array.tolist()

    @property
    def belief(self) -> BeliefTree:
        """The posterior after all transitions; of an agent with a belief of its own, its state.

        A warning is given where the agent could not learn from all of them (its `check_learnt`).
        """
        if self._core is None:
            return self._belief
        belief = self._core.belief
        if isinstance(self._agent, ChecksLearnt):
            self._agent.check_learnt(belief)
        return belief

    @property
    def refits(self) -> Refits | None:
        """The number of refits of the belief, and their cost; None before the first `reset`."""
        return None if self._core is None else self._core.refits

    @property
    def policy(self) -> Policy | None:
        """The plan in force; None before the first."""
        return None if self._core is None else self._core.policy

    @property
    def visits(self) -> Float[np.ndarray, "*H S A"]:
        """Transitions observed from every pair."""
        return np.array(self._stats.visits, np.float64).reshape(self._stats.shape)


class ReplanStats:
    """The statistics that rules depend on.

    Args:
        shape: of the visits, (*H, S, A).

    Attributes:
        time: steps so far; under `Episodic(H)` an episode takes H, whether or not it ends early.
        step: steps since an episode began (the least of all environments).
        starts: episodes that began (in all environments).
        visits: of every pair, a flat list.
        planned_visits: the visits when the plan in force was made.
        planned_time, previous_time: the time of that plan, and of the one before.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.time, self.step, self.starts = 0, 0, 0
        self.visits = [0] * int(np.prod(shape))
        self.planned_visits = list(self.visits)
        self.planned_time, self.previous_time = 0, 0

    def arrays(self) -> tuple[Float[np.ndarray, "*H S A"], Float[np.ndarray, "*H S A"]]:
        """Visits and planned visits as arrays."""
        visits, planned = (np.array(x, np.float32).reshape(self.shape) for x in (self.visits, self.planned_visits))
        return visits, planned

    def note_plan(self, time: int) -> None:
        """A plan was made, for this time."""
        self.planned_visits = list(self.visits)
        self.planned_time, self.previous_time = time, self.planned_time


class HostRule(abc.ABC):
    """A rule of replanning in plain numbers."""

    @abc.abstractmethod
    def due(self, stats: ReplanStats) -> int | None:
        """The time of the plan that is due, if one is; it may lie before the present (idle steps of an episode)."""

    def note_plan(self, stats: ReplanStats) -> None:  # noqa: B027 - of no matter to some rules
        """A plan was made."""

    def note_transition(self, stats: ReplanStats, cell: int) -> None:  # noqa: B027 - likewise
        """A transition from `cell` was observed (and counted)."""

    def idle(self, stats: ReplanStats, step: int, count: int) -> Iterator[int]:
        """No transitions for `count` steps from now on: the times at which to plan all the same."""
        return iter(())  # what becomes due meanwhile is still due afterwards


@dataclass
class CountOnHost(HostRule):
    """A rule that is due when a count has risen: the last scheduled time, or the number of episodes that began.

    Args:
        count: of the statistics.
        scheduled: whether the count is the time of the plan; otherwise the plan is made for the present.
        planned: the count at the last plan: it rises only.
    """

    count: Callable[[ReplanStats], int]
    scheduled: bool
    planned: int = -1

    def due(self, stats: ReplanStats) -> int | None:
        """The time that is scheduled, or the present, if the count has risen."""
        count = self.count(stats)
        if count <= self.planned:
            return None
        return count if self.scheduled else stats.time

    def note_plan(self, stats: ReplanStats) -> None:
        """Remember the count."""
        self.planned = self.count(stats)


@dataclass
class DoublingOnHost(HostRule):
    """`Doubling`, evaluated for the pair that was just visited: no other can have changed.

    Args:
        rule: says when visits have doubled.
        doubled: the time at which those of a pair had.
    """

    rule: Doubling
    doubled: int | None = None

    def due(self, stats: ReplanStats) -> int | None:
        """The time at which the visits of a pair had doubled."""
        return self.doubled

    def note_plan(self, stats: ReplanStats) -> None:
        """Begin to count anew."""
        self.doubled = None

    def note_transition(self, stats: ReplanStats, cell: int) -> None:
        """Record the time at which the visits of the first pair have doubled."""
        if self.doubled is None and self.rule.reached(stats.visits[cell], stats.planned_visits[cell]):
            self.doubled = stats.time


@dataclass
class AnyRuleOnHost(HostRule):
    """Any other rule: one compiled call a step (about 50 us)."""

    rule: ReplanRule

    def due(self, stats: ReplanStats) -> int | None:
        """The present time, if the rule is due."""
        return stats.time if self._evaluate(stats, stats.time, stats.step) else None

    def idle(self, stats: ReplanStats, step: int, count: int) -> Iterator[int]:
        """The rule is evaluated at every step, as in a compiled run."""
        return (stats.time + i for i in range(count) if self._evaluate(stats, stats.time + i, step + i))

    def _evaluate(self, stats: ReplanStats, time: int, step: int) -> bool:
        return bool(_due(self.rule, time, step, *stats.arrays(), stats.planned_time, stats.previous_time))


def host_rule(rule: ReplanRule) -> HostRule:
    """A rule in the form for the host."""
    # By what the rule depends on: the number of episodes, the time, the counts, or anything.
    if isinstance(rule, EveryEpisode):
        return CountOnHost(lambda stats: stats.starts, scheduled=False)
    period = rule.period
    if period is not None:
        # The last multiple of the period: the time of the plan that was due there.
        return CountOnHost(lambda stats: stats.time // period * period, scheduled=True)
    if isinstance(rule, Geometric):
        times = rule.times().tolist()
        # The last time of the schedule that is not after the present.
        return CountOnHost(lambda stats: times[bisect_right(times, stats.time) - 1], scheduled=True)
    return DoublingOnHost(rule) if isinstance(rule, Doubling) else AnyRuleOnHost(rule)


@jax.jit
def _due(
    rule: ReplanRule,
    time: IntScalar,
    step: IntScalar,
    visits: Float[AnyArray, "*H S A"],
    planned_visits: Float[AnyArray, "*H S A"],
    planned_time: IntScalar,
    previous_time: IntScalar,
) -> Bool[Array, ""]:
    counts, plans = (visits, planned_visits), (planned_time, previous_time)
    context = ReplanContext(
        jnp.int32(time), jnp.int32(step), jnp.asarray(step) == 0, *map(jnp.asarray, counts), *map(jnp.int32, plans)
    )
    return rule.due(context)
