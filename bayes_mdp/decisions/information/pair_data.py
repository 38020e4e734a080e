"""Data sets of one pair: all that are possible with their probabilities, or simulated ones; and what they change."""

import math
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray
from scipy.special import gammaln

from bayes_mdp.decisions.information.data_sets import Environments, Learning, MeanMDPs, Observations
from bayes_mdp.decisions.information.gain_over_plan import PresentPlan, counter
from bayes_mdp.decisions.information.updatable import Updatable, components, laws_tell
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.families.categorical import pick_category
from bayes_mdp.inference.pair_draws import Drawn
from bayes_mdp.random.host_generator import ElementStreams
from bayes_mdp.utils.memory import check_memory

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
        here = slice(first, first + size)
        orders = None if self.log_orders is None else self.log_orders[here]
        return PairData(self.cell, self.outcome[here], self.reward[here], self.seen[here], self.weight[here], orders)

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
    possible = np.any([np.asarray(part.transition_probs.mean()) > 0 for part in parts], 0)[tuple(index.T)]
    # Components are of one kind: the first has the laws of all.
    most = _largest_rewards(parts[0], index)
    most = np.full(most.shape, ENDLESS) if laws_tell(posterior) else most
    found: list[list[Observation] | None] = []
    for outcomes, largest in zip(possible, most, strict=True):
        kinds: list[Observation] | None = []
        for outcome in np.flatnonzero(outcomes).tolist():
            if largest[outcome] == ENDLESS or kinds is None:
                kinds = None
            elif largest[outcome] == KNOWN:
                kinds.append(Observation(outcome, 0.0, False))
            else:
                kinds += [Observation(outcome, float(x), True) for x in range(largest[outcome] + 1)]
        found.append(kinds if kinds is not None and _num_multisets(len(kinds), n) <= num_data_sets else None)
    return found


def _largest_rewards(part: ConjugatePosterior, index: Int[np.ndarray, "C d"]) -> Int[np.ndarray, "C O"]:
    """The largest of the rewards 0, 1, ... that each outcome of each candidate can bring; or KNOWN, or ENDLESS."""
    rewards, shape = part.reward_cells, (len(index), part.space.n_outcomes)
    if not rewards.learns:
        return np.full(shape, KNOWN)
    if not isinstance(rewards, RewardCells):
        return np.full(shape, ENDLESS)
    size, prior = len(rewards.data), rewards.prior
    support = prior.support()
    few = support.whole & (support.low == 0) & np.isfinite(support.high) & (rewards.coefficient is None)
    most = np.broadcast_to(np.where(few, support.high, ENDLESS), size).astype(int)
    # The last entry is for cells without an element: their reward is known.
    cells = tuple(i[:, None] for i in index.T)
    element = np.asarray(rewards.element(cells, np.arange(shape[1])[None]))
    return np.broadcast_to(np.append(most, KNOWN)[element], shape)


def _num_multisets(kinds: int, n: int) -> int:
    return math.comb(n + kinds - 1, n)


def size_of_data(kinds: list[list[Observation] | None], n: int, num_data_sets: int) -> tuple[int, int]:
    """Number of data sets of all candidates, and the most different observations of one.

    Raises:
        ValueError: they do not fit in memory.
    """
    number = sum(num_data_sets if each is None else _num_multisets(len(each), n) for each in kinds)
    width = max((n if each is None else min(n, len(each)) for each in kinds), default=1)
    check_memory(
        f"n is {n} and num_data_sets is {num_data_sets}: {number} data sets of {len(kinds)} candidates",
        float(BYTES_OF_ENTRY) * number * width,
        "fewer data sets, candidates or observations take less",
    )
    return number, width


def enumerated_data(cell: tuple[int, ...], kinds: list[Observation], n: int) -> PairData:
    """All multisets of `n` observations."""
    # n! / prod of count! orders of one multiset are equally likely.
    if n <= len(kinds):
        which = np.array(list(combinations_with_replacement(range(len(kinds)), n)))
        weight, run = np.ones(which.shape), np.ones(which.shape)
        for j in range(1, n):  # rows are sorted: prod of count! is the product of places in runs of equals
            run[:, j] = np.where(which[:, j] == which[:, j - 1], run[:, j - 1] + 1, 1)
        log_orders = math.lgamma(n + 1) - np.log(run).sum(-1)
    else:
        # Counts are shorter than lists: n stars, and bars between them.
        bars = np.array(list(combinations(range(n + len(kinds) - 1), len(kinds) - 1)), int)
        weight = np.diff(bars, axis=1, prepend=-1, append=n + len(kinds) - 1) - 1.0
        which = np.broadcast_to(np.arange(len(kinds)), weight.shape)
        log_orders = math.lgamma(n + 1) - gammaln(weight + 1).sum(-1)
    outcome, reward, seen = (np.array(column)[which] for column in zip(*kinds, strict=True))
    return PairData(cell, outcome, reward, seen, weight, log_orders)


def simulated_data(key: PRNGKeyArray, means: MeanMDPs, cell: tuple[int, ...], n: int, number: int) -> PairData:
    """Data sets of `n` transitions from one pair, as the posterior predicts them."""
    # What is unknown of the pair is drawn once, and then n observations given it.
    environment = Environments(key, means, cell).draw(number)
    index = tuple(np.full(number, i) for i in cell)
    row = environment.outcome_probs(index)
    uniforms = ElementStreams(key, OUTCOMES, np.arange(n)).uniforms(number)
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
    with counter(sum(len(each.outcome) for each in data)) as report:

        def plan_anew() -> None:
            nonlocal gap
            # Data sets of several candidates at a time: each planning takes long for a few.
            gain, error = plan.gain(Drawn(*map(np.concatenate, zip(*waiting, strict=True))))
            gains.append(gain)
            gap = max(gap, error)
            waiting.clear()
            report(len(gain))

        for each in data:
            probability = np.full(len(each.outcome), 1 / len(each.outcome))
            for first in range(0, len(probability), chunk):
                part = each.part(first, chunk)
                learning = Learning(means, part.cell, len(part.outcome))
                learning.observe(part.observations)
                if part.log_orders is not None:
                    probability[first : first + chunk] = np.exp(learning.log_probability() + part.log_orders)
                waiting.append(learning.drawn())
                if sum(len(drawn.probs) for drawn in waiting) >= chunk:
                    plan_anew()
            probabilities.append(probability)
        if waiting:
            plan_anew()
    ends = np.cumsum([len(each.outcome) for each in data])[:-1]
    return np.split(np.concatenate(gains), ends) if data else [], probabilities, gap
