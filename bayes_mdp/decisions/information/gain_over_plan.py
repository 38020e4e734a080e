"""What a better policy would gain over the present plan after new data, in the mean MDP after them.

The data are those of one pair (all data sets that are possible with their probabilities, or simulated ones), or of
episodes under a policy, simulated from the posterior itself (`PolicyStudy`).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray
from scipy.special import gammaln

from bayes_mdp.decisions.choosing.policy_set import optimum
from bayes_mdp.decisions.host_optima import best_policies, episodic_values
from bayes_mdp.decisions.host_values import PolicyPairs, Values, proven
from bayes_mdp.decisions.information.data_sets import (
    Environment,
    Environments,
    Learning,
    MeanMDPs,
    Observations,
    concatenate,
)
from bayes_mdp.decisions.information.updatable import Updatable, components, laws_tell
from bayes_mdp.decisions.perfect_information import why_not_mean_mdp
from bayes_mdp.decisions.policy_evaluation import COPIES, describe_objective, read_action_probs
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.families.categorical import pick_category
from bayes_mdp.inference.pair_draws import Drawn, PairRows
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    Episodic,
    FirstExit,
    Objective,
    Policy,
    PolicyOrLabels,
    SparseMDP,
    StateActionSpace,
)
from bayes_mdp.mdp.by_label import is_by_label
from bayes_mdp.mdp.validity import Validity
from bayes_mdp.planning.solve import check_problem, refuse_improper
from bayes_mdp.random.host_generator import ElementStreams, host_generator
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.validation import as_array, check_count, described

NUMBERS_AT_ONCE = 2**21  # float64 numbers of mean MDPs, and of their chains, that are planned at once: 16 MiB
_EPS = float(np.finfo(np.float64).eps)


def validity_after_data(posterior: Updatable) -> Validity:
    """Whether the gain in the mean MDP is the expected value of sample information. Host side."""
    # Data change neither which rows are unknown nor their independence: what holds now holds after every data set.
    why = why_not_mean_mdp(posterior)
    if why is None:
        return Validity("exact", "the EVSI over fixed policies (but for Monte Carlo error)")
    return Validity(
        "heuristic",
        "what planning anew in the mean MDP would gain there, where the value of a policy need not be its value "
        f"averaged over what is unknown: {why}",
    )


@dataclass(frozen=True, eq=False)
class PresentPlan:
    """The best policy of the present mean MDP, to compare others with (made by `present_plan`).

    Args:
        rows: the pairs of the mean MDP.
        objective: of the policies.
        start: distribution of the first state.
        policy: its actions.
        probs: the same as probabilities.
    """

    rows: PairRows
    objective: Objective
    start: Float[np.ndarray, " S"]
    policy: Int[np.ndarray, "*H S"]
    probs: Float[np.ndarray, "*H S A"]

    def value(self, drawn: Drawn) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
        """The value of this plan in every MDP, and bounds on the errors."""
        if isinstance(self.objective, Episodic):
            return self._at_start(episodic_values(self.rows, drawn, self.probs, self.objective))
        return self._at_start(proven(PolicyPairs(self.rows, self.probs).chains(drawn), self.objective))

    def gain(self, drawn: Drawn) -> tuple[Float[np.ndarray, " D"], float]:
        """What the best policy of every MDP gains over this plan, and the largest numerical error.

        Raises:
            ValueError: a value is not finite.
        """
        stationary = not isinstance(self.objective, Episodic)
        # From the present policy on: few data sets change the plan by much.
        answer = best_policies(self.rows, drawn, self.objective, self.probs if stationary else None)
        best, error = self._at_start(answer.values)
        # Where the best policy is this plan there is nothing to gain.
        differs = np.ones(len(best), bool)
        if stationary:
            differs = (self.rows.action[answer.chosen] != self.policy).any(-1)
        plan_value = best.copy()
        if differs.any():
            plan_value[differs], gap = self.value(Drawn(drawn.probs[differs], drawn.reward[differs]))
            error[differs] += gap
        if not np.isfinite(error).all():
            raise ValueError(
                f"objective is {describe_objective(self.objective)}, expected one for which the present plan and the "
                # Errors of both values add up.
                "best policy have a finite value after all data sets"
            )
        # The best policy is no worse: what lies within the numerical error is nothing.
        return np.where(best - plan_value > error, best - plan_value, 0.0), float(error.max())

    def _at_start(self, values: Values) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
        if isinstance(self.objective, AverageReward):
            return values.first[:, 0], values.gap
        # A sum of S products is rounded by S eps of the largest value at most.
        rounding = len(self.start) * _EPS * np.abs(values.first).max(-1)
        return values.first @ self.start, values.gap + rounding


def present_plan(
    means: MeanMDPs, mean: MDP | SparseMDP, objective: Objective, start: Float[np.ndarray, " S"]
) -> tuple[PresentPlan, float, float]:
    """The plan of the present mean MDP, its value, and a bound on the error of that.

    Raises:
        ValueError: no policy is best, or has a finite value.
    """
    check_problem(mean, objective)
    # In the same float64 arithmetic as the plans after data, so that no rounding looks like a gain.
    policy, solution = optimum(mean, objective)
    if solution is not None and isinstance(objective, FirstExit):
        refuse_improper(mean, solution)
    plan = PresentPlan(means.rows, objective, start, policy, np.eye(mean.n_actions)[policy])
    solved = solution is None or np.isfinite(float(solution.gap))
    (value,), (gap,) = plan.value(means.now) if solved else (np.zeros(1), np.full(1, np.inf))
    if not np.isfinite(gap):
        raise ValueError(
            f"objective is {describe_objective(objective)}, expected one for which the mean MDP has a best policy of "
            "finite value"
        )
    return plan, float(value), float(gap)


def chunk_of(means: MeanMDPs, number: int, width: int) -> int:
    """How many data sets are planned at once, as many as memory allows. Host side.

    Args:
        means: the mean MDPs.
        number: of all data sets.
        width: numbers that a data set takes beside its mean MDP.

    Raises:
        ValueError: one would not fit in memory.
    """
    n_states, n_actions = means.space.n_states, means.space.n_actions
    size = means.numbers + n_states**2 + width
    subject = f"posterior has mean MDPs of {n_states} states and {n_actions} actions"
    check_memory(subject, 8.0 * COPIES * size, "listed successors take less")
    return max(1, min(number, NUMBERS_AT_ONCE // size))


@contextmanager
def counter(total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar."""
    with bar_of(total, " data sets", what="planning") as bar:
        yield bar.update


