# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""What a policy is judged by: the four objectives."""

import math
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import numpy as np
from jax import Array

from bayes_mdp.utils.identity import UNDESCRIBED_DEFAULT
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import RealLike
from bayes_mdp.utils.validation import (
    as_python,
    as_real,
    check_count,
    check_number,
    check_type,
    described,
    is_concrete,
    require,
)


class Discounted(eqx.Module):
    """Expected sum of `discount ** t * reward_t`.

    `discount` lies in [0, 1); it is a leaf of the pytree, so that sweeps can vmap over it; a batch
    of objectives holds an array.

    Raises:
        ValueError: `discount` is outside [0, 1) or not finite.
        TypeError: `discount` is no number.

    Example:
        >>> mdp = bm.MDP([[[1.0]]], [[1.0]])  # one state, reward 1 for ever
        >>> round(float(bm.solve(mdp, bm.Discounted(0.9)).v[0]), 3)
        10.0
    """

    discount: RealLike
    horizon: ClassVar[None] = None

    def __check_init__(self) -> None:
        expected = "a number from 0 up to, but not including, 1"
        check_type("discount", self.discount, (int, float, np.ndarray, np.generic, Array), expected)
        if is_concrete(self.discount):
            discount = as_real("discount", self.discount, expected)
            require(~((discount >= 0) & (discount < 1)), "discount", discount, expected)


_RATE = "a number above 0 and at most 1"


def _as_rate(discount: object) -> Any:  # of a converter, as `as_python`
    """A number as a Python float, which a static field can hold."""
    if not is_concrete(discount):
        raise TypeError(f"discount is traced, expected {_RATE}: it is static")
    check_number("discount", discount, lambda x: (x > 0) & (x <= 1), _RATE)
    return float(np.asarray(discount))


class Episodic(eqx.Module):
    """Expected sum of `discount ** t * reward_t` over the steps t < horizon of an episode (it may end earlier).

    Both fields are static: a vmap goes over neither, and there is no derivative by the discount. Agents, and what runs
    them, take undiscounted episodes alone.

    Args:
        horizon: number of steps.
        discount: in (0, 1]; 1, the default, is the undiscounted sum.

    Raises:
        ValueError: `horizon` is below 1; `discount` is outside (0, 1] or not finite.
        TypeError: `horizon` is no integer; `discount` is no number, or traced.

    Example:
        >>> mdp = bm.MDP([[[1.0]]], [[1.0]])  # one state, reward 1 in each of three steps
        >>> bm.solve(mdp, bm.Episodic(3)).v.tolist()
        [[3.0], [2.0], [1.0]]
    """

    horizon: int = eqx.field(static=True, converter=as_python)
    discount: float = eqx.field(static=True, default=1.0, converter=_as_rate, metadata={UNDESCRIBED_DEFAULT: True})

    def __check_init__(self) -> None:
        check_count("horizon", self.horizon)

    def __repr__(self) -> str:
        """The discount is left out where there is none."""
        rate = "" if self.discount == 1 else f", discount={self.discount!r}"
        return f"Episodic(horizon={self.horizon}{rate})"


class AverageReward(eqx.Module):
    """Long-run reward per step (the gain), for MDPs that never end and whose gain does not depend on the start.

    Example:
        >>> mdp = bm.MDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [1.0]])
        >>> round(float(bm.solve(mdp, bm.AverageReward()).gain), 3)  # reward per step
        0.5
    """

    discount: ClassVar[float] = 1.0
    horizon: ClassVar[None] = None


class FirstExit(eqx.Module):
    """Expected undiscounted sum of rewards until the end; for proper policies (they end with probability one).

    Example:
        >>> mdp = bm.MDP([[[0.0], [0.0]]], [[-1.0, -3.0]], end_probs=[[1.0, 1.0]])
        >>> bm.solve(mdp, bm.FirstExit()).v.tolist()  # the cheaper way out
        [-1.0]
    """

    discount: ClassVar[float] = 1.0
    horizon: ClassVar[None] = None


Objective = Discounted | Episodic | AverageReward | FirstExit
"""All have `discount`, the factor of the value of the next step, and `horizon`, the steps of an episode, or None."""
Kind = TypeVar("Kind")
"""A class of objectives."""


def sum_of_discounts(objective: Episodic) -> float:
    """sum_t discount^t over the steps of an episode: its value where every step pays 1."""
    rate = objective.discount
    # The geometric sum (1 - rate^H) / (1 - rate), by expm1 for rates near one.
    return objective.horizon if rate == 1 else -math.expm1(objective.horizon * math.log(rate)) / (1 - rate)


def require_objective(objective: object, who: str, *kinds: type[Kind]) -> Kind:
    """The objective, which has to be of one of the kinds.

    Args:
        objective: of any kind.
        who: takes no other, for the message: "UCBVI".
        kinds: those that it takes.

    Raises:
        ValueError: another objective. TypeError: none.
    """
    if not isinstance(objective, kinds):
        *others, last = (kind.__name__ for kind in kinds)
        expected = f"{', '.join(others)} or {last}" if others else last
        if not isinstance(objective, Objective):
            raise TypeError(f"objective is {described(objective)}, expected {expected}")
        raise ValueError(f"objective is {type(objective).__name__}, expected {expected} for {who}")
    return objective


def require_undiscounted(objective: Objective, who: str) -> None:
    """Refuse discounted episodes.

    Args:
        objective: of any kind.
        who: cannot take them, for the message: "agents".

    Raises:
        ValueError: one sentence.
    """
    if isinstance(objective, Episodic) and objective.discount != 1:
        raise ValueError(f"objective is {objective}, expected Episodic({objective.horizon}): {who} take no discount")


def check_objective(objective: object) -> None:
    """Raise a TypeError unless it is one of the four."""
    if not isinstance(objective, Objective):
        expected = "Discounted, Episodic, AverageReward or FirstExit"
        raise TypeError(f"objective is {described(objective)}, expected {expected}")


def check_fit(objective: Objective, shape: tuple[int, ...], bytes_each: int = 8) -> None:
    """Refuse an objective that does not fit MDPs of a shape; a traced discount is not looked into.

    Args:
        objective: of the values.
        shape: (*H, S, A), of the MDPs.
        bytes_each: of a value.

    Raises:
        ValueError, TypeError: no objective; another horizon, or one too long for the memory; several discounts.
    """
    check_objective(objective)
    # Three axes: the MDP has rows of its own at every step.
    horizon = shape[0] if len(shape) == 3 else None
    if isinstance(objective, Episodic):
        size = 2.0 * objective.horizon * math.prod(shape[-2:]) * bytes_each
        check_memory(f"objective.horizon is {objective.horizon}", size)
        if horizon not in (None, objective.horizon):
            raise ValueError(f"objective has horizon {objective.horizon}, expected {horizon}, that of the MDP")
    elif horizon is not None:
        kind = type(objective).__name__
        raise ValueError(f"objective is {kind} and the MDP has {horizon} steps, expected Episodic({horizon})")
    if isinstance(objective, Discounted) and is_concrete(objective.discount):
        discount = np.asarray(objective.discount)
        if discount.shape:
            raise ValueError(f"discount has shape {discount.shape}, expected one number (vmap over a batch)")
        outside = ~((discount >= 0) & (discount < 1))
        require(outside, "discount", discount, "a number from 0 up to, but not including, 1")
