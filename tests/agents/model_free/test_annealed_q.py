"""Epsilon-greedy Q-learning whose epsilon falls: the table is that of `EpsilonGreedyQ`, epsilon halves on time."""

import jax
import numpy as np
import pytest

from bayes_mdp.agents import AnnealedQ, EpsilonGreedyQ
from bayes_mdp.mdp import AverageReward, Discounted, Problem
from tests.agents.histories import history, learn, problem

SEEN = history(5)
KEY = jax.random.key(0)
EPISODIC, DISCOUNTED = problem(layered=True), Problem(problem(layered=False).space, Discounted(0.9))


@pytest.mark.parametrize("task", [EPISODIC, DISCOUNTED], ids=["episodic", "discounted"])
def test_the_table_and_the_schedule(task):
    """After 100 steps with a half-life of 25, a sixteenth of epsilon is left; what was masked did not count."""
    agent, plain = AnnealedQ(0.3, 0.8, 25.0, initial_q=0.5), EpsilonGreedyQ(0.3, initial_q=0.5)
    state = learn(agent, task, agent.init(KEY, task), SEEN)
    np.testing.assert_array_equal(state.q, learn(plain, task, plain.init(KEY, task), SEEN))
    assert int(state.time) == len(SEEN)
    policy, same = agent.plan(KEY, task, state)
    assert same is state and float(policy.epsilon) == pytest.approx(0.8 / 16)
    first, _ = agent.plan(KEY, task, learn(agent, task, agent.init(KEY, task), SEEN[:25]))
    assert float(first.epsilon) == pytest.approx(0.4)
    constant = AnnealedQ(0.3, 0.1, np.inf)
    assert float(constant.plan(KEY, task, state)[0].epsilon) == pytest.approx(0.1)


def test_bad_settings_are_refused():
    average = Problem(DISCOUNTED.space, AverageReward())
    for make, message in [
        (lambda: AnnealedQ(1.5), r"learning_rate is 1\.5"),
        (lambda: AnnealedQ(epsilon=-0.1), r"epsilon is -0\.1"),
        (lambda: AnnealedQ(half_life=0.0), r"half_life is 0\.0, expected a number greater than zero"),
        (lambda: AnnealedQ(initial_q=np.inf), "initial_q is inf"),
        (lambda: AnnealedQ().init(KEY, average), "objective is AverageReward, expected .* for EpsilonGreedyQ"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
