"""Optimistic Q-learning: a plain loop over a fixed history, its first values, the warning."""

from typing import Any

import jax
import numpy as np
import pytest

from bayes_mdp.agents import Greedy, OptimisticQ
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Problem
from tests.agents.histories import LEGAL, A, H, S, history, learn, problem

SEEN = history(2)
KEY = jax.random.key(0)


def discounted(discount: float = 0.9) -> Problem:
    """The same space, discounted."""
    return Problem(problem(layered=False).space, Discounted(discount))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("task", [problem(layered=True), discounted()], ids=["episodic", "discounted"])
def test_the_table_is_that_of_the_loop(task):
    agent = OptimisticQ(6.0, 0.3)
    layers = H if isinstance(task.objective, Episodic) else 1
    discount, first = (1.0 if layers > 1 else 0.9), 6.0
    q = np.where(LEGAL, first, -np.inf) * np.ones((layers, S, A))
    for h, s, a, r, after, over in SEEN:
        at = (h if layers > 1 else 0, s, a)
        last = over or (layers > 1 and h == H - 1)
        following = 0.0 if last else q[at[0] + 1 if layers > 1 else 0, after].max()
        q[at] += 0.3 * (r + discount * following - q[at])
    state = learn(agent, task, agent.init(KEY, task), SEEN)
    np.testing.assert_allclose(state, q if layers > 1 else q[0], rtol=1e-12)
    policy, _ = agent.plan(KEY, task, state)
    assert isinstance(policy, Greedy)
    np.testing.assert_array_equal(policy.best, np.argmax(state, -1))


def test_it_warns_where_optimism_is_lost():
    with pytest.warns(UserWarning, match=r"v_max is 0\.5, below the largest reward 2: optimism is lost, expected"):
        OptimisticQ(0.5).check_optimism(2.0)
    OptimisticQ(2.0).check_optimism(2.0)  # a warning is an error here


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptimisticQ(np.nan), "v_max is nan, expected a finite number"),
        (lambda: OptimisticQ(learning_rate=1.5), r"learning_rate is 1\.5, expected a number from 0 to 1"),
        (lambda: _first(OptimisticQ(), AverageReward()), "objective is AverageReward, expected .* OptimisticQ"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def _first(agent: OptimisticQ, objective: Any) -> Any:
    return agent.init(KEY, Problem(problem(layered=False).space, objective))
