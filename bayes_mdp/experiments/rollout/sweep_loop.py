"""The compiled loop of agents that learn from whole episodes ("trials" in [TDBMA10]) of any length.

Trials differ in length: seeds that waited for each other would mostly wait. Here each seed (a lane) is by itself: it
acts until its trial is over, then sweeps it backwards, one step an iteration, then begins the next one. An iteration is
one step forward or one step of a sweep. A loop of nothing but single steps leaves the tables where they are: XLA
updates them in place (there is no other branch that would need the old ones). The random numbers of a lane depend on
its key and its own iterations, so that more seeds leave the first ones as they are.
"""

from functools import partial
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from bayes_mdp.agents.common.table_policies import epsilon_greedy_action
from bayes_mdp.agents.model_free.trial_learning import Step, Tables
from bayes_mdp.experiments.rollout.simulator import Simulator
from bayes_mdp.mdp import Discounted, Problem

FORWARD, BACKWARD, FINISHED = 0, 1, 2
CHUNK = 128  # iterations whose random words are drawn at once
MEASURES = ("reward", "length", "decays", "mixed")
_UNIT = np.float32(2.0**-23)


class World(Protocol):
    """An environment inside the loop of trials. Every function is for one lane, and traceable."""

    def index(self) -> Any:
        """What a lane keeps to find rows; None: a state is its row."""
        ...

    def locate(self, index: Any, state: Any, acts: Any) -> tuple[Any, Int[Array, ""]]:
        """The index, and the row of a state; a new state gets a row where `acts`."""
        ...

    def reset(self, key: Key[Array, ""], u: Any) -> Any:
        """The first state of a trial, from a key or a uniform number."""
        ...

    def step(
        self, key: Key[Array, ""], u: Any, state: Any, action: Any
    ) -> tuple[Any, Float[Array, ""], Bool[Array, ""]]:
        """(next state, reward, ended); after an end the state is of no account."""
        ...


class TabularStates(eqx.Module):
    """A world whose states are listed: outcomes by inversion of one uniform number."""

    simulator: Simulator

    def index(self) -> None:
        """None: a state is its row."""

    def locate(self, index: None, state: Any, acts: Any) -> tuple[None, Int[Array, ""]]:
        """The state."""
        del index, acts
        return None, state

    def reset(self, key: Key[Array, ""], u: Any) -> Int[Array, ""]:
        """The first state."""
        del key
        return self.simulator.first(u)

    def step(
        self, key: Key[Array, ""], u: Any, state: Any, action: Any
    ) -> tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """One transition."""
        sim = self.simulator
        cell = sim.cell(state, action, 0)
        outcome = sim.next_outcome(u, cell)
        n_states = sim.outcome.shape[-3]
        return jnp.minimum(outcome, n_states - 1), sim.reward_law.sample(key, cell, outcome), outcome == n_states


class Trials(NamedTuple):
    """What decides the compiled program: trials of a run, trials of a checkpoint, checkpoints, steps of a trial."""

    num_trials: int
    per_row: int
    num_rows: int
    num_steps: int
    num_actions: int
    masked: bool  # some actions are illegal


class TrialContext(eqx.Module):
    """What does not change: agent (its numbers are leaves), world, problem (its states are the rows of the world)."""

    agent: Any
    world: World
    problem: Problem

    @property
    def discount(self) -> Any:
        """Of the next step."""
        objective = self.problem.objective
        return objective.discount if isinstance(objective, Discounted) else 1.0


class Steps(eqx.Module):
    """The trial in progress, [T] each: pair of every step (row A + action), reward, Q when it was taken (if frozen)."""

    pair: Int[Array, " T"]
    reward: Float[Array, " T"]
    held: Float[Array, " T"] | None


class Message(eqx.Module):
    """What a sweep hands to the step before: R, Q of its pair; whether there was none yet; whether it was cut."""

    ret: Float[Array, ""]
    following: Float[Array, ""]
    last: Bool[Array, ""]
    cut: Bool[Array, ""]


class Lane(eqx.Module):
    """One seed.

    Args:
        index: what the world keeps to find rows (the keys of a hash table), or None.
        tables: what the agent has learnt.
        state: of the environment.
        phase: FORWARD, BACKWARD or FINISHED.
        at: the step of the trial, also of the sweep.
        trial: how many trials are over.
        steps: the trial in progress.
        message: of the sweep.
        sums: of the trial in progress, as `MEASURES`: rewards, steps, weights lambda, steps that have one.
        log: Float[rows 4], the sums of the trials that are over.
    """

    index: Any
    tables: Tables
    state: Any
    phase: Int[Array, ""]
    at: Int[Array, ""]
    trial: Int[Array, ""]
    steps: Steps
    message: Message
    sums: Float[Array, " 4"]
    log: Float[Array, "rows 4"]


def begin(trials: Trials, setting: TrialContext, key: Key[Array, ""]) -> Lane:
    """A lane before its first step."""
    zero, number = jnp.int32(0), jnp.zeros(())
    tables = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), setting.agent.tables(setting.problem))
    rewards = jnp.zeros(trials.num_steps)
    steps = Steps(rewards.astype(jnp.int32), rewards, rewards if setting.agent.frozen else None)
    first, number_key = jax.random.split(jax.random.fold_in(key, 0))
    state = setting.world.reset(first, jax.random.uniform(number_key))
    message = Message(number, number, jnp.bool_(True), jnp.bool_(False))
    log = jnp.zeros((trials.num_rows, len(MEASURES)))
    return Lane(setting.world.index(), tables, state, zero, zero, zero, steps, message, log[0], log)


