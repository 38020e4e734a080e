"""`bayes_optimal`: the most that any agent can expect of an episode whose MDP is drawn from the prior. Host side.

An MDP whose rows and rewards are believed in is one whose state is a hyper-state (state and counts): it is known, and
solved by backward induction (Martin 1967, *Bayesian Decision Problems and Markov Chains*; Duff 2002, chapter 1). Three
parts: the counts as bit fields, the hyper-states step by step, the backward induction over them.

A hyper-state of step t is a state and the counts of the Dirichlet rows and Bernoulli reward cells that can still
matter: a count that no later step uses is dropped. The counts are packed as bit fields in 64-bit words, so that every
transition adds a constant to the code, and the codes of a step are a union of sorted runs: 17 times as fast as a
dictionary of count vectors (benchmarks/bayes_optimal.py).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float, Int, UInt64

from bayes_mdp.decisions.policy_evaluation import describe_objective
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.route import infer
from bayes_mdp.inference.untried_rewards import TRIED, UntriedRewards, untried_rewards
from bayes_mdp.mdp import Episodic, Objective, StateActionSpace
from bayes_mdp.mdp.contexts import refuse_contexts
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.memory import check_memory, in_words, memory_limit
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import ArrayLike, InitialLike
from bayes_mdp.utils.validation import check_count

Codes = UInt64[np.ndarray, "_N W"]
Word = UInt64[np.ndarray, " W"]
Layer = list[Codes]
WORD_BITS = 64
WORD_BYTES = WORD_BITS // 8
COUNTER_BYTES = 120  # while the place of a counter is found (measured: 110)
SCRATCH = 6  # float64 numbers for each hyper-state of a state that is solved, beside its concentrations and values
MAX_HYPERSTATES = 20_000_000
MOST_STATES = 5  # that are printed


class BayesOptimal(eqx.Module):
    """The Bayes-optimal value of an episode; `print` shows it in words.

    Args:
        value: expected reward of an episode, under the initial distribution and the prior.
        v: Float64[S], expected reward of an episode that starts in a state; nan where none can.
        q: Float64[S A], of one that starts with an action; -inf where it is illegal.
        num_hyperstates: different hyper-states in which a decision is taken, over all steps (counts that no later step
            uses are not distinguished).
        horizon: steps of an episode.
        initial: Float64[S], distribution of the first state.
        initial_given: whether it was given; if not it is uniform.
        space: sizes and names.
        discount: of the objective.
        untried: the pairs that were never tried and whose mean reward, the prior's, lies above that of every pair that
            was (see `untried_rewards`); None: there are none.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> best = bm.decisions.bayes_optimal(prior, space, objective=bm.Episodic(2))
        >>> print(best.q.round(3), best.horizon)
        [[1.083 1.083]] 2
    """

    value: float
    v: Float[np.ndarray, " S"]
    q: Float[np.ndarray, "S A"]
    num_hyperstates: int
    horizon: int
    initial: Float[np.ndarray, " S"]
    initial_given: bool
    space: StateActionSpace
    discount: float = 1.0
    untried: UntriedRewards | None = None

    def share(self, value: ArrayLike) -> float | Float[np.ndarray, "*values"]:
        """The share of the optimum that `value` (a number or an array) is.

        Raises:
            ValueError: the optimum is not positive: a share of it has no meaning.
        """
        if not self.value > 0:
            raise ValueError(f"the optimum is {self.value:.9g}, expected a positive one to take a share of")
        share = np.asarray(value, np.float64) / self.value
        return float(share) if share.ndim == 0 else share

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The value, and what it rests on."""
        episodes = describe_objective(Episodic(self.horizon, self.discount))
        return Section(
            f"Bayes-optimal value, {episodes}: {self.value:.9g}",
            [
                _describe_start(self),
                *_describe_actions(self),
                f"{self.num_hyperstates} hyper-states (state and counts), solved exactly",
                *([] if self.untried is None else [self.untried.warning(TRIED)]),
            ],
        )


