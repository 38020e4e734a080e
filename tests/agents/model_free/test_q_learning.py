"""Q-learning against the rule worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import AGENTS, EpsilonGreedyQ, Learner
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Problem, StateActionSpace, Transitions

SPACE = StateActionSpace(2, 2, ends=True, legal=[[True, True], [True, False]])


def _see(agent, objective, q, **fields):
    return agent.observe(
        Problem(SPACE, objective), q, Transitions(**{"step": jnp.int32(0), "terminated": False, **fields})
    )


def test_discounted_target():
    """q <- q + alpha (r + gamma max q' - q); nothing follows an end; weight 0 changes nothing."""
    agent = EpsilonGreedyQ(learning_rate=0.5, epsilon=0.0, initial_q=1.0)
    problem = Problem(SPACE, Discounted(0.9))
    q = agent.init(jax.random.key(0), problem)
    assert np.array_equal(q, [[1.0, 1.0], [1.0, -np.inf]])
    q = _see(agent, Discounted(0.9), q, state=0, action=1, reward=2.0, next_state=1)
    assert np.isclose(q[0, 1], 1 + 0.5 * (2 + 0.9 - 1))
    q = _see(agent, Discounted(0.9), q, state=1, action=0, reward=-1.0, next_state=0, terminated=True)
    assert np.isclose(q[1, 0], 1 + 0.5 * (-1 - 1))
    same = agent.observe(problem, q, Transitions(0, 0, 9.0, 1, False, None, 0), 0.0)
    assert np.array_equal(same, q)


def test_episodic_target():
    """The target of step h is taken from step h + 1, and nothing follows the last step."""
    agent = EpsilonGreedyQ(learning_rate=0.5, epsilon=0.0)
    q = jnp.asarray(np.arange(12.0).reshape(3, 2, 2))
    q = _see(agent, Episodic(3), q, state=0, action=1, reward=1.0, next_state=1, step=1)
    assert np.isclose(q[1, 0, 1], 5 + 0.5 * (1 + 11 - 5))
    q = _see(agent, Episodic(3), q, state=1, action=0, reward=1.0, next_state=1, step=2)
    assert np.isclose(q[2, 1, 0], 10 + 0.5 * (1 - 10))


def test_registry_and_bad_input():
    """Named agents; ranges; an objective for which the rule is not defined."""
    assert isinstance(AGENTS["epsilon_greedy_q"](), Learner) and not isinstance(AGENTS["psrl"](), Learner)
    with pytest.raises(ValueError, match=r"epsilon is -0\.1"):
        EpsilonGreedyQ(epsilon=-0.1)
    with pytest.raises(ValueError, match="AverageReward"):
        EpsilonGreedyQ().init(jax.random.key(0), Problem(SPACE, AverageReward()))
