"""Objectives: ranges are checked where a person enters them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit, Objective


@pytest.mark.parametrize("discount", [1.0, -0.1, float("nan"), float("inf"), np.float32(1.5), 1])
def test_discounts_outside_their_range(discount):
    with pytest.raises(ValueError, match=r"discount is .*, expected a number from 0 up to, but not including, 1"):
        Discounted(discount)


@pytest.mark.parametrize("discount", ["0.9", None, [0.9], True])
def test_discounts_that_are_no_numbers(discount):
    with pytest.raises(TypeError, match=r"discount is .*, expected a number from 0 up to, but not including, 1"):
        Discounted(discount)


def test_jax_discounts_are_checked_too():
    with pytest.raises(ValueError, match=r"discount is 1.*, expected a number from 0"):
        Discounted(jnp.asarray(1.0))


def test_discount_is_a_leaf_and_sweeps():
    values = jax.vmap(lambda g: Discounted(g).discount * 2)(jnp.array([0.1, 0.2]))
    np.testing.assert_allclose(values, [0.2, 0.4])
    assert jax.tree.leaves(Discounted(0.0)) == [0.0]
    assert Discounted(0.5) == Discounted(0.5)


@pytest.mark.parametrize("horizon", [0, -3])
def test_horizons_below_one(horizon):
    with pytest.raises(ValueError, match=f"horizon is {horizon}, expected an integer of at least 1"):
        Episodic(horizon)


@pytest.mark.parametrize("horizon", [2.0, "3", None, True])
def test_horizons_that_are_no_integers(horizon):
    with pytest.raises(TypeError, match="expected an integer of at least 1"):
        Episodic(horizon)


def test_four_objectives():
    for objective in (Discounted(0.9), Episodic(np.int64(3)), AverageReward(), FirstExit()):
        assert isinstance(objective, Objective)
    assert jax.tree.leaves(Episodic(3)) == []
