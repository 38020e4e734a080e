"""Occupancies: sum of occupancy times reward is the value, for every objective; totals by theory."""

import jax
import numpy as np
import pytest

from bayes_mdp import planning
from bayes_mdp.mdp import Discounted, Episodic, FirstExit
from tests.planning.planning_problems import arrays, evaluate, listed, make_mdp

occupancy = jax.jit(planning.occupancy)


OBJECTIVES = [Discounted(0.9), Episodic(7), Episodic(7, 0.8), FirstExit()]


@pytest.mark.few(3)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_occupancy_times_reward_is_value(objective, sparse, x64):
    data = arrays("ending", 6)
    mdp = listed(make_mdp(*data)) if sparse else make_mdp(*data)
    rng = np.random.default_rng(0)
    policy, initial = rng.dirichlet(np.ones(2), 6), rng.dirichlet(np.ones(6))
    visits, value = occupancy(mdp, policy, objective, initial), evaluate(mdp, policy, objective).v
    value = value[0] if value.ndim == 2 else value
    np.testing.assert_allclose(np.sum(visits * data[1]), value @ initial, rtol=1e-11)
    assert (visits >= -1e-15).all()


def test_totals(x64):
    data = arrays("random", 6)
    mdp, policy, initial = make_mdp(*data), np.zeros(6, int), np.eye(6)[2]
    np.testing.assert_allclose(np.sum(occupancy(mdp, policy, Discounted(0.9), initial)), 10.0, rtol=1e-12)
    steps = occupancy(mdp, policy, Episodic(7), initial)
    np.testing.assert_allclose(np.sum(steps, (1, 2)), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(steps[0], np.outer(initial, [1, 0]))


def test_initial_is_checked():
    mdp = make_mdp(*arrays("random", 6))
    with pytest.raises(ValueError, match="initial is None"):
        planning.occupancy(mdp, np.zeros(6, int), Discounted(0.9))
    with pytest.raises(ValueError, match=r"initial has shape \(5,\), expected \(6,\)"):
        planning.occupancy(mdp, np.zeros(6, int), Discounted(0.9), np.full(5, 0.2))
    with pytest.raises(ValueError, match=r"initial sums to 0\.6"):
        planning.occupancy(mdp, np.zeros(6, int), Discounted(0.9), np.full(6, 0.1))


def test_discounted_time_of_an_episode(x64):
    """discount^t at every step where nothing ends; a chance to end of 1 - discount is the same."""
    rows, reward, ends, legal = arrays("random", 6)
    mdp, policy, initial = make_mdp(rows, reward, ends, legal), np.full((6, 2), 0.5), np.eye(6)[0]
    time = np.asarray(occupancy(mdp, policy, Episodic(5, 0.8), initial))
    np.testing.assert_allclose(time.sum((1, 2)), 0.8 ** np.arange(5), rtol=1e-14)
    leaving = make_mdp(0.8 * rows, reward, ends + 0.2, legal)
    np.testing.assert_allclose(time, occupancy(leaving, policy, Episodic(5), initial), rtol=1e-13)
