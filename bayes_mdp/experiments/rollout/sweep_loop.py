"""The compiled loop of agents that learn from whole episodes ("trials" in [TDBMA10]) of any length.

Episodes differ in length: seeds that waited for each other would mostly wait. Here each seed is by itself: it acts
until its episode is over, then sweeps it backwards, one step an iteration, then begins the next one. An iteration is
one step forward or one step of a sweep. In a loop of single steps XLA updates the tables in place (no branch needs the
old ones). The random numbers of a seed depend on its key and the number of the iteration alone, so that more seeds
leave the first ones as they are.

The states of an environment are listed (`TabularStates`), or a hash table finds their rows (`HashedStates`). Two hashes
of a state's code name two buckets of a cache line each, and a new code goes to the emptier one: both are full only when
the whole table nearly is. Practically no code goes without a row until 80 % of the rows are taken, one in 10^4 until
90 % are. No entry is ever moved or deleted, and no probe depends on another: a look-up is two slices, an insertion one
scatter.
"""

from functools import partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Real, UInt32

from bayes_mdp.agents.common.table_policies import epsilon_greedy_action
from bayes_mdp.agents.model_free.trial_learning import EpisodeLearner, Step, Tables
from bayes_mdp.experiments.rollout.simulator import Simulator
from bayes_mdp.mdp import Discounted, Problem, SimulatedEnvironment
from bayes_mdp.utils.typing import BoolScalar, IntScalar, RealScalar
from bayes_mdp.utils.validation import check_count

FORWARD, BACKWARD, FINISHED = 0, 1, 2
BUCKET = 16  # codes of four bytes: a cache line
EMPTY = -1
MOST_ROWS = 2**30
CHUNK = 128  # iterations whose random words are drawn at once
MEASURES = ("reward", "length", "decays", "mixed")
_UNIT = np.float32(2.0**-23)


EnvState: TypeAlias = PyTree
"""The state of an environment: an index, or any tree of arrays."""


class TabularStates(eqx.Module):
    """An environment whose states are listed: outcomes by inversion of one uniform number."""

    simulator: Simulator

    def index(self) -> None:
        """None: a state is its row."""

    def locate(self, index: None, state: Int[Array, ""], acts: BoolScalar) -> tuple[None, Int[Array, ""]]:
        """The state."""
        del index, acts
        return None, state

    def reset(self, key: Key[Array, ""], u: RealScalar) -> Int[Array, ""]:
        """The first state."""
        del key
        return self.simulator.first(u)

    def step(
        self, key: Key[Array, ""], u: RealScalar, state: Int[Array, ""], action: IntScalar
    ) -> tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """One transition."""
        sim = self.simulator
        cell = sim.cell(state, action, 0)
        outcome = sim.next_outcome(u, cell)
        n_states = sim.outcome.shape[-3]
        return jnp.minimum(outcome, n_states - 1), sim.reward_law.sample(key, cell, outcome), outcome == n_states


class HashIndex(NamedTuple):
    """The keys of a hash table.

    Args:
        codes: the code of the state that each row belongs to, -1: free.
        lost: look-ups, of those that may insert, that found no row and shared that of another state.
    """

    codes: Int[Array, " rows"]
    lost: Int[Array, ""]


