"""The numba loop of learners that count and sweep after every step: `time_loop` with `PrioritizedSweeping`.

Everything is done in the order of the compiled loop of XLA: one transition is counted, the state it left is backed up,
then states are taken out of the queue and their predecessors backed up, up to `TOGETHER` at once. The model of a pair
(`Local`) depends on the counts of that pair alone, so it is kept and changed only where the pair is used.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bayes_mdp.experiments.rollout.host.host_threefry import Words, block, fold_in, uniform
from bayes_mdp.experiments.rollout.host.listed_environment import ListedEnvironment
from bayes_mdp.experiments.rollout.host.numba_function import CODE, compiled, kept
from bayes_mdp.experiments.rollout.host.searches import drawn_reward, search, search_first
from bayes_mdp.planning.prioritized_sweeping import TOGETHER

OPTIMISTIC_START, KNOWN_AFTER, INTERVAL, FREQUENCY, RECENCY = range(5)
"""Models of a pair: `OIM`; `RMax`; `MBIEEB` and `MBIE`; `FrequencyBonus`; `RecencyBonus`."""
ENV_KEY, RESET_KEY = 0, 1  # places in `time_loop.RngKeys`
BLOCK = 128  # steps whose random numbers are made at once


class SweepSizes(NamedTuple):
    """Whole numbers of a run: steps of it and of a row, states taken out after a step, which model.

    `joint`: see `planners.Explores`.
    """

    num_steps: int
    row_length: int
    num_pops: int
    model: int
    joint: bool


class SweepNumbers(NamedTuple):
    """Numbers in the precision of the tables.

    `width`: `num_visits` of R-max, `beta` of MBIE, `scale` of the bonuses; `bonus_discount`: of the exploration values.
    """

    v_max: np.floating
    width: np.floating
    discount: np.floating
    bonus_discount: np.floating
    threshold: np.floating
    unit: np.floating


class Counts(NamedTuple):
    """The arrays [N ...] of `ListedTally`."""

    visits: np.ndarray
    total: np.ndarray
    last_use: np.ndarray
    time: np.ndarray
    successor: np.ndarray
    counts: np.ndarray
    predecessor: np.ndarray
    lost: np.ndarray


class Queue(NamedTuple):
    """The arrays [N ...] of `Sweeps`; `priority_bits`, `top_bits`: the same memory read as integers."""

    rows: np.ndarray
    priority: np.ndarray
    tops: np.ndarray
    priority_bits: np.ndarray
    top_bits: np.ndarray
    num_backups: np.ndarray


class Model(NamedTuple):
    """`Local` of every pair: reward and bonus [N S A], rows [N S A K]."""

    reward: np.ndarray
    bonus: np.ndarray
    probs: np.ndarray


class Recorded(NamedTuple):
    """State of the environment [N], visits [N S A], rewards of all rows [N rows]."""

    state: np.ndarray
    visits: np.ndarray
    reward: np.ndarray


@compiled
def set_model(sizes: SweepSizes, numbers: SweepNumbers, counts: Counts, model: Model, i: int, s: int, a: int) -> None:
    """The model of a pair from its counts: `local` of the agent."""
    unit = numbers.unit
    nothing = unit - unit
    n = counts.visits[i, s, a]
    mean, most = counts.total[i, s, a] / max(n, unit), max(n, unit)
    reward, bonus, number = mean, numbers.v_max, most
    if sizes.model == OPTIMISTIC_START:
        number = n + unit
        reward, bonus = mean * n / number, numbers.v_max / number
    elif sizes.model == KNOWN_AFTER:
        if n >= numbers.width:
            bonus = nothing
        else:
            reward = nothing
    elif n > nothing:
        if sizes.model == INTERVAL:
            bonus = numbers.width / np.sqrt(n)
        elif sizes.model == FREQUENCY:
            bonus = -n / numbers.width
        else:
            bonus = -counts.visits.dtype.type(counts.last_use[i, s, a]) / numbers.width
    model.reward[i, s, a], model.bonus[i, s, a] = reward, bonus
    used = sizes.model != KNOWN_AFTER or n >= numbers.width
    for k in range(counts.counts.shape[3]):
        model.probs[i, s, a, k] = counts.counts[i, s, a, k] / number if used else nothing


@compiled
def set_all_models(sizes: SweepSizes, numbers: SweepNumbers, counts: Counts, model: Model) -> None:
    """The models of all pairs of all seeds."""
    for i in range(model.reward.shape[0]):
        for s in range(model.reward.shape[1]):
            for a in range(model.reward.shape[2]):
                set_model(sizes, numbers, counts, model, i, s, a)


@compiled
def count(counts: Counts, i: int, s: int, a: int, y: int, reward: np.floating, ended: bool, unit: np.floating) -> bool:
    """`ListedTally.count` of one transition; whether it was counted (its places in the lists were not taken)."""
    most, longest, n_states = counts.successor.shape[3], counts.predecessor.shape[2], counts.predecessor.shape[1]
    slot, before = 0, 0
    if not ended:
        while slot < most and counts.counts[i, s, a, slot] > 0 and counts.successor[i, s, a, slot] != y:
            slot += 1
        while (
            before < longest and counts.predecessor[i, y, before] < n_states and counts.predecessor[i, y, before] != s
        ):
            before += 1
        if slot == most or before == longest:
            counts.lost[i] += 1
            return False
        counts.successor[i, s, a, slot] = y
        counts.counts[i, s, a, slot] += unit
        counts.predecessor[i, y, before] = s
    counts.time[i] += 1
    counts.visits[i, s, a] += unit
    counts.total[i, s, a] += reward
    counts.last_use[i, s, a] = counts.time[i]
    return True


@compiled
def look_ahead(
    sizes: SweepSizes,
    numbers: SweepNumbers,
    legal: np.ndarray,
    counts: Counts,
    model: Model,
    rows: np.ndarray,
    i: int,
    s: int,
    new: np.ndarray,
    place: int,
) -> None:
    """The row of a state after a backup, into `new[place]`: values, values last passed on, actions, Qr and Qe."""
    n_actions, illegal = model.reward.shape[2], -numbers.unit / (numbers.unit - numbers.unit)  # -inf
    best, best_r = 0, 0
    top, top_r, top_e = illegal, illegal, illegal
    for a in range(n_actions):
        qr, qe = illegal, illegal
        if legal[s, a]:
            real, explore = numbers.unit - numbers.unit, numbers.unit - numbers.unit
            for k in range(model.probs.shape[3]):
                p = model.probs[i, s, a, k]
                if p == 0:  # lists are filled from the left
                    break
                y = counts.successor[i, s, a, k]
                real += p * rows[i, y, 0]
                explore += p * rows[i, y, 1]
            qr = model.reward[i, s, a] + numbers.discount * real
            qe = model.bonus[i, s, a] + numbers.bonus_discount * explore
        # The first of the largest, of the sum and of the rewards alone.
        if qr + qe > top:
            best, top = a, qr + qe
        if qr > top_r:
            best_r, top_r = a, qr
        top_e = max(top_e, qe)
        new[place, 6 + a], new[place, 6 + n_actions + a] = qr, qe
    if sizes.joint:
        new[place, 0], new[place, 1] = new[place, 6 + best], new[place, 6 + n_actions + best]
    else:
        new[place, 0], new[place, 1] = top_r, top_e
    new[place, 2], new[place, 3] = rows[i, s, 2], rows[i, s, 3]
    new[place, 4], new[place, 5] = best, best_r


@compiled
def write(numbers: SweepNumbers, queue: Queue, i: int, s: int, new: np.ndarray, place: int) -> None:
    """The new row of a state is written; the state waits if its values have moved by more than the threshold."""
    side = queue.tops.shape[1]
    for d in range(new.shape[1]):
        queue.rows[i, s, d] = new[place, d]
    moved = max(abs(new[place, 0] - new[place, 2]), abs(new[place, 1] - new[place, 3]))
    if moved > numbers.threshold:
        row, column = s // side, s % side
        queue.priority[i, row, column] = max(queue.priority[i, row, column], moved)
        queue.tops[i, row] = max(queue.tops[i, row], moved)
    queue.num_backups[i] += 1


@compiled
def take_out(queue: Queue, i: int) -> int:
    """The first of the queue, which waits no more and counts as passed on; -1: nothing waits.

    Numbers of which none is negative are in the order of their bits, and a maximum of integers is vectorised.
    """
    side, top = queue.tops.shape[1], queue.top_bits[i, 0]
    for j in range(1, side):
        top = max(top, queue.top_bits[i, j])
    if top <= 0:
        return -1
    row, column = 0, 0
    while queue.top_bits[i, row] != top:
        row += 1
    while queue.priority_bits[i, row, column] != top:
        column += 1
    queue.priority_bits[i, row, column] = 0
    top = queue.priority_bits[i, row, 0]
    for j in range(1, side):
        top = max(top, queue.priority_bits[i, row, j])
    queue.top_bits[i, row] = top
    s = row * side + column
    queue.rows[i, s, 2], queue.rows[i, s, 3] = queue.rows[i, s, 0], queue.rows[i, s, 1]
    return s


@compiled
def sweep(
    sizes: SweepSizes,
    numbers: SweepNumbers,
    legal: np.ndarray,
    counts: Counts,
    model: Model,
    queue: Queue,
    i: int,
    here: int,
    new: np.ndarray,
) -> None:
    """Back up a state, then the predecessors of the first of the queue, up to `num_pops` times."""
    n_states, longest = counts.predecessor.shape[1], counts.predecessor.shape[2]
    look_ahead(sizes, numbers, legal, counts, model, queue.rows, i, here, new, 0)
    write(numbers, queue, i, here, new, 0)
    for _ in range(sizes.num_pops):
        s = take_out(queue, i)
        if s < 0:
            break
        begin = 0
        while begin < longest and counts.predecessor[i, s, begin] < n_states:
            # Some at once: all of them see the values before; those after them see the new ones.
            end = begin
            while end < min(begin + TOGETHER, longest) and counts.predecessor[i, s, end] < n_states:
                before = counts.predecessor[i, s, end]
                look_ahead(sizes, numbers, legal, counts, model, queue.rows, i, before, new, end - begin)
                end += 1
            for place in range(end - begin):
                write(numbers, queue, i, counts.predecessor[i, s, begin + place], new, place)
            begin += TOGETHER


@compiled
def fill_uniform(key: Words, time: int, size: int, uniforms: np.ndarray) -> None:
    """The numbers of the outcomes of the steps from `time` on: of the first half of the split of the key of each."""
    for t in range(uniforms.size):
        uniforms[t] = uniform(block(fold_in(key, time + t), np.uint32(0)), size)


@compiled
def play_steps(
    sizes: SweepSizes,
    numbers: SweepNumbers,
    env: ListedEnvironment,
    legal: np.ndarray,
    keys: np.ndarray,
    counts: Counts,
    queue: Queue,
    model: Model,
    recorded: Recorded,
    rows: tuple[int, int],
    done: np.ndarray,
) -> None:
    """All seeds through some rows, one after the other.

    Args:
        sizes, numbers, env, legal: what does not change; `legal`, Bool[S A].
        keys: UInt32[N 5 2], `RngKeys` of every seed.
        counts, queue, model, recorded: the states of all seeds.
        rows: from number `rows[0]` up to `rows[1]`.
        done: Int[1], becomes `rows[1]`: what is interrupted is interrupted before or after, and this says which.
    """
    n_states, size, kind = env.outcome.shape[0], env.threshold.itemsize, env.threshold.dtype.type
    new, uniforms = np.empty((TOGETHER, queue.rows.shape[2]), queue.rows.dtype), np.empty(BLOCK)
    begin, end = rows[0] * sizes.row_length, min(rows[1] * sizes.row_length, sizes.num_steps)
    for i in range(keys.shape[0]):
        key = keys[i, ENV_KEY, 0], keys[i, ENV_KEY, 1]
        s = recorded.state[i]
        for time in range(begin, end):
            at = (time - begin) % BLOCK
            if at == 0:
                fill_uniform(key, time, size, uniforms)
            # Greedy for the sum of the two values.
            a = int(queue.rows[i, s, 4])
            k = search(kind(uniforms[at]), env.threshold, s, a)
            outcome, reward = env.outcome[s, a, k], env.reward[s, a, k]
            if env.drawn[s, a, k] >= 0:
                of_reward = block(fold_in(key, time), np.uint32(1))
                reward = drawn_reward(of_reward, env.weight, env.value, env.drawn[s, a, k])
            recorded.reward[i, time // sizes.row_length] += reward
            recorded.visits[i, s, a] += numbers.unit
            ended, y = outcome == n_states, min(outcome, n_states - 1)
            if count(counts, i, s, a, y, reward, ended, numbers.unit):
                set_model(sizes, numbers, counts, model, i, s, a)
            sweep(sizes, numbers, legal, counts, model, queue, i, s, new)
            if ended:
                of_reset = fold_in((keys[i, RESET_KEY, 0], keys[i, RESET_KEY, 1]), time + 1)
                y = env.first_state[search_first(kind(uniform(of_reset, size)), env.first_threshold)]
            s = y
        recorded.state[i] = s
    done[0] = rows[1]


def _kept_loops(code: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """`set_all_models` and `play_steps`, kept on disk for this text of them."""

    @kept
    def set_all(sizes: SweepSizes, numbers: SweepNumbers, counts: Counts, model: Model) -> None:
        if code >= 0:  # always: what it closes over is part of its name on disk
            set_all_models(sizes, numbers, counts, model)

    @kept
    def play(  # noqa: PLR0913 - those of `play_steps`
        sizes: SweepSizes,
        numbers: SweepNumbers,
        env: ListedEnvironment,
        legal: np.ndarray,
        keys: np.ndarray,
        counts: Counts,
        queue: Queue,
        model: Model,
        recorded: Recorded,
        rows: tuple[int, int],
        done: np.ndarray,
    ) -> None:
        if code >= 0:
            play_steps(sizes, numbers, env, legal, keys, counts, queue, model, recorded, rows, done)

    return set_all, play


kept_models, kept_steps = _kept_loops(CODE)
"""`set_all_models` and `play_steps` with their machine code kept on disk."""
