"""`Actor`: an agent that acts step by step in any loop, with a compiled call a plan and plain numbers in between."""

from collections.abc import Iterable
from math import isfinite
from operator import index
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents import ChecksLearnt, Learner
from bayes_mdp.agents.common.replan import period_of, rule_for
from bayes_mdp.agents.model_free.trial_learning import LearnsFromEpisodes
from bayes_mdp.experiments.actor.actor_programs import ActorCore
from bayes_mdp.experiments.actor.host_rules import ReplanStats, host_rule
from bayes_mdp.experiments.rollout.run_beliefs import Refits, initial_belief, thins
from bayes_mdp.experiments.rollout.time_loop import RngKeys
from bayes_mdp.experiments.run_config import NUM_PARTICLES, check_agent
from bayes_mdp.mdp import AverageReward, Episodic, Objective, Problem, StateActionSpace
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_space
from bayes_mdp.mdp.validation import check_initial, check_key, check_shape
from bayes_mdp.random import plain_key

_UNKNOWN_PERIOD = 32


class ActorChecks:
    """Checks of states, actions and transitions, in plain numbers (about a microsecond each)."""

    def __init__(self, space: StateActionSpace) -> None:
        self._n_states, self._n_actions, self._ends = space.n_states, space.n_actions, space.ends
        self._by_step, self._legal, self._support = space.horizon is not None, space.legal, space.support
        self._masked = space.legal is not None or space.support is not None

    def cell(self, step: int, state: int, action: int) -> int:
        """Position of a pair in a flat list of visits."""
        return ((step * self._n_states if self._by_step else 0) + state) * self._n_actions + action

    def state(self, value: Any, name: str) -> int:
        """The index of a state.

        Raises:
            TypeError: no integer. ValueError: out of range.
        """
        try:
            state = index(value)
        except TypeError as error:
            raise TypeError(f"{name} is {value!r}, expected the index of a state") from error
        if not 0 <= state < self._n_states:
            raise ValueError(f"{name} is {state}, expected a state index from 0 to {self._n_states - 1}")
        return state

    def transition(
        self, step: int, state: Any, action: Any, reward: Any, following: Any
    ) -> tuple[int, int, float, int]:
        """State, action, reward and outcome (S: the end) of a transition; `following` None: it terminated.

        Raises:
            TypeError, ValueError: one sentence about what is wrong.
        """
        state = self.state(state, "observation")
        try:
            action = index(action)
        except TypeError as error:
            raise TypeError(f"action is {action!r}, expected the index of an action") from error
        if not 0 <= action < self._n_actions:
            raise ValueError(f"action is {action}, expected an action index from 0 to {self._n_actions - 1}")
        try:
            reward = float(reward)
        except (TypeError, ValueError) as error:
            raise TypeError(f"reward is {reward!r}, expected a number") from error
        if not isfinite(reward):
            raise ValueError(f"reward is {reward}, expected a finite number")
        if following is not None:
            outcome = self.state(following, "next_observation")
        elif self._ends:
            outcome = self._n_states
        else:
            raise ValueError("terminated is True, expected a space with ends=True")
        if self._masked:
            self._check_masks(step, state, action, outcome)
        return state, action, reward, outcome

    def _check_masks(self, step: int, state: int, action: int, outcome: int) -> None:
        if self._legal is not None and not self._legal[state, action]:
            raise ValueError(f"action is {action}, expected a legal action of state {state}")
        support = self._support
        if support is not None and not support[(step, state, action, outcome)[-support.ndim :]]:
            raise ValueError(
                f"next_observation is {outcome}, expected an outcome in the known support of state {state}, "
                f"action {action}"
            )


