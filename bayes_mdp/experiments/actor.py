"""`Actor`: an agent that acts step by step in any loop, with a compiled call a plan and plain numbers in between."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents import ChecksLearnt, Learner
from bayes_mdp.agents.replan import period_of, rule_for
from bayes_mdp.experiments.actor_checks import ActorChecks, check_actor, check_lanes
from bayes_mdp.experiments.actor_core import ActorCore
from bayes_mdp.experiments.beliefs import initial_belief, thins
from bayes_mdp.experiments.case import NUM_PARTICLES
from bayes_mdp.experiments.host_rules import Ledger, host_rule
from bayes_mdp.experiments.loop import Streams
from bayes_mdp.experiments.refits import Refits
from bayes_mdp.inference.sampling import plain_key
from bayes_mdp.mdp import Episodic, Objective, Problem, StateActionSpace
from bayes_mdp.mdp.validation import check_shape

_UNKNOWN_PERIOD = 32


class Actor:
    """An agent that acts and learns step by step, on the host: `reset`, then `act` and `observe` in turn.

    It plans by the agent's rule, from the same belief and with the same random streams as a compiled `run`: between two
    plans, actions come from a table, and transitions wait in a buffer. Under `Episodic(H)` the step of the episode is
    kept, an episode is over after H steps, and it takes H steps of the rule's time, whether or not it ends early.

    Observations are state indices: numbers, or arrays [B] of B parallel environments that feed one belief. The first
    `reset` decides which. The time of the rule is then the sum over environments, and an episode of any begins one.

    A belief by weighted draws that is worn out is inferred anew before the next plan, which takes seconds: a log
    message (INFO) says so. A prior program that is inferred by draws is thinned to 64; for another number, or another
    method, give `infer(...).thinned(key, number)` as the prior.

    Args:
        agent: an agent; its `replan` says when it plans.
        space: sizes and masks, and whether a transition can end an episode (`ends`).
        objective: what the agent plans for.
        key: a typed key.
        prior: a NumPyro program, or a posterior that can `update`. Agents with a belief of their own do not use it.
        initial: Float[S], where episodes start, for agents that plan with it; None: not told.

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
            key = jax.random.fold_in(self._key, len(Streams._fields))
            self._belief = initial_belief(key, prior, space, agent)
            if thins(self._belief, prior):
                self._belief = self._belief.thinned(key, NUM_PARTICLES)
        self._rule = host_rule(rule)
        self._period = period_of(rule, objective) or self._horizon or _UNKNOWN_PERIOD
        self._ledger = Ledger(space.shape)
        self._checks, self._ends = ActorChecks(space), space.ends
        # Of each environment: its time, that of the first row of its table, steps since a start, whether it goes on.
        self._times, self._table_times, self._steps = [0], [0], [0]
        self._live, self._news = [False], True
        self._lanes: int | None = None
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
        if self._lanes is None:
            self._checks.state(observation, "observation")
            self._start(0)
            return
        states = self._column("observation", observation)
        for lane in self._where(mask):
            self._checks.state(states[lane], f"observation[{lane}]")
            self._start(lane)

    def _first(self, observation: Any) -> None:
        shape = np.shape(observation)
        if len(shape) > 1 or shape == (0,):
            raise ValueError(f"observation has shape {shape}, expected a state, or one for each of B environments")
        self._lanes = shape[0] if shape else None
        check_lanes(self._agent, self._lanes)
        for column in (self._times, self._table_times, self._steps, self._live):
            column *= self._lanes or 1
        parts: Any = (self._agent, self._problem, self._belief)
        self._core = ActorCore(*parts, key=self._key, lanes=self._lanes, period=self._period)

    def _start(self, lane: int) -> None:
        if self._live[lane] and self._steps[lane]:
            self._over(lane)
        self._steps[lane], self._live[lane], self._news = 0, True, True
        self._ledger.starts += 1

    def _over(self, lane: int) -> None:
        """The episode of a lane is over; under `Episodic` the rest of its time passes."""
        self._live[lane] = False
        if self._horizon is not None:
            step = self._times[lane] % self._horizon
            rest = self._horizon - step if step else 0
            for time in self._rule.idle(self._ledger, step, rest):
                self._plan(time)
            self._times[lane] += rest
            self._ledger.time += rest

    def act(self, observation: Any) -> Any:
        """The action in a state: a number, or Int[B].

        Raises:
            ValueError, TypeError: no episode goes on (where that of one of B environments is over, its action means
                nothing); an observation out of range.
        """
        if self._core is None or not (self._live[0] or self._lanes):
            raise ValueError("act was called where no episode goes on, expected reset(observation) first")
        if self._lanes is None:
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
        states = [self._checks.state(s, f"observation[{lane}]") for lane, s in enumerate(column)]
        if self._news and any(self._live):
            self._look()
        if self._core.policy is None:
            raise ValueError("act was called where no episode goes on, expected reset(observation) first")
        rows = [now - then for now, then in zip(self._times, self._table_times, strict=True)]
        if max(rows) >= self._core.num_rows:
            self._refill()
            rows = [0] * len(rows)
        action = self._core.action
        return np.array([action(lane, rows[lane], state) for lane, state in enumerate(states)])

    def _look(self) -> None:
        """Plan, if it is time to (asked once after every change)."""
        ledger = self._ledger
        ledger.step = min(step for step, live in zip(self._steps, self._live, strict=True) if live)
        self._news = False
        time = self._rule.due(ledger)
        if time is not None or self._core.policy is None:
            self._plan(ledger.time if time is None else time)

    def _plan(self, time: int) -> None:
        self._core.plan(time, self._times)
        self._table_times = list(self._times)
        self._ledger.planned_visits = list(self._ledger.visits)
        self._rule.planned(self._ledger)

    def _refill(self) -> None:
        self._core.refill(self._ledger.time, self._times)
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
        if self._lanes is None:
            self._see(0, observation, action, reward, next_observation, terminated, truncated)
            return
        names = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
        values = (observation, action, reward, next_observation, terminated, truncated)
        columns = [self._column(name, value) for name, value in zip(names, values, strict=True)]
        for lane in self._where(mask):
            self._see(lane, *(column[lane] for column in columns))

    def _see(
        self, lane: int, observation: Any, action: Any, reward: Any, following: Any, terminated: Any, truncated: Any
    ) -> None:
        if self._core is None or not self._live[lane]:
            raise ValueError("observe was called where no episode goes on, expected reset(observation) first")
        horizon, times, ledger = self._horizon, self._times, self._ledger
        step = 0 if horizon is None else times[lane] % horizon
        last = horizon is not None and step == horizon - 1
        state, action, reward, outcome = self._checks.transition(
            step, observation, action, reward, None if terminated and (self._ends or not last) else following
        )
        self._core.add(step, state, action, outcome, reward)
        cell = self._checks.cell(step, state, action)
        ledger.visits[cell] += 1
        ledger.time += 1
        times[lane] += 1
        self._steps[lane] += 1
        self._news = True
        self._rule.saw(ledger, cell)
        if terminated or truncated or last:
            self._over(lane)

    def _where(self, mask: Any) -> Iterable[int]:
        """The environments of a mask."""
        return range(self._lanes or 0) if mask is None else np.flatnonzero(self._column("mask", mask)).tolist()

    def _column(self, name: str, value: Any) -> list[Any]:
        array = np.asarray(value)
        check_shape(name, array, (self._lanes or 0,), "environment")
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
        return np.array(self._ledger.visits, np.float64).reshape(self._ledger.shape)