def bayes_optimal(
    prior: Prior | ConjugatePosterior,
    space: StateActionSpace | None = None,
    *,
    objective: Objective,
    initial: InitialLike | None = None,
    max_hyperstates: int = MAX_HYPERSTATES,
    max_bytes: int | None = None,
) -> BayesOptimal:
    """The Bayes-optimal value: the best expected reward of one episode, learning within it included. Host side.

    V_t(s, counts) = max_a sum over outcomes o and rewards r of their predictive probability times (r + discount
    V_{t+1}(s', counts after)); the value is zero after an end and after the last step. Exact up to rounding (float64).
    Rewards are known or Bernoulli.

    Args:
        prior: a NumPyro program with an exact posterior, or a `ConjugatePosterior` (with its data, if any).
        space: of a program; None with a posterior, which has one.
        objective: `Episodic(horizon)`, with a discount or without.
        initial: distribution of the first state: [S], a state's label, {label: probability}, or a log (as often as its
            episodes begin in each state); None: uniform (see `initial_given`).
        max_hyperstates: refuse problems with more of them: a matter of time.
        max_bytes: refuse problems that take more memory, while hyper-states are counted. One takes 8 bytes for every
            64 bits of its counts (of all stacked rows: kilobytes where states are many), and a number for each action
            while its step is solved. None: half of the memory that is free.

    Raises:
        ValueError, TypeError: one sentence on the argument that cannot be used: another objective, rewards whose law
            has infinitely many outcomes, too many hyper-states or too much memory, a prior without an exact posterior.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> best = bm.decisions.bayes_optimal(prior, space, objective=bm.Episodic(2))
        >>> round(best.value, 4)  # the first pull is worth 1/2; thanks to it the second is worth 7/12
        1.0833
    """
    if space is not None:
        check_space(space)
        _start(initial, space)
    horizon, discount = _check_objective(objective)
    check_count("max_hyperstates", max_hyperstates)
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)
    posterior = _posterior(prior, space)
    _check_posterior(posterior, horizon)
    start = _start(initial, posterior.space)
    problem = hyper_problem(posterior, horizon, discount)
    # Forwards: which hyper-states can be met at all. Then backwards over these alone.
    with _counter("counting") as report:
        layers = enumerate_hyperstates(problem, np.flatnonzero(start > 0), max_hyperstates, report, max_bytes)
    total = sum(len(codes) for layer in layers for codes in layer)
    with _counter("solving", total) as report:
        q = _first_q(problem, layers, report)
    # v = max_a q; illegal actions are -inf, states without a start nan.
    v = q.max(-1)
    # A nan of a state that never starts must not reach the sum.
    value = float(np.where(start > 0, v, 0.0) @ start)
    has_initial, untried = initial is not None, untried_rewards(posterior)
    return BayesOptimal(value, v, q, total, horizon, start, has_initial, posterior.space, discount, untried)


def _check_objective(objective: object) -> tuple[int, float]:
    if not isinstance(objective, Objective):
        raise TypeError(f"objective is {objective!r}, expected Episodic(horizon)")
    if not isinstance(objective, Episodic):
        raise ValueError(f"objective is {objective}, expected Episodic(horizon): without one, counts grow for ever")
    return objective.horizon, objective.discount


EXPECTED = "expected a function space -> MDPSpec or a ConjugatePosterior"


def _posterior(prior: Prior | ConjugatePosterior, space: StateActionSpace | None) -> ConjugatePosterior:
    if isinstance(prior, Fitted):
        if space is not None:
            raise ValueError("space is given, expected None: prior is a posterior, which has one")
        posterior, given = prior, "is a"
    elif callable(prior):
        if space is not None:
            refuse_contexts(space, "bayes_optimal")
        # A program becomes its closed form, or is refused: an approximate belief has no hyper-states. Nothing is drawn.
        posterior = infer(jax.random.key(0), prior, None, space=space, method="exact")  # type: ignore[arg-type]
        given = "has a"
    else:
        raise TypeError(f"prior is a {type(prior).__name__}, {EXPECTED}")
    part = posterior.exact_part if posterior.in_closed_form else None
    if part is None:
        raise TypeError(f"prior {given} {type(posterior).__name__}, {EXPECTED}")
    return part


