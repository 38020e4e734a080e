"""`wide_law`: a reward law that allows far more than was ever seen, where a ready-made one fits the rewards.

Rewards of 0 and 1 under a normal law: posterior means of probabilities below 0 and above 1, and values that no policy
can have. A log of rewards that are 0 or 1 does not show that no others exist: the sentence leaves that to the reader.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from bayes_mdp.models.sufficient_statistics import RewardSums
from bayes_mdp.utils.messages import see

ENOUGH = 10
"""Rewards from which on a log that looks like counts is taken for one."""
TOLERANCE = 1e-9
BINARY, COUNTED = "0 or 1", "0, 1, 2, ..."
READY = {BINARY: "dirichlet_bernoulli", COUNTED: "dirichlet_poisson"}
"""What rewards may be -> the ready-made prior whose law gives these alone."""
REAL = (dist.Normal, dist.StudentT)
COUNTS = (dist.Poisson,)
"""Laws of ready-made priors: of all numbers, of all counts."""


@runtime_checkable
class _HasSums(Protocol):
    """A posterior that keeps sums of its rewards."""

    def reward_sums(self) -> RewardSums | None:
        """The family of the reward law, and sums of groups of rewards; None: not kept."""
        ...


def wide_law(posterior: object) -> str | None:
    """One sentence where the reward law allows more than all rewards seen, and a ready-made law fits them. Host side.

    Posteriors keep sums of rewards, not each of them. Sums of numbers that are 0 or 1 have sum r^2 = sum r, a whole
    number; those of counts have sum r^2 >= sum r, both whole and of one parity. So it is looked at in every cell of the
    law. Other numbers can have such sums by coincidence, so the sentence speaks of sums.

    Args:
        posterior: as `infer` returns it, or another one.

    Returns:
        The sentence; None: another law, too few rewards, others than these, or it is not known.
    """
    kept_sums = posterior.reward_sums() if isinstance(posterior, _HasSums) else None
    if kept_sums is None or kept_sums[0] not in REAL + COUNTS or kept_sums[1].dtype != np.float64:
        # In single precision sums are no longer whole.
        return None
    law, sums = kept_sums
    kind = _kind(sums)
    if kind is None or (law in COUNTS and kind != BINARY):
        return None
    number, real = float(sums[:, 0].sum()), law in REAL
    beyond = ("numbers below 0 and above 1" if real else "counts above 1") if kind == BINARY else "numbers below 0"
    return (
        f"the {number:.10g} rewards have the sums of numbers that are {kind}, and the {law.__name__} law of the prior "
        f"allows {beyond}, so that values can lie where none can be: if rewards can only be {kind}, "
        f"use models.{READY[kind]} (in the shell --prior {READY[kind]}) {see('how-to/write-a-reward-law')}"
    )


def _kind(sums: Float[np.ndarray, "K 3"]) -> str | None:
    """Of which of `READY` the rewards have the sums."""
    # Groups without rewards say nothing.
    count, mean, ss = sums[sums[:, 0] > 0].T
    first, second = count * mean, ss + count * mean**2  # sum r, sum r^2
    # Rounding grows with the size of what was added.
    slack = TOLERANCE * (count + np.abs(first) + np.abs(second))
    whole = [np.abs(x - np.round(x)) <= slack for x in (count, first, second)]
    # Sums of whole numbers are whole.
    if not count.size or not np.all(whole) or np.any(first < -slack):
        return None
    excess = second - first  # sum r (r - 1)
    if np.all(np.abs(excess) <= slack):
        # Both are there: all zero, or all one, says nothing.
        return BINARY if 0 < np.round(first.sum()) < np.round(count.sum()) else None
    counts = (excess >= -slack) & (np.round(excess) % 2 == 0)
    # r (r - 1) is even for every count.
    return COUNTED if counts.all() and count.sum() >= ENOUGH else None
