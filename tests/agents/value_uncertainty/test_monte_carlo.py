# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalOperand=false
# pyright: reportOptionalMemberAccess=false
"""Variances by draws against the covariance recursion, where that is exact, and for beliefs where nothing else is.

Statistical tests: Z = 6 standard errors an entry, false-alarm rate below 1e-6 a test; with 20,000 draws a relative
error of a variance of 6 sqrt(2 / N) = 6 % is caught.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, MonteCarloThompson
from bayes_mdp.agents.value_uncertainty.exact import by_draws, value_covariance
from bayes_mdp.agents.value_uncertainty.monte_carlo import draw_moments
from bayes_mdp.inference import mixture
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Problem, StateActionSpace
from tests.agents.believed import Z, layered

NUMBER = 20_000


def _relative(ours, exact, number):
    """Largest difference of variances in standard errors, as if values were Gaussian."""
    return float(np.max(np.abs(np.asarray(ours) / np.asarray(exact) - 1))) / (2 / number) ** 0.5


@pytest.mark.slow
def test_it_is_the_exact_covariance(key):
    """Means, variances and covariances within their errors; they depend on num_draws, not on the chunks."""
    case, objective = layered(), Episodic(4)
    exact = value_covariance(case.posterior, case.policy, objective)
    answer = by_draws(key, case.posterior, case.policy, objective, num_draws=NUMBER)
    assert answer.validity.kind == "exact" and "20000 draws, about 1.0% of a variance" in answer.validity.reason
    assert bool(answer.converged) and answer.gap < 1e-3
    assert _relative(answer.q_variance, exact.q_variance, NUMBER) < Z
    assert _relative(answer.v_variance, exact.v_variance, NUMBER) < Z
    assert np.max(np.abs(answer.q_mean - exact.q_mean) / answer.q_sd) < Z / NUMBER**0.5
    assert abs(np.sum(answer.q_variance) / np.sum(exact.q_variance) - 1) < 0.03
    covariance = draw_moments(key, case.posterior, jnp.asarray(case.policy), objective, NUMBER, 1000).covariance
    np.testing.assert_allclose(np.diagonal(covariance, axis1=-2, axis2=-1), answer.q_variance, rtol=1e-5)
    scale = np.sqrt(np.prod(np.asarray(exact.q_variance), -1))
    off = np.abs(np.asarray(covariance - exact.q_covariance))[..., 0, 1] / scale
    assert np.max(off) < Z * (2 / NUMBER) ** 0.5


@pytest.mark.slow
def test_chunks_are_merged_as_one_sample(key, monkeypatch):
    """Three chunks, the last one not full, against numpy's moments of the same draws."""
    monkeypatch.setattr("bayes_mdp.agents.value_uncertainty.monte_carlo.MOST_AT_ONCE", 7)
    case, objective = layered(), Episodic(4)
    posterior = case.posterior
    answer = by_draws(key, posterior, case.policy, objective, num_draws=17)
    keys = [jax.random.split(jax.random.fold_in(key, i), 7) for i in range(3)]
    mdps = jax.jit(jax.vmap(posterior.sample))(jnp.concatenate(keys)[:17])
    q = jax.jit(jax.vmap(lambda mdp: bm.evaluate(mdp, case.policy, objective).q))(mdps)
    np.testing.assert_allclose(answer.q_mean, np.mean(q, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answer.q_variance, np.var(q, 0, ddof=1), rtol=1e-4, atol=1e-5)


def _shared_offset():
    """A ring of 4 states, rows known, one unknown mean reward ~ N(0, 1) for all: V = m / (1 - g)."""
    rows = dirichlet_rows(
        np.ones((1, 4)), (4, 1, 4), row=np.full((4, 1), -1), known=np.roll(np.eye(4), 1, axis=1)[:, None]
    )
    belief = NormalBelief(np.zeros(1), np.ones(1), np.ones(1))
    rewards = reward_cells(belief, (4, 1), cell=np.zeros((4, 1), int))
    return conjugate_posterior(rows, rewards, StateActionSpace(4, 1))


@pytest.mark.slow
def test_a_shared_reward_on_a_cycle(key):
    """Var V = 1 / (1 - g)^2 exactly, where the equations for independent rows refuse."""
    posterior, policy = _shared_offset(), np.zeros(4, int)
    answer = by_draws(key, posterior, policy, Discounted(0.9), num_draws=NUMBER)
    assert _relative(answer.v_variance, np.full(4, 100.0), NUMBER) < Z
    with pytest.raises(ValueError, match="not independent"):
        value_covariance(posterior, policy, Discounted(0.9), allow_cycles=True)


def _run(agent, prior, key):
    env = bm.envs.wide_narrow(3)
    return bm.run(agent, env, prior=prior, objective=Discounted(0.9), num_steps=30, num_seeds=2, key=key)


@pytest.mark.slow
def test_the_agent_runs_with_a_mixture(key):
    """Deterministic by key, legal actions only, finite; joint and factored differ."""
    space = StateActionSpace(3, 3, legal=bm.envs.wide_narrow(3).mdp.legal)
    posteriors = [
        bm.infer(key, bm.models.dirichlet_normal_gamma(1.0, loc, 4.0, 3.0, 3.0), None, space=space)
        for loc in (0.0, 1.0)
    ]
    prior = mixture(posteriors)
    assert AGENTS["monte_carlo_thompson"] is MonteCarloThompson
    agent = MonteCarloThompson(num_draws=8, replan=3)
    one, again = _run(agent, prior, key), _run(agent, prior, key)
    assert np.array_equal(one.reward, again.reward) and np.all(np.isfinite(one.reward))
    assert np.asarray(one.visits)[:, 1:, 1:].sum() == 0


@pytest.mark.slow
def test_the_policy_is_the_gaussian_of_the_draws(key):
    """Joint: L L' has the variances of the factored policy of the same key, and rank num_draws - 1 is no trouble."""
    posterior = layered().posterior
    problem = Problem(posterior.space, Episodic(4))
    agent = lambda **options: MonteCarloThompson(2, noise="per_step", **options)  # noqa: E731
    plan = lambda **options: jax.jit(agent(**options).plan)(key, problem, None, posterior)[0]  # noqa: E731
    joint, factored = plan(joint=True, scale=0.5), plan(joint=False, scale=0.5)
    product = joint.factor @ joint.factor.swapaxes(-1, -2)
    np.testing.assert_allclose(np.diagonal(product, axis1=-2, axis2=-1), factored.sd**2, rtol=1e-3, atol=1e-6)
    assert np.all(np.isfinite(product)) and np.max(np.abs(product[..., 0, 1])) > 0.01


def test_refusals(key):
    """What is no number of draws, cannot sample, or has no variance."""
    posterior, policy = _shared_offset(), np.zeros(4, int)
    with pytest.raises(ValueError, match="num_draws is 1, expected an integer of at least 2"):
        by_draws(key, posterior, policy, Discounted(0.9), num_draws=1)
    with pytest.raises(TypeError, match=r"exact\.by_draws needs a posterior that has sample"):
        by_draws(key, object(), policy, Discounted(0.9))
    with pytest.raises(ValueError, match="objective is AverageReward"):
        by_draws(key, posterior, policy, AverageReward())
    with pytest.raises(ValueError, match="policy has shape"):
        by_draws(key, posterior, np.zeros(3, int), Discounted(0.9))
    with pytest.raises(ValueError, match="num_draws is 1"):
        MonteCarloThompson(1)
