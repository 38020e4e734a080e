"""Soft and Boltzmann Q-learning by hand; the soft plan of the mean model against numpy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import Boltzmann, BoltzmannQ, SoftQ, SoftQMean
from bayes_mdp.agents.model_free.soft_q import soft_fixed_point
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Problem, StateActionSpace, Transitions

H, S, A, TAU = 3, 4, 2, 0.3
LEGAL = np.array([[True, True], [True, False], [False, True], [True, True]])


class Mean(eqx.Module):
    """A belief that has a mean, and nothing else."""

    mdp: MDP

    def mean_mdp(self):
        """The mean."""
        return self.mdp


def world(*lead):
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(S + 1), size=(*lead, S, A))
    return MDP(rows[..., :S], rng.normal(size=(*lead, S, A)), end_probs=rows[..., S], legal=LEGAL)


def soft(q):
    """tau log sum exp over the legal actions."""
    return TAU * np.log(np.sum(np.where(LEGAL, np.exp(np.where(LEGAL, q, 0.0) / TAU), 0.0), -1))


def problem(objective, horizon=None):
    return Problem(StateActionSpace(S, A, horizon=horizon, ends=True, legal=LEGAL), objective)


@jax.jit
def plan(agent, task, mdp):
    key = jax.random.key(0)
    return agent.plan(key, task, agent.init(key, task), Mean(mdp))


fixed_point = jax.jit(soft_fixed_point)


@jax.jit
def see(agent, task, q, transition, weight=1.0):
    return agent.observe(task, q, transition, weight)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("lead", [(), (H,)])
def test_the_soft_plan_of_an_episode(lead):
    """Backward in numpy; the last step is worth its reward alone. Actions: softmax of q / tau."""
    mdp, task = world(*lead), problem(Episodic(H), *lead)
    policy, _ = plan(SoftQMean(TAU), task, mdp)
    rows, reward = (np.broadcast_to(x, (H, *x.shape[-k:])) for x, k in ((mdp.transition_probs, 3), (mdp.reward, 2)))
    value, q = np.zeros(S), np.zeros((S, A))
    for h in reversed(range(H)):
        q = np.where(LEGAL, reward[h] + rows[h] @ value, -np.inf)
        np.testing.assert_allclose(policy.q[h], q, rtol=1e-12)
        value = soft(q)
    log_prob = jax.vmap(lambda a: policy.log_prob(3, a, 0))(jnp.arange(A))
    np.testing.assert_allclose(log_prob, (q[3] - soft(q)[3]) / TAU, rtol=1e-10)


@pytest.mark.usefixtures("x64")
def test_the_soft_fixed_point():
    """2000 sweeps in numpy; `gap` bounds the error; from the answer on, one sweep is enough."""
    mdp, task = world(), problem(Discounted(0.9))
    policy, state = plan(SoftQMean(TAU), task, mdp)
    rows, reward, q = np.asarray(mdp.transition_probs), np.asarray(mdp.reward), np.zeros((S, A))
    for _ in range(2000):
        q = reward + 0.9 * rows @ soft(q)
    np.testing.assert_allclose(policy.q, np.where(LEGAL, q, -np.inf), rtol=1e-12)
    again = fixed_point(mdp, 0.9, TAU, state)
    assert bool(again.converged) and int(again.iterations) == 1 and float(again.gap) < 1e-12
    np.testing.assert_allclose(again.v, soft(q), rtol=1e-12)


@pytest.mark.parametrize("agent", [SoftQ(TAU, 0.5, 1.0), BoltzmannQ(TAU, 0.5, 1.0)])
def test_the_target(agent):
    """q + alpha (r + gamma V - q): V soft or hard over the legal actions; nothing after an end or the last step."""
    worth = (lambda row: TAU * np.log(np.sum(np.exp(row / TAU)))) if isinstance(agent, SoftQ) else np.max
    task = problem(Discounted(0.9))
    q = agent.init(jax.random.key(0), task)
    np.testing.assert_array_equal(q, np.where(LEGAL, 1.0, -np.inf))
    seen = Transitions(0, 1, 2.0, 3, False, None, 0)
    q = see(agent, task, q, seen)
    assert np.isclose(q[0, 1], 1 + 0.5 * (2 + 0.9 * worth(np.ones(2)) - 1))
    np.testing.assert_array_equal(see(agent, task, q, seen, 0.0), q)
    masked = Transitions(2, 0, np.nan, 0, False, None, 0)  # what fills a buffer: no number, an illegal action
    np.testing.assert_array_equal(see(agent, task, q, masked, 0.0), q)
    q = see(agent, task, q, Transitions(3, 0, 2.0, 0, True, None, 0))
    assert np.isclose(q[3, 0], 1.5)
    q = see(agent, task, q, Transitions(0, 0, 0.0, 1, False, None, 0))  # state 1 has one legal action: no tau log 2
    assert np.isclose(q[0, 0], 1 + 0.5 * (0.9 - 1))
    task = problem(Episodic(H))
    table = jnp.where(LEGAL, jnp.arange(1.0 * H)[:, None, None], -jnp.inf)
    later = see(agent, task, table, Transitions(0, 0, 1.0, 3, False, None, 0))
    assert np.isclose(later[0, 0, 0], 0.5 * (1 + worth(np.ones(2))))
    last = see(agent, task, table, Transitions(0, 0, 1.0, 3, False, None, H - 1))
    assert np.isclose(last[H - 1, 0, 0], 2 + 0.5 * (1 - 2))
    policy, _ = agent.plan(jax.random.key(0), task, table)
    assert isinstance(policy, Boltzmann) and float(policy.temperature) == TAU and policy.q is not None


def test_bad_settings_are_refused():
    nothing: Any = object()
    average = problem(AverageReward())
    for make, error, message in [
        (lambda: SoftQ(0.0), ValueError, r"temperature is 0\.0, expected a finite number greater than zero"),
        (lambda: BoltzmannQ(-1.0), ValueError, r"temperature is -1\.0"),
        (lambda: SoftQMean(np.nan), ValueError, "temperature is nan"),
        (lambda: SoftQ(learning_rate=1.5), ValueError, r"learning_rate is 1\.5"),
        (lambda: SoftQ(initial_q=np.inf), ValueError, "initial_q is inf, expected a finite number"),
        (lambda: SoftQ().init(jax.random.key(0), average), ValueError, "AverageReward, expected .* for SoftQ"),
        (lambda: SoftQMean().init(jax.random.key(0), average), ValueError, "AverageReward, expected .* for SoftQMean"),
        (lambda: SoftQMean().check_belief(nothing), TypeError, "SoftQMean needs a posterior that has mean_mdp"),
    ]:
        with pytest.raises(error, match=message):
            make()
