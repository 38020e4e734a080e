"""The numba loop of learners that count and sweep after every step: `time_loop` with `PrioritizedSweeping`.

Everything is done in the order of the compiled loop of XLA: one transition is counted, the state it left is backed up,
then states are taken out of the queue and their predecessors backed up, up to `TOGETHER` at once. The model of a pair
(`Local`) depends on the counts of that pair alone, so it is kept and changed only where the pair is used.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from bayes_mdp.experiments.rollout.host.host_threefry import Words, as_uniform, block, fold_in, uniform
from bayes_mdp.experiments.rollout.host.listed_environment import ListedEnvironment
from bayes_mdp.experiments.rollout.host.numba_function import CODE, compiled, kept
from bayes_mdp.experiments.rollout.host.searches import drawn_reward, search, search_first
from bayes_mdp.planning.prioritized_sweeping import TOGETHER

OPTIMISTIC_START, KNOWN_AFTER, INTERVAL, FREQUENCY, RECENCY = range(5)
"""Models of a pair: `OIM`; `RMax`; `MBIEEB` and `MBIE`; `FrequencyBonus`; `RecencyBonus`."""
ENV_KEY, RESET_KEY = 0, 1  # places in `time_loop.RngKeys`
BLOCK = 128  # steps whose random numbers are made at once


Array: TypeAlias = np.ndarray


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
def set_model(
    which: int, numbers: SweepNumbers, counts: Counts, reward: Array, bonus: Array, probs: Array, s: int, a: int
) -> None:
    """The model of a pair from its counts: `local` of the agent. All arrays are those of one seed."""
    unit = numbers.unit
    nothing, n = unit - unit, counts.visits[s, a]
    number = max(n, unit)
    mean = counts.total[s, a] / number
    paid, extra = mean, numbers.v_max
    if which == OPTIMISTIC_START:
        number = n + unit
        paid, extra = mean * n / number, numbers.v_max / number
    elif which == KNOWN_AFTER:
        if n >= numbers.width:
            extra = nothing
        else:
            paid = nothing
    elif n > nothing:
        if which == INTERVAL:
            extra = numbers.width / np.sqrt(n)
        elif which == FREQUENCY:
            extra = -n / numbers.width
        else:
            extra = -counts.visits.dtype.type(counts.last_use[s, a]) / numbers.width
    reward[s, a], bonus[s, a] = paid, extra
    used = which != KNOWN_AFTER or n >= numbers.width
    for k in range(probs.shape[2]):
        probs[s, a, k] = counts.counts[s, a, k] / number if used else nothing


@compiled
def set_all_models(which: int, numbers: SweepNumbers, counts: Counts, model: Model) -> None:
    """The models of all pairs of all seeds."""
    for i in range(model.reward.shape[0]):
        own = counts_of(counts, i)
        for s in range(model.reward.shape[1]):
            for a in range(model.reward.shape[2]):
                set_model(which, numbers, own, model.reward[i], model.bonus[i], model.probs[i], s, a)


@compiled
def counts_of(counts: Counts, i: int) -> Counts:
    """The arrays of one seed, without copies; numbers as arrays of length 1."""
    return Counts(
        counts.visits[i],
        counts.total[i],
        counts.last_use[i],
        counts.time[i : i + 1],
        counts.successor[i],
        counts.counts[i],
        counts.predecessor[i],
        counts.lost[i : i + 1],
    )


@compiled
def count(own: Counts, s: int, a: int, y: int, reward: np.floating, ended: bool, unit: np.floating) -> bool:
    """`ListedTally.count` of one transition; whether it was counted (there was a place for it in the lists)."""
    most, longest, n_states = own.successor.shape[2], own.predecessor.shape[1], own.predecessor.shape[0]
    slot, before = 0, 0
    if not ended:
        while slot < most and own.counts[s, a, slot] > 0 and own.successor[s, a, slot] != y:
            slot += 1
        while before < longest and own.predecessor[y, before] < n_states and own.predecessor[y, before] != s:
            before += 1
        if slot == most or before == longest:
            own.lost[0] += 1
            return False
        own.successor[s, a, slot] = y
        own.counts[s, a, slot] += unit
        own.predecessor[y, before] = s
    own.time[0] += 1
    own.visits[s, a] += unit
    own.total[s, a] += reward
    own.last_use[s, a] = own.time[0]
    return True


@compiled
def back_up(
    joint: bool,
    numbers: SweepNumbers,
    legal: Array,
    successor: Array,
    model: tuple[Array, Array, Array],
    rows: Array,
    s: int,
) -> tuple[np.floating, np.floating]:
    """Qr, Qe and the actions of a state are written; its two values are returned: others may need the old ones first.

    Args:
        joint: see `SweepSizes`.
        numbers: of the run.
        legal: Bool[S A].
        successor: Int[S A K].
        model: reward and bonus [S A], rows [S A K] of the model.
        rows: Float[S D], as in `Sweeps`.
        s: the state.
    """
    reward, bonus, probs = model
    n_actions, unit = reward.shape[1], numbers.unit
    nothing = unit - unit
    illegal = -unit / nothing
    best, best_r, most, most_r, most_e = 0, 0, illegal, illegal, illegal
    for a in range(n_actions):
        qr, qe = illegal, illegal
        if legal[s, a]:
            real, explore = nothing, nothing
            for k in range(probs.shape[2]):
                p = probs[s, a, k]
                if p == 0:  # lists are filled from the left
                    break
                y = successor[s, a, k]
                real += p * rows[y, 0]
                explore += p * rows[y, 1]
            qr = reward[s, a] + numbers.discount * real
            qe = bonus[s, a] + numbers.bonus_discount * explore
        # The first of the largest, of the sum and of the rewards alone.
        if qr + qe > most:
            best, most = a, qr + qe
        if qr > most_r:
            best_r, most_r = a, qr
        most_e = max(most_e, qe)
        rows[s, 6 + a], rows[s, 6 + n_actions + a] = qr, qe
    rows[s, 4], rows[s, 5] = best, best_r
    if joint:
        return rows[s, 6 + best], rows[s, 6 + n_actions + best]
    return most_r, most_e


@compiled
def move_to(
    threshold: np.floating,
    rows: Array,
    priority: Array,
    tops: Array,
    s: int,
    value: np.floating,
    extra: np.floating,
) -> None:
    """A state gets its new values; it waits if they are further than the threshold from those last passed on."""
    side = tops.size
    rows[s, 0], rows[s, 1] = value, extra
    moved = max(abs(value - rows[s, 2]), abs(extra - rows[s, 3]))
    if moved > threshold:
        row = s // side
        priority[row, s - row * side] = max(priority[row, s - row * side], moved)
        tops[row] = max(tops[row], moved)


@compiled
def take_out(rows: Array, priority: Array, tops: Array) -> int:
    """The first of the queue, which waits no more and counts as passed on; -1: nothing waits.

    `priority` and `tops` are read as integers: numbers of which none is negative are in the order of their bits, and a
    maximum of integers is vectorised.
    """
    side, top = tops.size, tops[0]
    for j in range(1, side):
        top = max(top, tops[j])
    if top <= 0:
        return -1
    row, column = 0, 0
    while tops[row] != top:
        row += 1
    while priority[row, column] != top:
        column += 1
    priority[row, column] = 0
    rest = priority[row, 0]
    for j in range(1, side):
        rest = max(rest, priority[row, j])
    tops[row] = rest
    s = row * side + column
    rows[s, 2], rows[s, 3] = rows[s, 0], rows[s, 1]
    return s


@compiled
def sweep(
    sizes: SweepSizes,
    numbers: SweepNumbers,
    legal: Array,
    lists: tuple[Array, Array],
    model: tuple[Array, Array, Array],
    queue: Queue,
    here: int,
    values: Array,
) -> int:
    """Back up a state, then the predecessors of the first of the queue, up to `num_pops` times; how many in all.

    Args:
        sizes, numbers, legal: of the run.
        lists: successors [S A K] and predecessors [S P].
        model: see `back_up`.
        queue: of one seed.
        here: the state.
        values: room for the values of `TOGETHER` states.
    """
    successor, predecessor = lists
    rows, priority, tops, priority_bits, top_bits = (
        queue.rows,
        queue.priority,
        queue.tops,
        queue.priority_bits,
        queue.top_bits,
    )
    n_states, longest = predecessor.shape
    threshold, joint = numbers.threshold, sizes.joint
    value, extra = back_up(joint, numbers, legal, successor, model, rows, here)
    move_to(threshold, rows, priority, tops, here, value, extra)
    number = 1
    for _ in range(sizes.num_pops):
        s = take_out(rows, priority_bits, top_bits)
        if s < 0:
            break
        begin = 0
        while begin < longest and predecessor[s, begin] < n_states:
            # Some at once: all of them see the values before; those after them see the new ones.
            end = begin
            while end < min(begin + TOGETHER, longest) and predecessor[s, end] < n_states:
                value, extra = back_up(joint, numbers, legal, successor, model, rows, predecessor[s, end])
                values[end - begin, 0], values[end - begin, 1] = value, extra
                end += 1
            for place in range(end - begin):
                before = predecessor[s, begin + place]
                move_to(threshold, rows, priority, tops, before, values[place, 0], values[place, 1])
            number += end - begin
            begin += TOGETHER
    return number


@compiled
def queue_of(queue: Queue, i: int) -> Queue:
    """The arrays of one seed, without copies."""
    return Queue(
        queue.rows[i],
        queue.priority[i],
        queue.tops[i],
        queue.priority_bits[i],
        queue.top_bits[i],
        queue.num_backups[i : i + 1],
    )


@compiled
def fill_uniform(key: Words, time: int, words: np.ndarray, uniforms: np.ndarray) -> None:
    """The numbers of the outcomes of the steps from `time` on: of the first half of the split of the key of each.

    Args:
        key: of the environment.
        time: of the first.
        words: room for two words of every step, UInt32[2 n].
        uniforms: Float[n], in the precision of the run.
    """
    high, low, number = words[0], words[1], uniforms.size
    # Three loops that are vectorised: fold the time in, split, draw.
    for t in range(number):
        high[t], low[t] = block(key, np.uint32(time + t))
    for t in range(number):
        high[t], low[t] = block((high[t], low[t]), np.uint32(0))
    for t in range(number):
        high[t], low[t] = block((high[t], low[t]), np.uint32(0))
    for t in range(number):
        uniforms[t] = as_uniform(high[t], low[t], uniforms.itemsize)


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
    uniforms, words = np.empty(BLOCK, env.threshold.dtype), np.empty((2, BLOCK), np.uint32)
    values = np.empty((TOGETHER, 2), queue.rows.dtype)
    begin, end = rows[0] * sizes.row_length, min(rows[1] * sizes.row_length, sizes.num_steps)
    for i in range(keys.shape[0]):
        # The arrays of this seed, looked up once: every look at one is counted as a reference.
        own, lists = counts_of(counts, i), (counts.successor[i], counts.predecessor[i])
        of_pairs = model.reward[i], model.bonus[i], model.probs[i]
        waiting = queue_of(queue, i)
        best, visits, paid = queue.rows[i, :, 4], recorded.visits[i], recorded.reward[i]
        key = keys[i, ENV_KEY, 0], keys[i, ENV_KEY, 1]
        s = recorded.state[i]
        for time in range(begin, end):
            at = (time - begin) % BLOCK
            if at == 0:
                fill_uniform(key, time, words, uniforms)
            # Greedy for the sum of the two values.
            a = int(best[s])
            k = search(uniforms[at], env.threshold, s, a)
            outcome, reward = env.outcome[s, a, k], env.reward[s, a, k]
            if env.drawn[s, a, k] >= 0:
                of_reward = block(fold_in(key, time), np.uint32(1))
                reward = drawn_reward(of_reward, env.weight, env.value, env.drawn[s, a, k])
            paid[time // sizes.row_length] += reward
            visits[s, a] += numbers.unit
            ended, y = outcome == n_states, min(outcome, n_states - 1)
            if count(own, s, a, y, reward, ended, numbers.unit):
                set_model(sizes.model, numbers, own, *of_pairs, s, a)
            queue.num_backups[i] += sweep(sizes, numbers, legal, lists, of_pairs, waiting, s, values)
            if ended:
                of_reset = fold_in((keys[i, RESET_KEY, 0], keys[i, RESET_KEY, 1]), time + 1)
                y = env.first_state[search_first(kind(uniform(of_reset, size)), env.first_threshold)]
            s = y
        recorded.state[i] = s
    done[0] = rows[1]


def _kept_loops(code: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """`set_all_models` and `play_steps`, kept on disk for this text of them."""

    @kept
    def set_all(which: int, numbers: SweepNumbers, counts: Counts, model: Model) -> None:
        if code >= 0:  # always: what it closes over is part of its name on disk
            set_all_models(which, numbers, counts, model)

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
