"""Average reward against stationary distributions, enumeration and published gains."""

import numpy as np
import pytest

from bayes_mdp.envs import chain, riverswim, riverswim_episodic
from bayes_mdp.mdp import MDP, AverageReward, SparseMDP
from bayes_mdp.planning import occupancy
from tests.planning.planning_problems import all_policies, arrays, evaluate, listed, make_mdp, solve


def stationary_gain(rows, reward):
    """Gain of an ergodic or periodic chain from its stationary distribution, by least squares."""
    n = len(reward)
    system = np.vstack([np.eye(n) - rows.T, np.ones(n)])
    return np.linalg.lstsq(system, np.r_[np.zeros(n), 1.0], rcond=None)[0] @ reward


def best_gain(data):
    rows, reward, _, legal = data
    states = np.arange(len(reward))
    return max(
        stationary_gain(rows[states, p], reward[states, p]) for p in all_policies(len(reward), reward.shape[1], legal)
    )


@pytest.mark.optimised
@pytest.mark.parametrize("sparse", [False, True])
def test_enumeration(sparse, x64):
    for kind in ("random", "masked"):
        data = arrays(kind, 6)
        solution = solve(listed(make_mdp(*data)) if sparse else make_mdp(*data), AverageReward())
        assert abs(solution.gain - best_gain(data)) <= solution.gap <= 1e-12
        assert solution.converged
        assert solution.v[0] == 0


def test_optimality_equation_and_relative_values(x64):
    data = arrays("random", 6)
    solution = solve(make_mdp(*data), AverageReward())
    q = data[1] - float(solution.gain) + data[0] @ np.asarray(solution.v)
    np.testing.assert_allclose(q, solution.q, atol=1e-12)
    np.testing.assert_allclose(np.max(q, -1), solution.v, atol=2 * float(solution.gap))


def test_periodic_chains_converge(x64):
    """Plain value iteration oscillates for ever on a cycle; max mean cycle by enumeration of the two step lengths."""
    data = arrays("periodic", 6)
    solution = solve(make_mdp(*data), AverageReward())
    assert solution.converged
    assert solution.gap < 1e-12
    policy = np.asarray(solution.policy)
    gains = [_cycle_gain(data, p) for p in all_policies(6, 2, data[3])]
    assert abs(max(gains) - solution.gain) <= solution.gap
    assert abs(_cycle_gain(data, policy) - solution.gain) <= solution.gap


def _cycle_gain(data, policy):
    """Best mean reward over the cycles of a deterministic policy."""
    best = -np.inf
    for state in range(6):
        for _ in range(6):
            state = data[0][state, policy[state]].argmax()
        rewards, here = [], state
        while not rewards or here != state:
            rewards.append(data[1][here, policy[here]])
            here = data[0][here, policy[here]].argmax()
        best = max(best, np.mean(rewards))
    return best


def test_published_gains(x64):
    for env, gain, digits in ((riverswim(), 668.807, 3), (chain(), 3.6768, 8), (riverswim_episodic(), 0.42862, 5)):
        mdp = env.mdp if env.mdp.horizon is None else env.mdp.at(0)
        assert abs(solve(mdp, AverageReward()).gain - gain) < 10.0**-digits


def test_float32_bounds_hold():
    for seed in range(3):
        data = arrays("random", 6, seed=seed)
        solution = solve(make_mdp(*data), AverageReward())
        assert abs(float(solution.gain) - best_gain(data)) <= solution.gap <= 1e-4


def test_evaluate_agrees_with_stationary_distributions(x64):
    rows, reward, *_ = data = arrays("random", 6)
    policy = np.random.default_rng(0).dirichlet(np.ones(2), 6)
    gain = stationary_gain(np.einsum("sa,saz->sz", policy, rows), (policy * reward).sum(-1))
    value = evaluate(make_mdp(*data), policy, AverageReward())
    assert abs(value.gain - gain) <= value.gap <= 1e-12
    visits = occupancy(make_mdp(*data), policy, AverageReward())
    np.testing.assert_allclose(np.sum(visits), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.sum(visits * reward), gain, rtol=1e-11)
    np.testing.assert_allclose(np.sum(policy * np.asarray(value.q), -1), value.v, atol=1e-11)


def test_two_gains_are_not_called_one(x64):
    """Two closed classes with gains 0 and 1: no single gain exists, and the answer says so."""
    rows = np.eye(6)[:, None].repeat(2, 1)
    reward = (np.arange(6) < 3).astype(float)[:, None].repeat(2, 1)
    mdp = make_mdp(rows, reward, np.zeros((6, 2)), np.ones((6, 2), bool))
    for answer in (solve(mdp, AverageReward()), evaluate(mdp, np.full((6, 2), 0.5), AverageReward())):
        assert not answer.converged
        assert np.isposinf(answer.gap)


def test_ends_prove_nothing_under_tracing(x64):
    data = arrays("ending", 6)
    assert np.isposinf(solve(make_mdp(*data), AverageReward()).gap)


def test_rows_that_sum_to_one_only_nearly_widen_the_gap():
    rows, reward, *_ = arrays("random", 6)
    rows = rows.astype(np.float32)
    exact = solve(MDP(rows, reward), AverageReward())
    loose = solve(MDP(rows * np.float32(1 + 5e-6), reward), AverageReward())
    assert loose.gap > exact.gap


@pytest.mark.slow
def test_a_long_river(x64):
    """What pays lies 300 states away: the gain is 3/7 but for 7^-300, by the stationary distribution of going right."""
    size = 300
    state = np.arange(size)
    right = np.stack([np.minimum(state + 1, size - 1), state, np.maximum(state - 1, 0)], -1)
    left = np.tile(np.maximum(state - 1, 0)[:, None], 3)
    probs = np.tile([[1.0, 0.0, 0.0], [0.35, 0.6, 0.05]], (size, 1, 1))
    probs[0, 1], probs[-1, 1] = [0.6, 0.4, 0.0], [0.0, 0.6, 0.4]
    reward = np.zeros((size, 2))
    reward[0, 0], reward[-1, 1] = 0.005, 1.0
    solution = solve(SparseMDP(np.stack([left, right], 1), probs, reward), AverageReward())
    assert solution.converged and abs(solution.gain - 3 / 7) <= solution.gap < 1e-9
    assert np.all(solution.policy == 1)