def check_actor(agent: Any, space: Any, objective: Any, key: Any, prior: Any, initial: Any) -> None:
    """Refuse what an `Actor` cannot be made of.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    check_agent(agent)
    check_space(space)
    check_objective(objective)
    check_key("key", key)
    horizon = objective.horizon if isinstance(objective, Episodic) else None
    if space.horizon is not None and space.horizon != horizon:
        expected = f"expected Episodic({space.horizon}): space has {space.horizon} steps"
        raise ValueError(f"objective is {objective}, {expected}")
    if space.ends and isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected another, or a space with ends=False")
    if prior is None and not isinstance(agent, Learner):
        raise ValueError(f"prior is None, expected a prior or a posterior for {type(agent).__name__}")
    own = getattr(prior, "space", space)
    check_space(own, "prior.space")
    if own.shape != space.shape or own.ends != space.ends:
        raise ValueError(
            f"prior is a posterior of shape {own.shape} with ends={own.ends}, expected {space.shape} and {space.ends}"
        )
    check_initial(initial, space.n_states)


def check_num_envs(agent: Any, num_envs: int | None) -> None:
    """Refuse several parallel environments for an agent that learns from whole trials: it would mix them.

    Raises:
        ValueError: says so.
    """
    if num_envs is not None and num_envs > 1 and isinstance(agent, LearnsFromEpisodes):
        name = type(agent).__name__
        raise ValueError(
            f"observation has {num_envs} parallel environments, expected one: {name} learns from whole trials"
        )


class Actor:
    """An agent that acts and learns step by step, on the host: `reset`, then `act` and `observe` in turn.

    It plans by the agent's rule, from the same belief and with the same random streams as a compiled `run`: between two
    plans, actions come from a table, and transitions wait in a buffer. Under `Episodic(H)` the step of the episode is
    kept, an episode is over after H steps, and it takes H steps of the rule's time, whether or not it ends early.

    Observations are state indices: numbers, or arrays [B] of B parallel environments that feed one belief. The first
    `reset` decides which. The time of the rule is then the sum over environments, and an episode of any begins one.

    A belief by weighted draws whose effective sample size is low is refitted before the next plan, which takes seconds:
    a log message (INFO) says so. A prior program that is inferred by draws is thinned to 64; for another number, or
    another method, give `infer(...).thinned(key, number)` as the prior.

    Args:
        agent: an agent; its `replan` says when it plans.
        space: sizes and masks, and whether a transition can end an episode (`ends`).
        objective: what the agent plans for.
        key: a typed key.
        prior: a NumPyro program, or a posterior that can `update`. Agents with a belief of their own do not use it.
        initial: Float[S], where episodes start, for agents that plan with it; None: unknown.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """

    def __init__(
        self,
        agent: Any,
        space: StateActionSpace,
        *,
        objective: Objective,
        key: PRNGKeyArray,
        prior: Any = None,
        initial: Float[Any, " S"] | None = None,
    ) -> None:
        check_actor(agent, space, objective, key, prior, initial)
        self._agent, self._problem = agent, Problem(space, objective, initial)
        self._horizon = objective.horizon if isinstance(objective, Episodic) else None
        self._key = plain_key(key)
        rule, self._belief = rule_for(agent.replan, objective), None
        if not isinstance(agent, Learner):
            key = jax.random.fold_in(self._key, len(RngKeys._fields))
            self._belief = initial_belief(key, prior, space, agent)
            if thins(self._belief, prior):
                self._belief = self._belief.thinned(key, NUM_PARTICLES)
        self._rule = host_rule(rule)
        self._period = period_of(rule, objective) or self._horizon or _UNKNOWN_PERIOD
        self._stats = ReplanStats(space.shape)
        self._checks, self._ends = ActorChecks(space), space.ends
        # Of each environment: its time, that of the first row of its table, steps since a start, whether it goes on.
        self._times, self._table_times, self._steps = [0], [0], [0]
        self._live, self._news = [False], True
        self._num_envs: int | None = None
        self._core: Any = None

    def reset(self, observation: Any, *, mask: Bool[Any, " B"] | None = None) -> None:
        """A new episode begins.

        Args:
            observation: Int or Int[B], its first state.
            mask: Bool[B], the environments where it does (B environments only); None: all.

        Raises:
            ValueError, TypeError: an observation out of range, or of another shape than the first one.
        """
        if self._core is None:
            self._first(observation)
        if self._num_envs is None:
            self._checks.state(observation, "observation")
            self._start(0)
            return
        states = self._column("observation", observation)
        for env in self._where(mask):
            self._checks.state(states[env], f"observation[{env}]")
            self._start(env)

    def _first(self, observation: Any) -> None:
        shape = np.shape(observation)
        if len(shape) > 1 or shape == (0,):
            raise ValueError(f"observation has shape {shape}, expected a state, or one for each of B environments")
        self._num_envs = shape[0] if shape else None
        check_num_envs(self._agent, self._num_envs)
        for column in (self._times, self._table_times, self._steps, self._live):
            column *= self._num_envs or 1
        parts: Any = (self._agent, self._problem, self._belief)
        self._core = ActorCore(*parts, key=self._key, num_envs=self._num_envs, period=self._period)

    def _start(self, env: int) -> None:
        if self._live[env] and self._steps[env]:
            self._over(env)
        self._steps[env], self._live[env], self._news = 0, True, True
        self._stats.starts += 1

    def _over(self, env: int) -> None:
        """The episode of an environment is over; under `Episodic` the rest of its time passes."""
        self._live[env] = False
        if self._horizon is not None:
            step = self._times[env] % self._horizon
            rest = self._horizon - step if step else 0
            for time in self._rule.idle(self._stats, step, rest):
                self._plan(time)
            self._times[env] += rest
            self._stats.time += rest

    def act(self, observation: Any) -> Any:
        """The action in a state: a number, or Int[B].

        Raises:
            ValueError, TypeError: no episode goes on (where that of one of B environments is over, its action means
                nothing); an observation out of range.
        """
        if self._core is None or not (self._live[0] or self._num_envs):
            raise ValueError("act was called where no episode goes on, expected reset(observation) first")
        if self._num_envs is None:
            state = self._checks.state(observation, "observation")
            if self._news:
                self._look()
            row = self._times[0] - self._table_times[0]
            if row >= self._core.num_rows:
                self._refill()
                row = 0
            return self._core.action(row, state)
        return self._act_all(observation)

    def _act_all(self, observation: Any) -> Int[np.ndarray, " B"]:
        column = self._column("observation", observation)
        states = [self._checks.state(s, f"observation[{env}]") for env, s in enumerate(column)]
        if self._news and any(self._live):
            self._look()
        if self._core.policy is None:
            raise ValueError("act was called where no episode goes on, expected reset(observation) first")
        rows = [now - then for now, then in zip(self._times, self._table_times, strict=True)]
        if max(rows) >= self._core.num_rows:
            self._refill()
            rows = [0] * len(rows)
        action = self._core.action
        return np.array([action(env, rows[env], state) for env, state in enumerate(states)])

    def _look(self) -> None:
        """Plan, if it is time to (asked once after every change)."""
        stats = self._stats
        stats.step = min(step for step, live in zip(self._steps, self._live, strict=True) if live)
        self._news = False
        time = self._rule.due(stats)
        if time is not None or self._core.policy is None:
            self._plan(stats.time if time is None else time)

    def _plan(self, time: int) -> None:
        self._core.plan(time, self._times)
        self._table_times = list(self._times)
        self._stats.planned_visits = list(self._stats.visits)
        self._rule.planned(self._stats)

    def _refill(self) -> None:
        self._core.refill(self._stats.time, self._times)
        self._table_times = list(self._times)

    def observe(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        next_observation: Any,
        terminated: Any,
        truncated: Any,
        *,
        mask: Bool[Any, " B"] | None = None,
    ) -> None:
        """Learn from a transition.

        Terminated: nothing is worth anything beyond; counted as the end of the space, `next_observation` is not looked
        at. (At the last step of `Episodic(H)` nothing follows in any case: a space without ends takes it as an ordinary
        transition.) Truncated: an ordinary transition, after which the episode is cut. `reset` follows both.

        Args:
            observation, action, reward, next_observation, terminated, truncated: numbers, or arrays [B].
            mask: Bool[B], where something happened (B environments only); None: everywhere.

        Raises:
            ValueError, TypeError: one sentence about the argument at fault.
        """
        if self._num_envs is None:
            self._see(0, observation, action, reward, next_observation, terminated, truncated)
            return
        names = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
        values = (observation, action, reward, next_observation, terminated, truncated)
        columns = [self._column(name, value) for name, value in zip(names, values, strict=True)]
        for env in self._where(mask):
            self._see(env, *(column[env] for column in columns))

    def _see(
        self, env: int, observation: Any, action: Any, reward: Any, following: Any, terminated: Any, truncated: Any
    ) -> None:
        if self._core is None or not self._live[env]:
            raise ValueError("observe was called where no episode goes on, expected reset(observation) first")
        horizon, times, stats = self._horizon, self._times, self._stats
        step = 0 if horizon is None else times[env] % horizon
        last = horizon is not None and step == horizon - 1
        state, action, reward, outcome = self._checks.transition(
            step, observation, action, reward, None if terminated and (self._ends or not last) else following
        )
        self._core.add(step, state, action, outcome, reward)
        cell = self._checks.cell(step, state, action)
        stats.visits[cell] += 1
        stats.time += 1
        times[env] += 1
        self._steps[env] += 1
        self._news = True
        self._rule.saw(stats, cell)
        if terminated or truncated or last:
            self._over(env)

    def _where(self, mask: Any) -> Iterable[int]:
        """The environments of a mask."""
        return range(self._num_envs or 0) if mask is None else np.flatnonzero(self._column("mask", mask)).tolist()

    def _column(self, name: str, value: Any) -> list[Any]:
        array = np.asarray(value)
        check_shape(name, array, (self._num_envs or 0,), "environment")
        return array.tolist()

    @property
    def belief(self) -> Any:
        """The posterior after all that was observed; of an agent with a belief of its own, that.

        It warns where the agent could not learn from all of it (`agents.ChecksLearnt`).
        """
        if self._core is None:
            return self._belief
        belief = self._core.belief
        if isinstance(self._agent, ChecksLearnt):
            self._agent.check_learnt(belief)
        return belief

    @property
    def refits(self) -> Refits | None:
        """How often the belief was inferred anew, and what that cost; None before the first `reset`."""
        return None if self._core is None else self._core.refits

    @property
    def policy(self) -> Any:
        """The plan in force; None before the first."""
        return None if self._core is None else self._core.policy

    @property
    def visits(self) -> Float[np.ndarray, "*H S A"]:
        """Transitions observed from every pair."""
        return np.array(self._stats.visits, np.float64).reshape(self._stats.shape)