def _check_posterior(posterior: ConjugatePosterior, horizon: int) -> None:
    rewards, space = posterior.reward_cells, posterior.space
    # Two values of a reward keep the branching at two; other families would have infinitely many.
    bernoulli = rewards.in_closed_form and rewards.law is dist.BernoulliProbs
    if rewards.learns and not bernoulli:
        law = getattr(rewards.law, "__name__", "other")
        raise ValueError(
            f"prior has {law} rewards of unknown mean, expected known or Bernoulli ones: two outcomes each"
        )
    if space.horizon not in (None, horizon):
        raise ValueError(
            f"objective is Episodic({horizon}), expected Episodic({space.horizon}), the steps of the space"
        )


def _start(initial: InitialLike | None, space: StateActionSpace) -> Float[np.ndarray, " S"]:
    if initial is None:
        return np.full(space.n_states, 1 / space.n_states)
    start = space.initial_probs(initial)
    return start / start.sum()


@contextmanager
def _counter(what: str, total: int | None = None) -> Iterator[Callable[[int], object]]:
    """A progress bar."""
    with bar_of(total, " hyper-states", what=what) as bar:
        yield bar.update


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
        # Shift the field down, mask its bits, add the concentration before the first step.
        field = codes[:, self.word[counter]] >> np.uint64(self.shift[counter])
        return (field & np.uint64(2**width - 1)) + self.base[counter]

    def increment(self, counters: tuple[int, ...], step: int) -> tuple[int, ...]:
        """What one more count in each of `counters` adds to the words of a code, at `step`."""
        words = [0] * self.num_words
        for counter in counters:
            # A counter that no later step reads is not raised: fewer different codes.
            if counter >= 0 and self.last[counter] > step and self.width[counter]:
                words[self.word[counter]] += 1 << int(self.shift[counter])
        return tuple(words)

    def kept(self, step: int) -> Word | None:
        """The bits that matter after `step`; None: all that have been used so far."""
        forgotten = np.flatnonzero((self.last == step) & (self.width > 0))
        if not forgotten.size:
            return None
        # All ones, with zeros in the fields of the counters that are forgotten.
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
        # Rows repeat where they do not depend on the step.
        row = int(self.row[step % len(self.row), state, action])
        if row < 0:
            return []
        first = row * self.num_columns
        # Structural zeros are no part of the total.
        return [first + k for k in range(self.num_columns) if self.counters.base[first + k] > 0]

    def branches(self, step: int, state: int, action: int) -> list[Branch]:
        """The outcomes of positive probability."""
        index = (step % len(self.row), state, action)
        row, columns, cells = int(self.row[index]), self.column[index].tolist(), self.cell[index].tolist()
        probs, rewards, branches = self.known[index].tolist(), self.reward[index].tolist(), []
        for outcome, (column, cell) in enumerate(zip(columns, cells, strict=True)):
            counter = row * self.num_columns + column if row >= 0 and column >= 0 else -1
            # A known row by its probabilities, an unknown one by its concentrations.
            possible = probs[outcome] > 0 if row < 0 else counter >= 0 and self.counters.base[counter] > 0
            if possible:
                reward_counter = -1 if cell < 0 else self.num_rows * self.num_columns + 2 * cell
                # The end has no state, and nothing to come.
                next_state = outcome if outcome < self.n_states else None
                branches.append(Branch(probs[outcome], counter, rewards[outcome], reward_counter, next_state))
        return branches

    def increments(self, step: int, branch: Branch) -> list[tuple[int, ...]]:
        """What the outcome adds to a code, with a reward of 0 and of 1; once where that is the same.

        Nothing where there is no hyper-state afterwards.
        """
        if branch.next_state is None or step == self.horizon - 1:
            return []
        counters = self.counters
        if branch.reward_counter < 0:
            return [counters.increment((branch.row_counter,), step)]
        # Both counters of the reward cell: 0 and 1 lie side by side.
        pair = [counters.increment((branch.row_counter, branch.reward_counter + x), step) for x in (0, 1)]
        # If neither count matters any more, the two hyper-states are one.
        return pair if pair[0] != pair[1] else pair[:1]


