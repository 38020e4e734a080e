"""UCFH: delta_1, the intervals of a component, the set that is planned over, learning under `run`."""

import math
from typing import Any

import jax
import numpy as np
import pytest

from bayes_mdp.agents import UCFH
from bayes_mdp.agents.optimism.ucrl2 import component_confidence_set, component_delta, component_interval
from bayes_mdp.mdp import Discounted, Episodic
from tests.agents.believed import Case
from tests.agents.optimism.test_ucrl2 import A, H, S, late_reward, problem, tabularl, world
from tests.planning.test_extended import poured, sweep

interval: Any = jax.jit(component_interval)
confidence: Any = jax.jit(component_confidence_set)


def test_the_share_of_a_component_is_that_of_the_paper():
    """w_min = eps / (4 S H), U = S A log2(S H / w_min), delta / (2 U S); a step axis has H times as many pairs."""
    updates = S * A * math.log2(S * H / (0.1 / (4 * S * H)))
    assert component_delta((S, A, S), H) == pytest.approx(0.05 / (2 * updates * S), rel=1e-5)
    assert component_delta((H, S, A, S), H, 0.2) == pytest.approx(0.2 / (2 * H * updates * S), rel=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_the_interval_holds_what_satisfies_both_constraints_and_no_more(scale):
    """The constraints as the paper writes them, on a fine grid of p; n = 0 and 1 exclude nothing."""
    share, step = 0.01, 1e-4
    visits = np.array([[0.0, 1.0, 2.0, 5.0, 50.0, 3e3, 1e6]])
    probs = np.array([0.0, 0.003, 0.1, 0.3, 0.49, 0.5, 0.7, 0.98, 1.0])
    lower, upper = interval(np.broadcast_to(probs, (1, 7, 9)), visits, share, scale=scale)
    grid, log = np.arange(0, 1 + step / 2, step), math.log(6 / share)
    sd = lambda p: np.sqrt(p * (1 - p))  # noqa: E731
    for (_, i, j), low in np.ndenumerate(lower):
        n, p = visits[0, i] - 1, probs[j]
        allowed = np.ones(grid.shape, bool)
        if n > 0:
            near = scale * (math.sqrt(2 * p * (1 - p) * log / n) + 7 * log / (3 * n))
            alike = scale * math.sqrt(2 * log / n)
            allowed = (np.abs(grid - p) <= near) & (np.abs(sd(grid) - sd(p)) <= alike + 1e-12)
        inside = grid[allowed | np.isclose(grid, p)]
        assert low <= min(inside[0], p) + 1e-9 and upper[0, i, j] >= max(inside[-1], p) - 1e-9
        assert low > inside[0] - step - 1e-9 and upper[0, i, j] < inside[-1] + step + 1e-9
    assert np.all(upper[0, :2] == 1) and np.all(lower[0, :2] == 0)


@jax.jit
def planned(agent, belief) -> Any:
    """The first plan, and its set."""
    task, key = problem(Episodic(H), ends=True, horizon=H), jax.random.key(0)
    options = {"delta": agent.delta, "epsilon": agent.epsilon, "scale": agent.scale, "max_reward": agent.max_reward}
    policy, _ = agent.plan(key, task, agent.init(key, task), belief)
    return policy, component_confidence_set(belief, Episodic(H), **options)


@pytest.mark.usefixtures("x64")
def test_the_plan_is_optimal_in_the_set_of_the_paper():
    """By loops, for a belief with a step axis and ends; TabulaRL's reward radii; impossible outcomes stay so."""
    belief, rows = world((H,), ends=True)
    policy, sets = planned(UCFH(0.1, 0.2, scale=0.1, max_reward=0.8), belief)
    limits = interval(rows, belief.visits, component_delta(rows.shape, H, 0.1, 0.2), scale=0.1)
    lower, upper = (np.asarray(limit) * (rows > 0) for limit in limits)
    np.testing.assert_allclose(sets.rows.lower, lower, atol=1e-12)
    np.testing.assert_allclose(sets.rows.upper, upper, atol=1e-12)
    slack = tabularl(belief.visits, S, 1 + belief.visits[0].sum(), delta=0.1)[0]
    reward = np.minimum(np.asarray(belief.mdp.reward) + 0.1 * slack, 0.8)
    values = np.zeros(S)
    for h in reversed(range(H)):
        best = lambda s, a, w, h=h: poured(lower[h, s, a], upper[h, s, a], np.r_[w, 0])  # noqa: E731
        q = sweep(best, reward[h], values)
        np.testing.assert_allclose(policy.q[h], q, atol=1e-9)
        values = q.max(-1)


def test_known_rows_have_no_width():
    concentration = np.ones((S, A, S))
    concentration[0, 1] = [0, 1, 0]
    variance = np.zeros((S, A))
    variance[2, 0] = 1
    posterior = Case(concentration, np.full((S, A), 0.25), variance, np.ones((S, A))).posterior
    sets = confidence(posterior, Episodic(H), delta=0.05, epsilon=0.1, scale=0.01, max_reward=1.0)
    np.testing.assert_array_equal(sets.rows.lower[0, 1], [0, 1, 0])
    np.testing.assert_array_equal(sets.rows.upper[0, 1], [0, 1, 0])
    assert np.array_equal(np.argwhere(np.asarray(sets.reward) != 0.25), [[2, 0]])
    assert np.all(np.asarray(sets.rows.upper - sets.rows.lower)[1:] == 1)


@pytest.mark.slow
def test_it_learns_riverswim_under_run(key):
    """Widths over 20: at least 90 % of the optimal 3.3973 an episode; without widths the left bank's .1."""
    assert late_reward(UCFH(scale=0.05), Episodic(20), key, num_episodes=200) > 0.9 * 3.3973 / 20
    assert late_reward(UCFH(scale=0.0), Episodic(20), key, num_episodes=200) < 0.1 * 3.3973 / 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UCFH(0.0), r"delta is 0\.0, expected a number between 0 and 1"),
        (lambda: UCFH(epsilon=0.0), r"epsilon is 0\.0, expected a number greater than 0 and at most 1"),
        (lambda: UCFH(epsilon=1.5), r"epsilon is 1\.5, expected a number greater than 0 and at most 1"),
        (lambda: UCFH(scale=-0.5), r"scale is -0\.5, expected a finite number, zero or greater"),
        (lambda: UCFH(max_reward=np.nan), "max_reward is nan, expected a finite number"),
        (lambda: component_delta((S, A, S), H, 1.0), r"delta is 1\.0, expected a number between 0 and 1"),
        (
            lambda: UCFH().init(jax.random.key(0), problem(Discounted(0.9))),
            "objective is Discounted, expected Episodic for UCFH",
        ),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
