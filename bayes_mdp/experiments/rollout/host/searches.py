"""Searches of the numba loops: an outcome or a reward by its random number, an action by its value.

They take whole arrays and indices, not slices: a slice would be counted as a reference, at every step.
"""

import numpy as np

from bayes_mdp.experiments.rollout.host.host_threefry import Words, uniform
from bayes_mdp.numerics.numba_function import compiled
from bayes_mdp.utils.typing import RealScalar


@compiled
def search(u: RealScalar, threshold: np.ndarray, state: int, action: int) -> int:
    """How many of the 2^m - 1 increasing thresholds of a pair a uniform number reaches, as in `Simulator`."""
    half, position = (threshold.shape[2] + 1) // 2, 0
    while half:
        if u >= threshold[state, action, position + half - 1]:
            position += half
        half //= 2
    return position


@compiled
def search_first(u: RealScalar, threshold: np.ndarray) -> int:
    """The same of the thresholds of the first state."""
    half, position = (threshold.size + 1) // 2, 0
    while half:
        if u >= threshold[position + half - 1]:
            position += half
        half //= 2
    return position


@compiled
def first_of_largest(q: np.ndarray, first: int, n_actions: int) -> int:
    """The first action of largest value, of those from place `first` of `q` on."""
    best, top = 0, q[first]
    for a in range(1, n_actions):
        if q[first + a] > top:
            best, top = a, q[first + a]
    return best


@compiled
def drawn_reward(key: Words, weight: np.ndarray, value: np.ndarray, row: int) -> np.floating:
    """A reward in a row of `value` [M E], by their cumulative weights: the numbers of `ListedReward.sample`."""
    kind, last = weight.dtype.type, weight.shape[1] - 1
    reached, k = kind(uniform(key, weight.itemsize)) * weight[row, last], 0
    for e in range(last):
        k += reached >= weight[row, e]
    return value[row, k]