class HashedStates(eqx.Module):
    """An environment whose states are too many to list: a state gets a row of the tables at its first visit.

    A state without a free row in either of its buckets shares the last row of one of them: that of the state that came
    last, as a rule the rarest. `HashIndex.lost` counts such look-ups.

    Args:
        env: any `SimulatedEnvironment`.
        num_rows: of the tables, a power of two from 16 to 2^30; more than the number of states that are visited.

    Raises:
        TypeError: `num_rows` is no integer.
        ValueError: it is no power of two, or out of range.
    """

    env: SimulatedEnvironment
    num_rows: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_count("num_rows", self.num_rows, BUCKET)
        if self.num_rows & (self.num_rows - 1) or self.num_rows > MOST_ROWS:
            raise ValueError(f"num_rows is {self.num_rows}, expected a power of two from {BUCKET} to 2^30")

    def index(self) -> HashIndex:
        """All rows are free."""
        return HashIndex(jnp.full(self.num_rows, EMPTY, jnp.int32), jnp.int32(0))

    def locate(self, index: HashIndex, state: EnvState, acts: BoolScalar) -> tuple[HashIndex, Int[Array, ""]]:
        """The index, and the row of a state; a new state gets a row where `acts`.

        Where `acts` is false and the state is new the row is one that it might get, or share.
        """
        code = jnp.asarray(self.env.code(state), jnp.int32)
        # Two choices: a code lives in one of two buckets, the emptier one at its first visit.
        starts = self._buckets(code)
        codes = jnp.stack([lax.dynamic_slice(index.codes, (start,), (BUCKET,)) for start in starts])
        known = codes == code
        free = jnp.sum(codes == EMPTY, axis=1, dtype=jnp.int32)
        # Buckets are filled from the left: the first free row of the emptier one is BUCKET - free rows from its start.
        free_row = jnp.where(free[1] > free[0], starts[1], starts[0]) + BUCKET - jnp.maximum(free[0], free[1])
        # A code is in one row at most, so the maximum over the matches is the match.
        position = jnp.max(jnp.where(known, starts[:, None] + jnp.arange(BUCKET), -1))
        new, full = position < 0, jnp.max(free) == 0
        row = jnp.where(new, jnp.where(full, starts[0] + BUCKET - 1, free_row), position)
        # No branch: where nothing is inserted the scatter goes beyond the table and is dropped.
        entry = jnp.where(acts & new & ~full, row, self.num_rows)
        after = index.codes.at[entry].set(code, mode="drop")
        return HashIndex(after, index.lost + (acts & new & full)), row

    def reset(self, key: Key[Array, ""], u: RealScalar) -> EnvState:
        """The first state of an episode."""
        del u
        return self.env.reset(key)

    def step(
        self, key: Key[Array, ""], u: RealScalar, state: EnvState, action: IntScalar
    ) -> tuple[EnvState, Float[Array, ""], Bool[Array, ""]]:
        """One transition."""
        del u
        return self.env.step(key, state, action)

    def _buckets(self, code: Int[Array, ""]) -> Int[Array, " 2"]:
        """The first rows of the two buckets of a code."""
        bits = (self.num_rows // BUCKET).bit_length() - 1
        if not bits:
            return jnp.zeros(2, jnp.int32)
        # The high bits of the mixed code, and of its product with 2^32 / golden ratio (Fibonacci hashing).
        mixed = _mix_bits(code.astype(jnp.uint32))
        hashes = jnp.stack([mixed, mixed * jnp.uint32(0x9E3779B1)]) >> (32 - bits)
        return hashes.astype(jnp.int32) * BUCKET


def _mix_bits(x: UInt32[Array, ""]) -> UInt32[Array, ""]:
    """A bijection that makes codes which differ little differ in half of their bits (the last step of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


RowEnvironment: TypeAlias = TabularStates | HashedStates
"""An environment whose states have rows in a table. Every function is for one seed, and traceable.

* `index()`: what a seed keeps to find rows; None: a state is its row.
* `locate(index, state, acts)`: the index, and the row of a state; a new state gets a row where `acts`.
* `reset(key, u)`: the first state of an episode, from a key or a uniform number.
* `step(key, u, state, action)`: (next state, reward, ended); after an end the state is not used.
"""


class EpisodeLayout(NamedTuple):
    """The static shape of a run in whole episodes: it decides what is compiled.

    Args:
        num_episodes: episodes of the run.
        per_row: episodes of a checkpoint.
        num_rows: checkpoints.
        num_steps: longest episode.
        num_actions: A.
        masked: whether some actions are illegal.
    """

    num_episodes: int
    per_row: int
    num_rows: int
    num_steps: int
    num_actions: int
    masked: bool


class EpisodeContext(eqx.Module):
    """What does not change: agent (its numbers are leaves), environment, problem (its states are the rows)."""

    agent: EpisodeLearner
    env: RowEnvironment
    problem: Problem

    @property
    def discount(self) -> Real[Array, ""]:
        """Of the next step."""
        objective = self.problem.objective
        return jnp.asarray(objective.discount if isinstance(objective, Discounted) else 1.0)


class Steps(eqx.Module):
    """The episode in progress, [T] each: pair of every step (row A + action), reward, Q of the pair at the time.

    `frozen_q` is None where the agent does not bootstrap from it. One step of it is the same record without the axis.
    """

    pair: Int[Array, "*T"]
    reward: Float[Array, "*T"]
    frozen_q: Float[Array, "*T"] | None


class Message(eqx.Module):
    """What a sweep carries from step t+1 to step t.

    Args:
        ret: R_{t+1}.
        next_q: Q(s_{t+1}, a_{t+1}).
        last: step t is the last of the episode: the sweep has not begun.
        cut: the episode was cut and did not end.
    """

    ret: Float[Array, ""]
    next_q: Float[Array, ""]
    last: Bool[Array, ""]
    cut: Bool[Array, ""]


class SeedState(eqx.Module):
    """The state of one seed.

    Args:
        index: what the environment keeps to find rows (the keys of a hash table), or None.
        tables: of the agent.
        state: of the environment.
        phase: FORWARD, BACKWARD or FINISHED.
        at: the step of the episode, also of the sweep.
        episode: number of finished episodes.
        steps: the episode in progress.
        message: of the sweep.
        sums: of the episode in progress, as `MEASURES`: rewards, steps, weights lambda, steps that have one.
        log: Float[rows 4], the sums of the finished episodes.
    """

    index: PyTree
    tables: Tables
    state: EnvState
    phase: Int[Array, ""]
    at: Int[Array, ""]
    episode: Int[Array, ""]
    steps: Steps
    message: Message
    sums: Float[Array, " 4"]
    log: Float[Array, "rows 4"]


def begin(layout: EpisodeLayout, setting: EpisodeContext, key: Key[Array, ""]) -> SeedState:
    """The state of a seed before its first step."""
    # Tables are flat, [R A]: a pair is one index, and an update is a scatter of one number.
    zero, number = jnp.int32(0), jnp.zeros(())
    tables = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), setting.agent.tables(setting.problem))
    rewards = jnp.zeros(layout.num_steps)
    steps = Steps(rewards.astype(jnp.int32), rewards, rewards if setting.agent.frozen else None)
    # Key 0 is that of the first state; chunks begin with 1.
    first, number_key = jax.random.split(jax.random.fold_in(key, 0))
    state = setting.env.reset(first, jax.random.uniform(number_key))
    message = Message(number, number, jnp.bool_(True), jnp.bool_(False))
    log = jnp.zeros((layout.num_rows, len(MEASURES)))
    return SeedState(setting.env.index(), tables, state, zero, zero, zero, steps, message, log[0], log)


def iterate(
    layout: EpisodeLayout, setting: EpisodeContext, seed: SeedState, key: Key[Array, ""], words: UInt32[Array, " 2"]
) -> SeedState:
    """One step forward or one of the sweep, of one seed.

    Both halves are computed in every iteration, and what is not due is masked: under `vmap` a branch would be a select
    over whole tables, while a scatter to an index out of range costs nothing.

    Args:
        layout: the static shape of the run.
        setting: what does not change.
        seed: before the iteration.
        key: of the iteration, for rewards and for environments that draw with a key.
        words: random words of the action and of the outcome (or of the first state).
    """
    # 23 random bits are a float32 in [0, 1), exactly.
    for_action, for_outcome = ((words >> 9).astype(jnp.float32) * _UNIT)[:2]
    moved = _forward(layout, setting, seed, key, for_action, for_outcome)
    return _backward(layout, setting, seed, moved, key, for_outcome)


class _Moved(NamedTuple):
    """After the half of an iteration that acts.

    `turns`: the episode is over, the sweep begins; `best`: max_a Q(s, a) of the present state.
    """

    index: PyTree
    state: EnvState
    steps: Steps
    reward: Float[Array, ""]
    turns: Bool[Array, ""]
    ended: Bool[Array, ""]
    best: Float[Array, ""]


def _forward(
    layout: EpisodeLayout,
    setting: EpisodeContext,
    seed: SeedState,
    key: Key[Array, ""],
    for_action: Float[Array, ""],
    for_outcome: Float[Array, ""],
) -> _Moved:
    """One step of the environment where the phase is FORWARD; it is added to `seed.steps`."""
    # Epsilon-greedy for the table, one step of the environment.
    acts = seed.phase == FORWARD
    index, row = setting.env.locate(seed.index, seed.state, acts)
    first, n_actions = row * layout.num_actions, layout.num_actions
    q = lax.dynamic_slice(seed.tables.q, (first,), (n_actions,))
    action = epsilon_greedy_action(for_action, q, setting.agent.epsilon, masked=layout.masked)
    state, reward, ended = setting.env.step(key, for_outcome, seed.state, action)
    place = jnp.where(acts, seed.at, layout.num_steps)  # out of range: dropped
    new = Steps(first + action, reward, q[action] if setting.agent.frozen else None)
    steps = jax.tree.map(lambda kept, x: kept.at[place].set(x, mode="drop"), seed.steps, new)
    # An episode that ends, or is cut, turns to its backward sweep.
    turns = acts & (ended | (seed.at == layout.num_steps - 1))
    return _Moved(index, state, steps, reward, turns, ended, jnp.max(q))


def _backward(
    layout: EpisodeLayout,
    setting: EpisodeContext,
    seed: SeedState,
    moved: _Moved,
    key: Key[Array, ""],
    for_outcome: Float[Array, ""],
) -> SeedState:
    """One step of the sweep where the phase is BACKWARD, and the state after the iteration."""
    agent, place, message = setting.agent, seed.at, seed.message
    taken = jax.tree.map(lambda kept: kept[place], moved.steps)
    acts, sweeps = seed.phase == FORWARD, seed.phase == BACKWARD
    # R_t and Q of the pair from those of step t+1; beyond the last step 0, or max_a Q where a cut episode bootstraps.
    next_q = message.next_q
    if agent.bootstrap:  # the state in which a cut episode stopped is still the present one
        next_q = jnp.where(message.last & message.cut, moved.best, next_q)
    pair = jnp.where(sweeps, taken.pair, 0)  # a fixed row where it is masked: no cache miss
    step = Step((pair,), taken.reward, setting.discount, next_q, message.ret, message.last)
    swept = agent.sweep_step(seed.tables, step, sweeps)
    # The log of the episode, written when its sweep has reached the first step.
    sums = seed.sums + _sums(acts, sweeps & ~message.last, moved.reward, swept.trace_decay)
    done = sweeps & (place == 0)
    episode = seed.episode + done
    row = jnp.minimum(seed.episode // layout.per_row, layout.num_rows - 1)  # a finished seed adds nothing
    log = seed.log.at[row].add(jnp.where(done, sums, 0.0))
    value = taken.frozen_q if agent.frozen else swept.value
    message = Message(swept.ret, jnp.where(sweeps, value, 0.0), ~sweeps, ~moved.ended)
    # The next state: of a new episode after a sweep, of the step after a step, else the present one.
    state = jax.tree.map(
        lambda first, after, before: jnp.where(done, first, jnp.where(acts, after, before)),
        setting.env.reset(key, for_outcome),
        moved.state,
        seed.state,
    )
    next_phase = jnp.where(episode == layout.num_episodes, FINISHED, FORWARD)
    phase = jnp.where(done, next_phase, jnp.where(moved.turns, BACKWARD, seed.phase))
    place = jnp.where(acts & ~moved.turns, place + 1, jnp.where(sweeps, jnp.maximum(place - 1, 0), place))
    return SeedState(
        moved.index, swept.tables, state, phase, place, episode, moved.steps, message, jnp.where(done, 0.0, sums), log
    )


def _sums(
    acts: Bool[Array, ""], mixes: Bool[Array, ""], reward: Float[Array, ""], trace_decay: RealScalar
) -> Float[Array, " 4"]:
    """What an iteration adds to the sums of an episode (`MEASURES`).

    Args:
        acts: it is a step forward.
        mixes: it is a step of the sweep with a weight lambda (all but the last step of the episode).
        reward: of the step forward.
        trace_decay: lambda.
    """
    acted, mixed = acts.astype(reward.dtype), mixes.astype(reward.dtype)
    return jnp.stack([jnp.where(acts, reward, 0.0), acted, jnp.where(mixes, trace_decay, 0.0), mixed])


Loop: TypeAlias = tuple[Int[Array, ""], SeedState]
"""Of `play`: the number of the next chunk, and the states of all seeds."""


@partial(jax.jit, static_argnames="layout")
def begin_all(layout: EpisodeLayout, setting: EpisodeContext, keys: Key[Array, " N"]) -> SeedState:
    """The states of all seeds."""
    return jax.vmap(lambda key: begin(layout, setting, key))(keys)


@partial(jax.jit, static_argnames="layout", donate_argnames="seeds")
def play(
    layout: EpisodeLayout, setting: EpisodeContext, keys: Key[Array, " N"], seeds: SeedState, chunks: Int[Array, " 2"]
) -> SeedState:
    """Chunks of `CHUNK` iterations, until all seeds have finished or the last chunk is played.

    Args:
        layout: the static shape of the run.
        setting: what does not change.
        keys: of the seeds.
        seeds: their states; donated.
        chunks: play from number `chunks[0]` up to `chunks[1]`.
    """

    def chunk(loop: Loop) -> Loop:
        number, seeds = loop

        def one(key: Key[Array, ""], seed: SeedState) -> SeedState:
            # One call draws the words of the whole chunk: a call for every iteration would cost more than the step.
            key = jax.random.fold_in(key, 1 + number)  # 0: the first state
            words = jax.random.bits(key, (CHUNK, 2), jnp.uint32)

            def body(seed: SeedState, x: tuple[Int[Array, ""], UInt32[Array, " 2"]]) -> tuple[SeedState, None]:
                i, two = x
                return iterate(layout, setting, seed, jax.random.fold_in(key, i), two), None

            return lax.scan(body, seed, (jnp.arange(CHUNK), words))[0]

        return number + 1, jax.vmap(one)(keys, seeds)

    goes_on = lambda loop: (loop[0] < chunks[1]) & jnp.any(loop[1].phase != FINISHED)  # noqa: E731
    return lax.while_loop(goes_on, chunk, (chunks[0], seeds))[1]
