"""Policies for a criterion over common draws: deterministic ones, and stochastic ones where mixing pays.

Deterministic policies: all of them where they are few, else ascent. All of them share work: a state whose action is
fixed is eliminated from the chain (as by Grassmann, Taksar and Heyman 1985), once for all policies that agree so far.
Choosing for more than one MDP at once is NP-hard
(Steimle, Kaufman and Denton 2021), whatever the criterion: beyond enumeration what is found is a local optimum, and
called so.

Stochastic policies: a sequence of linear programs.
The value of a draw is a smooth function of the action probabilities; with each draw's own linearisation around the
present policy, a mean, a CVaR and a worst case are linear programs (Rockafellar and Uryasev 2000), also where the
criterion has a kink: at the best mixture two draws often tie. A trust region keeps the linearisation true. What comes
out is a local optimum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog

from bayes_mdp.decisions.choosing.common_draws import BATCH, CommonDraws
from bayes_mdp.decisions.choosing.criteria import Percentile, ProbabilityOptimal, Scored, TailMean
from bayes_mdp.decisions.choosing.policy_set import PolicySet
from bayes_mdp.mdp import Discounted
from bayes_mdp.utils.memory import check_memory

ENUMERATED = 4096  # deterministic policies that are all tried
ENUMERATED_VALUES = 4_000_000  # and values of policies in draws
SINGLE_CHANGES = 400_000  # values of policies in draws, to try every change of one action
MOST_STEPS = 50
TRIED = 1e-10  # precision of the values of policies that are tried, where systems are iterated
ROUNDINGS, NEAR = 64.0, 1e-7  # errors of values by elimination, in roundings; as a share of the values at most
BETTER = 1e-12  # share of the largest value by which a score must rise to count as better

Feasible = Callable[[Float[np.ndarray, "W P"]], Bool[np.ndarray, " P"]]
"""Which policies may be chosen, by their values in the draws."""


@dataclass(frozen=True)
class Found:
    """A policy and how it was found.

    Args:
        policy: Float[*H S A], action probabilities.
        values: in each draw.
        score: of the criterion.
        how: in words.
        exact: whether it is proven to be the best deterministic policy of the set, on these draws.
    """

    policy: Float[np.ndarray, "*H S A"]
    values: Float[np.ndarray, " W"]
    score: float
    how: str
    exact: bool


@dataclass(frozen=True)
class Problem:
    """What is to be optimised.

    Args:
        draws: the common draws.
        criterion: to be maximised.
        policies: the set to choose from.
        best: optimal value of every draw, where the criterion compares with it.
        feasible: None: every policy may be chosen.
    """

    draws: CommonDraws
    criterion: Scored
    policies: PolicySet
    best: Float[np.ndarray, " W"] | None
    feasible: Feasible | None = None

    def scores(self, values: Float[np.ndarray, "W P"]) -> Float[np.ndarray, " P"]:
        """The criterion of each policy, -inf where it may not be chosen."""
        # A policy that may not be chosen has score minus infinity: it can still be a start, if it ends in every draw.
        ends = np.isfinite(values).all(0)
        scores = np.full(values.shape[1], -np.inf)
        scores[ends] = [self.criterion.score(column, self.best) for column in values.T[ends]]
        return scores if self.feasible is None else np.where(self.feasible(values), scores, -np.inf)


def enumerate_policies(problem: Problem) -> Found | None:
    """The best of all deterministic policies of the set; None where they are too many (or none may be chosen)."""
    policies, draws = problem.policies, problem.draws
    count = policies.count
    if count > ENUMERATED or count * draws.num > ENUMERATED_VALUES:
        return None
    best = _best_by_elimination(problem) if _suits_elimination(problem) else None
    if best is None:
        best = _best_of_choices(problem, np.arange(round(count)))
    if best is None:
        return None
    method = f"best of all {round(count)} deterministic policies, in these draws" if count > 1 else "the only policy"
    if best.endless:
        ending = round(count) - best.endless
        method = f"best of the {ending} of {round(count)} deterministic policies that end in every draw"
    return Found(best.policy, best.values, best.score, method, True)


class _Best(NamedTuple):
    """The best of some choices, and how many of them need not end in some draw."""

    policy: Float[np.ndarray, "*H S A"]
    values: Float[np.ndarray, " W"]
    score: float
    endless: int = 0


def _choices(policies: PolicySet, numbers: Int[np.ndarray, " N"]) -> Int[np.ndarray, "N *H S"]:
    """Deterministic choices by number: the first open state changes slowest."""
    open_places = np.argwhere(policies.open_states)
    options = [np.flatnonzero(policies.free[index[-1]]) for index in open_places]
    # The one choice of closed states; open ones are set below.
    choices = np.repeat(policies.best(np.zeros(policies.fixed.shape))[None], len(numbers), 0)
    if options:
        # Mixed radix: a number's digits are the actions of the open states.
        digits = np.unravel_index(numbers, [len(actions) for actions in options])
        for index, actions, digit in zip(open_places, options, digits, strict=True):
            choices[(slice(None), *index)] = actions[digit]
    return choices


def _best_of_choices(problem: Problem, numbers: Int[np.ndarray, " N"]) -> _Best | None:
    """The best of the choices, of equal ones the first; None: none may be chosen."""
    # Policies that differ in few states cost little beside one another in a large draw.
    best, size = None, len(numbers) if problem.draws.is_rounded else problem.draws.batch
    endless = 0
    for first in range(0, len(numbers), size):
        policies = problem.policies.policy(_choices(problem.policies, numbers[first : first + size]))
        values = problem.draws.values(policies)
        scores = problem.scores(values)
        top, endless = int(np.argmax(scores)), endless + int(np.isneginf(values[0]).sum())
        # Strictly better: of equal ones the first stays.
        if np.isfinite(scores[top]) and (best is None or scores[top] > best.score):
            best = _Best(policies[top], values[:, top], float(scores[top]))
    return None if best is None else best._replace(endless=endless)


def _suits_elimination(problem: Problem) -> bool:
    """Whether values by elimination are near enough to tell which policies may be the best: in small, discounted MDPs.

    Criteria that move by no more than the values do.
    """
    draws = problem.draws
    in_memory = draws.kept is not None and draws.kept.probs.dtype == np.float64 and draws.batch > BATCH
    discounted = isinstance(draws.objective, Discounted) and float(draws.objective.discount) > 0
    # Criteria that change by no more than the values: an error of values bounds that of scores.
    return in_memory and discounted and isinstance(problem.criterion, (TailMean, Percentile))


def _best_by_elimination(problem: Problem) -> _Best | None:
    """The best of all choices: those that may be it by values to rounding, judged by values with a proven bound.

    None where rounding cannot be told from what differs, or no choice may be made.
    """
    draws, rate = problem.draws, float(problem.draws.objective.discount)
    values = all_values(draws, problem.policies)
    # Probabilities stay positive in an elimination, so that an error grows with the states and the time alone.
    largest = float(np.abs(values).max(initial=0.0))
    error = ROUNDINGS * draws.sizes.shape[-2] * float(np.finfo(float).eps) / (1.0 - rate) * largest
    if not error <= NEAR * largest:
        return None
    # A choice may be the best if it may be made with values that are a little larger, and scores with them.
    scores = problem.scores(values + error)
    order = np.argsort(-scores, kind="stable")
    # -inf may not be chosen: out of the race.
    order = order[np.isfinite(scores[order])]
    best, best_number, size = None, -1, draws.batch
    for first in range(0, len(order), size):
        # Even with its error added the next score is below the best: the rest cannot win.
        if best is not None and scores[order[first]] < best.score:
            break
        numbers = np.sort(order[first : first + size])
        policies = problem.policies.policy(_choices(problem.policies, numbers))
        judged = draws.values(policies)
        # Values to rounding contradict their bound: start again without elimination.
        if not np.abs(judged - values[:, numbers]).max() <= error:
            return None
        exact = problem.scores(judged)
        for i, number in enumerate(numbers.tolist()):
            # Of equal ones the first, as if all had been judged one after the other.
            if np.isfinite(exact[i]) and (best is None or (-exact[i], number) < (-best.score, best_number)):
                best, best_number = _Best(policies[i], judged[:, i], float(exact[i])), number
    return best


def all_values(draws: CommonDraws, policies: PolicySet) -> Float[np.ndarray, "W P"]:
    """The values of all deterministic policies of a set in every draw, to rounding; in the order of their numbers.

    Args:
        draws: of a small problem, held in memory.
        policies: the set.
    """
    rows, rate = draws.rows, float(draws.objective.discount)
    stored = draws.kept
    assert stored is not None
    # 1. Rows of all pairs, dense, and their rewards: what ends the episode is left out.
    size, number = rows.n_states, len(rows.pair)
    table = np.zeros((draws.num, len(rows.state), size + 1))
    place = rows.pair * (size + 1) + rows.next_state
    entries = scipy.sparse.csr_array((np.ones(number), (np.arange(number), place)), (number, table[0].size))
    table = (stored.probs @ entries).reshape(table.shape)[..., :size]
    pair_of = np.zeros(policies.free.shape, int)
    pair_of[rows.state, rows.action] = np.arange(len(rows.state))
    drawn = np.zeros(policies.free.shape, bool)
    drawn[rows.state, rows.action] = True

    def mixed(state: int, action: int) -> tuple[np.ndarray, np.ndarray]:
        """Row and reward of a state whose free probability goes to an action."""
        weights = policies.fixed[state].copy()
        weights[action] += policies.mass[state]
        used = np.flatnonzero(drawn[state] & (weights > 0))
        pairs = pair_of[state, used]
        return (
            # Mean over the actions: fixed ones by their weights, the free mass on one.
            np.einsum("a,wat->wt", weights[used], table[:, pairs]),
            stored.reward[:, pairs] @ weights[used],
        )

    # 2. A chain with a row for each option of each state, those with one option first, and one that starts.
    is_open = policies.open_states
    order = [*np.flatnonzero(~is_open).tolist(), *np.flatnonzero(is_open).tolist()]
    base = policies.best(np.zeros(policies.fixed.shape))
    options = [np.flatnonzero(policies.free[s]) if is_open[s] else base[s : s + 1] for s in order]
    parts = [mixed(s, int(a)) for s, actions in zip(order, options, strict=True) for a in actions]
    # The row of the start is divided by the rate, since elimination discounts every row once.
    chain = np.stack([np.broadcast_to(draws.start / rate, (draws.num, size)), *(row for row, _ in parts)], 1)
    reward = np.stack([np.zeros(draws.num), *(paid for _, paid in parts)], 1)
    return _eliminate(chain[..., order], reward, [len(actions) for actions in options], rate)


def _eliminate(
    chain: Float[np.ndarray, "W Q S"], reward: Float[np.ndarray, "W Q"], options: list[int], rate: float
) -> Float[np.ndarray, "W P"]:
    """Values of the first row for all combinations of options, the first of them changing slowest.

    v_s = (r_s + k sum_{t != s} p_st v_t) / (1 - k p_ss) takes the place of v_s in all other rows.
    """
    if not options:
        return reward[:, :1]
    number, rest = options[0], [0, *range(1 + options[0], chain.shape[1])]
    to_state = rate * chain[:, rest, 0]
    # Rows without the column of the eliminated state.
    later, paid = chain[:, rest, 1:], reward[:, rest]
    answers = []
    for i in range(1, 1 + number):
        share = to_state / (1.0 - rate * chain[:, i, 0])[:, None]
        rows = later + share[..., None] * chain[:, i, None, 1:]
        answers.append(_eliminate(rows, paid + share * reward[:, i, None], options[1:], rate))
    # Combinations in order: the first state's option changes slowest.
    return answers[0] if number == 1 else np.concatenate(answers, -1)


def ascend(problem: Problem, start: Int[np.ndarray, "*H S"], name: str) -> Found | None:
    """Policy iteration on the criterion from `start`: in each step every state weighs the draws alike and selects.

    The weights of the draws are the criterion's gradient by their values; with d_w(s) q_w(s, a), summed by them, each
    state selects the action (weight-select-update, Steimle et al. 2021). Draws visit a state differently, so that many
    changes at once may do harm: then fewer are made, those first that promise most. In a small problem the end is
    checked against every change of a single action.

    Returns:
        None where no policy on the way may be chosen, or the first need not end.
    """
    policies, draws = problem.policies, problem.draws
    choice = np.asarray(start)
    policy = policies.policy(choice)
    values = draws.values(policy[None])
    if np.isneginf(values[0, 0]):
        return None
    score = problem.scores(values)[0]
    at_optimum = False
    for _ in range(MOST_STEPS):
        # By the chain rule: the gradient of the criterion in the values weighs the draws.
        slope = policies.mass[..., None] * draws.gradient(
            policy, problem.criterion.gradient(values[:, 0], problem.best)
        )
        improvement = _step(problem, choice, score, slope)
        # No joint step helps: every change of one action is tried, where there are few.
        if improvement is None and _few_changes(problem):
            improvement = _single_change(problem, choice, score)
            at_optimum = improvement is None
        if improvement is None:
            break
        choice, policy, values, score = improvement
    values = draws.values(policy[None])
    score = problem.scores(values)[0]
    if not np.isfinite(score):
        return None
    method = f"ascent from {name}" + (": no change of one action improves it, in these draws" if at_optimum else "")
    return Found(policy, values[:, 0], float(score), method, False)


Step = tuple[Int[np.ndarray, "*H S"], Float[np.ndarray, "*H S A"], Float[np.ndarray, "W 1"], float]
"""Choice, policy, values, score."""


def _step(
    problem: Problem, choice: Int[np.ndarray, "*H S"], score: float, slope: Float[np.ndarray, "*H S A"]
) -> Step | None:
    """All changes that promise a gain, or the half, ... of them that promise most; None where nothing improves."""
    target = problem.policies.best(slope)
    # What each state gains by its best action, to first order.
    gain = np.take_along_axis(slope, target[..., None], -1) - np.take_along_axis(slope, choice[..., None], -1)
    gain = np.where(problem.policies.open_states, gain[..., 0], 0.0)
    scale = max(float(np.abs(slope).max()), 1e-300)
    order = np.argsort(-gain, axis=None, kind="stable")[: int((gain > BETTER * scale).sum())]
    count = len(order)
    while count:
        # A few sizes in one pass, from all changes down.
        sizes = sorted({max(1, count >> shift) for shift in range(problem.draws.batch)}, reverse=True)[
            : problem.draws.batch
        ]
        trials = []
        for size in sizes:
            trial = choice.copy()
            # The most promising changes of one size, in one trial.
            trial.flat[order[:size]] = target.flat[order[:size]]
            trials.append(trial)
        better = _best_of(problem, trials, score)
        if better is not None:
            return better
        count = sizes[-1] // 2
    return None


def _few_changes(problem: Problem) -> bool:
    changes = (problem.policies.open_states[..., None] * problem.policies.free).sum()
    small = problem.draws.batch > BATCH
    return small and float(changes) * problem.draws.num <= SINGLE_CHANGES


def _single_change(problem: Problem, choice: Int[np.ndarray, "*H S"], score: float) -> Step | None:
    """The best change of one action in one state, if any improves."""
    trials = []
    for index in map(tuple, np.argwhere(problem.policies.open_states)):
        for action in np.flatnonzero(problem.policies.free[index[-1]]):
            if action != choice[index]:
                trial = choice.copy()
                trial[index] = action
                trials.append(trial)
    return _best_of(problem, trials, score)


def _best_of(problem: Problem, trials: list[np.ndarray], score: float) -> Step | None:
    """The best of the trials, if it is better than `score`."""
    if not trials:
        return None
    policies = problem.policies.policy(np.stack(trials))
    # Where a draw counts or does not, as for being optimal or no worse than a baseline, small errors matter.
    jumps = problem.feasible is not None or isinstance(problem.criterion, ProbabilityOptimal)
    values, gaps = problem.draws.evaluations(policies, 0.0 if jumps else TRIED)
    scores = problem.scores(values)
    top = int(np.argmax(scores))
    # By numerical errors alone no score is better.
    largest = np.abs(values).max(where=np.isfinite(values), initial=0.0)
    least = max(BETTER * float(largest), 2 * float(gaps.max()))
    if not np.isfinite(scores[top]) or (np.isfinite(score) and scores[top] <= score + least):
        return None
    return trials[top], policies[top], values[:, top : top + 1], float(scores[top])


MOST_PROGRAMS = 80
LARGE_STEPS = 12  # in a large problem, where a step takes a pass over all draws
SMALLEST_REGION = 1e-8
SMALLEST_GAIN = 1e-10  # promised by a linear program, as a share of the largest value


def climb(problem: Problem, start: Found) -> Found:
    """The best stochastic policy that is found from `start`; `start` itself where nothing improves.

    Raises:
        ValueError: the derivatives of all draws do not fit in memory.
    """
    policies, draws = problem.policies, problem.draws
    if not isinstance(problem.criterion, (TailMean, Percentile)) or not policies.open_states.any():
        return start
    open_pairs = policies.open_states[..., None] & policies.free
    size_words = f"num_draws is {draws.num}"
    check_memory(size_words, 8.0 * 3 * draws.num * policies.fixed.size, "fewer draws, or stochastic=False, take less")
    policy, values, score = start.policy, start.values, start.score
    region, fresh, slopes = 0.5, True, np.zeros((0, 0))
    scale = max(float(np.abs(values).max()), 1e-300)
    steps = 0
    for _ in range(MOST_PROGRAMS if draws.numbers <= 2**16 else LARGE_STEPS):
        if fresh:
            slopes = (draws.gradients(policy) * policies.mass[..., None])[:, open_pairs]
        now = _choice(problem, policy)
        target, promised = _program(problem, now[open_pairs], values, slopes, region)
        if promised - score <= SMALLEST_GAIN * scale or region < SMALLEST_REGION:
            break
        trial = now.copy()
        trial[open_pairs] = target
        trial = trial / np.maximum(trial.sum(-1, keepdims=True), 1e-300)
        new = policies.mixed(trial)
        trial_values = draws.values(new[None])
        reached = problem.scores(trial_values)[0]
        fresh = reached > score
        if fresh:
            # As good as promised: the linearisation holds further out.
            good = reached - score > 0.75 * (promised - score)
            policy, values, score = new, trial_values[:, 0], float(reached)
            region, steps = min(1.0, 2 * region) if good else region, steps + 1
        else:
            region /= 4
    if not steps:
        return start
    method = f"{start.how}; then a mixture of actions, by {steps} linear programs (a local optimum)"
    return Found(policy, values, score, method, False)


def _choice(problem: Problem, policy: Float[np.ndarray, "*H S A"]) -> Float[np.ndarray, "*H S A"]:
    """The free part of a policy as probabilities of actions."""
    policies = problem.policies
    # The free part over its mass: a distribution over free actions.
    rest = np.where(policies.free, policy - policies.fixed, 0.0)
    mass = np.maximum(policies.mass, 1e-300)[..., None]
    return np.where(policies.mass[..., None] > 0, np.clip(rest / mass, 0.0, 1.0), 0.0)


def _program(
    problem: Problem,
    now: Float[np.ndarray, " n"],
    values: Float[np.ndarray, " W"],
    slopes: Float[np.ndarray, "W n"],
    region: float,
) -> tuple[Float[np.ndarray, " n"], float]:
    """The linear program around `now`: the new probabilities of the open pairs, and the score that it promises."""
    from scipy import sparse

    criterion, number, size = problem.criterion, len(values), len(now)
    assert isinstance(criterion, (TailMean, Percentile))
    gains = values - problem.best if isinstance(criterion, TailMean) and criterion.regret else values
    # u_w(x) = value_w + slope_w (x - now): the constant part.
    constant = gains - slopes @ now
    # One equation for each open state: its probabilities sum to one.
    groups = np.argwhere(problem.policies.open_states[..., None] & problem.policies.free)[:, :-1]
    state = np.unique(groups, axis=0, return_inverse=True)[1].reshape(-1)
    number_open = int(state.max()) + 1
    sums = sparse.csr_array((np.ones(size), (state, np.arange(size))), shape=(number_open, size))
    bounds = np.stack([np.maximum(now - region, 0.0), np.minimum(now + region, 1.0)], -1)
    if isinstance(criterion, TailMean):
        tail = 1.0 - criterion.weight
        share = max(criterion.level * number, 1.0)
        mean = criterion.weight * slopes.mean(0)
        if tail == 0.0:
            cost, rows, limit, extra = -mean, None, np.zeros(0), np.zeros((0, 2))
        else:
            # max weight * mean + tail * (y - sum z / share), z_w >= y - u_w(x), z >= 0; columns: x, y, z.
            cost = np.concatenate([-mean, [-tail], np.full(number, tail / share)])
            rows = sparse.hstack([-slopes, np.ones((number, 1)), -sparse.eye_array(number)], format="csr")
            limit = constant
            extra = np.concatenate([[[-np.inf, np.inf]], np.tile([0.0, np.inf], (number, 1))])
        offset = criterion.weight * constant.mean()
    else:
        # The draws above the percentile stay above: max y, y <= u_w(x) for these.
        worst = np.argsort(-values, kind="stable")[: criterion.rank(number)]
        cost = np.concatenate([np.zeros(size), [-1.0]])
        rows = np.concatenate([-slopes[worst], np.ones((len(worst), 1))], 1)
        limit, extra, offset = constant[worst], np.array([[-np.inf, np.inf]]), 0.0
    equations = sparse.hstack([sums, sparse.csr_array((number_open, len(extra)))], format="csr")
    solution = linprog(
        cost,
        A_ub=rows,
        b_ub=None if rows is None else limit,
        A_eq=equations,
        b_eq=np.ones(number_open),
        bounds=np.concatenate([bounds, extra]),
        method="highs",
    )
    if not solution.success:
        return now, -np.inf
    return np.clip(solution.x[:size], 0.0, 1.0), float(offset - solution.fun)