OUTCOMES, REWARDS = 4, 5
"""Purposes of the random numbers of data (see `ElementStreams`)."""
KNOWN, ENDLESS = -1, -2  # in place of the largest reward
BYTES_OF_ENTRY = 64  # of one observation of one data set, while the data sets are put together


class PairData(NamedTuple):
    """Data sets of one candidate.

    Args:
        cell: the pair that is observed.
        outcome: of its row.
        reward: observed or not.
        seen: false: the reward is known beforehand.
        weight: how often; 0: no observation.
        log_orders: log number of orders in which the same observations can come; None: the data sets are simulated.
    """

    cell: tuple[int, ...]
    outcome: Int[np.ndarray, "N W"]
    reward: Float[np.ndarray, "N W"]
    seen: Bool[np.ndarray, "N W"]
    weight: Float[np.ndarray, "N W"]
    log_orders: Float[np.ndarray, " N"] | None

    def part(self, first: int, size: int) -> "PairData":
        """So many data sets from the first on."""
        rows = slice(first, first + size)
        orders = None if self.log_orders is None else self.log_orders[rows]
        return PairData(self.cell, self.outcome[rows], self.reward[rows], self.seen[rows], self.weight[rows], orders)

    @property
    def observations(self) -> Observations:
        """All that are observed."""
        cell = tuple(np.full(self.outcome.shape, i) for i in self.cell)
        return Observations(cell, self.outcome, self.reward, self.seen, self.weight)


class Observation(NamedTuple):
    """What one observation of a pair can show: an outcome, a reward, and whether the reward says anything."""

    outcome: int
    reward: float
    seen: bool


def enumerable(
    posterior: Updatable, index: Int[np.ndarray, "C d"], n: int, num_data_sets: int
) -> list[list[Observation] | None]:
    """All that one observation of each candidate can show; None: `n` of them give too many different data sets."""
    parts = components(posterior)
    # What any component holds possible may be observed.
    possible = np.any([np.asarray(part.transition_probs.mean()) > 0 for part in parts], 0)[tuple(index.T)]
    # Components are of one kind: the first has the laws of all.
    limits = _largest_rewards(parts[0], index)
    limits = np.full(limits.shape, ENDLESS) if laws_tell(posterior) else limits
    answers: list[list[Observation] | None] = []
    for outcomes, largest in zip(possible, limits, strict=True):
        kinds: list[Observation] | None = []
        for outcome in np.flatnonzero(outcomes).tolist():
            if largest[outcome] == ENDLESS or kinds is None:
                kinds = None
            elif largest[outcome] == KNOWN:
                kinds.append(Observation(outcome, 0.0, False))
            else:
                kinds += [Observation(outcome, float(x), True) for x in range(largest[outcome] + 1)]
        # Enumeration is exact, and chosen wherever it takes no more data sets than simulation would.
        answers.append(kinds if kinds is not None and _num_multisets(len(kinds), n) <= num_data_sets else None)
    return answers


