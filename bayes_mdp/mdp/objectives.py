"""What a policy is judged by: the four objectives."""

import equinox as eqx
import numpy as np
from jax import Array

from bayes_mdp.mdp.typing import RealLike
from bayes_mdp.mdp.validation import as_int, as_real, check_count, check_type, described, is_concrete, require


class Discounted(eqx.Module):
    """Expected sum of `discount ** t * reward_t`.

    `discount` lies in [0, 1); it is a leaf of the pytree, so that sweeps can vmap over it; a batch
    of objectives holds an array.

    Raises:
        ValueError: `discount` is outside [0, 1) or not finite.
        TypeError: `discount` is no number.
    """

    discount: RealLike

    def __check_init__(self) -> None:
        expected = "a number from 0 up to, but not including, 1"
        check_type("discount", self.discount, (int, float, np.ndarray, np.generic, Array), expected)
        if is_concrete(self.discount):
            discount = as_real("discount", self.discount, expected)
            require(~((discount >= 0) & (discount < 1)), "discount", discount, expected)


class Episodic(eqx.Module):
    """Expected undiscounted sum of the rewards of an episode of `horizon` steps (it may end earlier).

    Raises:
        ValueError: `horizon` is below 1.
        TypeError: `horizon` is no integer.
    """

    horizon: int = eqx.field(static=True, converter=as_int)

    def __check_init__(self) -> None:
        check_count("horizon", self.horizon)


class AverageReward(eqx.Module):
    """Long-run reward per step (the gain), for MDPs that never end and whose gain does not depend on the start."""


class FirstExit(eqx.Module):
    """Expected undiscounted sum of rewards until the end; for proper policies (they end with probability one)."""


Objective = Discounted | Episodic | AverageReward | FirstExit


def check_objective(objective: object) -> None:
    """Raise a TypeError unless it is one of the four."""
    if not isinstance(objective, Objective):
        expected = "Discounted, Episodic, AverageReward or FirstExit"
        raise TypeError(f"objective is {described(objective)}, expected {expected}")
