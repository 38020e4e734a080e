"""First exit: proper policies only, improper ones detected, cycles of every sign."""

import numpy as np
import pytest

from bayes_mdp import planning
from bayes_mdp.mdp import MDP, Discounted, Episodic, FirstExit, unroll
from bayes_mdp.planning.first_exit import exit_policy
from tests.planning.planning_problems import all_policies, arrays, listed, make_mdp, solve
from tests.planning.planning_problems import evaluate as compiled


def losing(n, seed=0):
    """Every step costs something, ends are possible from about half of the pairs."""
    rows, reward, ends, legal = arrays("ending", n, seed=seed)
    return rows, reward - 3.0, ends, legal


def best_proper(rows, reward, legal):
    """Enumeration over the policies that end (spectral radius below one)."""
    n, n_actions = reward.shape
    states, values = np.arange(n), []
    for policy in all_policies(n, n_actions, legal):
        chain = rows[states, policy]
        if np.abs(np.linalg.eigvals(chain)).max() < 1 - 1e-9:
            values.append(np.linalg.solve(np.eye(n) - chain, reward[states, policy]))
    return np.max(values, 0)


def two_rooms(stay, leave):
    """Action 0 moves to the other room for `stay`, action 1 ends for `leave`."""
    rows = np.zeros((2, 2, 2))
    rows[0, 0, 1] = rows[1, 0, 0] = 1.0
    ends = np.array([[0.0, 1.0], [0.0, 1.0]])
    return MDP(rows, np.array([[stay[0], leave[0]], [stay[1], leave[1]]]), end_probs=ends)


@pytest.mark.few(1)
@pytest.mark.optimised
@pytest.mark.parametrize("sparse", [False, True])
def test_enumeration(sparse, x64):
    for seed in range(3):
        data = losing(6, seed)
        mdp = listed(make_mdp(*data)) if sparse else make_mdp(*data)
        solution = solve(mdp, FirstExit())
        best = best_proper(data[0], data[1], data[3])
        assert np.abs(solution.v - best).max() <= solution.gap <= 1e-9 * (1 + np.abs(best).max())
        assert solution.converged
        if not sparse:
            warm = solve(mdp, FirstExit(), start=solution)
            assert warm.iterations == 1
            np.testing.assert_allclose(warm.v, solution.v, rtol=1e-12)


def test_float32_is_honest():
    for seed in range(3):
        data = losing(6, seed)
        solution = solve(make_mdp(*data), FirstExit())
        best = best_proper(data[0], data[1], data[3])
        assert np.abs(np.asarray(solution.v, float) - best).max() <= solution.gap < 1.0


def test_an_improper_policy_is_a_start_that_is_not_used(x64):
    mdp = two_rooms((-1.0, -1.0), (-5.0, -1.0))
    start = solve(mdp, Discounted(0.0))
    np.testing.assert_array_equal(start.policy, [0, 0])
    np.testing.assert_allclose(solve(mdp, FirstExit(), start=start).v, [-2.0, -1.0])


def test_zero_cycles_are_never_entered(x64):
    """Staying for ever is worth 0 > -1, but it never ends: the best proper policy leaves. No bound can be proven."""
    solution = solve(two_rooms((0.0, 0.0), (-1.0, -3.0)), FirstExit())
    np.testing.assert_allclose(solution.v, [-1.0, -1.0])
    np.testing.assert_array_equal(solution.policy, [1, 0])
    assert solution.converged
    assert np.isposinf(solution.gap)


def test_cycles_of_positive_reward_are_refused(x64):
    with pytest.raises(ValueError, match=r"rewards are unbounded: from state 0 .* positive reward"):
        planning.solve(two_rooms((2.0, -1.0), (-1.0, -3.0)), FirstExit())
    for stay in ((0.1, 0.0), (2.0, -1.0)):
        traced = solve(two_rooms(stay, (-1.0, -3.0)), FirstExit())
        assert not traced.converged
        assert np.isposinf(traced.gap)


def test_a_cycle_that_gains_and_loses_is_fine(x64):
    solution = solve(two_rooms((2.0, -2.5), (-1.0, -3.0)), FirstExit())
    np.testing.assert_allclose(solution.v, [-1.0, -3.0])
    assert solution.gap < 1e-10


def test_no_way_out_is_refused(x64):
    """State 1 is a trap: no policy ends from there."""
    ends = np.array([[1.0, 1.0], [0.0, 0.0]])
    rows = np.zeros((2, 2, 2))
    rows[1, :, 1] = 1.0
    trapped = MDP(rows, -np.ones((2, 2)), end_probs=ends)
    with pytest.raises(ValueError, match="every policy never ends from state 1"):
        planning.solve(trapped, FirstExit())
    traced = solve(trapped, FirstExit())
    assert not traced.converged
    assert np.isposinf(traced.gap)


def test_an_improper_policy_is_refused_by_evaluate(x64):
    mdp = two_rooms((-1.0, -1.0), (0.0, 0.0))
    with pytest.raises(ValueError, match="the policy never ends from state 0"):
        planning.evaluate(mdp, np.array([0, 0]), FirstExit())
    value = compiled(mdp, np.array([[0.5, 0.5], [0.5, 0.5]]), FirstExit())
    np.testing.assert_allclose(value.v, [-1.0, -1.0], atol=float(value.gap))
    traced = compiled(mdp, np.array([0, 0]), FirstExit())
    assert not traced.converged
    assert np.isposinf(traced.gap)


def test_illegal_ways_out_do_not_count(x64):
    mdp = two_rooms((-1.0, -1.0), (0.0, 0.0))
    legal = np.array([[True, False], [True, False]])
    masked = MDP(mdp.transition_probs, mdp.reward, end_probs=mdp.end_probs, legal=legal)
    assert not exit_policy(masked)[0].any()


def test_an_unrolled_mdp_is_worth_its_episode(x64):
    data = arrays("random", 6)
    mdp = make_mdp(*data)
    unrolled = solve(unroll(mdp, 5), FirstExit())
    np.testing.assert_allclose(unrolled.v.reshape(5, 6), solve(mdp, Episodic(5)).v, rtol=1e-12)
    assert unrolled.gap < 1e-9
