"""Simulated Bayes values, beside exact ones: no agent beats the optimum, and two agents have values in closed form."""

# `numpyro.sample` is typed to return any ArrayLike: too narrow for tests.
# pyright: reportArgumentType=false

from dataclasses import replace
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
from bayes_mdp.experiments import bayes_values, describe_bayes_values
from bayes_mdp.models import MDPSpec

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


class NoPlan(MeanGreedy):
    """Refuses."""

    def plan(self, key, problem, state, belief):
        """Nothing."""
        raise ValueError("it cannot")


AGENTS = {"Thompson": bm.agents.PSRL(replan=1), "mean": MeanGreedy(replan=1)}


@pytest.fixture(scope="module")
def optimum():
    return bm.decisions.bayes_optimal(two_state, SPACE, objective=bm.Episodic(HORIZON), initial=START)


@pytest.fixture(scope="module")
def result(optimum):
    key = jax.random.key(7)
    return bayes_values(
        AGENTS,
        two_state,
        SPACE,
        bm.Episodic(HORIZON),
        initial=START,
        key=key,
        num_seeds=NUM_SEEDS,
        optimum=optimum,
    )


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
def test_no_agent_earns_more_than_the_optimum(result, optimum):
    """One-sided, 4.9 standard errors: false alarms 4.8e-7 an agent. An excess of .15 would be found (error < .03)."""
    rewards = result["reward"].values
    excess = (rewards.mean(-1) - optimum.value) / standard_error(rewards)
    assert excess.max() < SURE
    assert standard_error(rewards).max() < 0.03


def test_an_optimum_that_forgets_to_learn_is_beaten(result):
    """The broken twin: the value of planning in the mean MDP of the prior is less than what agents earn."""
    rewards = result["reward"].sel(agent="mean").values
    assert rewards.mean() - value_of_mean_greedy(HORIZON, learns=False) > SURE * standard_error(rewards)


def test_the_simulated_value_is_the_exact_one(result):
    """Greedy on the mean, by its own recursion over counts: worlds are drawn once a seed, and the belief follows.

    Two-sided, 4.9 standard errors: false alarms 9.6e-7. It must catch rows redrawn at every step (the twin above).
    """
    rewards = result["reward"].sel(agent="mean").values
    exact = value_of_mean_greedy(HORIZON)
    assert abs(rewards.mean() - exact) < SURE * standard_error(rewards)
    assert abs(value_of_mean_greedy(HORIZON, learns=False) - exact) > 2 * SURE * standard_error(rewards)


def test_agents_are_ranked_with_intervals(result, optimum):
    names = [str(name) for name in result["agent"].values]
    assert names == list(AGENTS)
    rewards = result["reward"].values
    value, half = rewards.mean(-1), 1.959964 * standard_error(rewards)
    np.testing.assert_allclose(result["value"].values, value)
    np.testing.assert_allclose(result["value_interval"].values.T, [value - half, value + half])
    np.testing.assert_allclose(result["share"].values, value / optimum.value)
    np.testing.assert_allclose(result["share_interval"].values, result["value_interval"].values / optimum.value)
    best = value.argmax()
    paired = rewards[best] - rewards
    np.testing.assert_allclose(result["behind"].values, paired.mean(-1))
    np.testing.assert_allclose(np.diff(result["behind_interval"].values)[:, 0], 2 * 1.959964 * standard_error(paired))
    # Every draw costs something here: beyond 4.9 standard errors of the paired difference.
    assert paired[0].mean() > SURE * standard_error(paired[0])
    shown = describe_bayes_values(result).splitlines()
    assert f"{NUM_SEEDS} MDPs" in shown[0] and f"{optimum.value:.9g}" in shown[1]
    assert [line.split()[0] for line in shown[3:]] == ["mean", "Thompson"]


@pytest.mark.slow
def test_bernoulli_rewards_of_a_bandit():
    """One arm for good, drawn by one sample: mean n / 2, variance n (n + 2) / 12 (beta-binomial).

    False alarms < 1e-6: 4.9 standard errors of the mean; the variance of 5,000 draws of a nearly uniform law has a
    standard error of .9 %, of which 5.5 is 5 %. Coins redrawn at every step would give a variance of n / 4.
    """
    n = 20
    result = bayes_values(
        {"one sample": bm.agents.PSRL(replan="episode")},
        bandit,
        ONE_STATE,
        bm.Episodic(n),
        initial=np.ones(1),
        key=jax.random.key(3),
        num_seeds=5000,
    )
    rewards = result["reward"].values[0]
    assert abs(rewards.mean() - n / 2) < SURE * standard_error(rewards)
    assert abs(rewards.var() / (n * (n + 2) / 12) - 1) < 0.05
    assert "share" not in result and "optimum" not in describe_bayes_values(result)


DISCOUNTED = bm.decisions.bayes_optimal(two_state, SPACE, objective=bm.Episodic(3, 0.9), initial=START)
DISCOUNTED = replace(DISCOUNTED, horizon=HORIZON)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"agents": {}}, ValueError, "agents is {}, expected at least one agent"),
        ({"objective": bm.Discounted(0.9)}, ValueError, r"expected Episodic\(horizon\)"),
        ({"num_seeds": 1}, ValueError, "num_seeds is 1, expected an integer of at least 2"),
        ({"prior": 3}, TypeError, "prior is a int, expected a function"),
        ({"optimum": 3.0}, TypeError, "optimum is a float, expected what bayes_optimal gave"),
        ({"objective": bm.Episodic(4)}, ValueError, "optimum has a horizon of 14, expected 4"),
        ({"objective": bm.Episodic(HORIZON, 0.9)}, ValueError, "expected Episodic.*: runs of agents take no discount"),
        ({"optimum": DISCOUNTED}, ValueError, "optimum has a discount of 0.9, expected 1, that of the objective"),
        ({"initial": [0.5, 0.5]}, ValueError, "optimum has another initial distribution"),
        ({"agents": {"bad": NoPlan()}}, ValueError, "bad: it cannot"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(change, error, message, optimum):
    arguments = {"agents": AGENTS, "prior": two_state, "space": SPACE, "objective": bm.Episodic(HORIZON)}
    arguments |= {"initial": START, "key": jax.random.key(0), "optimum": optimum} | change
    with pytest.raises(error, match=message):
        bayes_values(**arguments)
