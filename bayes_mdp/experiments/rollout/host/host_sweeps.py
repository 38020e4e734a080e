"""The numba loop of learners that count and sweep after every step: `time_loop` with `PrioritizedSweeping`.

Everything is done in the order of the compiled loop of XLA: one transition is counted, the state it left is backed up,
then states are taken out of the queue and their predecessors backed up, up to `TOGETHER` at once. The model of a pair
(`Local`) depends on the counts of that pair alone, so it is kept and changed only where the pair is used.

`HostSweeps` plays a run: the arrays of `Carry`, advanced in place. A state can be handed over to the loop of XLA and
back between any two rows: both read and write the same arrays, and draw the same random numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from bayes_mdp.agents import MBIE, MBIEEB, OIM, FrequencyBonus, RecencyBonus, RMax
from bayes_mdp.agents.model_based.empirical_optimism import ModelBased
from bayes_mdp.agents.model_based.empirical_planning import (
    ListedTally,
    OnePolicy,
    PrioritizedSweeping,
    SweptState,
    TwoOptima,
)
from bayes_mdp.experiments.rollout.host.host_choice import ListedEnvironment
from bayes_mdp.experiments.rollout.host.host_draws import (
    CODE,
    Words,
    as_uniform,
    block,
    draw_reward,
    fold_in,
    search,
    uniform,
)
from bayes_mdp.experiments.rollout.time_loop import Carry, Layout, RunContext
from bayes_mdp.mdp import Discounted
from bayes_mdp.numerics.numba_function import cache_on_disk, compile_loop
from bayes_mdp.planning.prioritized_sweeping import TOGETHER
from bayes_mdp.utils.typing import RealScalar

OPTIMISTIC_START, KNOWN_AFTER, INTERVAL, FREQUENCY, RECENCY = range(5)
"""Models of a pair: `OIM`; `RMax`; `MBIEEB` and `MBIE`; `FrequencyBonus`; `RecencyBonus`."""
ENV_KEY, RESET_KEY = 0, 1  # places in `time_loop.RngKeys`
BLOCK = 128  # steps whose random numbers are made at once


class SweepSizes(NamedTuple):
    """Whole numbers of a run: steps of it and of a row, states taken out after a step, which model.

    `one_policy`: the values are those of the policy that is greedy for the sum (`planners.OnePolicy`), else each is an
    optimum of its own (`TwoOptima`).
    """

    num_steps: int
    row_length: int
    num_pops: int
    model: int
    one_policy: bool


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


@compile_loop
def pair_model(
    kind_of_model: int, numbers: SweepNumbers, visits: np.floating, total: np.floating, last_use: np.floating
) -> tuple[np.floating, np.floating, np.floating]:
    """`local` of the agent from the counts of a pair: reward, bonus, and by what counts are divided (inf: no rows)."""
    unit = numbers.unit
    # Zero in the type of the tables: a literal would be a float64.
    nothing, number = unit - unit, max(visits, unit)
    mean = total / number
    if kind_of_model == OPTIMISTIC_START:
        # OIM: one imaginary transition to the garden beside the n observed ones.
        n = visits + unit
        return mean * visits / n, numbers.v_max / n, n
    if kind_of_model == KNOWN_AFTER:
        # R-max: nothing is known before m visits; counts over infinity leave no row.
        return (mean, nothing, number) if visits >= numbers.width else (nothing, numbers.v_max, unit / nothing)
    # In the models below an untried pair has the bonus v_max.
    if not visits > nothing:
        return mean, numbers.v_max, number
    if kind_of_model == INTERVAL:
        return mean, numbers.width / np.sqrt(visits), number
    if kind_of_model == FREQUENCY:
        return mean, -visits / numbers.width, number
    return mean, -last_use / numbers.width, number


@compile_loop
def set_all_models(which: int, numbers: SweepNumbers, counts: Counts, model: Model) -> None:
    """The models of all pairs of all seeds."""
    visits, total, last_use, used = counts.visits, counts.total, counts.last_use, counts.counts
    rewards, bonuses, probs, kind = model.reward, model.bonus, model.probs, counts.visits.dtype.type
    for i in range(visits.shape[0]):
        for s in range(visits.shape[1]):
            for a in range(visits.shape[2]):
                reward, bonus, number = pair_model(
                    which, numbers, visits[i, s, a], total[i, s, a], kind(last_use[i, s, a])
                )
                rewards[i, s, a], bonuses[i, s, a] = reward, bonus
                for k in range(used.shape[3]):
                    probs[i, s, a, k] = used[i, s, a, k] / number


@compile_loop
def list_transition(
    s: int, a: int, y: int, successor: np.ndarray, used: np.ndarray, predecessor: np.ndarray, unit: np.floating
) -> bool:
    """`ListedTally.count` of a transition that does not end: into the lists, where both have a place for it."""
    n_states, longest = predecessor.shape
    # The slot of the successor, or the first free one; lists are filled from the left.
    slot, before = 0, 0
    while slot < used.shape[2] and used[s, a, slot] > 0 and successor[s, a, slot] != y:
        slot += 1
    # Likewise the predecessor in the list of the state that was reached.
    while before < longest and predecessor[y, before] < n_states and predecessor[y, before] != s:
        before += 1
    if slot == used.shape[2] or before == longest:
        return False
    successor[s, a, slot] = y
    used[s, a, slot] += unit
    predecessor[y, before] = s
    return True


@compile_loop
def back_up(
    one_policy: bool,
    numbers: SweepNumbers,
    legal: np.ndarray,
    successor: np.ndarray,
    reward: np.ndarray,
    bonus: np.ndarray,
    probs: np.ndarray,
    rows: np.ndarray,
    s: int,
) -> tuple[np.floating, np.floating]:
    """Qr, Qe and the actions of a state are written; its two values are returned: others may need the old ones first.

    Args:
        one_policy: see `SweepSizes`.
        numbers: of the run.
        legal: Bool[S A].
        successor: Int[S A K].
        reward, bonus, probs: of the model, [S A], [S A] and [S A K].
        rows: Float[S D], as in `Sweeps`.
        s: the state.
    """
    n_actions, unit = reward.shape[1], numbers.unit
    nothing = unit - unit
    # -inf, by a division that numba leaves in the type of the tables.
    illegal = -unit / nothing
    best, best_r, largest, largest_r, largest_e = 0, 0, illegal, illegal, illegal
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
        if qr + qe > largest:
            best, largest = a, qr + qe
        if qr > largest_r:
            best_r, largest_r = a, qr
        largest_e = max(largest_e, qe)
        rows[s, 6 + a], rows[s, 6 + n_actions + a] = qr, qe
    rows[s, 4], rows[s, 5] = best, best_r
    # `OnePolicy`: both values are those of the action that is best for the sum; `TwoOptima`: each its own maximum.
    if one_policy:
        return rows[s, 6 + best], rows[s, 6 + n_actions + best]
    return largest_r, largest_e


@compile_loop
def move_to(
    threshold: np.floating,
    rows: np.ndarray,
    priority: np.ndarray,
    tops: np.ndarray,
    s: int,
    value: np.floating,
    extra: np.floating,
) -> None:
    """A state gets its new values; it waits if they are further than the threshold from those last passed on."""
    side = tops.size
    rows[s, 0], rows[s, 1] = value, extra
    # Far from the values last passed on: predecessors may have to change.
    moved = max(abs(value - rows[s, 2]), abs(extra - rows[s, 3]))
    if moved > threshold:
        row = s // side
        # Two levels: the largest priority of a row of the square is kept beside it.
        priority[row, s - row * side] = max(priority[row, s - row * side], moved)
        tops[row] = max(tops[row], moved)


@compile_loop
def take_out(rows: np.ndarray, priority: np.ndarray, tops: np.ndarray) -> int:
    """The first of the queue, which waits no more and counts as passed on; -1: nothing waits.

    `priority` and `tops` are read as integers: numbers of which none is negative are in the order of their bits, and a
    maximum of integers is vectorised.
    """
    # Row maxima first, then the column: O(sqrt S), as in `prioritized_sweeping`.
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


@compile_loop
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


@compile_loop
def play_steps(  # noqa: PLR0912, PLR0913, PLR0915, PLR0917 - one loop, told from top to bottom
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
        keys: UInt32[N 2], of the seeds.
        counts, queue, model, recorded: the states of all seeds.
        rows: from number `rows[0]` up to `rows[1]`.
        done: Int[1], becomes `rows[1]`: what is interrupted is interrupted before or after, and this says which.
    """
    n_states, size, kind = env.outcome.shape[0], env.threshold.itemsize, env.threshold.dtype.type
    uniforms, words = np.empty(BLOCK, env.threshold.dtype), np.empty((2, BLOCK), np.uint32)
    news, first_threshold = np.empty((TOGETHER, 2), queue.rows.dtype), env.first_threshold
    begin, end = rows[0] * sizes.row_length, min(rows[1] * sizes.row_length, sizes.num_steps)
    # Arrays are looked up once, here and for every seed: each look into a record is counted as a reference.
    outcomes, thresholds, rewards, drawn = env.outcome, env.threshold, env.reward, env.drawn
    row_length, one_policy, threshold, unit = sizes.row_length, sizes.one_policy, numbers.threshold, numbers.unit
    for i in range(keys.shape[0]):
        visits, total, last_use = counts.visits[i], counts.total[i], counts.last_use[i]
        successor, used, predecessor = counts.successor[i], counts.counts[i], counts.predecessor[i]
        model_reward, model_bonus, probs = model.reward[i], model.bonus[i], model.probs[i]
        values, priority, tops = queue.rows[i], queue.priority[i], queue.tops[i]
        priority_bits, top_bits = queue.priority_bits[i], queue.top_bits[i]
        all_visits, paid = recorded.visits[i], recorded.reward[i]
        seed_key = keys[i, 0], keys[i, 1]
        key, reset_key = fold_in(seed_key, ENV_KEY), fold_in(seed_key, RESET_KEY)
        s, clock, lost, num_backups = recorded.state[i], counts.time[i], 0, 0
        for time in range(begin, end):
            # 1. Act, greedily for the sum of the two values, by the random number of this step.
            offset = (time - begin) % BLOCK
            if offset == 0:
                fill_uniform(key, time, words, uniforms)
            a = int(values[s, 4])
            k = search(uniforms[offset], thresholds, s, a)
            outcome, reward = outcomes[s, a, k], rewards[s, a, k]
            if drawn[s, a, k] >= 0:
                reward = draw_reward(block(fold_in(key, time), np.uint32(1)), env.weight, env.value, drawn[s, a, k])
            paid[time // row_length] += reward
            all_visits[s, a] += unit
            ended, y = outcome == n_states, min(outcome, n_states - 1)
            # 2. Count the transition, where the lists have a place for it, and renew the model of the pair.
            if ended or list_transition(s, a, y, successor, used, predecessor, unit):
                clock += 1
                visits[s, a] += unit
                total[s, a] += reward
                last_use[s, a] = clock
                mean, bonus, number = pair_model(sizes.model, numbers, visits[s, a], total[s, a], kind(clock))
                model_reward[s, a], model_bonus[s, a] = mean, bonus
                for k in range(used.shape[2]):
                    probs[s, a, k] = used[s, a, k] / number
            else:
                lost += 1
            # 3. Back up the state that was left, then the predecessors of the first of the queue, a few times.
            value, extra = back_up(one_policy, numbers, legal, successor, model_reward, model_bonus, probs, values, s)
            move_to(threshold, values, priority, tops, s, value, extra)
            num_backups += 1
            for _ in range(sizes.num_pops):
                first = take_out(values, priority_bits, top_bits)
                if first < 0:
                    break
                place = 0
                while place < predecessor.shape[1] and predecessor[first, place] < n_states:
                    # Some at once: all of them see the values before; those after them see the new ones.
                    number_of = 0
                    while number_of < TOGETHER and place + number_of < predecessor.shape[1]:
                        x = predecessor[first, place + number_of]
                        if x >= n_states:
                            break
                        news[number_of, 0], news[number_of, 1] = back_up(
                            one_policy, numbers, legal, successor, model_reward, model_bonus, probs, values, x
                        )
                        number_of += 1
                    for j in range(number_of):
                        x = predecessor[first, place + j]
                        move_to(threshold, values, priority, tops, x, news[j, 0], news[j, 1])
                    num_backups += number_of
                    place += TOGETHER
            # 4. The next state; after an end a first one.
            if ended:
                y = env.first_state[search(kind(uniform(fold_in(reset_key, time + 1), size)), first_threshold, 0, 0)]
            s = y
        recorded.state[i], counts.time[i] = s, clock
        counts.lost[i] += lost
        queue.num_backups[i] += num_backups
    done[0] = rows[1]


def _cache_loops(code: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """`set_all_models` and `play_steps`, kept on disk for this text of them."""

    # Whatever `code` is: what it closes over is part of its name on disk.
    @cache_on_disk
    def set_all(*arguments: Any) -> None:
        if code >= 0:
            set_all_models(*arguments)

    @cache_on_disk
    def play(*arguments: Any) -> None:
        if code >= 0:
            play_steps(*arguments)

    return set_all, play


kept_models, kept_steps = _cache_loops(CODE)
"""`set_all_models` and `play_steps` with their machine code kept on disk."""


STEPS_OF_A_CALL = 400_000
"""Of all seeds, at least: about half a second, so that the tables of a seed stay near the processor for a while."""


class HostSweeps:
    """All seeds of a run, played by numba.

    Args:
        layout: the shape of the run.
        setting: what does not change (see `host_choice.why_not_sweeps` for what is supported).
        env: the environment.
        keys: of the seeds.
        carry: their states.
        done: rows that were played.
        reward: of these rows, Float[N done].

    Attributes:
        carry: the states; `play` writes into their arrays.
        done: Int[]: rows that were played, written together with the states.
        reward: Float[N rows], of all rows; zero where they were not played.
    """

    def __init__(
        self,
        layout: Layout,
        setting: RunContext,
        env: ListedEnvironment,
        keys: Key[Array, " N"],
        carry: Carry,
        done: int = 0,
        reward: Float[np.ndarray, "N done"] | None = None,
    ) -> None:
        agent, objective = setting.agent, setting.problem.objective
        assert isinstance(agent, ModelBased) and isinstance(objective, Discounted)
        planner = agent.planner
        assert isinstance(planner, PrioritizedSweeping)
        # Copies that can be written: all that is played is written in place.
        self.carry: Carry = jax.tree.map(_writable, carry)
        self.done = np.array(done)
        self._keys = np.asarray(jax.random.key_data(keys))
        self._env = env
        legal = setting.problem.space.legal
        self._legal = np.ones(self._env.outcome.shape[:2], bool) if legal is None else np.array(legal, bool)
        kind_of_model, v_max, width = _model_of(agent)
        equations = agent.equations
        one_policy = isinstance(equations, OnePolicy)
        self._sizes = SweepSizes(layout.num_steps, layout.row_length, planner.num_pops, kind_of_model, one_policy)
        self._arrays = _arrays_of(self.carry)
        kind, shape = self._arrays[1].rows.dtype.type, self._arrays[0].counts.shape
        # The exploration values may have a discount of their own.
        bonus_discount = objective.discount
        if isinstance(equations, TwoOptima) and equations.bonus_discount is not None:
            bonus_discount = equations.bonus_discount
        numbers = v_max, width, objective.discount, bonus_discount, planner.threshold, 1.0
        self._numbers = SweepNumbers(*(kind(x) for x in numbers))
        self._model = Model(np.zeros(shape[:3], kind), np.zeros(shape[:3], kind), np.zeros(shape, kind))
        # The models are not part of the carry: they follow from the counts.
        kept_models(kind_of_model, self._numbers, self._arrays[0], self._model)
        self.reward = np.zeros((shape[0], layout.num_rows), kind)
        if reward is not None:
            self.reward[:, :done] = reward
        self._num_rows = layout.num_rows
        # Many short rows are played in one call: a call has a cost of its own.
        self._rows_of_a_call = max(layout.chunk_rows, -(-STEPS_OF_A_CALL // (layout.row_length * shape[0])))

    def play(self, num_rows: int | None = None) -> None:
        """Some more rows of every seed; None: as many as are worth a call."""
        first = int(self.done)
        rows = first, min(first + (num_rows or self._rows_of_a_call), self._num_rows)
        counts, queue = self._arrays
        recorded = Recorded(np.asarray(self.carry.state), np.asarray(self.carry.visits), self.reward)
        state = counts, queue, self._model, recorded
        kept_steps(self._sizes, self._numbers, self._env, self._legal, self._keys, *state, rows, self.done.reshape(1))

    def rows(self) -> dict[str, Float[np.ndarray, "N done"]]:
        """The columns of the rows so far by name, as in `time_loop.Row`."""
        reward = self.reward[:, : int(self.done)].astype(np.float64)
        return {"reward": reward, "regret": np.zeros_like(reward)}


def _writable(array: Array | np.ndarray) -> np.ndarray:
    """A copy. What is zero so far is asked for as such: memory is then taken place by place, when it is written."""
    values = np.asarray(array)
    return np.array(values) if values.any() else np.zeros_like(values)


def _model_of(agent: ModelBased) -> tuple[int, RealScalar, RealScalar]:
    """Which model of a pair an agent has, its value of an untried pair, and its other number."""
    match agent:
        case OIM():
            return OPTIMISTIC_START, agent.v_max, 0.0
        case RMax():
            return KNOWN_AFTER, agent.v_max, agent.num_visits
        case MBIEEB():
            return INTERVAL, agent.v_max, agent.beta
        case MBIE():
            return INTERVAL, agent.v_max, agent.reward_width
        case FrequencyBonus():
            return FREQUENCY, agent.v_max, agent.scale
        case RecencyBonus():
            return RECENCY, agent.v_max, agent.scale
    raise AssertionError(f"agent is a {type(agent).__name__}, expected what `host_choice` admits")


def _arrays_of(carry: Carry) -> tuple[Counts, Queue]:
    """The arrays of the agent's states, without copies."""
    swept = carry.agent_state
    assert isinstance(swept, SweptState) and isinstance(swept.tally, ListedTally)
    counts = Counts._make(np.asarray(getattr(swept.tally, name)) for name in Counts._fields)
    rows, priority, tops = (np.asarray(x) for x in (swept.sweeps.rows, swept.sweeps.priority, swept.sweeps.tops))
    as_bits = partial(np.ndarray.view, dtype=f"i{tops.itemsize}")
    return counts, Queue(rows, priority, tops, as_bits(priority), as_bits(tops), np.asarray(swept.sweeps.num_backups))
