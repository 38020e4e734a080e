"""Objectives: ranges are checked where a person enters them."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit, Objective
from bayes_mdp.mdp.objectives import require_undiscounted, sum_of_discounts


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


@pytest.mark.parametrize(
    "discount", [0.0, 1.0001, -0.1, float("nan"), float("inf"), np.float32(1.5), 0, [0.9], jnp.full(1, 0.9)]
)
def test_discounts_of_episodes_outside_their_range(discount):
    with pytest.raises(ValueError, match=r"discount (is|has) .*, expected a number above 0 and at most 1$"):
        Episodic(3, discount)


@pytest.mark.parametrize("discount", ["0.9", None, True, 1j])
def test_discounts_of_episodes_that_are_no_numbers(discount):
    with pytest.raises(TypeError, match=r"discount is .*, expected a number above 0 and at most 1$"):
        Episodic(3, discount)


def test_the_discount_of_an_episode_is_static():
    with pytest.raises(TypeError, match="discount is traced, expected a number above 0 and at most 1: it is static"):
        jax.vmap(lambda g: jnp.zeros(Episodic(3, g).horizon))(jnp.array([0.1, 0.2]))
    for given in (0.5, np.float32(0.5), np.array(0.5), jnp.asarray(0.5)):
        objective = Episodic(3, given)
        assert type(objective.discount) is float and hash(objective) == hash(Episodic(3, 0.5))
    assert jax.tree.leaves(Episodic(3, 0.5)) == []


def test_episodes_without_discount_are_what_they_were():
    assert Episodic(3) == Episodic(3, 1) == Episodic(horizon=3, discount=1.0) != Episodic(3, 0.9)
    assert (repr(Episodic(3)), repr(Episodic(3, 0.1))) == ("Episodic(horizon=3)", "Episodic(horizon=3, discount=0.1)")
    assert replace(Episodic(3, 0.9), horizon=5) == Episodic(5, 0.9)
    assert replace(Episodic(3), discount=0.9) == Episodic(3, 0.9)


@pytest.mark.parametrize("discount", [1.0, 1 - 2.0**-50, 0.9, 1e-200])
def test_the_value_of_one_a_step(discount):
    exact = math.fsum(discount**t for t in range(50))
    assert sum_of_discounts(Episodic(50, discount)) == pytest.approx(exact, rel=1e-14)


def test_who_takes_no_discount_says_so():
    for objective in (Episodic(3), Discounted(0.9), FirstExit(), AverageReward()):
        require_undiscounted(objective, "agents")
    with pytest.raises(
        ValueError, match=r"objective is Episodic\(horizon=3, discount=0.9\), expected Episodic\(3\): X take"
    ):
        require_undiscounted(Episodic(3, 0.9), "X")


def test_the_factor_of_the_next_step():
    objectives = (Discounted(0.9), Episodic(3), Episodic(3, 0.8), FirstExit(), AverageReward())
    assert [objective.discount for objective in objectives] == [0.9, 1.0, 0.8, 1.0, 1.0]


def test_four_objectives():
    for objective in (Discounted(0.9), Episodic(np.int64(3)), AverageReward(), FirstExit()):
        assert isinstance(objective, Objective)
    assert jax.tree.leaves(Episodic(3)) == []
