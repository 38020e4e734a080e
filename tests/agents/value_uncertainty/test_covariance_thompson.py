# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalOperand=false
# pyright: reportOptionalMemberAccess=false
"""Joint and factored Gaussian Thompson sampling with the closed-form covariance; the factor of singular covariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, CovarianceThompson
from bayes_mdp.agents.value_uncertainty.exact import value_covariance
from bayes_mdp.agents.value_uncertainty.gaussian_thompson import semidefinite_factor
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Problem
from bayes_mdp.planning import solve
from tests.agents.believed import layered


def _plan(agent, case, key, objective):
    posterior = case.posterior
    problem = Problem(posterior.space, objective)
    return jax.jit(agent.plan)(key, problem, agent.init(key, problem), posterior)[0]


def test_the_policy_is_the_gaussian_of_the_recursion(key):
    """Joint: the factor times its transpose is q_covariance of the greedy policy. Factored: its diagonal."""
    case, objective = layered(), Episodic(4)
    greedy = solve(case.posterior.mean_mdp(), objective)
    answer = value_covariance(case.posterior, greedy.policy, objective)
    joint = _plan(CovarianceThompson(scale=2.0, noise="per_step"), case, key, objective)
    np.testing.assert_allclose(joint.mean, greedy.q, rtol=1e-5)
    np.testing.assert_allclose(joint.factor @ joint.factor.swapaxes(-1, -2), 4 * answer.q_covariance, atol=1e-5)
    assert joint.noise is None
    factored = _plan(CovarianceThompson(joint=False), case, key, objective)
    np.testing.assert_allclose(factored.sd**2, answer.q_variance, rtol=1e-5)
    assert factored.noise.shape == factored.mean.shape


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_factor_of_singular_covariances(rank):
    """L L' = C whatever the rank, triangular, never nan; rows without noise stay without."""
    root = np.random.default_rng(rank).normal(size=(50, 4, rank)) * np.array([1e-3, 1.0, 0.0, 1e3])[:, None]
    c = root @ root.swapaxes(-1, -2)
    factor = np.asarray(semidefinite_factor(jnp.asarray(c)))
    np.testing.assert_allclose(factor @ factor.swapaxes(-1, -2), c, atol=1e-6 * max(1.0, np.abs(c).max()))
    assert np.all(factor == np.tril(factor)) and np.all(factor[:, 2] == 0)


def test_factor_of_equal_actions_in_float32():
    """Actions that are one and the same number get one and the same draw, up to rounding."""
    variance = jnp.array([0.3, 7.0])
    c = variance[:, None, None] * jnp.ones((2, 5, 5))
    factor = semidefinite_factor(c)
    np.testing.assert_allclose(factor[..., 0] ** 2, c[..., 0], rtol=1e-6)
    np.testing.assert_array_equal(factor[..., 1:], 0.0)


@pytest.mark.slow
def test_runs_on_a_cycle_and_is_deterministic_by_key(key):
    """A few steps in a ring, where the belief is cyclic; legal actions only."""
    env = bm.envs.wide_narrow(3)
    prior = bm.models.dirichlet_normal_gamma(1.0, 0.0, 4.0, 3.0, 3.0)
    assert AGENTS["covariance_thompson"] is CovarianceThompson
    run = lambda key: bm.run(  # noqa: E731
        CovarianceThompson(replan=3), env, prior=prior, objective=Discounted(0.9), num_steps=30, num_seeds=2, key=key
    )
    one, again = run(key), run(key)
    assert np.array_equal(one.reward, again.reward) and np.all(np.isfinite(one.reward))
    assert np.asarray(one.visits)[:, 1:, 1:].sum() == 0
    assert not np.array_equal(one.reward, run(jax.random.fold_in(key, 1)).reward)


def test_refusals(key):
    """Options and objectives out of range."""
    with pytest.raises(ValueError, match="scale is -1"):
        CovarianceThompson(scale=-1.0)
    with pytest.raises(ValueError, match="noise is 'white'"):
        CovarianceThompson(noise="white")
    problem = Problem(bm.StateActionSpace(2, 2), AverageReward())
    with pytest.raises(ValueError, match="objective is AverageReward"):
        CovarianceThompson().init(key, problem)
