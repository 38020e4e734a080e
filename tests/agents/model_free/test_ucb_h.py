"""UCB-H against a plain loop over a fixed history."""

from typing import Any, cast

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import UCBH
from bayes_mdp.envs import deep_sea
from bayes_mdp.mdp import Discounted, Episodic, Problem
from tests.agents.histories import LEGAL, A, H, S, history, learn, problem

SEEN = history(1)


def loop(seen, *, scale, delta, num_episodes, largest):
    """Algorithm 1 of Jin et al., rewards up to `largest`."""
    q = np.where(LEGAL, H * largest, -np.inf) * np.ones((H, S, A))
    n = np.zeros((H, S, A), int)
    for time, (h, s, a, r, after, over) in enumerate(seen, start=1):
        n[h, s, a] += 1
        t, total = n[h, s, a], num_episodes * H if num_episodes else time
        alpha = (H + 1) / (H + t)
        b = scale * largest * np.sqrt(H**3 * np.log(S * A * total / delta) / t)
        v = 0.0 if over or h == H - 1 else min(H * largest, q[h + 1, after].max())
        q[h, s, a] = (1 - alpha) * q[h, s, a] + alpha * (r + v + b)
    return q


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("num_episodes", [None, 100])
def test_the_table_is_that_of_the_loop(num_episodes):
    agent, task = UCBH(0.1, delta=0.2, num_episodes=num_episodes, max_reward=2.0), problem(layered=True)
    state = learn(agent, task, agent.init(jax.random.key(0), task), SEEN)
    expected = loop(SEEN, scale=0.1, delta=0.2, num_episodes=num_episodes, largest=2.0)
    np.testing.assert_allclose(state.q, expected, rtol=1e-12)
    assert int(state.time) == len(SEEN) == int(np.sum(state.visits))
    policy, _ = agent.plan(jax.random.key(0), task, state)
    np.testing.assert_array_equal(policy.best, expected.argmax(-1))


@pytest.mark.usefixtures("x64")
def test_the_value_is_cut_at_its_ceiling():
    """After one visit q exceeds H by far, and the target of the step before it is cut at H."""
    agent, task = UCBH(5.0), problem(layered=True)
    seen = [(1, 0, 0, 1.0, 3, False), (0, 3, 1, 0.0, 0, False)]
    state = learn(agent, task, agent.init(jax.random.key(0), task), seen)
    assert float(state.q[1, 0, 0]) > 2 * H
    bonus = 5.0 * np.sqrt(H**3 * np.log(S * A * 2 / 0.05))
    np.testing.assert_allclose(state.q[0, 3, 1], H + bonus, rtol=1e-12)


@pytest.mark.slow
def test_it_solves_deep_sea(key):
    """L = 5: the last 100 of 600 episodes of 5 seeds are worth .9 at least (the optimum is .99)."""
    result = bm.run(UCBH(0.01), deep_sea(5), objective=Episodic(5), num_episodes=600, num_seeds=5, key=key)
    assert result["reward"].to_numpy()[:, -100:].mean() > 0.9


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: UCBH(-1.0), ValueError, r"scale is -1\.0, expected"),
        (lambda: UCBH(delta=1.0), ValueError, r"delta is 1\.0, expected a number between 0 and 1"),
        (lambda: UCBH(max_reward=0.0), ValueError, r"max_reward is 0\.0, expected"),
        (lambda: UCBH(num_episodes=0), ValueError, "num_episodes is 0, expected an integer of at least 1"),
        (lambda: UCBH(num_episodes=cast(Any, 1.5)), TypeError, r"num_episodes is 1\.5"),
        (
            lambda: UCBH().init(jax.random.key(0), Problem(problem(layered=False).space, Discounted(0.9))),
            ValueError,
            "objective is Discounted, expected Episodic for UCBH",
        ),
    ],
)
def test_bad_settings_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