def _largest_rewards(part: ConjugatePosterior, index: Int[np.ndarray, "C d"]) -> Int[np.ndarray, "C O"]:
    """The largest of the rewards 0, 1, ... that each outcome of each candidate can bring; or KNOWN, or ENDLESS."""
    rewards, shape = part.reward_cells, (len(index), part.space.n_outcomes)
    if not rewards.learns:
        return np.full(shape, KNOWN)
    if not isinstance(rewards, RewardCells):
        return np.full(shape, ENDLESS)
    size, prior = len(rewards.data), rewards.prior
    support = prior.support()
    # Rewards 0, 1, ... up to a known limit can be enumerated; not those on a scale of their own.
    is_finite = support.whole & (support.low == 0) & np.isfinite(support.high) & (rewards.coefficient is None)
    largest = np.broadcast_to(np.where(is_finite, support.high, ENDLESS), size).astype(int)
    # The last entry is for cells without an element: their reward is known.
    cells = tuple(i[:, None] for i in index.T)
    element = np.asarray(rewards.element(cells, np.arange(shape[1])[None]))
    return np.broadcast_to(np.append(largest, KNOWN)[element], shape)


def _num_multisets(kinds: int, n: int) -> int:
    # Stars and bars: (n + kinds - 1 over n).
    return math.comb(n + kinds - 1, n)


def size_of_data(kinds: list[list[Observation] | None], n: int, num_data_sets: int) -> tuple[int, int]:
    """Number of data sets of all candidates, and the most different observations of one.

    Raises:
        ValueError: they do not fit in memory.
    """
    number = sum(
        num_data_sets if observations is None else _num_multisets(len(observations), n) for observations in kinds
    )
    width = max((n if observations is None else min(n, len(observations)) for observations in kinds), default=1)
    check_memory(
        f"n is {n} and num_data_sets is {num_data_sets}: {number} data sets of {len(kinds)} candidates",
        float(BYTES_OF_ENTRY) * number * width,
        "fewer data sets, candidates or observations take less",
    )
    return number, width


def enumerate_data(cell: tuple[int, ...], kinds: list[Observation], n: int) -> PairData:
    """All multisets of `n` observations."""
    # n! / prod of count! orders of one multiset are equally likely.
    if n <= len(kinds):
        place = np.array(list(combinations_with_replacement(range(len(kinds)), n)))
        weight, run = np.ones(place.shape), np.ones(place.shape)
        for j in range(1, n):  # rows are sorted: prod of count! is the product of places in runs of equals
            run[:, j] = np.where(place[:, j] == place[:, j - 1], run[:, j - 1] + 1, 1)
        log_orders = math.lgamma(n + 1) - np.log(run).sum(-1)
    else:
        # Counts are shorter than lists: n stars, and bars between them.
        bars = np.array(list(combinations(range(n + len(kinds) - 1), len(kinds) - 1)), int)
        weight = np.diff(bars, axis=1, prepend=-1, append=n + len(kinds) - 1) - 1.0
        place = np.broadcast_to(np.arange(len(kinds)), weight.shape)
        log_orders = math.lgamma(n + 1) - gammaln(weight + 1).sum(-1)
    outcome, reward, seen = (np.array(column)[place] for column in zip(*kinds, strict=True))
    return PairData(cell, outcome, reward, seen, weight, log_orders)


def simulate_data(key: PRNGKeyArray, means: MeanMDPs, cell: tuple[int, ...], n: int, number: int) -> PairData:
    """Data sets of `n` transitions from one pair, as the posterior predicts them."""
    # What is unknown of the pair is drawn once, and then n observations given it.
    environment = Environments(key, means, cell).draw(number)
    index = tuple(np.full(number, i) for i in cell)
    row = environment.outcome_probs(index)
    uniforms = ElementStreams(key, OUTCOMES, np.arange(n)).uniforms(number)
    # Outcomes and rewards by inversion, from streams that other candidates share.
    outcome = np.stack([pick_category(row, uniforms[:, i]) for i in range(n)], -1)
    paid = ElementStreams(key, REWARDS, np.arange(n)).uniforms(number)
    reward, seen = environment.rewards(index, outcome, paid)
    return PairData(cell, outcome, reward, seen, np.ones(outcome.shape), None)


