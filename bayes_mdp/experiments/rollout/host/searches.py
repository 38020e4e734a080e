"""Two searches of the numba loops: an outcome by its random number, an action by its value."""

import numpy as np

from bayes_mdp.experiments.rollout.host.numba_function import compiled


@compiled
def search(u: float, threshold: np.ndarray) -> int:
    """How many of 2^m - 1 thresholds in increasing order a uniform number reaches, as in `Simulator`."""
    half, position = (threshold.size + 1) // 2, 0
    while half:
        if u >= threshold[position + half - 1]:
            position += half
        half //= 2
    return position


@compiled
def first_of_largest(q: np.ndarray) -> int:
    """The first action of largest value."""
    best = 0
    for a in range(1, q.size):
        if q[a] > q[best]:
            best = a
    return best
