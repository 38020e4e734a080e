"""The optimal plan that regret is measured by, against value iteration in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.experiments.rollout.regret import Truth, optimal_plan
from bayes_mdp.experiments.rollout.simulator import Segment
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, SparseMDP

STATES, ACTIONS = 6, 3
RNG = np.random.default_rng(0)
LEGAL = np.array([[True, True, False]] * 3 + [[True, True, True]] * 3)
ROWS = RNG.dirichlet(np.full(STATES + 1, 0.3), (STATES, ACTIONS))
REWARD = RNG.normal(size=(STATES, ACTIONS))


def backed_up(values, rows, discount):
    return np.where(LEGAL, REWARD + discount * rows @ values, -np.inf)


@pytest.mark.parametrize("listed", [False, True])
def test_values_and_actions_are_those_of_value_iteration(listed):
    rows = ROWS[..., :STATES]
    mdp = MDP(rows, REWARD, end_probs=ROWS[..., STATES], legal=LEGAL)
    if listed:
        successor = np.broadcast_to(np.arange(STATES), rows.shape).astype(np.int32)
        mdp = SparseMDP(successor, rows, REWARD, end_probs=ROWS[..., STATES], legal=LEGAL)
    values = np.zeros(STATES)
    for _ in range(2000):
        values = backed_up(values, rows, 0.95).max(-1)
    plan = optimal_plan(mdp, Discounted(0.95))
    np.testing.assert_allclose(plan.q, backed_up(values, rows, 0.95), rtol=1e-5, atol=1e-6)  # MDPs hold float32
    np.testing.assert_allclose(plan.v, values, rtol=1e-5, atol=1e-6)  # MDPs hold float32
    np.testing.assert_array_equal(plan.policy, backed_up(values, rows, 0.95).argmax(-1))
    values, steps = np.zeros(STATES), []
    for _ in range(4):
        steps.append(backed_up(values, rows, 0.7))
        values = steps[-1].max(-1)
    plan = optimal_plan(mdp, Episodic(4, 0.7))
    np.testing.assert_allclose(plan.q, steps[::-1], rtol=1e-5, atol=1e-6)  # MDPs hold float32
    np.testing.assert_array_equal(plan.policy, np.argmax(steps[::-1], -1))


def test_the_gain_is_that_of_value_iteration():
    rows = ROWS[..., :STATES] / ROWS[..., :STATES].sum(-1, keepdims=True)
    plan = optimal_plan(MDP(rows, REWARD, legal=LEGAL), AverageReward())
    values, gain = np.zeros(STATES), 0.0
    for _ in range(5000):
        new = backed_up(values, rows, 1.0).max(-1)
        gain, values = (new - values).mean(), new - new[0]
    assert float(plan.gain) == pytest.approx(gain, rel=1e-6)
    assert 0 <= plan.gap < 1e-6
    np.testing.assert_array_equal(plan.policy, backed_up(values, rows, 1.0).argmax(-1))


def test_steps_that_were_not_taken_cost_nothing():
    zero = jnp.zeros(4, int)
    block = Segment(zero, jnp.array([0, 1, 1, 0]), zero, jnp.zeros(4), zero, jnp.arange(4) < 2)
    truth = Truth(optimal=jnp.array([5.0, 3.0]), initial=np.array([1.0, 0.0]))
    old, new = jnp.zeros(2), jnp.array([1.0, 2.0])
    assert float(truth.regret(old, new, block, False)) == 4.0 + 1.0
    assert float(truth.regret(old, new, block._replace(live=None), False)) == 10.0
