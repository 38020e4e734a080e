"""What Gibbs sampling of nested Dirichlet rows is made of: densities of counts, numbers of tables, slices. Host side.

Counts n of a Dirichlet row with concentration a m_j at outcome j have, given a number of tables t_j for each outcome,
the density prod_j S(n_j, t_j) (a m_j)^t_j Gamma(a) / Gamma(a + n), S the Stirling numbers: in m it is that of t_j draws
of outcome j, so that a Dirichlet prior of m is conjugate (Teh, Jordan, Beal and Blei 2006).
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

EARLY = 4096  # customers of a restaurant that are seated one by one
_MOST_STEPS = 50  # of a slice, to both sides


def table_numbers(
    rng: np.random.Generator, counts: Int[np.ndarray, " E"], concentration: Float[np.ndarray, " E"]
) -> Int[np.ndarray, " E"]:
    """Numbers of tables of Chinese restaurants: a sum of Bernoulli(c / (c + i)), i = 0 to the count less one.

    Args:
        rng: random.
        counts: customers; whole numbers.
        concentration: c, positive.
    """
    # One Bernoulli variable for each customer, all restaurants at once, but for the late customers of large ones.
    early = np.minimum(counts, EARLY)
    restaurant = np.repeat(np.arange(len(counts)), early)
    before = np.arange(len(restaurant)) - np.repeat(np.cumsum(early) - early, early)
    own = concentration[restaurant]
    opened = rng.random(len(restaurant)) * (own + before) < own
    # The first customer always opens a table, also where the concentration underflows.
    opened[before == 0] = True
    tables = np.bincount(restaurant, opened, len(counts)).astype(np.int64)
    for large in np.flatnonzero(counts > EARLY):
        tables[large] += _late_tables(rng, float(concentration[large]), int(counts[large]))
    return tables


def _late_tables(rng: np.random.Generator, concentration: float, customers: int) -> int:
    """Tables that are opened by customers from number `EARLY` on: from one such customer straight to the next."""
    now, found = float(EARLY), 0
    while True:
        # None of the customers i = now to j - 1 opens a table with probability prod i / (c + i), a ratio of gammas.
        at_now = gammaln(concentration + now) - gammaln(now)
        level = -rng.exponential()
        low, high = now, float(customers)
        if at_now + gammaln(high) - gammaln(concentration + high) > level:
            return found
        while high - low > 1.0:
            middle = np.floor((low + high) / 2)
            none = at_now + gammaln(middle) - gammaln(concentration + middle) > level
            low, high = (middle, high) if none else (low, middle)
        now, found = high, found + 1
        if now >= customers:
            return found


def log_counts_density(
    own: Float[np.ndarray, " E"],
    counts: Int[np.ndarray, " E"],
    total: Float[np.ndarray, " R"],
    total_counts: Float[np.ndarray, " R"] | Int[np.ndarray, " R"],
) -> float:
    """The density of counts of Dirichlet rows, the rows integrated out; tables have no part in it.

    sum_e log Gamma(a_e + n_e) / Gamma(a_e) - sum_r log Gamma(a_r + n_r) / Gamma(a_r), e the outcomes that were seen.

    Args:
        own: concentrations of the outcomes that were seen, positive.
        counts: how often, one or more.
        total: concentrations of the rows.
        total_counts: all their transitions.
    """
    # Most outcomes of sparse data were seen once, and Gamma(a + 1) / Gamma(a) = a.
    once = counts == 1
    more, number = own[~once], counts[~once]
    outcomes = np.log(own[once]).sum() + (gammaln(more + number) - gammaln(more)).sum()
    return float(outcomes - (gammaln(total + total_counts) - gammaln(total)).sum())


def slice_step(rng: np.random.Generator, start: float, log_density: Callable[[float], float], width: float) -> float:
    """A draw that leaves a density of one number invariant, by stepping out and shrinkage (Neal 2003).

    Args:
        rng: random.
        start: where the chain is.
        log_density: up to a constant; finite at `start`.
        width: of a step, about the size of the density's bulk.
    """
    height = log_density(start) - rng.exponential()
    low = start - width * rng.random()
    high = low + width
    # The steps are shared between both sides at random, which keeps the density where they run out.
    left = int(rng.integers(_MOST_STEPS))
    right = _MOST_STEPS - 1 - left
    while left > 0 and log_density(low) > height:
        low, left = low - width, left - 1
    while right > 0 and log_density(high) > height:
        high, right = high + width, right - 1
    while True:
        value = low + (high - low) * rng.random()
        if log_density(value) > height:
            return value
        low, high = (value, high) if value < start else (low, value)
