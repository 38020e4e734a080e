"""The numba loop of whole-episode learners: `sweep_loop.iterate` with the branches that XLA cannot afford.

The same iterations with the same random words: one step forward, or one of the sweep. All seeds are played one after
the other, each for all chunks of a call, while its tables are near the processor. Arrays are written in place.
"""

import math
from typing import NamedTuple

import numpy as np

from bayes_mdp.experiments.rollout.host.host_threefry import fill_bits, fold_in, uniform32
from bayes_mdp.experiments.rollout.host.listed_environment import ListedEnvironment
from bayes_mdp.experiments.rollout.host.numba_function import compiled
from bayes_mdp.experiments.rollout.host.searches import first_of_largest, search
from bayes_mdp.experiments.rollout.sweep_loop import BACKWARD, CHUNK, FINISHED, FORWARD


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


@compiled
def random_action(share: float, q: np.ndarray, masked: bool) -> int:
    """The legal action (q above -inf) that a uniform number picks."""
    if not masked:
        return min(int(math.floor(share * np.float32(q.size))), q.size - 1)
    number = 0
    for a in range(q.size):
        number += q[a] > -np.inf
    wanted, rank = int(math.floor(share * np.float32(number))), 0
    for a in range(q.size):
        rank += q[a] > -np.inf
        if rank > wanted:
            return a
    return q.size - 1


@compiled
def averaged_weight(
    q_mc: np.floating, q_td: np.floating, statistics: np.ndarray, unit: np.floating
) -> np.floating:
    """Lambda of TD-BMA: `trial_learning.weight`, from count, mean and sum of squared deviations of the returns."""
    half = unit / (unit + unit)
    count, mean, squares = statistics[0], statistics[1], statistics[2]
    if not count > unit:
        return half
    variance = squares / count
    difference, middle = q_td - q_mc, half * (q_td - mean) + half * (q_mc - mean)
    if difference == 0 or middle == 0 or np.isinf(variance):
        return half
    if variance <= 0:
        return unit if (difference > 0) == (middle > 0) else unit - unit
    sd = np.sqrt(variance)
    return unit / (unit + np.exp(-(count * (difference / sd) * (middle / sd))))


@compiled
def play_seed(  # noqa: PLR0912, PLR0915 - one loop, told from top to bottom
    sizes: Sizes,
    numbers: Numbers,
    env: ListedEnvironment,
    seed: Learnt,
    i: int,
    key: tuple[np.uint32, np.uint32],
    chunks: tuple[int, int],
    words: np.ndarray,
) -> None:
    """Seed i through some chunks, or to its end.

    Args:
        sizes, numbers, env: what does not change.
        seed: the states of all seeds.
        i: which.
        key: its own.
        chunks: from number `chunks[0]` up to `chunks[1]`.
        words: room for the random words of a chunk.
    """
    epsilon, rate, discount, unit = numbers.epsilon, numbers.learning_rate, numbers.discount, numbers.unit
    nothing, n_states, n_actions = unit - unit, env.outcome.shape[0], sizes.num_actions
    q, sums = seed.q[i], seed.sums[i]
    state, at, phase, ret, next_q = seed.state[i], seed.at[i], seed.phase[i], seed.ret[i], seed.next_q[i]
    last, cut = seed.last[i], seed.cut[i]
    share_of = max(epsilon, numbers.tiny)
    for number in range(chunks[0], chunks[1]):
        if phase == FINISHED:
            break
        fill_bits(fold_in(key, 1 + number), words)  # 0: the first state
        for step in range(CHUNK):
            for_action, for_outcome = uniform32(words[2 * step]), uniform32(words[2 * step + 1])
            if phase == FORWARD:
                # Epsilon-greedy: below epsilon, u / epsilon is uniform again and picks the action.
                row = q[state * n_actions : (state + 1) * n_actions]
                if for_action < epsilon:
                    action = random_action(for_action / share_of, row, sizes.masked)
                else:
                    action = first_of_largest(row)
                k = search(for_outcome, env.threshold[state, action])
                outcome, reward = env.outcome[state, action, k], env.reward[state, action, k]
                # The step is kept for the sweep.
                seed.pair[i, at] = state * n_actions + action
                seed.reward[i, at] = reward
                if sizes.frozen:
                    seed.frozen_q[i, at] = row[action]
                sums[0] += reward
                sums[1] += unit
                state, ended = min(outcome, n_states - 1), outcome == n_states
                if ended or at == sizes.num_steps - 1:
                    phase, last, cut, next_q = BACKWARD, True, not ended, nothing
                else:
                    at += 1
            elif phase == BACKWARD:
                if sizes.bootstrap and last and cut:  # the present state is still the one in which the episode stopped
                    row = q[state * n_actions : (state + 1) * n_actions]
                    next_q = row[first_of_largest(row)]
                pair, reward = seed.pair[i, at], seed.reward[i, at]
                # The one-step target, the Monte Carlo target, and their mean, weighed by lambda.
                q_td = reward + discount * next_q
                if last:
                    ret = q_td
                else:
                    q_mc, decay = reward + discount * ret, numbers.trace_decay
                    if sizes.averages:
                        decay = averaged_weight(q_mc, q_td, seed.statistics[i, pair], unit)
                    ret = q_td + decay * (q_mc - q_td)
                    sums[2] += decay
                    sums[3] += unit
                q[pair] += rate * (ret - q[pair])
                if sizes.averages:
                    kept = seed.statistics[i, pair]  # count, mean, sum of squared deviations (Welford)
                    count, gap = kept[0] + unit, ret - kept[1]
                    mean = kept[1] + gap / count
                    kept[0], kept[1], kept[2] = count, mean, kept[2] + gap * (ret - mean)
                next_q = seed.frozen_q[i, at] if sizes.frozen else q[pair]
                last = False
                if at > 0:
                    at -= 1
                    continue
                # The sweep has reached the first step: the episode is written to the log, the next one begins.
                at_row = min(seed.episode[i] // sizes.per_row, sizes.num_rows - 1)
                for measure in range(4):
                    seed.log[i, at_row, measure] += sums[measure]
                    sums[measure] = nothing
                seed.episode[i] += 1
                state = env.first_state[search(for_outcome, env.first_threshold)]
                phase = FINISHED if seed.episode[i] == sizes.num_episodes else FORWARD
                last, next_q = True, nothing
            else:
                break
    seed.state[i], seed.at[i], seed.phase[i], seed.ret[i], seed.next_q[i] = state, at, phase, ret, next_q
    seed.last[i], seed.cut[i] = last, cut


@compiled
def play_seeds(
    sizes: Sizes,
    numbers: Numbers,
    env: ListedEnvironment,
    seeds: Learnt,
    keys: np.ndarray,
    chunks: tuple[int, int],
    done: np.ndarray,
) -> None:
    """All seeds through some chunks.

    Args:
        sizes, numbers, env: what does not change.
        seeds: their states.
        keys: UInt32[N 2].
        chunks: from number `chunks[0]` up to `chunks[1]`.
        done: Int[1], becomes `chunks[1]`: what is interrupted is interrupted before or after, and this says which.
    """
    words = np.empty(2 * CHUNK, np.uint32)
    for i in range(keys.shape[0]):
        play_seed(sizes, numbers, env, seeds, i, (keys[i, 0], keys[i, 1]), chunks, words)
    done[0] = chunks[1]
