"""`PriorWeight`: how many observations the prior of each pair is worth, and whether it says anything."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.utils.typing import AnyArray

WHOLE = 100.0  # from here on weights are printed as whole numbers


class PriorWeight(NamedTuple):
    """What the prior of every pair weighs, before any data.

    Args:
        transitions: the weight in observations: the concentration of the row, summed over its outcomes; of unknown
            rewards the expected variance of one of them over the variance of their mean, the number of rewards that
            the prior's mean weighs. Of both the one that says less; nan: not known; inf: nothing is unknown.
        is_empty: whether it says as good as nothing: it weighs at most one observation for each possible outcome (of a
            reward: value; one where any number is possible), or its weight is not known. The priors that are taken
            where nothing is known weigh no more: flat (one for each outcome), Jeffreys' (half), Perks' (one in all).
    """

    transitions: Float[AnyArray, "*H S A"]
    is_empty: Bool[AnyArray, "*H S A"]


def describe_weight(weight: Float[np.ndarray, " pairs"]) -> str:
    """What priors weigh, in words: "3 transitions", "2 to 1,734 transitions"; empty where one is not known."""
    if not len(weight) or not np.isfinite(weight).all():
        return ""
    low, high = _number(float(weight.min())), _number(float(weight.max()))
    several = low if low == high else f"{low} to {high}"
    return f"{several} transition{'' if several == '1' else 's'}"


def _number(weight: float) -> str:
    return f"{weight:,.0f}" if weight >= WHOLE else f"{weight:.3g}"
