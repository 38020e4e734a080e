"""Checks of a belief by a log: new outcomes, the chosen policy's value, and the returns of the behaviour.

The first two go from one half of the log to the other. Each compares a statistic of the second half with its
replicates: rows drawn from the belief of the first half, outcomes of the second half's own pairs drawn from them. Under
the belief data and replicates are exchangeable, so the rank p-values are valid in any sample size (Rubin 1984, in the
held-out form). Rows of some pairs come from any posterior in one layout, `RowDraws`. Host-side.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray
from scipy.special import ndtr

from bayes_mdp.decisions.host_optima import episodic_values, first_order_variance
from bayes_mdp.decisions.host_values import PolicyPairs, proven
from bayes_mdp.decisions.policy_evaluation import policy_value
from bayes_mdp.inference.conjugate.conjugate_posterior import row_concentrations
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.pair_draws import Drawn, PairRows, pair_draws
from bayes_mdp.mdp import (
    MDP,
    Discounted,
    Episodic,
    FirstExit,
    HasVariances,
    Log,
    Objective,
    SparseMDP,
    StateActionSpace,
    Transitions,
)
from bayes_mdp.mdp.data.log_split import NO_END, NO_EPISODES, returns_of
from bayes_mdp.mdp.labels import policy_of
from bayes_mdp.mdp.protocols import Posterior
from bayes_mdp.random.host_generator import host_generator

PolicyArray: TypeAlias = Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"]
"""Actions, or their probabilities."""
DRAWS = 100
LARGE = 2**20  # numbers in a draw, from which the closed form takes the place of draws
AT_ONCE, NUMBERS_AT_ONCE = 16, 2**24  # draws that are made, and evaluated, at a time, and their numbers


class RowDraws(NamedTuple):
    """Rows of Q pairs over K places, the last one the end of the episode.

    Args:
        state, action: [Q].
        next_state: [Q K], the state of each place, S for the end.
        mean: [Q K], posterior means.
        draw: the next draw, [Q K].
    """

    state: Int[np.ndarray, " Q"]
    action: Int[np.ndarray, " Q"]
    next_state: Int[np.ndarray, "Q K"]
    mean: Float[np.ndarray, "Q K"]
    draw: Callable[[], Float[np.ndarray, "Q K"]]

    def place(self, pair: Int[np.ndarray, " n"], reached: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The place of each state in the row of its pair, flat; of a state that is listed twice the first place."""
        # One number for a pair and a state.
        size = int(self.next_state.max()) + 2
        code = (np.arange(len(self.state))[:, None] * size + self.next_state).reshape(-1)
        order = np.argsort(code, kind="stable")
        # The first of equal codes: states that are listed twice share its place.
        return order[np.searchsorted(code[order], np.asarray(pair).astype(np.int64) * size + reached)]


def row_draws(key: PRNGKeyArray, posterior: Posterior, needed: Bool[np.ndarray, "S A"]) -> RowDraws:
    """The rows of the needed pairs; those alone are drawn where the posterior can.

    Args:
        key: of the draws.
        posterior: of a stationary MDP.
        needed: the pairs, at least one.
    """
    state, action = np.nonzero(needed)
    next_state, mean = _rows(posterior.mean_mdp(), state, action)
    draws = pair_draws(key, posterior, needed)
    # Draws list the possible outcomes of each pair one after the other: `place` puts them into the table [Q K].
    layout = RowDraws(state, action, next_state, mean, lambda: mean)
    place, number = layout.place(draws.rows.pair, draws.rows.next_state), at_once(next_state.size)

    def rows_of_draws() -> Iterator[Float[np.ndarray, "Q K"]]:
        while True:
            for probs in draws.draw(number).probs:
                row = np.bincount(place, probs, next_state.size)
                yield row.reshape(next_state.shape)

    stream = rows_of_draws()
    return layout._replace(draw=lambda: next(stream))