def iterate(trials: Trials, setting: TrialContext, lane: Lane, key: Any, words: UInt32[Array, " 2"]) -> Lane:
    """One step forward or one of the sweep, of one lane."""
    for_action, for_world = ((words >> 9).astype(jnp.float32) * _UNIT)[:2]
    moved = _forward(trials, setting, lane, key, for_action, for_world)
    return _backward(trials, setting, lane, moved, key, for_world)


class _Moved(NamedTuple):
    """After the half of an iteration that acts; `turns`: the trial is over, the sweep begins; `best`: max_a Q(s, a)."""

    index: Any
    state: Any
    steps: Steps
    reward: Any
    turns: Any
    ended: Any
    best: Any


def _forward(trials: Trials, setting: TrialContext, lane: Lane, key: Any, for_action: Any, for_world: Any) -> _Moved:
    """Act, if it is time to; `lane.steps` gets one more."""
    acts = lane.phase == FORWARD
    index, row = setting.world.locate(lane.index, lane.state, acts)
    first, n_actions = row * trials.num_actions, trials.num_actions
    q = lax.dynamic_slice(lane.tables.q, (first,), (n_actions,))
    action = epsilon_greedy_action(for_action, q, setting.agent.epsilon, masked=trials.masked)
    state, reward, ended = setting.world.step(key, for_world, lane.state, action)
    at = jnp.where(acts, lane.at, trials.num_steps)  # beyond the room: dropped
    new = Steps(first + action, reward, q[action] if setting.agent.frozen else None)
    steps = jax.tree.map(lambda kept, x: kept.at[at].set(x, mode="drop"), lane.steps, new)
    turns = acts & (ended | (lane.at == trials.num_steps - 1))
    return _Moved(index, state, steps, reward, turns, ended, jnp.max(q))


def _backward(trials: Trials, setting: TrialContext, lane: Lane, moved: _Moved, key: Any, for_world: Any) -> Lane:
    """The step of the sweep, if it is time to, and what comes after it."""
    agent, at, message = setting.agent, lane.at, lane.message
    taken = jax.tree.map(lambda kept: kept[at], moved.steps)
    acts, sweeps = lane.phase == FORWARD, lane.phase == BACKWARD
    following = message.following
    if agent.bootstrap:  # the state that a cut trial stopped in is still the present one
        following = jnp.where(message.last & message.cut, moved.best, following)
    pair = jnp.where(sweeps, taken.pair, 0)  # what is not used is not fetched
    step = Step((pair,), taken.reward, setting.discount, following, message.ret, message.last)
    swept = agent.sweep_step(lane.tables, step, sweeps)
    sums = lane.sums + _sums(acts, sweeps & ~message.last, moved.reward, swept.trace_decay)
    done = sweeps & (at == 0)
    trial = lane.trial + done
    row = jnp.minimum(lane.trial // trials.per_row, trials.num_rows - 1)  # a lane that has finished adds nothing
    log = lane.log.at[row].add(jnp.where(done, sums, 0.0))
    value = taken.held if agent.frozen else swept.value
    message = Message(swept.ret, jnp.where(sweeps, value, 0.0), ~sweeps, ~moved.ended)
    state = jax.tree.map(
        lambda first, after, before: jnp.where(done, first, jnp.where(acts, after, before)),
        setting.world.reset(key, for_world),
        moved.state,
        lane.state,
    )
    over = jnp.where(trial == trials.num_trials, FINISHED, FORWARD)
    phase = jnp.where(done, over, jnp.where(moved.turns, BACKWARD, lane.phase))
    at = jnp.where(acts & ~moved.turns, at + 1, jnp.where(sweeps, jnp.maximum(at - 1, 0), at))
    return Lane(
        moved.index, swept.tables, state, phase, at, trial, moved.steps, message, jnp.where(done, 0.0, sums), log
    )


def _sums(acts: Any, mixes: Any, reward: Any, trace_decay: Any) -> Float[Array, " 4"]:
    """What an iteration adds to the sums of a trial."""
    acted, mixed = acts.astype(reward.dtype), mixes.astype(reward.dtype)
    return jnp.stack([jnp.where(acts, reward, 0.0), acted, jnp.where(mixes, trace_decay, 0.0), mixed])


@partial(jax.jit, static_argnames="trials")
def begin_all(trials: Trials, setting: TrialContext, keys: Key[Array, " N"]) -> Lane:
    """The lanes of all seeds."""
    return jax.vmap(lambda key: begin(trials, setting, key))(keys)


@partial(jax.jit, static_argnames="trials", donate_argnames="lanes")
def play(trials: Trials, setting: TrialContext, keys: Key[Array, " N"], lanes: Lane, chunks: Int[Array, " 2"]) -> Lane:
    """Chunks of `CHUNK` iterations, from number `chunks[0]` up to `chunks[1]`, or until all seeds have finished."""

    def chunk(loop: tuple[Any, Lane]) -> tuple[Any, Lane]:
        number, lanes = loop

        def one(key: Any, lane: Lane) -> Lane:
            key = jax.random.fold_in(key, 1 + number)  # 0: the first state
            words = jax.random.bits(key, (CHUNK, 2), jnp.uint32)

            def body(lane: Lane, x: Any) -> tuple[Lane, None]:
                i, two = x
                return iterate(trials, setting, lane, jax.random.fold_in(key, i), two), None

            return lax.scan(body, lane, (jnp.arange(CHUNK), words))[0]

        return number + 1, jax.vmap(one)(keys, lanes)

    def goes_on(loop: tuple[Any, Lane]) -> Any:
        return (loop[0] < chunks[1]) & jnp.any(loop[1].phase != FINISHED)

    return lax.while_loop(goes_on, chunk, (chunks[0], lanes))[1]
