# pyright: reportArgumentType=false
"""Cycles, on drawn graphs with known answers."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import MDP
from bayes_mdp.planning.occupancy import find_cycle, reachable_pairs
from tests.planning.planning_problems import listed


def graph(edges, n, n_actions=1):
    """Uniform rows over the targets of (state, action) -> targets; a pair that is not named stays."""
    rows = np.zeros((n, n_actions, n))
    for s, a in itertools.product(range(n), range(n_actions)):
        targets = edges.get((s, a), [s])
        rows[s, a, targets] = 1 / len(targets)
    return MDP(jnp.asarray(rows), jnp.zeros((n, n_actions)))


ALL = np.ones((4, 1), bool)
LINE = {(0, 0): [1, 2], (1, 0): [2], (2, 0): [3]}


def test_an_absorbing_known_state_is_no_cycle():
    mdp = graph(LINE, 4)
    unknown = np.array([[True], [True], [True], [False]])
    assert find_cycle(mdp, np.ones((4, 1)), unknown) is None
    assert find_cycle(mdp, np.ones((4, 1)), ALL) == (3,), "the same state with an unknown row is one"


def test_a_cycle_is_named_from_its_unknown_pair_on():
    mdp = graph({**LINE, (2, 0): [1, 3]}, 4)
    one = lambda s: np.arange(4)[:, None] == s  # noqa: E731
    assert find_cycle(mdp, np.ones((4, 1)), one(1)) == (2, 1)
    assert find_cycle(mdp, np.ones((4, 1)), one(2)) in ((1, 2), (3, 2))
    assert find_cycle(mdp, np.ones((4, 1)), one(0)) is None, "not on the cycle"


def test_a_cycle_through_known_pairs_counts_where_an_unknown_one_is_met_again():
    """0 -> 1 -> 2 -> 0, only the row of 1 is unknown."""
    cycle = find_cycle(
        graph({(0, 0): [1], (1, 0): [2, 3], (2, 0): [0]}, 4), np.ones((4, 1)), np.arange(4)[:, None] == 1
    )
    assert cycle == (2, 0, 1)


def test_the_policy_decides():
    """Action 1 leads back, action 0 does not."""
    mdp = graph({(0, 0): [1], (0, 1): [1], (1, 0): [2], (1, 1): [0]}, 3, 2)
    unknown = np.array([[True, True], [True, True], [False, False]])
    stay_on, back = np.array([[1.0, 0], [1, 0], [1, 0]]), np.array([[1.0, 0], [0, 1], [1, 0]])
    assert find_cycle(mdp, stay_on, unknown) is None
    assert set(find_cycle(mdp, back, unknown) or ()) == {0, 1}
    # The unknown pair must itself be taken: here the cycle runs through the known action of state 1.
    assert find_cycle(mdp, back, np.array([[False, True], [True, False], [False, False]])) is None


def _random(rng, n=6, density=0.3, acyclic=False):
    adjacency = rng.uniform(size=(n, 2, n)) < density
    if acyclic:
        order = rng.permutation(n)
        rank = np.empty(n, int)
        rank[order] = np.arange(n)
        adjacency &= (rank[:, None] < rank[None, :])[:, None]
    stay = ~adjacency.any(-1)
    adjacency[np.nonzero(stay)[0], np.nonzero(stay)[1], np.nonzero(stay)[0]] = True
    rows = adjacency / adjacency.sum(-1, keepdims=True)
    return MDP(jnp.asarray(rows), jnp.zeros((n, 2))), stay


def _met_again(mdp, used, unknown):
    """Oracle: powers of the adjacency matrix; can an unknown pair's state be reached from one of its successors?"""
    n, rows = mdp.n_states, np.asarray(mdp.transition_probs) > 0
    step = (rows & used[..., None]).any(1)
    reach = np.linalg.matrix_power(step + np.eye(n, dtype=int), n) > 0
    first = (rows & (used & unknown)[..., None]).any(1)
    return bool((first @ reach.astype(int) > 0)[np.arange(n), np.arange(n)].any())


@pytest.mark.parametrize("acyclic", [False, True])
def test_random_graphs_against_powers_of_the_adjacency_matrix(acyclic):
    """Dense and sparse; what is found is a cycle, and holds an unknown pair."""
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        mdp, stay = _random(rng, density=0.25, acyclic=acyclic)
        probs = rng.dirichlet(np.ones(2), 6) * (rng.uniform(size=(6, 2)) < 0.6)
        probs[probs.sum(1) == 0, 0] = 1.0
        unknown = (rng.uniform(size=(6, 2)) < 0.5) & ~(stay if acyclic else np.zeros_like(stay))
        cycle = find_cycle(mdp, probs, unknown)
        assert (cycle is not None) == _met_again(mdp, probs > 0, unknown)
        assert (cycle is None) == (find_cycle(listed(mdp), probs, unknown) is None)
        if cycle is not None:
            found += 1
            step = reachable_pairs(mdp, probs > 0).toarray() > 0
            assert all(step[a, b] for a, b in itertools.pairwise((*cycle, cycle[0])))
            assert ((probs > 0) & unknown)[cycle[-1]].any()
            assert len(set(cycle)) == len(cycle)
    assert (found == 0) if acyclic else (5 < found < 40), "both answers must occur"


def test_reachable_pairs_sparse_is_dense():
    mdp, _ = _random(np.random.default_rng(0))
    pairs = np.random.default_rng(1).uniform(size=(6, 2)) < 0.5
    dense, sparse = reachable_pairs(mdp, pairs).toarray() > 0, reachable_pairs(listed(mdp), pairs).toarray() > 0
    np.testing.assert_array_equal(dense, sparse)
    np.testing.assert_array_equal(dense, ((np.asarray(mdp.transition_probs) > 0) & pairs[..., None]).any(1))