def at_once(size: int) -> int:
    """How many draws are held at a time: any number gives the same ones.

    Args:
        size: numbers of a draw.
    """
    return max(1, min(AT_ONCE, NUMBERS_AT_ONCE // max(size, 1)))


def _rows(
    mdp: MDP | SparseMDP, state: Int[np.ndarray, " Q"], action: Int[np.ndarray, " Q"]
) -> tuple[Int[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]]:
    """The state of each place, and its probability."""
    # Taken in NumPy: JAX would compile a program for each number of pairs.
    probs = np.asarray(mdp.row_probs)[state, action].astype(np.float64)
    if isinstance(mdp, SparseMDP):
        reached = np.asarray(mdp.successor)[state, action]
    else:
        reached = np.broadcast_to(np.arange(mdp.n_states), probs.shape)
    ends = (
        np.zeros(len(state)) if mdp.end_probs is None else np.asarray(mdp.end_probs)[state, action].astype(np.float64)
    )
    # The end is the last place of every row.
    last = np.full((len(state), 1), mdp.n_states)
    return np.concatenate([reached, last], 1), np.concatenate([probs, ends[:, None]], 1)


def draw_outcomes(
    rng: np.random.Generator, rows: Float[np.ndarray, "Q K"], pair: Int[np.ndarray, " N"]
) -> Int[np.ndarray, " N"]:
    """A place of its row for each of N transitions, flat."""
    cumulative = np.cumsum(rows.reshape(-1))
    width = rows.shape[1]
    before = np.concatenate([[0.0], cumulative[width - 1 :: width]])
    # Inverse transform: a uniform point within the stretch of the pair's own row on the cumulated probabilities of all.
    target = before[pair] + rng.random(len(pair)) * (before[pair + 1] - before[pair])
    return np.clip(np.searchsorted(cumulative, target, side="right"), pair * width, pair * width + width - 1)


def draw_counts(
    rng: np.random.Generator, rows: Float[np.ndarray, "Q K"], pair: Int[np.ndarray, " N"]
) -> Int[np.ndarray, "Q K"]:
    """How many of N transitions of these pairs come to each place of their row."""
    # Cheap per transition, or cheap per place.
    if len(pair) <= rows.size:
        return np.bincount(draw_outcomes(rng, rows, pair), minlength=rows.size).reshape(rows.shape)
    # A number for each place costs less than one for each transition.
    number = np.bincount(pair, minlength=len(rows))
    return rng.multinomial(number, rows / rows.sum(-1, keepdims=True))


class Replicated(NamedTuple):
    """A statistic of held-out data and of its replicates.

    Args:
        observed: of the data.
        replicates: [R].
    """

    observed: float
    replicates: Float[np.ndarray, " R"]

    @property
    def p_low(self) -> float:
        """Probability under the belief of a value as low as the data's."""
        # The data count as one of the replicates: p is never zero.
        return float((1 + np.sum(self.replicates <= self.observed)) / (1 + len(self.replicates)))

    @property
    def two_sided_p_value(self) -> float:
        """Twice the smaller tail."""
        high = float((1 + np.sum(self.replicates >= self.observed)) / (1 + len(self.replicates)))
        return min(1.0, 2 * min(self.p_low, high))


Progress = Callable[[], object]
"""Called after each replicate."""


class NewOutcomes(NamedTuple):
    """Transitions of the second half whose outcome the first half never had in that pair.

    Args:
        share: of all transitions of the second half, or of the use of the pairs.
        arrivals: how often the first half came to the states that they reach, from any pair: the mean of
            log(1 + number) over them; 0 where there are none.
    """

    share: Replicated
    arrivals: Replicated


def new_outcomes(
    key: PRNGKeyArray,
    posterior: Posterior,
    space: StateActionSpace,
    first: Transitions,
    second: Transitions,
    num_replicates: int,
    use: Float[np.ndarray, "S A"] | None = None,
) -> NewOutcomes:
    """How many outcomes of the second half are new in their row, and where they lead.

    A belief whose concentration is wrong expects too many or too few. One that takes all outcomes without data as
    alike, as every symmetric Dirichlet prior does, expects them anywhere, while in most systems they lead to the states
    that are reached often from elsewhere.

    Args:
        key: of the replicates.
        posterior: from the first half.
        space: of the posterior, stationary.
        first, second: the halves.
        num_replicates: R.
        use: time of a policy that the first half chose; each pair then weighs by it instead of by its transitions in
            the second half. None, or of no pair of the second half: every transition weighs the same.
    """
    rng = host_generator(key)
    first, second = first.with_next_state(), second.with_next_state()
    # An outcome is new where the first half has no transition of the same pair to the same state.
    known = np.unique(_codes(first, space))
    state, action = np.asarray(second.state), np.asarray(second.action)
    # Transitions of each pair in the second half.
    count = np.zeros((space.n_states, space.n_actions), np.int64)
    np.add.at(count, (state, action), 1)
    weight, total = _transition_weights(use, count)
    came = np.bincount(np.asarray(first.outcome(space.n_states)), minlength=space.n_states + 1)
    familiar = np.log1p(came)

    def share(pair: Int[np.ndarray, " n"]) -> float:
        # Number by pair first: two sets of the same numbers have one share to the last bit, which ranks need.
        return float(weight @ np.bincount(pair, minlength=len(weight)) / total)

    def arrivals(pair: Int[np.ndarray, " n"], reached: Int[np.ndarray, " n"]) -> float:
        each = weight[pair]
        return float(np.average(familiar[reached], weights=each)) if each.any() else 0.0

    new = ~np.isin(_codes(second, space), known)
    number = np.cumsum(count.ravel() > 0) - 1  # of each pair among those of the second half
    own_pair = number[state[new] * space.n_actions + action[new]]
    own_outcome = np.asarray(second.outcome(space.n_states))[new]
    draw = draw_new_outcomes(key, posterior, space, known, count)
    replicates = [draw(rng) for _ in range(num_replicates)]
    return NewOutcomes(
        Replicated(share(own_pair), np.array([share(pair) for pair, _ in replicates])),
        Replicated(arrivals(own_pair, own_outcome), np.array([arrivals(*drawn) for drawn in replicates])),
    )


def _transition_weights(
    use: Float[np.ndarray, "S A"] | None, count: Int[np.ndarray, "S A"]
) -> tuple[Float[np.ndarray, " Q"], float]:
    """The weight of one transition of each pair that has some, and the sum over all transitions."""
    number = count[count > 0]
    # Without use every transition weighs alike.
    if use is None or not (use[count > 0].sum() > 0):
        return np.ones(len(number)), float(number.sum())
    part = use[count > 0] / use[count > 0].sum()
    return part / number, 1.0


def _codes(transitions: Transitions, space: StateActionSpace) -> Int[np.ndarray, " N"]:
    """One number for each pair and state reached; the end is the state of number S."""
    reached = np.asarray(transitions.outcome(space.n_states)).astype(np.int64)
    pair = np.asarray(transitions.state).astype(np.int64) * space.n_actions + np.asarray(transitions.action)
    return pair * (space.n_states + 1) + reached


def draw_new_outcomes(
    key: PRNGKeyArray,
    posterior: Posterior,
    space: StateActionSpace,
    known: Int[np.ndarray, " n"],
    count: Int[np.ndarray, "S A"],
) -> Callable[[np.random.Generator], tuple[Int[np.ndarray, " new"], Int[np.ndarray, " new"]]]:
    """A draw of the outcomes without data that so many transitions of each pair have; the order says nothing.

    A draw is the pair, by its number among those with transitions, and the state reached (S: the end), of each.

    Args:
        key: of the rows.
        posterior: the belief about them.
        space: of the posterior.
        known: codes of the outcomes with data, sorted.
        count: transitions of each pair.
    """
    size = space.n_states + 1
    needed = count > 0
    number = count[needed]
    part = posterior.exact_part if isinstance(posterior, Fitted) else None
    if part is None or not part.independent_rows or part.transition_probs.known is not None:
        # Without a closed form: the mass of the places without data in a draw of the row, then which of them by their
        # probabilities.
        rows = row_draws(key, posterior, needed)
        base = rows.state.astype(np.int64) * space.n_actions + rows.action
        unseen = ~np.isin(base[:, None] * size + rows.next_state, known)

        def from_rows(rng: np.random.Generator) -> tuple[Int[np.ndarray, " new"], Int[np.ndarray, " new"]]:
            part = rows.draw() * unseen
            new = rng.binomial(number, np.clip(part.sum(-1), 0.0, 1.0))
            pair = np.repeat(np.arange(len(new)), new)
            return pair, rows.next_state.ravel()[draw_outcomes(rng, part, pair)]

        return from_rows
    # The unseen outcomes of a Dirichlet row together have a beta distribution; which of them it is, is independent of
    # that, and by the Polya urn of their concentrations needs no row (Blackwell and MacQueen 1973).
    entries, weight = row_concentrations(part.transition_probs, space, needed)
    # The pair of each possible outcome, as one number.
    pair = entries.pair
    base = entries.state.astype(np.int64) * space.n_actions + entries.action
    unseen = ~np.isin(base[pair] * size + entries.next_state, known)
    # Of every pair: the concentration of outcomes with data, and of those without; the latter's urns lie one after the
    # other.
    old = np.bincount(pair, weight * ~unseen, len(number))
    rest = np.bincount(pair, weight * unseen, len(number))
    ends = np.cumsum(np.bincount(pair, unseen, len(number))).astype(np.int64)
    starts = np.append(0, ends[:-1])
    weight, reached = weight[unseen], entries.next_state[unseen]
    cumulative = np.cumsum(weight)
    before = np.append(0.0, cumulative)[starts]
    mixed = (old > 0) & (rest > 0)

    def from_urns(rng: np.random.Generator) -> tuple[Int[np.ndarray, " new"], Int[np.ndarray, " new"]]:
        # Mass of the unseen outcomes: Beta(rest, old); so many of the transitions are new.
        mass = np.where(mixed, rng.beta(np.where(mixed, rest, 1.0), np.where(mixed, old, 1.0)), rest > 0)
        new = rng.binomial(number, mass)
        urn = np.repeat(np.arange(len(new)), new)
        first = np.repeat(np.cumsum(new) - new, new)
        place = np.arange(len(urn))
        turn = place - first
        # Each is a copy of an earlier one, any of them alike, or drawn afresh, which at first is sure.
        fresh = rng.random(len(urn)) * (rest[urn] + turn) < rest[urn]
        source = np.where(fresh, place, first + (rng.random(len(urn)) * turn).astype(np.int64))
        # A copy of a copy is a copy of the first: follow the links until nothing changes (their number halves each
        # time).
        while not np.array_equal(source, source[source]):
            source = source[source]
        atom = np.searchsorted(cumulative, before[urn] + rng.random(len(urn)) * rest[urn], side="right")
        atom = np.clip(atom, starts[urn], ends[urn] - 1)
        return urn, reached[atom[source]]

    return from_urns


def good_turing(
    transitions: Transitions, space: StateActionSpace, use: Float[np.ndarray, "S A"] | None = None
) -> float:
    """The share of outcomes, pair by pair, that were seen once: an estimate of how often the next one is new.

    Good (1953); it needs no belief and no second half.

    Args:
        transitions, space: of the first half.
        use: weight of each pair, which has an estimate of its own; None: its number of transitions.
    """
    codes, counts = np.unique(_codes(transitions.with_next_state(), space), return_counts=True)
    if use is None or not use.sum() > 0:
        return float((counts == 1).sum() / counts.sum())
    pair = codes // (space.n_states + 1)
    once, all_of = (np.bincount(pair, x, use.size) for x in (counts == 1, counts))
    # Of a pair without data the next outcome is new for sure.
    return float(np.average(np.where(all_of > 0, once / np.maximum(all_of, 1), 1.0), weights=use.ravel()))


def value_of_choice(
    key: PRNGKeyArray,
    posterior: Posterior,
    policy: PolicyArray,
    objective: Objective,
    start: Float[np.ndarray, " S"],
    second: Transitions,
    num_replicates: int,
    done: Progress,
    baseline: Int[np.ndarray, "*B S"] | Float[np.ndarray, "*B S A"] | None = None,
) -> Replicated:
    """The value of a policy, or its gain over a baseline, in the MDP of the second half's frequencies.

    Each row is (counts of the second half + the first half's mean row) / (count + 1); rewards are at their means under
    the first half. A policy that was chosen because its value looks high is worth less there than in replicates,
    unless the belief is right. Where the values of all policies are wrong alike, that hides a gain that is too large,
    or looks like one.

    Args:
        key: of the replicates.
        posterior: from the first half.
        policy: chosen from it.
        objective, start: of the value.
        second: the second half.
        num_replicates: R.
        done: called after each replicate.
        baseline: over which the gain is; it may know which pairs the second half has, not what followed. None: the
            value.
    """
    rng = host_generator(jax.random.fold_in(key, 1))
    second = second.with_next_state()
    mean = posterior.mean_mdp()
    # A policy of actions becomes probabilities of zero and one.
    compared = [
        array if np.issubdtype(array.dtype, np.floating) else np.eye(mean.reward.shape[-1])[array]
        for array in (policy, baseline)
        if array is not None
    ]
    used = np.any([(probs > 0).reshape(-1, *mean.reward.shape[-2:]).any(0) for probs in compared], axis=0)
    state, action = np.nonzero(used)
    next_state, mean_rows = _rows(mean, state, action)
    layout = RowDraws(state, action, next_state, mean_rows, lambda: mean_rows)
    values = _values_of(mean, layout, compared, objective, start)

    def worth(tables: list[Float[np.ndarray, "Q K"]]) -> Float[np.ndarray, " N"]:
        of_policy, *of_baseline = values(tables)
        return of_policy - sum(of_baseline)

    # Only rows of which the second half has transitions differ from their means: the others are not drawn.
    tried = np.zeros(used.shape, bool)
    tried[np.asarray(second.state), np.asarray(second.action)] = True
    tried &= used
    if not tried.any():
        gain = worth([mean_rows])
        return Replicated(float(gain[0]), np.repeat(gain, num_replicates))
    rows, of_tried = row_draws(key, posterior, tried), np.flatnonzero(tried[used])
    # Transitions of pairs that neither policy uses do not bear on their values.
    number = np.full(used.shape, -1)
    number[rows.state, rows.action] = np.arange(len(rows.state))
    pair = number[np.asarray(second.state), np.asarray(second.action)]
    inside = pair >= 0
    reached = np.asarray(second.outcome(used.shape[0]))[inside]
    pair = pair[inside]
    seen = np.bincount(rows.place(pair, reached), minlength=rows.mean.size).reshape(rows.mean.shape)

    def frequencies(counts: Int[np.ndarray, "P K"]) -> Float[np.ndarray, "Q K"]:
        # A prior of one transition, by the mean row of the first half.
        table = mean_rows.copy()
        table[of_tried] = (counts + rows.mean) / (counts.sum(-1, keepdims=True) + 1.0)
        return table

    replicates: list[float] = []
    while len(replicates) < num_replicates:
        block = min(at_once(mean_rows.size), num_replicates - len(replicates))
        replicates.extend(worth([frequencies(draw_counts(rng, rows.draw(), pair)) for _ in range(block)]))
        for _ in range(block):
            done()
    return Replicated(float(worth([frequencies(seen)])[0]), np.array(replicates))


def _values_of(
    mean: MDP | SparseMDP,
    rows: RowDraws,
    policies: Sequence[Float[np.ndarray, "... S A"]],
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> Callable[[list[Float[np.ndarray, "Q K"]]], list[Float[np.ndarray, " N"]]]:
    """The values of policies as a function of the rows that they use, for several draws of them."""
    size, weights = len(start) + 1, [np.ones(len(rows.state))] * len(policies)
    # The actions of a state as one, where a policy takes them alike at every step: a chain of far fewer entries.
    mixed = all(policy.ndim == 2 for policy in policies)
    states, row = rows.state, np.arange(len(rows.state))
    actions, followed = rows.action, list(policies)
    if mixed:
        states, row = np.unique(rows.state, return_inverse=True)
        actions, followed = np.zeros_like(states), [np.ones((len(start), 1))] * len(policies)
        weights = [policy[rows.state, rows.action] for policy in policies]
    # A state that is listed twice in a row is one entry, which has both probabilities.
    code, slot = np.unique(row[:, None] * size + rows.next_state, return_inverse=True)
    entry, reached = np.divmod(code, size)
    first = np.searchsorted(entry, np.arange(len(states) + 1))
    pairs = PairRows(None, states, actions, first, reached, reached, len(start))
    paid = np.asarray(mean.reward, np.float64)[rows.state, rows.action]
    rewards = [np.bincount(row, weight * paid, len(states)) for weight in weights]
    taken = [] if isinstance(objective, Episodic) else [PolicyPairs(pairs, policy) for policy in followed]

    def values(tables: list[Float[np.ndarray, "Q K"]]) -> list[Float[np.ndarray, " N"]]:
        answers = []
        for i, (weight, reward) in enumerate(zip(weights, rewards, strict=True)):
            probs = [np.bincount(slot.ravel(), (weight[:, None] * table).ravel(), len(code)) for table in tables]
            drawn = Drawn(np.stack(probs), np.broadcast_to(reward, (len(tables), len(reward))))
            if isinstance(objective, Episodic):
                value = episodic_values(pairs, drawn, followed[i], objective)
            else:
                value = proven(taken[i].chains(drawn), objective)
            answers.append(value.at_start(objective, start))
        return answers

    return values


# The returns of the log, beside the value of its behaviour.


class ReturnCheck(NamedTuple):
    """The mean return of the log's episodes, and what the belief says that it is.

    The p-value takes errors of both as independent and normal; as the belief has learnt from the same episodes it is
    conservative, and a heuristic in small logs.

    Args:
        observed, error: mean return and its standard error.
        expected, sd: mean and standard deviation over the posterior of the value of the behaviour.
    """

    observed: float
    error: float
    expected: float
    sd: float

    @property
    def p_value(self) -> float:
        """Two-sided."""
        spread = np.hypot(self.error, self.sd)
        return float(2 * ndtr(-abs(self.observed - self.expected) / max(spread, 1e-300)))


def return_check(
    key: PRNGKeyArray,
    posterior: Posterior,
    log: Log,
    space: StateActionSpace,
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> ReturnCheck | str:
    """The check; a reason, in words, where it cannot be made."""
    returns = returns_of(log, objective)
    if isinstance(returns, str):
        return f"it does not apply: {returns}" if returns.startswith((NO_EPISODES, NO_END)) else returns
    policy = policy_of(log, space, objective)
    # Draws of a large MDP cost too much: mean and variance to first order there.
    error = returns.std(ddof=1) / len(returns) ** 0.5
    large = space.horizon is None and space.n_states * space.n_actions * space.n_outcomes >= LARGE
    # First order needs the variance of every row, and rows without covariance.
    linear = isinstance(posterior, HasVariances) and posterior.independent_rows
    if large and linear and isinstance(objective, Discounted | FirstExit):
        values, variance = first_order_variance(posterior, policy, objective, start)
        mean, sd = float(values @ np.asarray(start, np.float64)), float(np.sqrt(variance.sum()))
        return ReturnCheck(float(returns.mean()), float(error), mean, sd)
    value = policy_value(key, posterior, policy, objective, initial=start, num_draws=DRAWS)
    return ReturnCheck(float(returns.mean()), float(error), value.mean, value.sd)
