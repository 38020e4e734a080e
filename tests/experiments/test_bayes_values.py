"""Bayes values by `run(regret="bayes")`, one episode a drawn MDP, beside exact ones: no agent beats the optimum."""

# `numpyro.sample` is typed to return any ArrayLike: too narrow for tests.
# pyright: reportArgumentType=false

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.agents.common.replan import as_rule
from bayes_mdp.models import MDPSpec, random_environment

pytestmark = pytest.mark.numerics

PAY = np.array([[0.0, 0.1], [0.2, 1.0]])
SPACE, ONE_STATE = bm.StateActionSpace(2, 2), bm.StateActionSpace(1, 2)
START = np.array([1.0, 0.0])
HORIZON, NUM_SEEDS = 14, 20_000
SURE = 4.9  # standard errors: one-sided false alarms 4.8e-7, two-sided 9.6e-7


class MeanGreedy(eqx.Module):
    """Optimal in the mean of the belief."""

    replan: Any = eqx.field(default=None, converter=as_rule)

    def init(self, key, problem):
        """No state."""

    def plan(self, key, problem, state, belief):
        """Greedy."""
        return bm.agents.Greedy(bm.solve(belief.mean_mdp(), problem.objective).q, problem.space.legal), None


def two_state(space):
    """Four unknown rows, known rewards."""
    with space.plates():
        rows = numpyro.sample("transition", dist.Dirichlet(jnp.ones(2)))
    return MDPSpec(rows, reward=PAY)


def bandit(space):
    """Two arms of unknown probability."""
    with space.plates():
        probs = numpyro.sample("arm", dist.Beta(1.0, 1.0))
    return MDPSpec(jnp.ones((1, 2, 1)), reward=dist.Bernoulli(probs))


AGENTS = {"Thompson": bm.agents.PSRL(replan=1), "mean": MeanGreedy(replan=1)}


@pytest.fixture(scope="module")
def optimum():
    return bm.decisions.bayes_optimal(two_state, SPACE, objective=bm.Episodic(HORIZON), initial=START)


def episode_rewards(agent, prior, space, horizon, key, num_seeds):
    """Rewards of one episode in `num_seeds` MDPs drawn from the prior, the agent learning within it: [seed]."""
    env = random_environment(jax.random.key(0), prior, space)  # its sizes; every seed draws its own
    length = {"num_episodes": 1, "num_seeds": num_seeds, "options": bm.experiments.RunOptions(regret="bayes")}
    result = bm.run(agent, env, objective=bm.Episodic(horizon), key=key, prior=prior, **length)
    return np.asarray(result["reward"].values[:, 0], np.float64)


@pytest.fixture(scope="module")
def rewards():
    key = jax.random.key(7)
    return {name: episode_rewards(agent, two_state, SPACE, HORIZON, key, NUM_SEEDS) for name, agent in AGENTS.items()}


def standard_error(rewards):
    return rewards.std(axis=-1, ddof=1) / np.sqrt(rewards.shape[-1])


def value_of_mean_greedy(horizon, learns=True):
    """The exact Bayes value from state 0 of planning in the mean MDP at every step, over dictionaries of counts."""

    def q(counts, step):
        weights = 1.0 + np.array(counts).reshape(2, 2, 2)
        rows = weights / weights.sum(-1, keepdims=True)
        table, after = PAY, np.zeros(2)
        for _ in range(horizon - step):
            table = PAY + rows @ after
            after = table.max(-1)
        return table

    @cache
    def value(step, state, counts):
        if step == horizon:
            return 0.0
        action = int(q(counts, step)[state].argmax())
        first, total = 4 * state + 2 * action, PAY[state, action]
        for o in (0, 1):
            prob = (1 + counts[first + o]) / (2 + counts[first] + counts[first + 1])
            after = (*counts[: first + o], counts[first + o] + 1, *counts[first + o + 1 :]) if learns else counts
            total += prob * value(step + 1, o, after)
        return total

    return value(0, 0, (0,) * 8)


@pytest.mark.slow
def test_no_agent_earns_more_than_the_optimum(rewards, optimum):
    """One-sided, 4.9 standard errors: false alarms 4.8e-7 an agent. An excess of .15 would be found (error < .03)."""
    for of_agent in rewards.values():
        assert (of_agent.mean() - optimum.value) / standard_error(of_agent) < SURE
        assert standard_error(of_agent) < 0.03


def test_an_optimum_that_forgets_to_learn_is_beaten(rewards):
    """The broken twin: the value of planning in the mean MDP of the prior is less than what agents earn."""
    excess = rewards["mean"].mean() - value_of_mean_greedy(HORIZON, learns=False)
    assert excess > SURE * standard_error(rewards["mean"])


def test_the_simulated_value_is_the_exact_one(rewards):
    """Greedy on the mean, by its own recursion over counts: worlds are drawn once a seed, and the belief follows.

    Two-sided, 4.9 standard errors: false alarms 9.6e-7. It must catch rows redrawn at every step (the twin above).
    """
    error, exact = standard_error(rewards["mean"]), value_of_mean_greedy(HORIZON)
    assert abs(rewards["mean"].mean() - exact) < SURE * error
    assert abs(value_of_mean_greedy(HORIZON, learns=False) - exact) > 2 * SURE * error


def test_every_draw_costs_something_here(rewards):
    """Seed by seed, as all agents meet the same MDPs: beyond 4.9 standard errors of the paired difference."""
    paired = rewards["mean"] - rewards["Thompson"]
    assert paired.mean() > SURE * standard_error(paired)


@pytest.mark.slow
def test_bernoulli_rewards_of_a_bandit():
    """One arm for good, drawn by one sample: mean n / 2, variance n (n + 2) / 12 (beta-binomial).

    False alarms < 1e-6: 4.9 standard errors of the mean; the variance of 5,000 draws of a nearly uniform law has a
    standard error of .9 %, of which 5.5 is 5 %. Coins redrawn at every step would give a variance of n / 4.
    """
    n = 20
    rewards = episode_rewards(bm.agents.PSRL(replan="episode"), bandit, ONE_STATE, n, jax.random.key(3), 5000)
    assert abs(rewards.mean() - n / 2) < SURE * standard_error(rewards)
    assert abs(rewards.var() / (n * (n + 2) / 12) - 1) < 0.05
