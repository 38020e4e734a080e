"""Epsilon-greedy for the mean model: the optimal plan of the mean MDP under every objective."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import EpsilonGreedyMean
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Problem, StateActionSpace
from bayes_mdp.planning import solve
from tests.agents.model_free.test_soft_q import LEGAL, A, H, Mean, S, world

EPSILON = 0.2


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("lead", [(), (H,)])
def test_an_episode(lead):
    """Backward in numpy; with probability epsilon any legal action."""
    mdp = world(*lead)
    task = Problem(StateActionSpace(S, A, horizon=H if lead else None, ends=True, legal=LEGAL), Episodic(H))
    agent = EpsilonGreedyMean(EPSILON)
    policy, state = agent.plan(jax.random.key(0), task, agent.init(jax.random.key(0), task), Mean(mdp))
    assert state is None
    rows, reward = (np.broadcast_to(x, (H, *x.shape[-k:])) for x, k in ((mdp.transition_probs, 3), (mdp.reward, 2)))
    value, q = np.zeros(S), np.zeros((S, A))
    for h in reversed(range(H)):
        q = np.where(LEGAL, reward[h] + rows[h] @ value, -np.inf)
        np.testing.assert_allclose(policy.q[h], q, rtol=1e-12)
        value = q.max(-1)
    probs = np.exp(jax.vmap(lambda a: policy.log_prob(0, a, 0))(jnp.arange(A)))
    np.testing.assert_allclose(probs, np.where(np.arange(A) == q[0].argmax(), 1 - EPSILON / 2, EPSILON / 2))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("objective", [Discounted(0.9), AverageReward()])
def test_without_an_end(objective):
    """The plan of `solve`, and from a warm start the same."""
    rng = np.random.default_rng(3)
    mdp = MDP(rng.dirichlet(np.ones(S), size=(S, A)), rng.normal(size=(S, A)), legal=LEGAL)
    task, agent = Problem(StateActionSpace(S, A, legal=LEGAL), objective), EpsilonGreedyMean()
    key = jax.random.key(0)
    state = agent.init(key, task)
    for _ in range(2):
        policy, state = agent.plan(key, task, state, Mean(mdp))
        np.testing.assert_allclose(policy.q, solve(mdp, objective).q, rtol=1e-9)


def test_bad_settings_are_refused():
    nothing: Any = object()
    with pytest.raises(ValueError, match=r"epsilon is 1\.5"):
        EpsilonGreedyMean(1.5)
    with pytest.raises(TypeError, match="EpsilonGreedyMean needs a posterior that has mean_mdp"):
        EpsilonGreedyMean().check_belief(nothing)
