"""The best policy of a set in one MDP: `solve`, SPIBB's goldens and brute force."""

from itertools import product

import jax
import numpy as np
import pytest

from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, best_in, policy_set
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit
from bayes_mdp.planning import evaluate, solve
from tests.decisions.choosing.problems import (
    GAMMA,
    REWARD,
    ROWS,
    START,
    dense_value,
    everything,
    mdps,
    random_problem,
    worlds,
)

pytestmark = pytest.mark.numerics

COUNTS = np.array(
    [[[8, 1, 1], [1, 2, 0], [2, 1, 1]], [[3, 2, 0], [1, 0, 1], [2, 2, 2]], [[1, 1, 3], [2, 0, 0], [1, 1, 10]]]
)
LIKELIEST = COUNTS / COUNTS.sum(-1, keepdims=True)
VISITS = COUNTS.sum(-1).astype(float)
UNIFORM = np.full((3, 3), 1 / 3)


def test_the_mean_of_the_reference_example():
    """It claims 8.6692378089 for (2, 0, 1), which is worth 8.4444911913."""
    choice = best_in(mdps(ROWS.mean(0), REWARD), Discounted(GAMMA), everything())
    np.testing.assert_array_equal(choice, (2, 0, 1))
    policy = np.eye(3)[choice]
    assert dense_value(ROWS.mean(0), REWARD, policy, GAMMA, START) == pytest.approx(8.6692378089, abs=1e-9)
    assert worlds().values(policy[None]).mean() == pytest.approx(8.4444911913, abs=1e-9)


@pytest.mark.parametrize(("below", "value"), [(0, 9.1437066402), (4, 8.0219713384), (6, None), (10, None), (99, None)])
def test_bootstrapping_on_few_counts(below, value):
    """SPIBB in the maximum-likelihood MDP: 8.0219713384 below 4; from 13 on nothing is left but the baseline."""
    policies = policy_set(PolicyLimits(bootstrap_below=below), None, (3, 3), VISITS, UNIFORM)
    policy = policies.policy(best_in(mdps(LIKELIEST, REWARD), Discounted(GAMMA), policies))
    found = dense_value(LIKELIEST, REWARD, policy, GAMMA, START)
    best = _brute_force(policies, LIKELIEST, REWARD)
    assert found == pytest.approx(best, abs=1e-9)
    assert found == pytest.approx(value if value is not None else 6.9001123069, abs=1e-9)
    rare = below > VISITS
    np.testing.assert_allclose(policy[rare], UNIFORM[rare], atol=1e-12)


def _brute_force(policies, rows, reward):
    options = [np.flatnonzero(row) for row in policies.free]
    return max(
        dense_value(rows, reward, policies.policy(np.array(choice)), GAMMA, START) for choice in product(*options)
    )


@pytest.mark.parametrize("limits", [PolicyLimits(max_change=0.3), PolicyLimits(bootstrap_below=3, max_change=0.6)])
def test_fixed_probabilities_against_brute_force(limits):
    """Random MDPs, baselines and counts."""
    for seed in range(10):
        rows, reward = random_problem(seed, 3, 3, 1)
        rng = np.random.default_rng(seed)
        baseline, counts = rng.dirichlet(np.ones(3), 3), rng.integers(0, 8, (3, 3)).astype(float)
        policies = policy_set(limits, None, (3, 3), counts, baseline)
        policy = policies.policy(best_in(mdps(rows[0], reward), Discounted(GAMMA), policies))
        np.testing.assert_allclose(policy.sum(-1), 1.0, atol=1e-12)
        expected = _brute_force(policies, rows[0], reward)
        assert dense_value(rows[0], reward, policy, GAMMA, START) == pytest.approx(expected, abs=1e-9)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "objective", [Discounted(0.9), Episodic(4), Episodic(4, 0.6), AverageReward(), FirstExit()], ids=repr
)
def test_a_whole_set_is_solved(objective, x64):
    """By `solve`; a set that fixes next to nothing has the same optimum."""
    rng = np.random.default_rng(0)
    rows, reward = rng.dirichlet(np.ones(4), (3, 2)), rng.normal(size=(3, 2))
    ends = isinstance(objective, FirstExit)
    probs = rows[..., :3] if ends else rows[..., :3] / rows[..., :3].sum(-1, keepdims=True)
    mdp = MDP(probs, reward, end_probs=rows[..., 3] if ends else None)
    shape = (4, 3, 2) if isinstance(objective, Episodic) else (3, 2)
    best = best_in(mdp, objective, policy_set(PolicyLimits(), None, shape, None, None))
    optimum = solve(mdp, objective)
    np.testing.assert_array_equal(best, np.asarray(optimum.policy))
    near = policy_set(PolicyLimits(max_change=1 - 1e-9), None, shape, None, np.full(shape, 0.5))
    found = evaluate(mdp, jax.numpy.asarray(near.policy(best_in(mdp, objective, near))), objective)
    np.testing.assert_allclose(np.asarray(found.v), np.asarray(optimum.v), atol=1e-6)


def test_illegal_and_forbidden_actions_are_not_taken(x64):
    """The best of both is passed over."""
    legal = np.array([[True, False, True]] * 3)
    allowed = np.array([[True, True, False]] * 3)
    mdp = MDP(ROWS[0], np.array([[0.0, 9.0, 5.0]] * 3), legal=legal)
    shape = (3, 3)
    np.testing.assert_array_equal(
        best_in(mdp, Discounted(0.9), policy_set(PolicyLimits(), legal, shape, None, None)), [2, 2, 2]
    )
    limits = PolicyLimits(allowed=allowed)
    np.testing.assert_array_equal(best_in(mdp, Discounted(0.9), policy_set(limits, legal, shape, None, None)), [0] * 3)
    np.testing.assert_array_equal(best_in(mdp, Discounted(0.9), policy_set(limits, None, shape, None, None)), [0] * 3)
