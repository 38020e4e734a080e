"""Prioritized sweeping: the optimum of `solve` with fewer backups, and the same work as a queue made of `heapq`."""

import heapq
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp import planning
from bayes_mdp.envs import flag_maze
from bayes_mdp.mdp import Discounted, SparseMDP
from bayes_mdp.planning.prioritized_sweeping import any_in_batch, predecessors_of
from tests.planning.planning_problems import arrays, listed, make_mdp, optimal_discounted
from tests.planning.priority_sweeps import solve_by_priority

GAMMA = 0.9
THRESHOLD = 1e-7
KINDS = pytest.mark.parametrize("kind", ["random", "masked", "ending"])
SIZE = 12


def few_successors(seed=0, n=40, n_actions=2, k=3):
    """(successor, probability, reward, legal): a sparse MDP with illegal actions, ends and repeated successors."""
    rng = np.random.default_rng(seed)
    successor = rng.integers(0, n, (n, n_actions, k))
    probability = rng.dirichlet(np.ones(k + 1), (n, n_actions))[..., :k]  # the rest is an end
    legal = rng.random((n, n_actions)) < 0.8
    legal[:, 0] |= ~legal.any(1)
    return successor, probability, rng.normal(size=(n, n_actions)), legal


def as_sparse(problem):
    successor, probability, reward, legal = problem
    return SparseMDP(successor, probability, reward, end_probs=ends_of(probability), legal=legal)


def ends_of(probability):
    """What is missing in the rows, but for rounding."""
    ends = 1 - probability.sum(-1)
    return np.where(ends > 1e-9, ends, 0.0)


def dense_rows(successor, probability):
    n, n_actions, k = successor.shape
    rows = np.zeros((n, n_actions, n))
    s, a, _ = np.indices((n, n_actions, k))
    np.add.at(rows, (s, a, successor), probability)
    return rows


@KINDS
@pytest.mark.usefixtures("x64")
def test_dense_and_listed_rows(kind):
    """|v - v*| <= 2 threshold discount / (1 - discount): nothing waits, so that no value has moved by more than twice
    the threshold since the states before it were backed up. `gap` says how far off the answer is at most."""
    rows, reward, ends, legal = arrays(kind, SIZE)
    expected = optimal_discounted(rows, reward, ends, legal, GAMMA)
    mdp = make_mdp(rows, reward, ends, legal)
    for form in (mdp, listed(mdp)):
        found, number = solve_by_priority(form, Discounted(GAMMA), threshold=THRESHOLD)
        error = np.max(np.abs(found.v - expected))
        assert error <= 2 * THRESHOLD * GAMMA / (1 - GAMMA)
        assert error <= found.gap < 1e-4
        assert found.converged and found.iterations == number
        assert np.isneginf(np.asarray(found.q)[~legal]).all()
        np.testing.assert_array_equal(found.policy, np.argmax(found.q, -1))


@pytest.mark.usefixtures("x64")
def test_sparse_rows_and_a_warm_start_after_one_row_changed():
    """From the old plan on, with the one changed state given, it takes a small part of the backups, in both widths."""
    successor, probability, reward, legal = few_successors()
    first_problem = as_sparse((successor, probability, reward, legal))
    old, first = solve_by_priority(first_problem, Discounted(GAMMA), threshold=1e-9)
    rows, ends = dense_rows(successor, probability), ends_of(probability)
    np.testing.assert_allclose(old.v, optimal_discounted(rows, reward, ends, legal, GAMMA), atol=2e-8)
    changed = reward.copy()
    changed[7] += 0.3
    new = as_sparse((successor, probability, changed, legal))
    warm, again = solve_by_priority(new, Discounted(GAMMA), threshold=1e-4, start=old, changed=7)
    assert solve_by_priority(new, Discounted(GAMMA), threshold=1e-4, start=old, changed=[])[1] == 0
    expected = optimal_discounted(rows, changed, ends, legal, GAMMA)
    assert np.max(np.abs(old.v - expected)) > 0.1
    assert np.max(np.abs(warm.v - expected)) <= 2e-4 * GAMMA / (1 - GAMMA)
    assert again < 0.4 * first


def polished(problem, v, discount=GAMMA):
    """The values of one sweep more, moved to the middle of MacQueen's bounds, as in `solve`; no ends."""
    successor, probability, reward, legal = problem
    new = np.where(legal, reward + discount * (probability * v[successor]).sum(-1), -np.inf).max(-1)
    change = new - v
    return new + discount / (1 - discount) * (change.min() + change.max()) / 2


