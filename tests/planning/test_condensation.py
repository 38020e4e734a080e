# pyright: reportArgumentType=false
"""The order in which the values of a chain can be worked out, on drawn graphs."""

import numpy as np
from scipy.sparse.csgraph import floyd_warshall

from bayes_mdp.mdp import MDP
from bayes_mdp.planning.occupancy import condensation
from tests.planning.planning_problems import listed


def test_components_and_order_of_random_graphs():
    """Against the transitive closure: who leads back to whom, and nobody before those it leads to."""
    sizes = []
    for seed in range(40):
        step = np.random.default_rng(seed).uniform(size=(6, 2, 6)) < 0.12
        step[:, :, 0] |= ~step.any(-1)  # a row of no targets leads to 0
        mdp = MDP(step / step.sum(-1, keepdims=True), np.zeros((6, 2)))
        leads = np.isfinite(floyd_warshall(step.any(1).astype(float)))
        for form in (mdp, listed(mdp)):
            order, component = condensation(form, np.ones((6, 2), bool))
            assert sorted(order) == list(range(6))
            np.testing.assert_array_equal(component[:, None] == component, leads & leads.T)
            place = np.argsort(order)
            assert np.all((place < place[:, None])[leads & ~leads.T])
        sizes.append(len(set(component)))
    assert min(sizes) < 6 and max(sizes) > 2, "cycles and none must both occur"


def test_a_ring_stands_together():
    """1 -> 2 -> 1 leaves to 0."""
    rows = np.zeros((4, 1, 4))
    rows[0, 0, 3] = rows[1, 0, 2] = rows[3, 0, 3] = 1.0
    rows[2, 0, :2] = 0.5
    order, component = condensation(MDP(rows, np.zeros((4, 1))), np.ones((4, 1), bool))
    assert [*order[:2]] == [3, 0] and component[1] == component[2] and len(set(component)) == 3


def test_only_the_pairs_given_count():
    rows = np.zeros((3, 2, 3))
    rows[[0, 1, 2], 0, [1, 2, 2]], rows[:, 1, 0] = 1.0, 1.0
    mdp = MDP(rows, np.zeros((3, 2)))
    first = np.array([[True, False]] * 3)
    order, component = condensation(mdp, first)
    np.testing.assert_array_equal(order, [2, 1, 0])
    assert len(set(component)) == 3 and len(set(condensation(mdp, first | True)[1])) == 1
