"""IEQL+ against a plain loop over a fixed history."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import norm

from bayes_mdp.agents import IEQLPlus
from bayes_mdp.mdp import Discounted, Episodic, FirstExit, Problem
from tests.agents.histories import LEGAL, A, H, S, history, learn, problem

SEEN = history(3)
KEY = jax.random.key(0)
EPISODIC, DISCOUNTED = problem(layered=True), Problem(problem(layered=False).space, Discounted(0.9))
RATES = {"constant": (0.3, 0.0), "harmonic": (1.0, 1.0)}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rates", RATES.values(), ids=RATES)
@pytest.mark.parametrize("task", [EPISODIC, DISCOUNTED], ids=["episodic", "discounted"])
def test_the_table_is_that_of_the_loop(task, rates):
    """d0 = z sigma_max / (horizon sqrt n), sigma_max = (2 - .5) horizon; first (2 + d0(1)) horizon."""
    rate, power = rates
    agent = IEQLPlus(0.2, max_reward=2.0, min_reward=0.5, learning_rate=rate, rate_power=power)
    layered = isinstance(task.objective, Episodic)
    layers, discount, horizon = (H, 1.0, H) if layered else (1, 0.9, 10.0)
    z = norm.isf(0.1)
    q = np.where(LEGAL, horizon * (2.0 + 1.5 * z), -np.inf) * np.ones((layers, S, A))
    n = np.zeros((layers, S, A), int)
    np.testing.assert_allclose(agent.init(KEY, task).q, q if layered else q[0], rtol=1e-12)
    for h, s, a, r, after, over in SEEN:
        at = (h if layered else 0, s, a)
        n[at] += 1
        following = 0.0 if over or (layered and h == H - 1) else q[at[0] + layered, after].max()
        q[at] += rate / n[at] ** power * (r + z * 1.5 / np.sqrt(n[at]) + discount * following - q[at])
    state = learn(agent, task, agent.init(KEY, task), SEEN)
    np.testing.assert_allclose(state.q, q if layered else q[0], rtol=1e-12)
    np.testing.assert_array_equal(state.visits, n if layered else n[0])
    policy, _ = agent.plan(KEY, task, state)
    np.testing.assert_array_equal(policy.best, np.argmax(state.q, -1))


def test_sigma_and_the_first_value_can_be_given():
    """Half of sigma_max is half of the bonus; the first value is taken as it is."""
    wide, narrow = IEQLPlus(sigma_max=10.0, initial_value=5.0), IEQLPlus(sigma_max=5.0, initial_value=5.0)
    first = wide.init(KEY, DISCOUNTED)
    assert set(np.unique(first.q)) == {-np.inf, 5.0}
    seen = [(0, 0, 0, 1.0, 3, True)]
    moved = [float(learn(agent, DISCOUNTED, first, seen).q[0, 0]) - 4.6 for agent in (wide, narrow)]
    np.testing.assert_allclose(moved, [0.1 * norm.isf(0.025), 0.05 * norm.isf(0.025)], rtol=1e-5)


def _first(objective: Any) -> Any:
    return IEQLPlus().init(KEY, Problem(DISCOUNTED.space, objective))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IEQLPlus(1.0), r"theta is 1\.0, expected a number between 0 and 1"),
        (lambda: IEQLPlus(sigma_max=0.0), r"sigma_max is 0\.0, expected a finite number greater than zero"),
        (lambda: IEQLPlus(min_reward=1.0), r"max_reward is 1\.0, expected more than min_reward, 1\.0"),
        (lambda: IEQLPlus(learning_rate=2.0), r"learning_rate is 2\.0"),
        (lambda: IEQLPlus(rate_power=-1.0), r"rate_power is -1\.0"),
        (lambda: IEQLPlus(initial_value=np.nan), "initial_value is nan"),
        (lambda: _first(FirstExit()), "objective is FirstExit, expected Discounted or Episodic for IEQLPlus"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