def gains_after(
    data: list[PairData], means: MeanMDPs, plan: PresentPlan, chunk: int
) -> tuple[list[np.ndarray], list[np.ndarray], float]:
    """Of each candidate what the best policy gains over the present plan after each data set, and the probabilities.

    Last, the largest numerical error. Data sets that are simulated have equal probabilities.
    """
    gains, probabilities, gap = [np.empty(0)], [], 0.0
    waiting: list[Drawn] = []
    with counter(sum(len(candidate.outcome) for candidate in data)) as report:

        def plan_anew() -> None:
            nonlocal gap
            # Data sets of several candidates at a time: each planning takes long for a few.
            gain, error = plan.gain(Drawn(*map(np.concatenate, zip(*waiting, strict=True))))
            gains.append(gain)
            gap = max(gap, error)
            waiting.clear()
            report(len(gain))

        for candidate in data:
            probability = np.full(len(candidate.outcome), 1 / len(candidate.outcome))
            for first in range(0, len(probability), chunk):
                part = candidate.part(first, chunk)
                learning = Learning(means, part.cell, len(part.outcome))
                learning.observe(part.observations)
                # Probability of the multiset: that of one order times the number of orders.
                if part.log_orders is not None:
                    probability[first : first + chunk] = np.exp(learning.log_probability() + part.log_orders)
                waiting.append(learning.mean_mdps())
                if sum(len(drawn.probs) for drawn in waiting) >= chunk:
                    plan_anew()
            probabilities.append(probability)
        if waiting:
            plan_anew()
    # Back to candidates: data sets were planned for across their borders.
    ends = np.cumsum([len(candidate.outcome) for candidate in data])[:-1]
    return np.split(np.concatenate(gains), ends) if data else [], probabilities, gap


MOST_TRANSITIONS = 10**9  # of one study: more would take days
AT_ONCE = 2**17  # observations of all data sets that are held until they are learnt from


def _readable(policy: object) -> PolicyOrLabels:
    """A policy object, or one by label, as it is, anything else as an array."""
    if isinstance(policy, Policy | jax.Array) or is_by_label(policy):
        return policy  # type: ignore[return-value] - a list of mappings is a sequence
    return as_array("policy", policy, "a Policy, integers (actions) or floats (probabilities)")


class PolicyStudy(eqx.Module):
    """A proposed study: episodes under a policy, a candidate of `next_experiment`.

    Args:
        policy: as in `policy_value`: Int[*H S], Float[*H S A], a `Policy`, or by the labels of the posterior's space.
        num_episodes: at least 1, all from the given start.
        max_steps: of one episode, at least 1. None: the horizon, under `Episodic`; the other objectives need a number
            (FirstExit: episodes stop there if they have not ended).

    Raises:
        ValueError, TypeError: a number below 1 or none; a policy that is no array (its shape and its values are looked
            into by `next_experiment`).

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> studies = {"try action 1": bm.information.PolicyStudy([1], num_episodes=5)}
        >>> answer = bm.information.next_experiment(
        ...     jax.random.key(1), posterior, bm.Episodic(1), studies, num_data_sets=50
        ... )
        >>> bool(answer.value[0] > 0)
        True
    """

    policy: PolicyOrLabels = eqx.field(converter=_readable)
    num_episodes: int = eqx.field(static=True)
    max_steps: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count("num_episodes", self.num_episodes)
        if self.max_steps is not None:
            check_count("max_steps", self.max_steps)


class Design(NamedTuple):
    """A study as numbers.

    Args:
        probs: action probabilities.
        num_episodes, max_steps: at most so many steps of each.
    """

    probs: Float[np.ndarray, "*H S A"]
    num_episodes: int
    max_steps: int


def check_studies(candidates: Mapping[str, PolicyStudy]) -> dict[str, PolicyStudy]:
    """The studies by their names.

    Raises:
        ValueError: there is none. TypeError: a candidate of another kind.
    """
    if not candidates:
        raise ValueError("candidates is empty, expected at least one study by its name")
    for name, study in candidates.items():
        if not isinstance(study, PolicyStudy):
            raise TypeError(
                f"candidates[{name!r}] is {described(study)}, expected a PolicyStudy (all candidates are of one kind)"
            )
    return {str(name): study for name, study in candidates.items()}


