"""Lists of predecessors, against loops over all pairs."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.planning.prioritized_sweeping import ObservedPredecessors, predecessors_of

pytestmark = pytest.mark.numerics


def lists_of(found):
    """As Python lists."""
    return [np.asarray(found.states)[a:b].tolist() for a, b in pairwise(np.asarray(found.first))]


def test_they_are_those_of_possible_successors():
    successor = np.array([[[1, 2]], [[1, 1]], [[0, 1]]])
    possible = np.array([[[True, False]], [[True, True]], [[True, True]]])
    assert lists_of(predecessors_of(successor, possible)) == [[2], [0, 1, 2], []]


def test_they_are_the_loop():
    """Random lists with repetitions, and a hub that every state leads to; what is not possible may hold anything."""
    rng = np.random.default_rng(0)
    successor, possible = rng.integers(12, size=(12, 3, 4)), rng.random((12, 3, 4)) < 0.6
    successor[:, 0, 0], possible[:, 0, 0] = 5, True
    successor[~possible] = rng.integers(-3, 40, size=(~possible).sum())
    expected = [[s for s in range(12) if (successor[s][possible[s]] == y).any()] for y in range(12)]
    found = predecessors_of(successor, possible)
    assert lists_of(found) == expected
    assert expected[5] == list(range(12))


def test_both_kinds_are_read_alike():
    """A window over the end of a list, and one behind it."""
    flat = predecessors_of(np.array([[[1, 2]], [[1, 1]], [[0, 1]]]), np.ones((3, 1, 2), bool))
    square = ObservedPredecessors(jnp.array([[2, 3, 3], [0, 1, 2], [0, 3, 3]]))
    for state in range(3):
        for start in (0, 2, 4):
            places = start + jnp.arange(2)
            np.testing.assert_array_equal(flat.some(state, places), square.some(state, places))
    np.testing.assert_array_equal(flat.some(1, jnp.arange(4)), [0, 1, 2, 3])
