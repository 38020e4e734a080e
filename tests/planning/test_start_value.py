"""The value of a plan at its start, of every objective, alone and in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.planning.solution import value_at_start

START = np.array([0.25, 0.0, 0.75])


@pytest.fixture(scope="module")
def mdp():
    rng = np.random.default_rng(0)
    return bm.MDP(rng.dirichlet(np.ones(3), size=(3, 2)), rng.normal(size=(3, 2)))


@pytest.mark.parametrize("objective", [bm.Discounted(0.9), bm.Episodic(4), bm.AverageReward()], ids=str)
def test_one_plan_and_a_batch(mdp, objective):
    policies = jnp.array([[0, 0, 1], [1, 0, 1]])
    each = [bm.evaluate(mdp, policy, objective) for policy in policies]
    together = jax.vmap(lambda policy: bm.evaluate(mdp, policy, objective))(policies)
    found = value_at_start(together, objective, START)
    for i, one in enumerate(each):
        expected = {
            "Discounted": lambda one=one: np.asarray(one.v) @ START,
            "Episodic": lambda one=one: np.asarray(one.v)[0] @ START,
            "AverageReward": lambda one=one: np.asarray(one.gain),
        }[type(objective).__name__]()
        np.testing.assert_allclose(value_at_start(one, objective, START), expected, rtol=1e-6)
        np.testing.assert_allclose(found[i], expected, rtol=1e-5)