def hyper_problem(posterior: ConjugatePosterior, horizon: int, discount: float = 1.0) -> HyperProblem:
    """The episode of `horizon` steps under `posterior`, whose rewards are known or Bernoulli (not checked here)."""
    rows, rewards, space = posterior.transition_probs, posterior.reward_cells, posterior.space
    assert isinstance(rewards, RewardCells | KnownRewards)
    with jax.enable_x64(True):
        # Copies: JAX may hold float32 versions of the arrays of `posterior` itself.
        arrays = jax.tree.map(np.array, (rows, rewards))
        base = np.asarray(arrays[0].site_concentration, np.float64)
        beta = None if isinstance(rewards, KnownRewards) else arrays[1].site_belief
        reward_base = np.zeros((0, 2)) if beta is None else np.stack([beta.concentration0, beta.concentration1], -1)
    # A leading axis of steps, of length one where there is none.
    full = rows.shape if space.horizon is not None else (1, *rows.shape)
    full_table = lambda table: np.broadcast_to(table, rows.shape).reshape(full)  # noqa: E731
    row = np.reshape(np.arange(len(base)) if rows.row is None else rows.row, full[:-1])
    cell, reward = (full_table(x if rewards.by_outcome else x[..., None]) for x in _reward_tables(rewards))
    legal = np.ones(full[1:3], bool) if space.legal is None else np.asarray(space.legal)
    return HyperProblem(
        horizon=horizon,
        legal=legal,
        counters=_counters(base, np.asarray(reward_base), (row, cell, legal), horizon),
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


def _counters(base: np.ndarray, reward_base: np.ndarray, tables: tuple[np.ndarray, ...], horizon: int) -> Counters:
    """Bit fields that are wide enough for what an episode can add."""
    row, cell, legal = tables
    num_counters = base.size + reward_base.size
    check_memory(
        f"posterior has {num_counters} counts", COUNTER_BYTES * num_counters, "known or shared rows have fewer"
    )
    uses, last = np.zeros((2, base.size + reward_base.size), int)
    for step in range(horizon):
        used_rows = row[step % len(row)][legal]
        used_cells = cell[step % len(row)][legal]
        row_counters = np.unique(used_rows[used_rows >= 0])[:, None] * base.shape[1] + np.arange(base.shape[1])
        # The two counters of every cell follow those of the rows.
        reward_counters = base.size + 2 * np.unique(used_cells[used_cells >= 0])[:, None] + np.arange(2)
        counters_in_use = np.concatenate([row_counters.ravel(), reward_counters.ravel()])
        uses[counters_in_use] += 1
        last[counters_in_use] = step
    # A counter that is used n times needs the bits of n - 1; a row with one outcome needs none.
    varies = np.repeat((base > 0).sum(-1) > 1, base.shape[1]) & (base.ravel() > 0)
    varies = np.concatenate([varies, np.ones(reward_base.size, bool)])
    width = np.array([int(n - 1).bit_length() if n and v else 0 for n, v in zip(uses, varies, strict=True)])
    word, shift = np.zeros((2, width.size), int)
    used, place = 0, 0
    # First fit in order: a field never crosses a word.
    for counter in np.flatnonzero(width):
        if used + width[counter] > WORD_BITS:
            used, place = 0, place + 1
        word[counter], shift[counter] = place, used
        used += width[counter]
    return Counters(np.concatenate([base.ravel(), reward_base.ravel()]), last, width, word, shift, place + 1)


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
        max_bytes: that enumerating and solving may take; None: half of the memory that is free.

    Raises:
        ValueError: there are more, or they would take more.
    """
    limit = memory_limit() if max_bytes is None else max_bytes
    words = problem.counters.num_words
    # All counts zero: the belief before the episode.
    first = np.zeros((1, words), np.uint64)
    layers = [[first if state in starts else first[:0] for state in range(problem.n_states)]]
    total = len(starts)
    for step in range(problem.horizon):
        if total > most:
            raise ValueError(
                f"max_hyperstates is {most}, expected at least {total} (steps 0 to {step} of {problem.horizon} reach "
                "that many, or more): a shorter horizon, known or shared rows have fewer"
            )
        # Beside all codes: concentrations and values of all branches, while the largest state of a layer is solved.
        largest = int(np.argmax([len(codes) for codes in layers[-1]]))
        # Words and floats that the largest state needs while its layer is solved.
        words_per_hyperstate = SCRATCH + 2 * words + problem.legal.shape[1] + 2 * len(moves(problem, step, largest))
        room = limit // WORD_BYTES - total * words - len(layers[-1][largest]) * words_per_hyperstate
        layer = _next_layer(problem, step, layers[-1], room) if step < problem.horizon - 1 and room >= 0 else []
        if room < 0 or layer is None:
            source = "half of what is free; see max_bytes" if max_bytes is None else "max_bytes"
            raise ValueError(
                f"objective is Episodic({problem.horizon}): after the {total} hyper-states of steps 0 to {step}, of "
                f"{WORD_BYTES * words} bytes each, there is no room for more, expected at most {in_words(limit)} "
                f"({source}): a shorter horizon, known or shared rows take less"
            )
        if layer:
            layers.append(layer)
            total += sum(map(len, layer))
            report(sum(map(len, layer)))
    return layers


def _next_layer(problem: HyperProblem, step: int, layer: Layer, room: int) -> Layer | None:
    """The hyper-states that those of `layer` lead to; None: they cannot be found with `room` words."""
    # Adding a constant keeps codes sorted: one sorted run for each move.
    runs: list[Layer] = [[np.zeros((0, problem.counters.num_words), np.uint64)] for _ in layer]
    counters_kept, pending = problem.counters.kept(step), 0
    # No code, no move: states that cannot be reached at this step.
    for state, codes in enumerate(layer):
        for next_state, increment in moves(problem, step, state) if len(codes) else ():
            pending += 2 * codes.size  # the run, and its place in the union
            if pending > room:
                return None
            runs[next_state].append(child(codes, counters_kept, increment))
    return [union(codes_of_state) for codes_of_state in runs]


def moves(problem: HyperProblem, step: int, state: int) -> list[tuple[int, tuple[int, ...]]]:
    """Next state and increment of all that can happen in a state, each once."""
    branches = (branch for action in problem.actions(state) for branch in problem.branches(step, state, action))
    # Different outcomes may lead to the same hyper-state: a dictionary keeps each once.
    distinct = {(branch.next_state, add): None for branch in branches for add in problem.increments(step, branch)}
    return [(next_state, add) for next_state, add in distinct if next_state is not None]


def child(codes: Codes, kept: Word | None, increment: tuple[int, ...]) -> Codes:
    """The codes after a step, in the order of those before it unless bits were forgotten."""
    # Unsigned addition of a constant: fields are wide enough never to carry into the next.
    return (codes if kept is None else codes & kept) + np.array(increment, np.uint64)


def union(runs: Layer) -> Codes:
    """The different codes of several runs, sorted."""
    codes = np.concatenate(runs)
    if codes.shape[1] == 1:
        codes = np.sort(codes[:, 0], kind="stable")[:, None]  # merges sorted runs
    else:
        codes = codes[np.argsort(search_key(codes), kind="stable")]
    different = np.ones(len(codes), bool)
    # Equal neighbours in the sorted order are one hyper-state.
    different[1:] = (codes[1:] != codes[:-1]).any(-1)
    return codes[different]


def search_key(codes: Codes) -> np.ndarray:
    """One sortable entry for each code: the word, or the bytes of several words."""
    if codes.shape[1] == 1:
        return codes[:, 0]
    # Big-endian bytes sort as the numbers do.
    return np.ascontiguousarray(codes, ">u8").view(f"S{8 * codes.shape[1]}")[:, 0]


class Ahead(NamedTuple):
    """What the backup of a step needs of the next: sorted codes and values of every state, and the bits kept."""

    keys: list[np.ndarray]
    values: list[np.ndarray]
    kept: Word | None

    def value(self, codes: Codes, next_state: int, increment: tuple[int, ...]) -> Float[np.ndarray, " N"]:
        """The values of the hyper-states that `codes` lead to."""
        target = search_key(child(codes, self.kept, increment))
        # Sorted keys: the place of a child by binary search.
        return self.values[next_state][np.searchsorted(self.keys[next_state], target)]


def _first_q(problem: HyperProblem, layers: list[Layer], report: Callable[[int], object]) -> Float[np.ndarray, "S A"]:
    """q of the first step, by backward induction; nan where an episode cannot start. Uses `layers` up."""
    ahead, q = Ahead([], [], None), []
    for step in reversed(range(problem.horizon)):
        # Only two layers are needed at a time; the codes of those behind are freed.
        layer = layers.pop()
        ahead = Ahead(ahead.keys, ahead.values, problem.counters.kept(step))
        q = [_action_values(problem, step, state, codes, ahead) for state, codes in enumerate(layer)]
        values = [np.maximum.reduce(list(q_of_state.values())) for q_of_state in q]
        # What the step before needs: keys to look up, and values.
        ahead = Ahead([search_key(codes) for codes in layer], values, None)
        report(sum(map(len, layer)))
    first = np.where(problem.legal, np.nan, -np.inf)
    for state, q_of_state in enumerate(q):
        for action, value in q_of_state.items():
            first[state, action] = value[0] if value.size else np.nan
    return first


def _action_values(
    problem: HyperProblem, step: int, state: int, codes: Codes, ahead: Ahead
) -> dict[int, Float[np.ndarray, " N"]]:
    """The value of every legal action in the hyper-states of one state."""
    # Computed once for each counter, and for each move, of the state.
    concentration = cache(partial(problem.counters.concentration, codes))
    value = cache(partial(ahead.value, codes))

    def branch_value(branch: Branch) -> float | Float[np.ndarray, " N"]:
        """The expected reward of an outcome and the value of the next hyper-state."""
        next_values = [value(branch.next_state, add) for add in problem.increments(step, branch)]
        if problem.discount != 1:
            next_values = [problem.discount * values for values in next_values]
        if branch.reward_counter < 0:
            return branch.reward + next_values[0] if next_values else branch.reward
        # A Bernoulli reward: one with probability ones / (ones + zeros), and the counts after 0 and after 1 may differ.
        zeros, ones = concentration(branch.reward_counter), concentration(branch.reward_counter + 1)
        if len(next_values) == 2:
            return (ones * (1.0 + next_values[1]) + zeros * next_values[0]) / (ones + zeros)
        return ones / (ones + zeros) + (next_values[0] if next_values else 0.0)

    def action_value(action: int) -> float | Float[np.ndarray, " N"]:
        branches = problem.branches(step, state, action)
        # The last step with rewards of the pair: the outcome does not matter.
        if step == problem.horizon - 1 and not problem.by_outcome:
            return branch_value(branches[0])
        counters = problem.row_counters(step, state, action)
        if not counters:
            # A known row: sum over outcomes of probability times value.
            return sum(branch.prob * branch_value(branch) for branch in branches)
        # Posterior predictive of an outcome: its concentration over the total of the row.
        weighted = sum(concentration(branch.row_counter) * branch_value(branch) for branch in branches)
        return weighted / sum(map(concentration, counters))

    return {action: np.broadcast_to(action_value(action), len(codes)) for action in problem.actions(state)}


def _describe_start(optimum: BayesOptimal) -> str:
    size, used = len(optimum.initial), int((optimum.initial > 0).sum())
    if not optimum.initial_given:
        return f"start: uniform over the {size} states (no initial distribution was given)"
    return f"start: the given distribution over {used} of {size} states"


def _describe_actions(optimum: BayesOptimal) -> list[str]:
    """The best first action of the first few states."""
    names, shown = optimum.space.action_names, np.flatnonzero(optimum.initial > 0)[:MOST_STATES]
    states = optimum.space.state_names
    lines = [
        f"from state {states[s]!r}: {optimum.v[s]:.9g}, first action {names[optimum.q[s].argmax()]!r}" for s in shown
    ]
    remaining = int((optimum.initial > 0).sum()) - len(shown)
    return lines + ([f"and {remaining} more states"] if remaining else [])