def read_studies(
    studies: Mapping[str, PolicyStudy], mean: MDP | SparseMDP, objective: Objective, space: StateActionSpace
) -> dict[str, Design]:
    """The studies as arrays.

    Raises:
        ValueError, TypeError: one sentence: a policy that does not fit, no `max_steps` where it is needed, or one
            beyond the horizon.
    """
    designs = {}
    for name, study in studies.items():
        label = f"candidates[{name!r}]"
        probs = read_action_probs(label, study.policy, mean, objective, space)
        steps = _steps(label, study, objective)
        if study.num_episodes * steps > MOST_TRANSITIONS:
            raise ValueError(
                f"{label} has {study.num_episodes} episodes of up to {steps} steps, expected at most "
                f"{MOST_TRANSITIONS:,} transitions in all: they are simulated one after the other"
            )
        designs[name] = Design(probs, study.num_episodes, steps)
    return designs


def _steps(label: str, study: PolicyStudy, objective: Objective) -> int:
    if not isinstance(objective, Episodic):
        if study.max_steps is None:
            raise ValueError(
                f"{label} has max_steps None, expected a number of steps after which an episode stops "
                f"({describe_objective(objective)})"
            )
        return study.max_steps
    if study.max_steps is not None and study.max_steps > objective.horizon:
        raise ValueError(f"{label} has max_steps {study.max_steps}, expected at most {objective.horizon}, the horizon")
    return study.max_steps or objective.horizon


def study_gains(
    key: PRNGKeyArray, means: MeanMDPs, plan: PresentPlan, designs: Mapping[str, Design], number: int
) -> tuple[list[Float[np.ndarray, " D"]], float]:
    """Of each study what the best policy gains over the present plan after each data set; the largest error.

    Args:
        key: of the data; studies have common random numbers.
        means: the mean MDPs.
        plan: the present one.
        designs: the studies.
        number: of data sets.
    """
    # Beside the mean MDP, statistics and an environment of the size of the posterior are held for each data set.
    learnt = sum(group.cells.data.size for group in means.groups if group.cells is not None)
    width = 2 * sum(group.concentration.size for group in means.groups) + 8 * int(learnt)
    chunk, gap, gains = chunk_of(means, number, width), 0.0, []
    with counter(number * len(designs)) as report:
        for design in designs.values():
            environments, gain = Environments(key, means, None), np.zeros(number)
            for first in range(0, number, chunk):
                # Data sets in chunks, each with its own stretch of the common environments.
                part = slice(first, min(first + chunk, number))
                after = after_study(key, means, design, plan.start, environments.draw(part.stop - first), part, number)
                gain[part], error = plan.gain(after.mean_mdps())
                gap = max(gap, error)
                report(part.stop - first)
            gains.append(gain)
    return gains, gap


def after_study(
    key: PRNGKeyArray,
    means: MeanMDPs,
    design: Design,
    start: Float[np.ndarray, " S"],
    environment: Environment,
    part: slice,
    number: int,
) -> Learning:
    """What is learnt from the data of one study, all episodes of a data set in one environment.

    Args:
        key: of the data.
        means: the mean MDPs.
        design: the study.
        start: distribution of the first state.
        environment: of the data sets.
        part: which these are, of all.
        number: of all data sets.
    """
    space, size = means.space, part.stop - part.start
    learning, waiting = Learning(means, None, size), list[Observations]()
    begin = np.broadcast_to(start, (size, len(start)))
    for episode in range(design.num_episodes):
        # Step t of episode e has the same random numbers in every study, and a data set in every block.
        uniforms = host_generator(jax.random.fold_in(key, episode))
        state, alive = pick_category(begin, uniforms.random(number)[part]), np.ones(size, bool)
        for step in range(design.max_steps):
            of_action, of_outcome, of_reward = uniforms.random((3, number))[:, part]
            policy = design.probs[step] if design.probs.ndim == 3 else design.probs
            # The action first, then the outcome, then the reward, each from its own uniform.
            pair = (state, pick_category(policy[state], of_action))
            cell = pair if space.horizon is None else (np.full(size, step), *pair)
            outcome = pick_category(environment.outcome_probs(cell), of_outcome)
            reward, seen = environment.rewards(
                cell, outcome[:, None], of_reward[:, None], episode * design.max_steps + step
            )
            observed = Observations(
                tuple(i[:, None] for i in cell), outcome[:, None], reward, seen, alive[:, None].astype(np.float64)
            )
            waiting.append(observed)
            if len(waiting) * size >= AT_ONCE:
                learning.observe(concatenate(waiting))
                waiting.clear()
            state, ended = map(np.asarray, space.reached(cell, outcome))
            # An episode that has ended goes on without being observed, until all have.
            alive &= ~ended
            if not alive.any():
                break
    if waiting:
        learning.observe(concatenate(waiting))
    return learning
