"""`bayes_optimal`: the most that any agent can expect of an episode whose MDP is drawn from the prior. Host side.

An MDP whose rows and rewards are believed in is one whose state is a hyper-state (state and counts): it is known, and
solved by backward induction (Martin 1967, *Bayesian Decision Problems and Markov Chains*; Duff 2002, chapter 1). Three
parts: the vectors of counts, the hyper-states step by step, the backward induction over them.

A hyper-state of step t is a state and the counts of the Dirichlet rows and Bernoulli reward cells that can still
matter: a count that no later step uses is dropped. The vector of counts is read as one number or string (its code), so
that every transition adds a constant to the code, and the codes of a step are a union of sorted runs: 17 times as fast
as a dictionary of count vectors (benchmarks/bayes_optimal.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float, Int, Shaped

from bayes_mdp.decisions.policy_evaluation import describe_objective, read_start
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.route import infer
from bayes_mdp.inference.untried_rewards import TRIED, UntriedRewards, untried_rewards
from bayes_mdp.mdp import Episodic, Objective, StateActionSpace
from bayes_mdp.mdp.abilities import Sizes
from bayes_mdp.mdp.contexts import refuse_contexts
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.memory import check_memory, in_words, memory_limit
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import ArrayLike, InitialLike
from bayes_mdp.utils.validation import check_count

Codes = Shaped[np.ndarray, " _N"]
"""Vectors of counts, each as one number of 64 bits, or as a string of bytes where it is longer."""
Layer = list[Codes]
Raised = tuple[int, ...]
"""Places of the counts that are one higher afterwards."""
WORD_BYTES = 8
COUNTER_BYTES = 110  # of the tables of `hyper_problem` (measured: 98)
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
        start: where episodes start, in words.
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
    start: str = eqx.field(static=True)
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
                f"start: {self.start}",
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
        read_start(Sizes.of(space), initial, space)
    horizon, discount = _check_objective(objective)
    check_count("max_hyperstates", max_hyperstates)
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)
    posterior = _posterior(prior, space)
    _check_posterior(posterior, horizon)
    start, has_initial, start_words = read_start(Sizes.of(posterior.space), initial, posterior.space)
    problem = hyper_problem(posterior, horizon, discount)
    # Forwards: which hyper-states can be met at all. Then backwards over these alone.
    with bar_of(None, " hyper-states", what="counting") as bar:
        layers = enumerate_hyperstates(problem, np.flatnonzero(start > 0), max_hyperstates, bar.update, max_bytes)
    total = sum(len(codes) for layer in layers for codes in layer)
    with bar_of(total, " hyper-states", what="solving") as bar:
        q = _first_q(problem, layers, bar.update)
    # v = max_a q; illegal actions are -inf, states without a start nan.
    v = q.max(-1)
    # A nan of a state that never starts must not reach the sum.
    value = float(np.where(start > 0, v, 0.0) @ start)
    belief_space, untried = posterior.space, untried_rewards(posterior)
    return BayesOptimal(value, v, q, total, horizon, start, has_initial, start_words, belief_space, discount, untried)


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


class Branch(NamedTuple):
    """What can happen after an action.

    Args:
        prob: of the outcome, where the row is known.
        row_counter: the counter of the outcome, or -1: the row is known.
        reward: the known reward.
        reward_counter: the counter of a reward 0 (that of a reward 1 follows), or -1: the reward is known.
        next_state: or None: the episode is over.
        raised: the counts that are one higher afterwards, with a reward of 0 and of 1; once where that is the same,
            empty where there is no hyper-state afterwards.
    """

    prob: float
    row_counter: int
    reward: float
    reward_counter: int
    next_state: int | None
    raised: list[Raised]


@dataclass(frozen=True, eq=False)
class HyperProblem:
    """An episode under a conjugate belief, as a problem over hyper-states.

    Args:
        horizon: H.
        legal: Bool[S A].
        base: Float64[C], concentration of each counter before the first step: those of the stacked rows ([M K],
            row-major), then of the reward cells ([L 2]: rewards 0, rewards 1).
        last: Int[C], the last step that uses the counter: nothing is counted from then on.
        place: Int[C], the place of its count in the vector of a hyper-state, or -1: nothing is ever counted.
        count_type: of a count.
        num_words: W, 64-bit words of a vector.
        prob: Float64[T S A O], probabilities of known rows; T is H, or 1 where nothing depends on the step.
        row_counter: Int[T S A O], the counter of an outcome that is possible in an unknown row, else -1.
        reward: Float64[T S A O], known rewards.
        reward_counter: Int[T S A O], the counter of a reward 0 (that of a reward 1 follows), or -1: it is known.
        by_outcome: whether rewards depend on the outcome.
        discount: of the next step.
    """

    horizon: int
    legal: Bool[np.ndarray, "S A"]
    base: Float[np.ndarray, " C"]
    last: Int[np.ndarray, " C"]
    place: Int[np.ndarray, " C"]
    count_type: np.dtype
    num_words: int
    prob: Float[np.ndarray, "T S A O"]
    row_counter: Int[np.ndarray, "T S A O"]
    reward: Float[np.ndarray, "T S A O"]
    reward_counter: Int[np.ndarray, "T S A O"]
    by_outcome: bool
    discount: float = 1.0

    @property
    def num_places(self) -> int:
        """Counts that fit into a vector."""
        return WORD_BYTES * self.num_words // self.count_type.itemsize

    def actions(self, state: int) -> list[int]:
        """The legal actions."""
        return np.flatnonzero(self.legal[state]).tolist()

    def branches(self, step: int, state: int, action: int) -> list[Branch]:
        """The outcomes of positive probability."""
        # Rows repeat where they do not depend on the step.
        index, branches = (step % len(self.prob), state, action), []
        tables = (self.prob, self.row_counter, self.reward, self.reward_counter)
        for outcome, (prob, row_counter, reward, reward_counter) in enumerate(
            zip(*(table[index].tolist() for table in tables), strict=True)
        ):
            if prob == 0 and row_counter < 0:
                continue
            # The end has no state, and nothing to come.
            next_state, raised = outcome if outcome < len(self.legal) else None, []
            if next_state is not None and step < self.horizon - 1:
                # After a reward of 0 and of 1: the two hyper-states are one unless a later step reads these counts.
                counters = [(row_counter, -1 if reward_counter < 0 else reward_counter + x) for x in (0, 1)]
                raised = list(dict.fromkeys(self._raised(step, pair) for pair in counters))
            branches.append(Branch(prob, row_counter, reward, reward_counter, next_state, raised))
        return branches

    def _raised(self, step: int, counters: tuple[int, int]) -> Raised:
        """The places of those of two counters that a later step reads."""
        return tuple(int(self.place[c]) for c in counters if c >= 0 and self.place[c] >= 0 and self.last[c] > step)

    def moves(self, step: int, state: int) -> list[tuple[int, Raised]]:
        """Next state and raised counts of all that can happen in a state, each once."""
        branches = (branch for action in self.actions(state) for branch in self.branches(step, state, action))
        distinct = dict.fromkeys((branch.next_state, raised) for branch in branches for raised in branch.raised)
        return [(next_state, raised) for next_state, raised in distinct if next_state is not None]

    def no_counts(self) -> Codes:
        """[1]: the belief before the episode."""
        return np.zeros(1, np.uint64 if self.num_words == 1 else f"S{WORD_BYTES * self.num_words}")

    def concentration(self, codes: Codes, counter: int) -> float | Float[np.ndarray, " N"]:
        """Concentration of a counter in every hyper-state: Float64[N], or a number where nothing is counted."""
        if self.place[counter] < 0:
            return float(self.base[counter])
        counts = codes.view(self.count_type).reshape(-1, self.num_places)
        return counts[:, self.place[counter]] + self.base[counter]

    def child(self, codes: Codes, step: int, raised: Raised) -> Codes:
        """The codes after `step`, in the order of those before it unless counts were forgotten."""
        added, kept = np.zeros((2, self.num_places), self.count_type)
        added[list(raised)] = 1
        words = codes.view(np.uint64).reshape(-1, self.num_words)
        forgotten = self.place[(self.last == step) & (self.place >= 0)]
        if forgotten.size:
            kept[:] = np.iinfo(self.count_type).max
            kept[forgotten] = 0
            words = words & kept.view(np.uint64)
        # Word by word: a count never reaches the size of its type, so that nothing is carried into the next.
        return (words + added.view(np.uint64)).view(codes.dtype)[:, 0]


def hyper_problem(posterior: ConjugatePosterior, horizon: int, discount: float = 1.0) -> HyperProblem:
    """The episode of `horizon` steps under `posterior`, whose rewards are known or Bernoulli (not checked here)."""
    rows, rewards, space = posterior.transition_probs, posterior.reward_cells, posterior.space
    assert isinstance(rewards, RewardCells | KnownRewards)
    # Arrays of NumPy, whatever the posterior has.
    arrays = jax.tree.map(np.asarray, (rows, rewards))
    base = np.asarray(arrays[0].site_concentration, np.float64)
    beta = None if isinstance(rewards, KnownRewards) else arrays[1].site_belief
    reward_base = np.zeros((0, 2)) if beta is None else np.stack([beta.concentration0, beta.concentration1], -1)
    counts = base.size + reward_base.size
    check_memory(f"posterior has {counts} counts", COUNTER_BYTES * counts, "known or shared rows have fewer")
    # A leading axis of steps, of length one where there is none.
    full = rows.shape if space.horizon is not None else (1, *rows.shape)
    full_table = lambda table: np.broadcast_to(table, rows.shape).reshape(full)  # noqa: E731
    row = np.reshape(np.arange(len(base)) if rows.row is None else rows.row, full[:-1])[..., None]
    column = full_table(np.arange(full[-1]) if rows.column is None else rows.column)
    row_counter = np.where((row >= 0) & (column >= 0), row * base.shape[1] + column, -1)
    # A structural zero has no counter.
    row_counter[np.append(base, 0.0)[row_counter] <= 0] = -1
    cell, reward = (full_table(x if rewards.by_outcome else x[..., None]) for x in _reward_tables(rewards))
    # The two counters of every cell follow those of the rows.
    reward_counter = np.where(cell < 0, -1, base.size + 2 * cell)
    legal = np.ones(full[1:3], bool) if space.legal is None else np.asarray(space.legal)
    uses, last = np.zeros((2, counts), int)
    used = []
    for rows_at, rewards_at in zip(row_counter, reward_counter, strict=True):
        of_rows, of_rewards = np.unique(rows_at[legal]), np.unique(rewards_at[legal])
        used.append(np.concatenate([of_rows[of_rows >= 0], *(of_rewards[of_rewards >= 0] + x for x in (0, 1))]))
    for step in range(horizon):
        uses[used[step % len(used)]] += 1
        last[used[step % len(used)]] = step
    # What is used once is never counted, nor is the only outcome of a row.
    varies = np.concatenate([np.repeat((base > 0).sum(-1) > 1, base.shape[1]), np.ones(reward_base.size, bool)])
    counted = varies & (uses > 1)
    count_type = np.min_scalar_type(horizon)
    return HyperProblem(
        horizon=horizon,
        legal=legal,
        base=np.concatenate([base, reward_base], None),
        last=last,
        place=np.where(counted, counted.cumsum() - 1, -1),
        count_type=count_type,
        num_words=max(1, -(-int(counted.sum()) * count_type.itemsize // WORD_BYTES)),
        prob=np.where(row < 0, full_table(0.0 if rows.known is None else rows.known), 0.0),
        row_counter=row_counter,
        reward=reward,
        reward_counter=reward_counter,
        by_outcome=rewards.by_outcome,
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
    words, first = problem.num_words, problem.no_counts()
    layers = [[first if state in starts else first[:0] for state in range(len(problem.legal))]]
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
        words_per_hyperstate = SCRATCH + 2 * words + problem.legal.shape[1] + 2 * len(problem.moves(step, largest))
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
    runs: list[Layer] = [[problem.no_counts()[:0]] for _ in layer]
    pending = 0
    # No code, no move: states that cannot be reached at this step.
    for state, codes in enumerate(layer):
        for next_state, raised in problem.moves(step, state) if len(codes) else ():
            pending += 2 * len(codes) * problem.num_words  # the run, and its place in the union
            if pending > room:
                return None
            runs[next_state].append(problem.child(codes, step, raised))
    return [union(codes_of_state) for codes_of_state in runs]


def union(runs: Layer) -> Codes:
    """The different codes of several runs, sorted."""
    codes = np.sort(np.concatenate(runs), kind="stable")  # merges sorted runs
    # Equal neighbours in the sorted order are one hyper-state.
    return codes[np.append(True, codes[1:] != codes[:-1])[: len(codes)]]


def _first_q(problem: HyperProblem, layers: list[Layer], report: Callable[[int], object]) -> Float[np.ndarray, "S A"]:
    """q of the first step, by backward induction; nan where an episode cannot start. Uses `layers` up."""
    next_layer: Layer = []
    next_values, q = [], []
    for step in reversed(range(problem.horizon)):
        # Only two layers are needed at a time; the codes of those behind are freed.
        layer = layers.pop()
        solve = partial(_action_values, problem, step, next_layer=next_layer, next_values=next_values)
        q = [solve(state, codes) for state, codes in enumerate(layer)]
        next_layer, next_values = layer, [np.maximum.reduce(list(q_of_state.values())) for q_of_state in q]
        report(sum(map(len, layer)))
    first = np.where(problem.legal, np.nan, -np.inf)
    for state, q_of_state in enumerate(q):
        for action, value in q_of_state.items():
            first[state, action] = value[0] if value.size else np.nan
    return first


def _action_values(
    problem: HyperProblem, step: int, state: int, codes: Codes, next_layer: Layer, next_values: list[np.ndarray]
) -> dict[int, Float[np.ndarray, " N"]]:
    """The value of every legal action in the hyper-states of one state."""
    # Computed once for each counter, and for each move, of the state.
    concentration = cache(partial(problem.concentration, codes))

    @cache
    def value_after(next_state: int, raised: Raised) -> Float[np.ndarray, " N"]:
        """The values of the next hyper-states; codes are sorted, so that each is found by binary search."""
        places = np.searchsorted(next_layer[next_state], problem.child(codes, step, raised))
        values = next_values[next_state][places]
        return values if problem.discount == 1 else problem.discount * values

    def branch_value(branch: Branch) -> float | Float[np.ndarray, " N"]:
        """The expected reward of an outcome and the value of the next hyper-state."""
        after = [] if branch.next_state is None else [value_after(branch.next_state, x) for x in branch.raised]
        if branch.reward_counter < 0:
            return branch.reward + after[0] if after else branch.reward
        # A Bernoulli reward: one with probability ones / (ones + zeros), and the counts after 0 and after 1 may differ.
        zeros, ones = concentration(branch.reward_counter), concentration(branch.reward_counter + 1)
        if len(after) == 2:
            return (ones * (1.0 + after[1]) + zeros * after[0]) / (ones + zeros)
        return ones / (ones + zeros) + (after[0] if after else 0.0)

    def action_value(action: int) -> float | Float[np.ndarray, " N"]:
        branches = problem.branches(step, state, action)
        # The last step with rewards of the pair: the outcome does not matter.
        if step == problem.horizon - 1 and not problem.by_outcome:
            return branch_value(branches[0])
        if branches[0].row_counter < 0:
            # A known row: sum over outcomes of probability times value.
            return sum(branch.prob * branch_value(branch) for branch in branches)
        # Posterior predictive of an outcome: its concentration over the total of the row.
        weighted = sum(concentration(branch.row_counter) * branch_value(branch) for branch in branches)
        return weighted / sum(concentration(counter) for counter in sorted(branch.row_counter for branch in branches))

    return {action: np.broadcast_to(action_value(action), len(codes)) for action in problem.actions(state)}


def _describe_actions(optimum: BayesOptimal) -> list[str]:
    """The best first action of the first few states."""
    names, shown = optimum.space.action_names, np.flatnonzero(optimum.initial > 0)[:MOST_STATES]
    states = optimum.space.state_names
    lines = [
        f"from state {states[s]!r}: {optimum.v[s]:.9g}, first action {names[optimum.q[s].argmax()]!r}" for s in shown
    ]
    remaining = int((optimum.initial > 0).sum()) - len(shown)
    return lines + ([f"and {count_of(remaining, 'more state')}"] if remaining else [])
