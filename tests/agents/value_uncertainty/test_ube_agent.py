# pyright: reportArgumentType=false, reportOptionalSubscript=false
"""The agent UBE: its Gaussian policy, sweeps, episodes, mixtures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, UBE, CovarianceThompson, ExactUBE, MomentMatching, MonteCarloThompson
from bayes_mdp.envs import riverswim
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import Discounted, Episodic, Problem
from tests.agents.value_problems import chain, small, solve_ube


@pytest.mark.few(1)
@pytest.mark.parametrize("agent", [UBE(0.5, 20.0), UBE(0.5, noise="per_step", form="dirichlet")])
def test_the_agent_acts_on_mean_and_scaled_deviation(agent, key):
    """Its policy is the Gaussian one with the sd of `solve` under the plan of the mean MDP; scale is an array leaf."""
    posterior, objective = small(), Discounted(0.8)
    problem = Problem(posterior.space, objective)
    policy, plan = jax.jit(agent.plan)(key, problem, agent.init(key, problem), posterior)
    best = bm.solve(posterior.mean_mdp(), objective)
    answer = solve_ube(posterior, best.policy, objective, q_max=agent.q_max, form=agent.form)
    np.testing.assert_allclose(policy.mean, best.q, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(policy.sd, 0.5 * answer.q_sd, rtol=1e-4)
    assert (policy.noise is None) == (agent.noise == "per_step") and np.array_equal(plan.policy, best.policy)
    sweep = jax.jit(jax.vmap(lambda scale: UBE(scale).plan(key, problem, plan, posterior)[0].sd))(jnp.array([0.0, 1.0]))
    assert np.all(sweep[0] == 0) and np.all(sweep[1] > 0)
    assert AGENTS["ube"] is UBE
    with pytest.raises(ValueError, match=r"scale\[1\] is -1\.0, expected a finite number, zero or greater"):
        UBE(np.array([1.0, -1.0]))
    with pytest.raises(TypeError, match="scale is '1', expected a finite number"):
        UBE("1")


def test_the_agent_in_episodes_and_with_a_mixture(key):
    """Episodes need no state; the mean of a mixture is that of its components, not of its mean MDP."""
    posterior = small()
    problem = Problem(posterior.space, Episodic(3))
    policy, state = jax.jit(UBE().plan)(key, problem, UBE().init(key, problem), posterior)
    assert state is None and policy.mean.shape == (3, 3, 2)
    both = mixture([chain(2, 1.0, 0.1), chain(2, -1.0, 0.1)], weights=[0.5, 0.5])
    problem = Problem(both.space, Discounted(0.9))
    policy, plan = jax.jit(UBE().plan)(key, problem, UBE().init(key, problem), both)
    answer = solve_ube(both, plan.policy, Discounted(0.9))
    np.testing.assert_allclose(policy.sd, answer.q_sd, rtol=1e-5)
    np.testing.assert_allclose(policy.mean, answer.q_mean, atol=1e-6)


@pytest.mark.parametrize(
    "agent", [UBE(), MomentMatching(), CovarianceThompson(), ExactUBE(num_draws=2), MonteCarloThompson(2)]
)
def test_a_run_refuses_an_infinite_reward_variance_before_it_starts(agent, key):
    """Inside the compiled loop it would be a nan that nobody sees."""
    prior = bm.models.dirichlet_normal_gamma(reward_concentration=1.0)
    with pytest.raises(ValueError, match=r"reward.concentration\[0, 0\] is 1.0, expected a number greater than 1"):
        bm.run(agent, riverswim(), prior=prior, objective=Discounted(0.9), num_steps=10, key=key)
