"""A slice sampler of one number (Neal 2003, *Slice sampling*). Host side."""

from collections.abc import Callable

import numpy as np

MOST_STEPS = 50
"""Of a slice, to both sides together."""


def slice_step(
    rng: np.random.Generator,
    start: float,
    log_density: Callable[[float], float],
    width: float,
    most: int | None = MOST_STEPS,
) -> float:
    """A draw that leaves a density of one number invariant, by stepping out and shrinkage.

    Args:
        rng: random.
        start: where the chain is.
        log_density: up to a constant; finite at `start`.
        width: of a step, about the size of the density's bulk.
        most: steps out; None: as many as the slice takes, which is bounded.
    """
    height = log_density(start) - rng.exponential()
    low = start - width * rng.random()
    high = low + width
    # The steps are shared between both sides at random, which keeps the density where they run out.
    left = np.inf if most is None else int(rng.integers(most))
    right = np.inf if most is None else most - 1 - left
    while left > 0 and log_density(low) > height:
        low, left = low - width, left - 1
    while right > 0 and log_density(high) > height:
        high, right = high + width, right - 1
    while True:
        value = low + (high - low) * rng.random()
        if log_density(value) > height:
            return value
        low, high = (value, high) if value < start else (low, value)
