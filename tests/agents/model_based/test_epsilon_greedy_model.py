"""Epsilon-greedy for the empirical model against value iteration in numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import EpsilonGreedyModel
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from tests.agents.empirical_models import DISCOUNTED, EPISODIC, FEW, GAMMA, SEEN, counted, look, optima, optimum
from tests.agents.histories import LEGAL


@pytest.mark.few(1)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("planner", [ExactPlanner(), PrioritizedSweeping(400, 1e-12)], ids=["exact", "sweeping"])
def test_the_optimum_of_the_empirical_model(planner):
    """Also where pairs were never tried: they are worth 0; there is no exploration value to be switched off."""
    agent = EpsilonGreedyModel(epsilon=0.2, planner=planner)
    for history in (SEEN, FEW):
        seen = counted(history)
        q = optimum(seen.reward, seen.rows, GAMMA)
        split, policy, greedy = look(agent, DISCOUNTED, history)
        np.testing.assert_allclose(policy.q, q, rtol=1e-9)
        np.testing.assert_allclose(np.asarray(split.qe)[LEGAL], 0.0, atol=1e-9)
        np.testing.assert_array_equal(greedy.best, np.argmax(q, -1))


def test_episodes_and_how_it_acts():
    """The best action with probability 1 - epsilon / 2 where two are legal; one legal action always."""
    agent, seen = EpsilonGreedyModel(epsilon=0.2), counted(SEEN)
    q = optima(seen.reward, seen.rows)
    policy = look(agent, EPISODIC, SEEN).policy
    np.testing.assert_allclose(policy.q, q, rtol=1e-5)
    h, s, a = jnp.indices(q.shape)
    best = np.argmax(q, -1)[..., None] == np.arange(q.shape[-1])
    both = np.all(LEGAL, axis=1, keepdims=True)
    expected = np.where(both, 0.8 * best + 0.1, LEGAL)
    np.testing.assert_allclose(np.exp(jnp.vectorize(policy.log_prob)(s, a, h)), expected, rtol=1e-5)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"epsilon is 1.2, expected a number from 0 to 1"):
        EpsilonGreedyModel(epsilon=1.2)
