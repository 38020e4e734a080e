"""Problem 1 (one unknown action) of O'Donoghue, Osband and Ionescu, *Making Sense of Reinforcement Learning and
Probabilistic Inference*, ICLR 2020: "RL as inference" fails at every fixed temperature, K-learning and Thompson do not.

Two MDPs of one state, one step and N actions, equally likely: action 0 pays 1, action 1 pays +2 (MDP "+") or -2
(MDP "-"), the others 1 - EPSILON, all without noise. One try of action 1 reveals the MDP. (The problem is
reconstructed without the paper's text; N and EPSILON are our own.)

Nothing is learnt until action 1 is tried, so the expected regret has a closed form and no episode is simulated.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import PSRL, EpsilonGreedyMean, KLearning, SoftQMean
from bayes_mdp.mdp import MDP, Episodic, Problem, StateActionSpace
from tests.agents.value_problems import belief

N, EPSILON, EPISODES = 100, 1e-3, 1000
PROBLEM = Problem(StateActionSpace(1, N), Episodic(1), jnp.ones(1))
ROWS = np.ones((1, N, 1))


def payments(unknown: float) -> np.ndarray:
    """Reward of every action."""
    return np.concatenate([[1.0, unknown], np.full(N - 2, 1.0 - EPSILON)])


MDPS = payments(2.0), payments(-2.0)


class TwoMDPs(eqx.Module):
    """The belief itself, for Thompson sampling: `unknown` is +2 or -2 with equal probability."""

    unknown: Any

    def sample(self, key, sample_shape=()):
        """One of the two MDPs."""
        pays = jax.random.choice(key, self.unknown)
        return MDP(ROWS, jnp.asarray(payments(0.0))[None].at[0, 1].set(pays))


def with_moments(mean, variance):
    """A belief with the mean and the variance of the reward of action 1; everything else is known."""
    return belief(np.zeros((1, N, 1)), payments(mean)[None], variance * np.eye(N)[None, 1], known=ROWS)


def action_probs(agent: Any, posterior: Any, key: Any) -> np.ndarray:
    """Probability of every action in the next episode."""

    def probs(key):
        policy, _ = agent.plan(key, PROBLEM, agent.init(key, PROBLEM), posterior)
        return jax.vmap(lambda action: jnp.exp(policy.log_prob(0, action, 0)))(jnp.arange(N))

    return np.asarray(jax.jit(jax.vmap(probs))(jax.random.split(key, 400)).mean(0), float)


def bayes_regret(before: np.ndarray, after: Any, episodes: int) -> float:
    """Expected regret of `episodes` episodes; policies `before` action 1 was tried and, in each MDP, `after`."""
    untold = (1 - before[1]) ** np.arange(episodes)
    total = 0.0
    for rewards, then in zip(MDPS, after, strict=True):
        lost = rewards.max() - np.array([before @ rewards, then @ rewards])
        total += 0.5 * np.sum(untold * lost[0] + (1 - untold) * lost[1])
    return total


def soft_policy(rewards: np.ndarray, temperature: float) -> np.ndarray:
    """The Boltzmann policy of rewards, in float64."""
    weight = np.exp((rewards - rewards.max()) / temperature)
    return weight / weight.sum()


def test_soft_q_learning_is_the_boltzmann_policy_of_the_mean(key):
    """The agent behaves as the closed form that the next test sweeps over temperatures."""
    for temperature in (0.05, 1.0):
        ours = action_probs(SoftQMean(temperature), with_moments(0.0, 4.0), key)
        np.testing.assert_allclose(ours, soft_policy(payments(0.0), temperature), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("agent", [PSRL(), KLearning(bonus="posterior")])
def test_thompson_and_k_learning_solve_it_and_no_temperature_does(agent, key):
    """At its best temperature soft Q-learning loses a hundred times as much, and as much again in the next episodes."""
    thompson = isinstance(agent, PSRL)
    beliefs = [
        TwoMDPs(np.array(x)) if thompson else with_moments(np.mean(x), np.var(x))
        for x in ([2.0, -2.0], [2.0, 2.0], [-2.0, -2.0])
    ]
    before, *after = (action_probs(agent, posterior, key) for posterior in beliefs)
    short, long = (bayes_regret(before, after, length) for length in (EPISODES, 2 * EPISODES))
    assert before[1] > 0.3
    assert short < 5.0 and long < 1.01 * short

    def soft(temperature, length):
        policies = [soft_policy(payments(unknown), temperature) for unknown in (0.0, 2.0, -2.0)]
        return bayes_regret(policies[0], policies[1:], length)

    temperatures = np.logspace(-3, 3, 200)
    assert min(soft(t, EPISODES) for t in temperatures) > 100 * short
    assert all(soft(t, 2 * EPISODES) > 1.7 * soft(t, EPISODES) for t in temperatures)


@pytest.mark.slow
def test_dithering_fails_too(key):
    """Epsilon-greedy tries the action with probability epsilon / N: the same linear loss."""
    agent = EpsilonGreedyMean(0.1)
    before, *after = (action_probs(agent, with_moments(mean, 0.0), key) for mean in (0.0, 2.0, -2.0))
    np.testing.assert_allclose(before[1], 0.1 / N, rtol=1e-4)
    assert bayes_regret(before, after, EPISODES) > 100
