"""What a policy is judged by: the four objectives."""

import equinox as eqx
import numpy as np
from jax import Array

from bayes_mdp.mdp.validation import as_int, is_concrete


class Discounted(eqx.Module):
    """Expected sum of `discount ** t * reward_t`.

    `discount` lies in [0, 1); it is a leaf, so that sweeps can vmap over it.

    Raises:
        ValueError: `discount` is outside [0, 1) or not finite.
        TypeError: `discount` is no number.
    """

    discount: float | Array

    def __check_init__(self) -> None:
        discount, expected = self.discount, "expected a number from 0 up to, but not including, 1"
        if isinstance(discount, bool) or not isinstance(discount, (int, float, np.ndarray, np.generic, Array)):
            raise TypeError(f"discount is {discount!r}, {expected}")
        if is_concrete(discount) and not np.all((np.asarray(discount) >= 0) & (np.asarray(discount) < 1)):
            raise ValueError(f"discount is {discount}, {expected}")


class Episodic(eqx.Module):
    """Expected undiscounted sum of the rewards of an episode of `horizon` steps (it may end earlier).

    Raises:
        ValueError: `horizon` is below 1.
        TypeError: `horizon` is no integer.
    """

    horizon: int = eqx.field(static=True, converter=as_int)

    def __check_init__(self) -> None:
        if isinstance(self.horizon, bool) or not isinstance(self.horizon, int):
            raise TypeError(f"horizon is {self.horizon!r}, expected an integer of at least 1")
        if self.horizon < 1:
            raise ValueError(f"horizon is {self.horizon}, expected an integer of at least 1")


class AverageReward(eqx.Module):
    """Long-run reward per step (the gain), for MDPs that never end and whose gain does not depend on the start."""


class FirstExit(eqx.Module):
    """Expected undiscounted sum of rewards until the end; for proper policies (they end with probability one)."""


Objective = Discounted | Episodic | AverageReward | FirstExit