def by_heap(problem, discount, threshold, together):
    """The algorithm of [WS98] with a binary heap, state by state: values and number of backups, after one of each.

    The same conventions as ours: a state that waits goes on waiting; of equals the one of smaller number comes first;
    `together` predecessors of one state are backed up at once.
    """
    successor, probability, reward, legal = problem
    n = len(reward)
    before = [set() for _ in range(n)]
    for s, a, k in zip(*np.nonzero(probability * legal[..., None]), strict=True):
        before[successor[s, a, k]].add(int(s))
    v, reference, waits, heap, number = np.zeros(n), np.zeros(n), np.zeros(n), [], 0

    def back_up(states):
        q = reward[states] + discount * (probability[states] * v[successor[states]]).sum(-1)
        v[states] = np.where(legal[states], q, -np.inf).max(-1)
        for s in states:
            moved = abs(v[s] - reference[s])
            if moved > threshold and moved > waits[s]:
                waits[s] = moved
                heapq.heappush(heap, (-moved, s))
        return len(states)

    number += back_up(np.arange(n))
    while heap:
        moved, s = heapq.heappop(heap)
        if waits[s] != -moved:
            continue  # an entry that a later one has replaced
        waits[s], reference[s] = 0.0, v[s]
        listed = sorted(before[s])
        for i in range(0, len(listed), together):
            number += back_up(np.array(listed[i : i + together]))
    return v, number


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("threshold", [1e-2, 1e-6])
def test_the_same_work_as_a_heap(threshold):
    """The same values and the same number of backups; up to 15 predecessors a state, so that 8 at once are too few."""
    successor, probability, reward, legal = few_successors(1, n=30, k=4)
    problem = (successor, probability / probability.sum(-1, keepdims=True), reward, legal)
    assert np.diff(predecessors_of(problem[0], problem[1] > 0).first).max() > 8
    found, number = solve_by_priority(as_sparse(problem), Discounted(GAMMA), threshold=threshold)
    values, expected = by_heap(problem, GAMMA, threshold, 8)
    np.testing.assert_allclose(found.v, polished(problem, values), rtol=1e-10)
    assert number == expected


def sweeps_needed(problem, discount, v, truth, accuracy, *, in_place):
    """Backups of value iteration until its polished values are as accurate: whole sweeps at once, or in place."""
    successor, probability, reward, _ = problem
    v, number = v.copy(), 0
    while np.max(np.abs(polished(problem, v, discount) - truth)) > accuracy:
        if in_place:
            for s in range(len(v)):
                v[s] = (reward[s] + discount * (probability[s] * v[successor[s]]).sum(-1)).max()
        else:
            v = (reward + discount * (probability * v[successor]).sum(-1)).max(-1)
        number += len(v)
    return number


@pytest.mark.usefixtures("x64")
def test_fewer_backups_than_value_iteration():
    """FlagMaze after the reward of one pair has changed, as a model does while it is learnt, for eight states in turn.

    To the same accuracy value iteration from the old values takes more than 8 times the backups (both with MacQueen's
    bounds at the end), in place (Gauss-Seidel) or in whole sweeps. Counted: 1,120 against 17,160 and 25,608. This is
    so where a change stays local. One that moves all values, as of the first state of every trip, is no such case:
    there prioritized sweeping took up to ten times the backups of whole sweeps.
    """
    known: Any = flag_maze().mdp
    reward = np.asarray(known.reward, float)
    probability = np.asarray(known.probability, float)
    rows = (np.asarray(known.successor), probability / probability.sum(-1, keepdims=True))
    legal, objective = np.ones(reward.shape, bool), Discounted(0.95)
    old, _ = solve_by_priority(as_sparse((*rows, reward, legal)), objective, threshold=1e-9)
    totals = np.zeros(3)
    for s in range(30, 264, 30):
        changed = reward.copy()
        changed[s, old.policy[s]] -= 0.05
        problem = (*rows, changed, legal)
        truth = np.asarray(planning.solve(as_sparse(problem), objective, start=old).v)
        found, number = solve_by_priority(as_sparse(problem), objective, threshold=1e-4, start=old, changed=s)
        accuracy = float(np.max(np.abs(found.v - truth)))
        assert 1e-8 < accuracy <= found.gap
        others = (sweeps_needed(problem, 0.95, np.asarray(old.v), truth, accuracy, in_place=x) for x in (True, False))
        totals += [number, *others]
    print("backups, by priority, in place, whole sweeps:", totals)
    assert totals[1:].min() > 8 * totals[0]


@pytest.mark.usefixtures("x64")
def test_a_state_that_moves_back_goes_on_waiting():
    """u, x and y pay 40, 38 and -36 and end; y follows w; k leads to u or w, s to k or x.

    Passed on in the order of what they pay: u raises k to 18, x backs up s, which sees the 18, and y by way of w takes
    k back to 0. If k waited no more then (the rule "priority = |v - v_ref|" taken literally), s would be off by 8.
    """
    u, x, y, w, k, s = range(6)
    successor, probability, reward = np.zeros((6, 1, 2), int), np.zeros((6, 1, 2)), np.zeros((6, 1))
    reward[[u, x, y], 0] = 40.0, 38.0, -36.0
    successor[w, 0, 0], probability[w, 0, 0] = y, 1.0
    share = 32.4 / (40.0 + 32.4)
    successor[k, 0], probability[k, 0] = (u, w), (share, 1 - share)
    successor[s, 0], probability[s, 0] = (k, x), 0.5
    problem = (successor, probability, reward, np.ones((6, 1), bool))
    found, _ = solve_by_priority(as_sparse(problem), Discounted(GAMMA), threshold=0.01)
    expected = [40.0, 38.0, -36.0, -32.4, 0.0, 0.45 * 38.0]
    np.testing.assert_allclose(found.v, expected, atol=2 * 0.01 * GAMMA / (1 - GAMMA))


def test_it_stops_after_so_many_backups():
    mdp = make_mdp(*arrays("random", SIZE))
    found, number = solve_by_priority(mdp, Discounted(0.99), threshold=1e-6, max_backups=50)
    assert not found.converged
    assert 50 <= number <= 50 + SIZE


def test_one_flag_for_all_lanes():
    flags = jnp.array([[False, True], [False, False]])
    inner = jax.vmap(any_in_batch, out_axes=None)
    np.testing.assert_array_equal(jax.vmap(inner)(flags), [True, True])
    assert not jax.vmap(any_in_batch, out_axes=None)(flags[1])
