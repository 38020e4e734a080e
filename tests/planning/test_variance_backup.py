# pyright: reportArgumentType=false
"""Propagated variances against dense solves in numpy."""

import jax
import numpy as np
import pytest

from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit
from bayes_mdp.planning.solve import propagate
from tests.planning.planning_problems import arrays, listed, make_mdp

N, DISCOUNT = 5, 0.9
propagated = jax.jit(propagate)


def problem(kind="ending", horizon=None):
    rng = np.random.default_rng(1)
    rows, reward, ends, legal = arrays(kind, N)
    shape = (N, 2) if horizon is None else (horizon, N, 2)
    return rows, reward, ends, legal, rng.uniform(0, 2, shape), rng.dirichlet(np.ones(2), N)


def dense(rows, local, probs, square):
    chain, mixed = np.einsum("sa,saz->sz", probs, rows), (probs * local).sum(-1)
    v = np.linalg.solve(np.eye(N) - square * chain, mixed)
    return local + square * rows @ v, v


@pytest.mark.few(1)
@pytest.mark.parametrize("sparse", [False, True])
def test_discounted_is_the_dense_solve_with_the_squared_discount(x64, sparse):
    """Ends, a stochastic policy; the rewards of the MDP are not used."""
    rows, reward, ends, legal, local, probs = problem()
    mdp = make_mdp(rows, reward, ends, legal)
    answer = propagated(listed(mdp) if sparse else mdp, local, probs, Discounted(DISCOUNT))
    q, v = dense(rows, local, probs, DISCOUNT**2)
    np.testing.assert_allclose(answer.q, q, rtol=1e-10)
    np.testing.assert_allclose(answer.v, v, rtol=1e-10)
    assert answer.converged and answer.gap < 1e-9
    wrong = dense(rows, local, probs, DISCOUNT)[0]
    assert np.abs(wrong - q).max() > 0.1, "without the square it would be seen"


def test_a_sure_policy_reads_actions(x64):
    rows, reward, ends, legal, local, _ = problem("random")
    actions = np.array([0, 1, 1, 0, 1])
    answer = propagated(make_mdp(rows, reward, ends, legal), local, actions, Discounted(DISCOUNT))
    np.testing.assert_allclose(answer.q, dense(rows, local, np.eye(2)[actions], DISCOUNT**2)[0], rtol=1e-10)


def test_until_the_end_is_undiscounted(x64):
    rows, reward, _, legal, local, probs = problem()
    ends = np.full((N, 2), 0.2)
    rows = 0.8 * arrays("random", N)[0]
    answer = propagated(make_mdp(rows, reward, ends, legal), local, probs, FirstExit())
    np.testing.assert_allclose(answer.q, dense(rows, local, probs, 1.0)[0], rtol=1e-9)


@pytest.mark.parametrize("discount", [1.0, 0.7])
@pytest.mark.parametrize("layered", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_episodes_are_the_recursion(x64, sparse, layered, discount):
    """Local variances differ by step, whether or not the rows do."""
    horizon = 3
    rows, reward, ends, legal, local, probs = problem(horizon=horizon)
    mdp = make_mdp(rows, reward, ends, legal)
    if layered:
        repeat = lambda x: np.broadcast_to(x, (horizon, *x.shape))  # noqa: E731
        mdp = make_mdp(repeat(rows), repeat(reward), repeat(ends), legal)
    answer = propagated(listed(mdp) if sparse else mdp, local, probs, Episodic(horizon, discount))
    v, expected = np.zeros(N), np.zeros((horizon, N, 2))
    for h in reversed(range(horizon)):
        expected[h] = local[h] + discount**2 * rows @ v
        v = (probs * expected[h]).sum(-1)
    np.testing.assert_allclose(answer.q, expected, rtol=1e-10)
    np.testing.assert_allclose(answer.v[0], v, rtol=1e-10)


def test_one_local_variance_for_all_steps(x64):
    rows, reward, ends, legal, local, probs = problem()
    mdp = make_mdp(rows, reward, ends, legal)
    one = propagated(mdp, local, probs, Episodic(3))
    every = propagated(mdp, np.broadcast_to(local, (3, N, 2)), probs, Episodic(3))
    np.testing.assert_allclose(one.q, every.q, rtol=1e-12)


def test_it_is_linear_and_monotone_in_the_local_variance(x64):
    """A contraction with gamma^2: adding one everywhere adds at most 1 / (1 - gamma^2)."""
    rows, reward, ends, legal, local, probs = problem("random")
    mdp = make_mdp(rows, reward, ends, legal)
    less, more = (propagated(mdp, x, probs, Discounted(DISCOUNT)).q for x in (local, local + 1.0))
    np.testing.assert_allclose(more - less, 1 / (1 - DISCOUNT**2), rtol=1e-9)


def test_the_average_reward_is_refused():
    with pytest.raises(ValueError, match="objective is AverageReward, expected Discounted, Episodic or FirstExit"):
        propagate(MDP(np.ones((1, 1, 1)), np.ones((1, 1))), np.ones((1, 1)), np.zeros(1, int), AverageReward())


def test_a_discount_whose_square_is_no_float(x64):
    """Nothing is left of the next step."""
    rows, reward, ends, legal, local, probs = problem(horizon=3)
    answer = propagated(make_mdp(rows, reward, ends, legal), local, probs, Episodic(3, 1e-200))
    np.testing.assert_array_equal(answer.q, local)
