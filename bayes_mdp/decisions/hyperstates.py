"""Hyper-states of a conjugate belief: where an agent is and what it has counted, enumerated step by step. Host side.

A hyper-state of step t is a state and the counts of the Dirichlet rows and Bernoulli reward cells that can still
matter: a count that no later step uses is dropped. The counts are packed as bit fields in 64-bit words, so that every
transition adds a constant to the code: the codes of a step are a union of sorted runs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.utils.memory import check_memory, memory_limit, too_much
from bayes_mdp.utils.typing import IntScalar

Codes = UInt64[np.ndarray, "_N W"]
Word = UInt64[np.ndarray, " W"]
Layer = list[Codes]
WORD_BITS = 64
WORD_BYTES = WORD_BITS // 8
MOST_PENDING = 2**23  # words that wait to be merged into the next layer
COUNTER_BYTES = 120  # while the place of a counter is found (measured: 110)
EVIDENCE = 1 / 64  # of the memory allowed: what must be in use, or come next, before a forecast is believed
DAMPING = 0.8
ENDLESS = 1e30  # hyper-states
SCRATCH = 6  # float64 numbers for each hyper-state of a state, beside concentrations and values


class Branch(NamedTuple):
    """What can happen after an action.

    Args:
        prob: of the outcome, where the row is known.
        row_counter: the counter of the outcome, or -1: the row is known.
        reward: the known reward.
        reward_counter: the counter of a reward 0 (that of a reward 1 follows), or -1: the reward is known.
        next_state: or None: the episode is over.
    """

    prob: float
    row_counter: int
    reward: float
    reward_counter: int
    next_state: int | None


@dataclass(frozen=True, eq=False)
class Counters:
    """Where counts are kept: counter i has `width[i]` bits of word `word[i]` from bit `shift[i]` on.

    Args:
        base: Float64[C], concentration before the first step.
        last: the last step that uses the counter: nothing is counted from then on.
        width, word, shift: the bit field; a width of zero: nothing is ever counted.
        num_words: W.
    """

    base: Float[np.ndarray, " C"]
    last: Int[np.ndarray, " C"]
    width: Int[np.ndarray, " C"]
    word: Int[np.ndarray, " C"]
    shift: Int[np.ndarray, " C"]
    num_words: int

    def concentration(self, codes: Codes, counter: int) -> float | Float[np.ndarray, " N"]:
        """Concentration of a counter in every hyper-state: Float64[N], or a number where nothing is counted."""
        width = int(self.width[counter])
        if not width:
            return float(self.base[counter])
        field = codes[:, self.word[counter]] >> np.uint64(self.shift[counter])
        return (field & np.uint64(2**width - 1)) + self.base[counter]

    def increment(self, counters: tuple[int, ...], step: int) -> tuple[int, ...]:
        """What one more count in each of `counters` adds to the words of a code, at `step`."""
        words = [0] * self.num_words
        for counter in counters:
            if counter >= 0 and self.last[counter] > step and self.width[counter]:
                words[self.word[counter]] += 1 << int(self.shift[counter])
        return tuple(words)

    def kept(self, step: int) -> Word | None:
        """The bits that matter after `step`; None: all that have been used so far."""
        forgotten = np.flatnonzero((self.last == step) & (self.width > 0))
        if not forgotten.size:
            return None
        words = [2**WORD_BITS - 1] * self.num_words
        for counter in forgotten:
            words[self.word[counter]] &= ~((2 ** int(self.width[counter]) - 1) << int(self.shift[counter]))
        return np.array(words, np.uint64)


@dataclass(frozen=True, eq=False)
class HyperProblem:
    """An episode under a conjugate belief, as a problem over hyper-states.

    Args:
        horizon: H.
        legal: Bool[S A].
        counters: of the stacked rows ([M K], row-major), then of the reward cells ([L 2]: rewards 0, rewards 1).
        row: [T S A], the stacked row or -1; T is H, or 1 where nothing depends on the step.
        column: [T S A O], the column of each outcome in its stacked row, or -1.
        known: Float64[T S A O], probabilities of known rows.
        cell: [T S A O], the stacked reward cell, or -1.
        reward: Float64[T S A O], known rewards.
        by_outcome: whether rewards depend on the outcome.
        num_rows, num_columns: M and K.
        discount: of the next step.
    """

    horizon: int
    legal: Bool[np.ndarray, "S A"]
    counters: Counters
    row: Int[np.ndarray, "T S A"]
    column: Int[np.ndarray, "T S A O"]
    known: Float[np.ndarray, "T S A O"]
    cell: Int[np.ndarray, "T S A O"]
    reward: Float[np.ndarray, "T S A O"]
    by_outcome: bool
    num_rows: int
    num_columns: int
    discount: float = 1.0

    @property
    def n_states(self) -> int:
        """S."""
        return self.legal.shape[0]

    def actions(self, state: int) -> list[int]:
        """The legal actions."""
        return [int(a) for a in np.flatnonzero(self.legal[state])]

    def row_counters(self, step: int, state: int, action: int) -> list[int]:
        """The counters whose concentrations sum to the total of the row; none for a known row."""
        row = int(self.row[step % len(self.row), state, action])
        if row < 0:
            return []
        first = row * self.num_columns
        return [first + k for k in range(self.num_columns) if self.counters.base[first + k] > 0]

    def branches(self, step: int, state: int, action: int) -> list[Branch]:
        """The outcomes of positive probability."""
        at = (step % len(self.row), state, action)
        row, columns, cells = int(self.row[at]), self.column[at].tolist(), self.cell[at].tolist()
        probs, rewards, found = self.known[at].tolist(), self.reward[at].tolist(), []
        for outcome, (column, cell) in enumerate(zip(columns, cells, strict=True)):
            counter = row * self.num_columns + column if row >= 0 and column >= 0 else -1
            possible = probs[outcome] > 0 if row < 0 else counter >= 0 and self.counters.base[counter] > 0
            if possible:
                reward_counter = -1 if cell < 0 else self.num_rows * self.num_columns + 2 * cell
                next_state = outcome if outcome < self.n_states else None
                found.append(Branch(probs[outcome], counter, rewards[outcome], reward_counter, next_state))
        return found

    def increments(self, step: int, branch: Branch) -> list[tuple[int, ...]]:
        """What the outcome adds to a code, with a reward of 0 and of 1; once where that is the same.

        Nothing where there is no hyper-state afterwards.
        """
        if branch.next_state is None or step == self.horizon - 1:
            return []
        counters = self.counters
        if branch.reward_counter < 0:
            return [counters.increment((branch.row_counter,), step)]
        both = [counters.increment((branch.row_counter, branch.reward_counter + x), step) for x in (0, 1)]
        return both if both[0] != both[1] else both[:1]


def hyper_problem(posterior: ConjugatePosterior, horizon: int, discount: float = 1.0) -> HyperProblem:
    """The episode of `horizon` steps under `posterior`, whose rewards are known or Bernoulli (not checked here)."""
    rows, rewards, space = posterior.transition_probs, posterior.reward_cells, posterior.space
    assert isinstance(rewards, RewardCells | KnownRewards)
    with jax.enable_x64(True):
        # Copies: JAX may hold float32 versions of the arrays of `posterior` itself.
        wide = jax.tree.map(np.array, (rows, rewards))
        base = np.asarray(wide[0].site_concentration, np.float64)
        beta = None if isinstance(rewards, KnownRewards) else wide[1].site_belief
        paid = np.zeros((0, 2)) if beta is None else np.stack([beta.concentration0, beta.concentration1], -1)
    full = rows.shape if space.horizon is not None else (1, *rows.shape)
    full_table = lambda table: np.broadcast_to(table, rows.shape).reshape(full)  # noqa: E731
    row = np.reshape(np.arange(len(base)) if rows.row is None else rows.row, full[:-1])
    cell, reward = (full_table(x if rewards.by_outcome else x[..., None]) for x in _reward_tables(rewards))
    legal = np.ones(full[1:3], bool) if space.legal is None else np.asarray(space.legal)
    return HyperProblem(
        horizon=horizon,
        legal=legal,
        counters=_counters(base, np.asarray(paid), (row, cell, legal), horizon),
        row=row,
        column=full_table(np.arange(full[-1]) if rows.column is None else rows.column),
        known=full_table(0.0 if rows.known is None else rows.known),
        cell=cell,
        reward=reward,
        by_outcome=rewards.by_outcome,
        num_rows=base.shape[0],
        num_columns=base.shape[1],
        discount=discount,
    )


def _reward_tables(rewards: RewardCells | KnownRewards) -> tuple[np.ndarray, np.ndarray]:
    """Stacked cell (-1: known) and known reward of every cell of the law."""
    if isinstance(rewards, KnownRewards):
        known = np.asarray(rewards.known, np.float64)
        return np.full(known.shape, -1), known
    cell = np.arange(rewards.data.shape[0]) if rewards.cell is None else np.asarray(rewards.cell)
    known = np.zeros(rewards.shape) if rewards.known is None else np.asarray(rewards.known, np.float64)
    return np.reshape(cell, rewards.shape), known


def _counters(base: np.ndarray, paid: np.ndarray, tables: tuple[np.ndarray, ...], horizon: int) -> Counters:
    """Bit fields that are wide enough for what an episode can add."""
    row, cell, legal = tables
    number = base.size + paid.size
    check_memory(f"posterior has {number} counts", COUNTER_BYTES * number, "known or shared rows have fewer")
    uses, last = np.zeros((2, base.size + paid.size), int)
    for step in range(horizon):
        chosen = row[step % len(row)][legal]
        cells = cell[step % len(row)][legal]
        rows = np.unique(chosen[chosen >= 0])[:, None] * base.shape[1] + np.arange(base.shape[1])
        paying = base.size + 2 * np.unique(cells[cells >= 0])[:, None] + np.arange(2)
        now = np.concatenate([rows.ravel(), paying.ravel()])
        uses[now] += 1
        last[now] = step
    # A counter that is used n times needs the bits of n - 1; a row with one outcome needs none.
    varies = np.repeat((base > 0).sum(-1) > 1, base.shape[1]) & (base.ravel() > 0)
    varies = np.concatenate([varies, np.ones(paid.size, bool)])
    width = np.array([int(n - 1).bit_length() if n and v else 0 for n, v in zip(uses, varies, strict=True)])
    word, shift = np.zeros((2, width.size), int)
    used, at = 0, 0
    for counter in np.flatnonzero(width):
        if used + width[counter] > WORD_BITS:
            used, at = 0, at + 1
        word[counter], shift[counter] = at, used
        used += width[counter]
    return Counters(np.concatenate([base.ravel(), paid.ravel()]), last, width, word, shift, at + 1)


def enumerate_hyperstates(
    problem: HyperProblem,
    starts: Int[np.ndarray, " N"],
    most: int,
    report: Callable[[int], object],
    max_bytes: int | None = None,
) -> list[Layer]:
    """The hyper-states of every step: for each state, the codes, sorted and different.

    Args:
        problem: the episode.
        starts: the states in which it can start.
        most: how many hyper-states may be kept.
        report: called with the number found in a step.
        max_bytes: that enumerating and solving may take (see `Forecast`); None: half of the memory that is free.

    Raises:
        ValueError: there are more, or they would take more: by the forecast, long before they do.
    """
    limit = memory_limit() if max_bytes is None else max_bytes
    words = problem.counters.num_words
    first = np.zeros((1, words), np.uint64)
    layers = [[first if state in starts else first[:0] for state in range(problem.n_states)]]
    total, widest = len(starts), max(_num_branches(problem, state) for state in range(problem.n_states))
    for step in range(problem.horizon):
        if total > most:
            raise ValueError(
                f"max_hyperstates is {most}, expected at least {total} (steps 0 to {step} of {problem.horizon} reach "
                "that many, or more): a shorter horizon, known or shared rows have fewer"
            )
        coming = (total + _size(layers[-1]) * widest) * words * WORD_BYTES
        ahead = forecast(problem, layers, widest)
        if ahead.bytes > limit and (coming > EVIDENCE * limit or step == problem.horizon - 1):
            raise _refusal(problem, ahead, max_bytes, limit)
        if step < problem.horizon - 1:
            layer = _next_layer(problem, step, layers[-1], most - total, limit // WORD_BYTES - total * words)
            if layer is None:  # the forecast was too low
                raise _refusal(problem, ahead._replace(bytes=max(ahead.bytes, limit)), max_bytes, limit)
            layers.append(layer)
            total += _size(layer)
            report(_size(layer))
    return layers


class Forecast(NamedTuple):
    """The size of the whole problem, extrapolated from its first layers.

    Args:
        hyperstates: over all steps.
        bytes: at the peak: all codes, and what a step holds beside them while it is enumerated or solved.
    """

    hyperstates: float
    bytes: float


def forecast(problem: HyperProblem, layers: list[Layer], widest: int) -> Forecast:
    """What is to be expected after the first of its layers; exact but for the scratch space once all are there.

    Args:
        problem: the episode.
        layers: the first of them, at least one.
        widest: the most branches that a state has.
    """
    words, legal = problem.counters.num_words, problem.legal.sum(-1)
    sizes = _extrapolated([float(_size(layer)) for layer in layers], problem, widest)
    share = max(map(len, layers[-1])) / max(_size(layers[-1]), 1)  # of a layer in its largest state
    # Concentrations of all counters and values of all branches of a state are kept while it is solved.
    scratch = 2 * widest + 2 * words + SCRATCH
    beside = 0.0
    for step, (before, size) in enumerate(zip([0.0, *sizes[:-1]], sizes, strict=True)):
        pending = min(before * widest * words, MOST_PENDING + 2.0 * size * words)
        merging = pending * (1.0 + 2.0 * share)
        last = step == problem.horizon - 1 and not problem.by_outcome  # what an action pays there, and nothing else
        solving = size * (words + 1.0 + legal.max() + share * (SCRATCH if last else scratch))
        beside = max(beside, merging, solving)
    total = sum(sizes)
    return Forecast(total, WORD_BYTES * (total * words + beside))


def _extrapolated(sizes: list[float], problem: HyperProblem, widest: int) -> list[float]:
    """Sizes of all layers: a layer of step t that grows like t^d, whose d still grows, ever more slowly.

    Within a tenth of the truth from the first 64th part of it (tried on chains, dense problems and bandits). Where
    counts are forgotten nothing is known of what comes: the layers that are there count alone.
    """
    used = problem.counters.last[problem.counters.width > 0]
    if used.size and used.min() < problem.horizon - 1:
        return sizes
    if len(sizes) == 1 and problem.horizon > 1:
        sizes = [*sizes, sizes[0] * widest]
    if len(sizes) < 2:
        return sizes
    power = [step * (sizes[step] / max(sizes[step - 1], 1.0) - 1.0) for step in (len(sizes) - 2, len(sizes) - 1)]
    now, growth = power[1], power[1] - power[0] if len(sizes) > 2 else power[1]
    found = list(sizes)
    for step in range(len(sizes), problem.horizon):
        growth *= DAMPING
        now += growth
        found.append(found[-1] * max(1.0 + now / step, 0.0))
        if not found[-1] < ENDLESS:
            return [*found, math.inf]
    return found


def _refusal(problem: HyperProblem, ahead: Forecast, given: int | None, limit: int) -> ValueError:
    each = WORD_BYTES * problem.counters.num_words
    number = f"about {ahead.hyperstates:.2g}" if ahead.hyperstates < ENDLESS else f"over {ENDLESS:.0e}"
    what = f"objective is Episodic({problem.horizon}): {number} hyper-states of {each} bytes each"
    whose = "half of what is free; see max_bytes" if given is None else "max_bytes"
    return too_much(what, ahead.bytes, limit, whose, "a shorter horizon, known or shared rows take less")


def _num_branches(problem: HyperProblem, state: IntScalar) -> int:
    """The most that can happen in a state in one step, counted once for each action; no fewer than `moves`."""
    at = np.flatnonzero(problem.legal[state])
    row, column = problem.row[:, state, at], problem.column[:, state, at]
    base = problem.counters.base[: problem.num_rows * problem.num_columns].reshape(-1, problem.num_columns)
    believed = (base[row[..., None], column] > 0) & (column >= 0) if len(base) else np.zeros(column.shape, bool)
    possible = np.where((row < 0)[..., None], problem.known[:, state, at] > 0, believed)
    each = possible * np.where(problem.cell[:, state, at] < 0, 1, 2)
    return int(each[..., : problem.n_states].sum((1, 2)).max(initial=0))


def _size(layer: Layer) -> int:
    return sum(map(len, layer))


def _next_layer(problem: HyperProblem, step: int, layer: Layer, room: int, word_room: int) -> Layer | None:
    """The hyper-states that those of `layer` lead to; some of them, but more than `room`, where there are too many.

    None: they cannot be found with `word_room` words beside those that are kept.
    """
    nothing = np.zeros((0, problem.counters.num_words), np.uint64)
    # Adding a constant keeps codes sorted: one sorted run for each move, merged when too many words wait.
    runs: list[Layer] = [[nothing] for _ in layer]
    kept, pending, merged = problem.counters.kept(step), 0, 0
    for state, codes in enumerate(layer):
        for next_state, increment in moves(problem, step, state) if len(codes) else ():
            runs[next_state].append(child(codes, kept, increment))
            pending += codes.size
            if pending + merged > word_room:
                return None
            if pending > MOST_PENDING + 2 * merged:
                runs = [[union(each)] for each in runs]
                pending, merged = 0, sum(each[0].size for each in runs)
                if merged > room * problem.counters.num_words:
                    return [each[0] for each in runs]
    return [union(each) for each in runs]


def moves(problem: HyperProblem, step: int, state: int) -> list[tuple[int, tuple[int, ...]]]:
    """Next state and increment of all that can happen in a state, each once."""
    branches = (branch for action in problem.actions(state) for branch in problem.branches(step, state, action))
    found = {(branch.next_state, add): None for branch in branches for add in problem.increments(step, branch)}
    return [(next_state, add) for next_state, add in found if next_state is not None]


def child(codes: Codes, kept: Word | None, increment: tuple[int, ...]) -> Codes:
    """The codes after a step, in the order of those before it unless bits were forgotten."""
    return (codes if kept is None else codes & kept) + np.array(increment, np.uint64)


def union(runs: Layer) -> Codes:
    """The different codes of several runs, sorted."""
    codes = np.concatenate(runs)
    if codes.shape[1] == 1:
        codes = np.sort(codes[:, 0], kind="stable")[:, None]  # merges sorted runs
    else:
        codes = codes[np.argsort(search_key(codes), kind="stable")]
    different = np.ones(len(codes), bool)
    different[1:] = (codes[1:] != codes[:-1]).any(-1)
    return codes[different]


def search_key(codes: Codes) -> np.ndarray:
    """One sortable entry for each code: the word, or the bytes of several words."""
    if codes.shape[1] == 1:
        return codes[:, 0]
    return np.ascontiguousarray(codes, ">u8").view(f"S{8 * codes.shape[1]}")[:, 0]
