"""The exact ECDF test of uniform ranks, and its power. NumPy in float64, host-side.

N ranks in 0..L are compared with the uniform distribution at every k: how many are <= k is binomial there, and the
smallest two-sided tail probability over k is the statistic (Säilynoja, Bürkner and Vehtari 2022, *Graphical test for
discrete uniformity*, section 3). Its distribution is exact: the counts are those of a Poisson process given its total,
and the probability of a path inside bounds is a product of convolutions (Moscovich and Nadler 2017, *Fast calculation
of boundary crossing probabilities for Poisson processes*). The same recursion with other rank probabilities is the
power.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, special, stats

Counts = Int[np.ndarray, " ranks"]
POWER = 0.95


class Band(NamedTuple):
    """Bounds on how many of N ranks are <= k, for k = 0..L: arrays of the L + 1 possible ranks."""

    low: Counts
    high: Counts


class Detectable(NamedTuple):
    """The smallest faults of a normal posterior that are found with probability `POWER`; nan: none is.

    Args:
        narrow: standard deviation of the draws over the correct one, below 1.
        wide: the same, above 1.
        shift: mean of the draws minus the correct one, in posterior standard deviations.
    """

    narrow: float
    wide: float
    shift: float

    def in_words(self, num: int) -> str:
        """Which faults N simulations show with probability `POWER`, in a sentence without a full stop."""
        words = (f"narrower than {self.narrow:.2f}", f"wider than {self.wide:.2f}", f"shifted by {self.shift:.2f}")
        seen = [fault for fault, size in zip(words, self, strict=True) if np.isfinite(size)]
        if not seen:
            return f"{num} simulations are too few to see any fault with probability {POWER:.0%}"
        return (
            f"{num} simulations are enough to see, in one quantity with probability {POWER:.0%}, draws "
            f"{' or '.join(seen)} times the right standard deviation; all other faults need more"
        )


def prob_inside(band: Band, rank_probs: Float[np.ndarray, " ranks"], num: int) -> float:
    """Probability that N independent ranks with these probabilities stay inside the band at every k."""
    # The recursion of Moscovich and Nadler: the counts are a Poisson process, conditioned on N events in all (at the
    # end). inside[i] is the probability that the path was within the band so far and now counts first + i. Each k
    # adds a Poisson number of events (a convolution) and cuts off what leaves the band.
    inside, first = np.ones(1), 0
    for low, high, prob in zip(*band, rank_probs, strict=True):
        steps = stats.poisson.pmf(np.arange(high - first + 1), num * prob)
        inside, first = np.convolve(inside, steps)[low - first : high - first + 1], low
        if not inside.size:
            return 0.0
    return float(np.clip(inside[-1] / stats.poisson.pmf(num, num), 0.0, 1.0))


def p_value(ranks: Int[np.ndarray, " N"], num_draws: int) -> float:
    """Probability that N uniform ranks in 0..num_draws have a smallest tail probability as small as these."""
    num = len(ranks)
    # counts[k]: how many ranks are <= k, Binomial(N, (k + 1) / (L + 1)) if they are uniform. The statistic is the
    # smallest two-sided tail over k; its p-value is the probability that a path leaves the band of that level
    # somewhere.
    counts = np.cumsum(np.bincount(ranks, minlength=num_draws + 1))
    lower_tail, upper_tail = _tails(num, num_draws)
    place = np.arange(num_draws + 1)
    statistic = float(2 * np.minimum(lower_tail[place, counts], upper_tail[place, counts]).min())
    outside = 1.0 - prob_inside(_band_above(num, num_draws, statistic), _uniform(num_draws), num)
    # The difference 1 - inside has no correct digits if it is tiny: clip it to bounds that hold exactly, the tail
    # probability at one k and the sum over all k.
    return float(np.clip(outside, statistic / 2, min(1.0, (num_draws + 1) * statistic)))


@lru_cache(maxsize=64)
def simultaneous_band(num: int, num_draws: int, false_alarm: float) -> Band:
    """The narrowest band that N uniform ranks leave with a probability of at most `false_alarm`."""

    def excess(log_level: float) -> float:
        inside = prob_inside(_band_above(num, num_draws, np.exp(log_level)), _uniform(num_draws), num)
        return (1.0 - inside) - false_alarm

    # Bisection for the level of the single tests, between a Bonferroni bound and the level of one k alone. The excess
    # is a step function of it: the lower end of the bracket keeps the probability below `false_alarm`.
    low, high = np.log(false_alarm / (2 * (num_draws + 1))), np.log(2 * false_alarm)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) <= 0 else (low, middle)
    return _band_above(num, num_draws, float(np.exp(low)))


@lru_cache(maxsize=64)
def detectable(num: int, num_draws: int, false_alarm: float) -> Detectable:
    """The smallest faults that the test on N ranks finds with probability `POWER` (see `fault_rank_probs`).

    Args:
        num: N.
        num_draws: L.
        false_alarm: of the test.
    """
    band = simultaneous_band(num, num_draws, false_alarm)

    def missing(log_scale: float, shift: float) -> float:
        return (1.0 - prob_inside(band, fault_rank_probs(num_draws, np.exp(log_scale), shift), num)) - POWER

    narrow = _root(lambda x: missing(-x, 0.0), 4.0)
    log_spread = _root(lambda x: missing(x, 0.0), 4.0)
    return Detectable(float(np.exp(-narrow)), float(np.exp(log_spread)), _root(lambda x: missing(0.0, x), 6.0))


def fault_rank_probs(num_draws: int, scale: float, shift: float) -> Float[np.ndarray, " ranks"]:
    """Probabilities of the ranks if the posterior is standard normal and the draws are N(shift, scale^2).

    Given the truth z, the rank is Binomial(L, Phi((z - shift) / scale)); z is integrated out on a grid.
    """
    z = np.linspace(-8.0, 8.0, 801)
    draw = ((z - shift) / scale)[:, None]
    rank = np.arange(num_draws + 1)
    # log C(L, rank) + rank log Phi + (L - rank) log(1 - Phi), for every truth of the grid.
    choose = special.gammaln(num_draws + 1) - special.gammaln(rank + 1) - special.gammaln(num_draws - rank + 1)
    log_probs = choose + rank * special.log_ndtr(draw) + (num_draws - rank) * special.log_ndtr(-draw)
    probs = stats.norm.pdf(z) @ np.exp(log_probs)
    return probs / probs.sum()


def _root(function: Callable[[float], float], largest: float) -> float:
    # No fault is large enough.
    if function(largest) < 0:
        return float("nan")
    return float(optimize.brentq(function, 1e-4, largest, xtol=1e-3))  # pyright: ignore[reportArgumentType]


def _uniform(num_draws: int) -> Float[np.ndarray, " ranks"]:
    return np.full(num_draws + 1, 1.0 / (num_draws + 1))


@lru_cache(maxsize=8)
def _tails(num: int, num_draws: int) -> tuple[Float[np.ndarray, "ranks counts"], Float[np.ndarray, "ranks counts"]]:
    """P(count <= c) and P(count >= c) at every k, for c = 0..N."""
    # P(rank <= k) of a uniform rank.
    cdf = np.arange(1, num_draws + 2)[:, None] / (num_draws + 1)
    count = np.arange(num + 1)
    return stats.binom.cdf(count, num, cdf), stats.binom.sf(count - 1, num, cdf)


def _band_above(num: int, num_draws: int, level: float) -> Band:
    """The counts whose two-sided tail probability exceeds `level`."""
    lower_tail, upper_tail = _tails(num, num_draws)
    # Tails that are equal by symmetry differ by rounding: count both as not above the level.
    level *= 1 + 1e-9
    return Band((2 * lower_tail <= level).sum(-1), num - (2 * upper_tail <= level).sum(-1))
