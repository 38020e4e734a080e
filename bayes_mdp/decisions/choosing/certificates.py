"""What draws show about a probability: upper limits, and how many independent draws a number of draws is worth.

A limit of Clopper and Pearson (1934) holds for independent draws that chose nothing. Draws of chains repeat each other,
picks from weighted draws fall on the heavy ones again and again: they count as the independent draws that they are
worth (`independent_draws`), which makes the limit approximate. `scenario_draws` is for linear programs that keep their
constraints in all of the draws that chose.
"""

from functools import cache

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import beta, binom

from bayes_mdp.inference.pair_draws import HoldsDraws, KnowsWorth, effective_number
from bayes_mdp.utils.typing import IntScalar, RealScalar
from bayes_mdp.utils.validation import check_count, check_number

CERTAIN = 0.95
"""Confidence of the upper limit on the probability of spending more than a budget."""
LIKELY = 0.9
"""With this probability a policy that just passes in the draws of the search passes in the fresh ones."""


def upper_limit(over: int, number: int, confidence: float = CERTAIN) -> float:
    """The upper limit of a probability after so many hits in independent draws (Clopper and Pearson 1934).

    Args:
        over: number of hits.
        number: of draws.
        confidence: of the limit.
    """
    # Clopper-Pearson: the quantile of Beta(hits + 1, misses).
    return 1.0 if over >= number else float(beta.ppf(confidence, over + 1, number - over))


def limit_of_share(share: float, number: int, confidence: float = CERTAIN) -> float:
    """`upper_limit` where so many independent draws stand for more of them: the number of hits is rounded up.

    Args:
        share: of the draws that are hits.
        number: of independent draws that they are worth.
        confidence: of the limit.
    """
    return upper_limit(int(np.ceil(share * number - 1e-9)), number, confidence)


def most_over(number: int, allowed: float, confidence: float = CERTAIN) -> int:
    """The most draws over a budget that still certify this probability; -1: no number of draws would do.

    Args:
        number: of draws.
        allowed: probability of more than the budget.
        confidence: of the limit.
    """
    # Upper limits rise with the number of hits.
    low, high = -1, number
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if upper_limit(middle, number, confidence) <= allowed else (low, middle)
    return low


@cache
def most_in_search(number: int, allowed: float) -> int:
    """Draws over a budget that the search lets a policy have, so that it likely passes in as many fresh ones.

    Args:
        number: of draws.
        allowed: probability of more than the budget.
    """
    limit = most_over(number, allowed)
    # From the loosest target down to the first one that likely passes again in fresh draws.
    for number_over in range(limit, 0, -1):
        if binom.cdf(limit, number, number_over / number) >= LIKELY:
            return number_over
    return 0


def independent_draws(
    belief: object, costs: Float[np.ndarray, " N"], over: Bool[np.ndarray, " N"], allowed: float
) -> int:
    """How many independent draws the share of draws over a budget is worth.

    All of them where each is a fresh draw of the posterior. Draws in the order of their chains: the least effective
    number (by autocorrelation, and the spread among chains) of the costs, of whether they exceed the budget, and of
    whether they lie in the tail of the allowed probability: where none of the draws exceeds the budget, the tail stands
    for what was not seen. Draws that were picked at random from chains, or by weights: what is held is worth so many
    (`KnowsWorth`), and picking adds its own error. Chains are assumed to have mixed, which no draws can show, and
    weights to be worth as much to the tail as to the mean.

    Args:
        belief: that was drawn from, as `limit_draws` gave it.
        costs: in the draws.
        over: which exceed the budget.
        allowed: probability of more than the budget.
    """
    number = len(costs)
    if isinstance(belief, HoldsDraws):
        # Where nothing exceeded the budget the costs tell of autocorrelation only in the middle; the tail counts.
        tail = costs > np.quantile(costs, 1.0 - allowed)
        worth = min(effective_number(belief, x.astype(float)) for x in (costs, over, tail))
    elif isinstance(belief, KnowsWorth):
        # Picked at random, so that two errors add up: that of what is held, and that of the picking.
        worth = 1.0 / (1.0 / number + 1.0 / max(belief.worth_of_picks(), 1.0))
    else:
        return number
    # Rounded down: too few draws make the limit too high, never too low.
    return max(1, min(number, int(worth + 1e-9)))


def scenario_draws(variables: IntScalar, allowed: RealScalar, failure: RealScalar) -> int:
    """How many independent draws a convex program has to keep its constraint in, all of them.

    Its optimum then breaks the constraint with a probability of at most `allowed`, but for draws of a probability of at
    most `failure` (Campi and Garatti 2008): the least N with P(Binomial(N, allowed) < variables) <= failure. Proven for
    programs that are convex whatever is drawn. With occupancies as variables that is so where transition rows are known
    and costs are drawn; where rows are drawn it is not, and held-out draws have to judge (`Budget.probability`).

    Args:
        variables: of the program, less its equations that are independent: of occupancies S (A - 1).
        allowed: probability of breaking the constraint, in (0, 1).
        failure: with which the draws may mislead, in (0, 1).

    Raises:
        ValueError: no variable, a probability outside (0, 1). TypeError: no such numbers.

    Example:
        >>> bm.decisions.scenario_draws(4, 0.05, 1e-3)
        257
    """
    check_count("variables", variables)
    for name, value in (("allowed", allowed), ("failure", failure)):
        check_number(name, value, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")

    def enough(number: int) -> bool:
        return bool(binom.cdf(int(variables) - 1, number, float(allowed)) <= float(failure))

    # The tail falls as the number grows: doubling, then halving.
    low, high = int(variables) - 1, int(variables)
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
