"""The numba loop of whole-episode learners: `sweep_loop.iterate` with the branches that XLA cannot afford.

The same iterations with the same random words: one step forward, or one of the sweep. All seeds are played one after
the other, each for all chunks of a call, while its tables are near the processor.

`HostEpisodes` plays a run: the arrays of `SeedState`, advanced in place between two looks of Python. A state can be
handed over to the loop of XLA and back at any chunk: both read and write the same arrays, and draw the same numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, Key

from bayes_mdp.agents import TDBMA, SarsaLambda
from bayes_mdp.experiments.rollout.host.host_choice import ListedEnvironment
from bayes_mdp.experiments.rollout.host.host_draws import (
    CODE,
    draw_reward,
    fill_bits,
    first_of_largest,
    fold_in,
    search,
    uniform32,
)
from bayes_mdp.experiments.rollout.sweep_loop import (
    BACKWARD,
    CHUNK,
    FINISHED,
    FORWARD,
    EpisodeContext,
    EpisodeLayout,
    SeedState,
)
from bayes_mdp.numerics.numba_function import cache_on_disk, compile_loop


class Sizes(NamedTuple):
    """Whole numbers of a run: those of `EpisodeLayout`, and what the agent does.

    `frozen`, `bootstrap`: see `SarsaLambda`; `averages`: lambda is that of TD-BMA.
    """

    num_episodes: int
    per_row: int
    num_rows: int
    num_steps: int
    num_actions: int
    masked: bool
    frozen: bool
    bootstrap: bool
    averages: bool


class Numbers(NamedTuple):
    """Numbers in the precision of the tables (arrays without axes become scalars of it in numba).

    `tiny`: the smallest normal number; `unit`: 1.
    """

    epsilon: np.floating
    learning_rate: np.floating
    trace_decay: np.floating
    discount: np.floating
    tiny: np.floating
    unit: np.floating


class Learnt(NamedTuple):
    """The arrays of `SeedState` [N ...] that the loop reads and writes; `statistics`, `frozen_q`: empty if not used."""

    q: np.ndarray
    statistics: np.ndarray
    state: np.ndarray
    phase: np.ndarray
    at: np.ndarray
    episode: np.ndarray
    pair: np.ndarray
    reward: np.ndarray
    frozen_q: np.ndarray
    ret: np.ndarray
    next_q: np.ndarray
    last: np.ndarray
    cut: np.ndarray
    sums: np.ndarray
    log: np.ndarray


@compile_loop
def random_action(share: np.floating, q: np.ndarray, first: int, n_actions: int, masked: bool) -> int:
    """The legal action (q above -inf) that a uniform number picks, of those from place `first` of `q` on."""
    if not masked:
        return min(int(share * np.float32(n_actions)), n_actions - 1)
    # The place of the picked action among the legal ones, then the action at that place.
    number = 0
    for a in range(n_actions):
        number += q[first + a] > -np.inf
    target_rank, rank = int(share * np.float32(number)), 0
    for a in range(n_actions):
        rank += q[first + a] > -np.inf
        if rank > target_rank:
            return a
    return n_actions - 1


@compile_loop
def weight_by_averages(
    q_mc: np.floating,
    q_td: np.floating,
    count: np.floating,
    mean: np.floating,
    squares: np.floating,
    unit: np.floating,
) -> np.floating:
    """Lambda of TD-BMA: `trial_learning.weight`, from count, mean and sum of squared deviations of the returns."""
    # 0.5 as a number of the tables' type, without a conversion.
    half = unit / (unit + unit)
    if not count > unit:
        return half
    # Population variance: the sum of squared deviations over the count.
    variance = squares / count
    difference, middle = q_td - q_mc, half * (q_td - mean) + half * (q_mc - mean)
    if difference == 0 or middle == 0 or np.isinf(variance):
        # 1/2 where the targets say nothing: equal targets, or their middle at the mean.
        return half
    # Returns that never differed: the logistic function at plus or minus infinity.
    if variance <= 0:
        return unit if (difference > 0) == (middle > 0) else unit - unit
    sd = np.sqrt(variance)
    # Equation 14 of [TDBMA10], the logistic function written out.
    return unit / (unit + np.exp(-(count * (difference / sd) * (middle / sd))))


@compile_loop
def play_seeds(  # noqa: PLR0912, PLR0915 - one loop, told from top to bottom
    sizes: Sizes,
    numbers: Numbers,
    env: ListedEnvironment,
    seeds: Learnt,
    keys: np.ndarray,
    chunks: tuple[int, int],
    done: np.ndarray,
) -> None:
    """All seeds through some chunks, or to their ends.

    Args:
        sizes, numbers, env: what does not change.
        seeds: their states.
        keys: UInt32[N 2].
        chunks: from number `chunks[0]` up to `chunks[1]`.
        done: Int[1], becomes `chunks[1]`: what is interrupted is interrupted before or after, and this says which.
    """
    epsilon, rate, discount, unit = numbers.epsilon, numbers.learning_rate, numbers.discount, numbers.unit
    nothing, n_states, n_actions = unit - unit, env.outcome.shape[0], sizes.num_actions
    # Never 0, so that the share of the random action is a number.
    share_of = max(epsilon, numbers.tiny)
    frozen, bootstrap, averages, masked = sizes.frozen, sizes.bootstrap, sizes.averages, sizes.masked
    words = np.empty(2 * CHUNK, np.uint32)
    # Arrays are looked up once, here and for every seed: each look into a record is counted as a reference.
    outcomes, thresholds, rewards, drawn = env.outcome, env.threshold, env.reward, env.drawn
    none_frozen, none_averaged = seeds.frozen_q.size == 0, seeds.statistics.size == 0
    for i in range(keys.shape[0]):
        q, pairs, paid, sums = seeds.q[i], seeds.pair[i], seeds.reward[i], seeds.sums[i]
        frozen_q = seeds.frozen_q[0 if none_frozen else i]
        statistics = seeds.statistics[0 if none_averaged else i]
        state, place, phase, ret, next_q = seeds.state[i], seeds.at[i], seeds.phase[i], seeds.ret[i], seeds.next_q[i]
        last, cut = seeds.last[i], seeds.cut[i]
        for number in range(chunks[0], chunks[1]):
            if phase == FINISHED:
                break
            key = fold_in((keys[i, 0], keys[i, 1]), 1 + number)  # 0: the first state
            fill_bits(key, words)
            # A chunk has one call of the generator for all its words.
            for step in range(CHUNK):
                for_outcome = uniform32(words[2 * step + 1])
                if phase == FORWARD:
                    # Epsilon-greedy: below epsilon, u / epsilon is uniform again and picks the action.
                    for_action, first = uniform32(words[2 * step]), state * n_actions
                    if for_action < epsilon:
                        action = random_action(for_action / share_of, q, first, n_actions, masked)
                    else:
                        action = first_of_largest(q, first, n_actions)
                    k = search(for_outcome, thresholds, state, action)
                    outcome, reward = outcomes[state, action, k], rewards[state, action, k]
                    if drawn[state, action, k] >= 0:
                        reward = draw_reward(fold_in(key, step), env.weight, env.value, drawn[state, action, k])
                    # The step is kept for the sweep.
                    pairs[place] = first + action
                    paid[place] = reward
                    if frozen:
                        frozen_q[place] = q[first + action]
                    sums[0] += reward
                    sums[1] += unit
                    state, ended = min(outcome, n_states - 1), outcome == n_states
                    if ended or place == sizes.num_steps - 1:
                        phase, last, cut, next_q = BACKWARD, True, not ended, nothing
                    else:
                        place += 1
                elif phase == BACKWARD:
                    if bootstrap and last and cut:  # the present state is still the one where the episode stopped
                        first = state * n_actions
                        next_q = q[first + first_of_largest(q, first, n_actions)]
                    pair, reward = pairs[place], paid[place]
                    # The one-step target, the Monte Carlo target, and their mean, weighed by lambda.
                    q_td = reward + discount * next_q
                    # At the last step both targets are the same: the reward, and what is bootstrapped from.
                    if last:
                        ret = q_td
                    else:
                        q_mc, decay = reward + discount * ret, numbers.trace_decay
                        if averages:
                            decay = weight_by_averages(
                                q_mc, q_td, statistics[pair, 0], statistics[pair, 1], statistics[pair, 2], unit
                            )
                        ret = q_td + decay * (q_mc - q_td)
                        sums[2] += decay
                        sums[3] += unit
                    # Q(s_t, a_t) += alpha (R_t - Q(s_t, a_t)).
                    q[pair] += rate * (ret - q[pair])
                    if averages:  # count, mean, sum of squared deviations (Welford)
                        count, gap = statistics[pair, 0] + unit, ret - statistics[pair, 1]
                        mean = statistics[pair, 1] + gap / count
                        statistics[pair, 0], statistics[pair, 1] = count, mean
                        statistics[pair, 2] += gap * (ret - mean)
                    next_q = frozen_q[place] if frozen else q[pair]
                    last = False
                    if place > 0:
                        place -= 1
                        # One iteration is over; the sweep goes on with the step before.
                        continue
                    # The sweep has reached the first step: the episode is logged, the next one begins.
                    row = min(seeds.episode[i] // sizes.per_row, sizes.num_rows - 1)
                    for measure in range(4):
                        seeds.log[i, row, measure] += sums[measure]
                        sums[measure] = nothing
                    seeds.episode[i] += 1
                    state = env.first_state[search(for_outcome, env.first_threshold, 0, 0)]
                    phase = FINISHED if seeds.episode[i] == sizes.num_episodes else FORWARD
                    last, next_q = True, nothing
                else:
                    break
        # Scalars of a seed are local during the loop and written back once.
        seeds.state[i], seeds.at[i], seeds.phase[i], seeds.ret[i], seeds.next_q[i] = state, place, phase, ret, next_q
        seeds.last[i], seeds.cut[i] = last, cut
    done[0] = chunks[1]


def _cache_loop(code: int) -> Callable[..., None]:
    """`play_seeds`, kept on disk for this text of it."""

    @cache_on_disk
    def play(*arguments: Any) -> None:
        if code >= 0:  # always: what it closes over is part of its name on disk
            play_seeds(*arguments)

    return play


play_all_seeds = _cache_loop(CODE)
"""`play_seeds` with its machine code kept on disk."""


class HostEpisodes:
    """All seeds of a run, played by numba.

    Args:
        layout: the shape of the run.
        setting: what does not change (see `host_choice.why_not_episodes` for what is supported).
        env: the environment.
        keys: of the seeds.
        seeds: their states.
        done: chunks that were played.

    Attributes:
        seeds: the states; `play` writes into their arrays.
        done: Int[]: chunks that were played, written together with the states.
    """

    def __init__(
        self,
        layout: EpisodeLayout,
        setting: EpisodeContext,
        env: ListedEnvironment,
        keys: Key[Array, " N"],
        seeds: SeedState,
        done: int,
    ) -> None:
        agent = setting.agent
        assert isinstance(agent, (SarsaLambda, TDBMA))
        self.seeds: SeedState = jax.tree.map(np.array, seeds)  # copies, that can be written
        self.done = np.array(done)
        self._keys = np.asarray(jax.random.key_data(keys))
        self._env = env
        averages = isinstance(agent, TDBMA)
        self._sizes = Sizes(*layout, frozen=agent.frozen, bootstrap=agent.bootstrap, averages=averages)
        kind = self.seeds.tables.q.dtype.type
        trace_decay = 0.0 if isinstance(agent, TDBMA) else agent.trace_decay
        numbers = agent.epsilon, agent.learning_rate, trace_decay, setting.discount, np.finfo(kind).tiny, 1.0
        self._numbers = Numbers(*(kind(x) for x in numbers))

    def play(self, num_chunks: int) -> None:
        """Some more chunks of every seed that has not finished."""
        first = int(self.done)
        chunks = first, first + num_chunks
        play_all_seeds(self._sizes, self._numbers, self._env, self._arrays, self._keys, chunks, self.done.reshape(1))

    @property
    def phase(self) -> Int[np.ndarray, " N"]:
        """FORWARD, BACKWARD or FINISHED."""
        return np.asarray(self.seeds.phase)

    @property
    def episode(self) -> Int[np.ndarray, " N"]:
        """Finished episodes."""
        return np.asarray(self.seeds.episode)

    @property
    def _arrays(self) -> Learnt:
        """The arrays of the states, without copies."""
        seeds, steps = self.seeds, self.seeds.steps
        # Arrays with an axis of seeds of length one: the loop takes their row 0 and never reads it.
        none = np.zeros((1, 0), self.seeds.tables.q.dtype)  # not used
        statistics = np.zeros((1, 0, 3), none.dtype) if seeds.tables.statistics is None else seeds.tables.statistics
        frozen_q = none if steps.frozen_q is None else steps.frozen_q
        tables, message = (seeds.tables.q, statistics), seeds.message
        progress = seeds.state, seeds.phase, seeds.at, seeds.episode
        episode = steps.pair, steps.reward, frozen_q
        sweep = message.ret, message.next_q, message.last, message.cut
        return Learnt._make(np.asarray(x) for x in (*tables, *progress, *episode, *sweep, seeds.sums, seeds.log))
