"""Functions and classes whose docstrings leave something out, for the tests of `tools/docstrings.py`."""

from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.mdp.typing import ArrayLike
from bayes_mdp.mdp.validation import check_positive


def no_docstring(rate: float) -> float:
    return rate


def no_sentence() -> None:
    """A line that goes on after its end, as if a sentence that is too long were no matter, until it
    stops."""


def no_parameter(rate: float, size: int) -> float:
    """The rate of a size.

    Args:
        rate: per step.
    """
    return rate * size


def no_result(rate: float) -> float:
    """Compute with `rate`."""
    return rate


def no_shape(values: ArrayLike, table: Float[Array, "S A"]) -> float:
    """The largest of `values` and `table`."""
    return float(np.max(values)) + float(table.max())


def no_shape_of_result(number: int) -> np.ndarray:
    """The first numbers, as many as `number`."""
    return np.arange(number)


def no_error(rate: float) -> float:
    """The `rate`.

    Raises:
        TypeError: it is none.
    """
    if rate < 0:
        raise ValueError("rate is negative")
    return rate


def no_error_of_check(rate: float) -> float:
    """The `rate`.

    Raises:
        ValueError: it is not positive.
    """
    check_positive("rate", rate)
    return rate


def no_source(rate: float) -> float:
    """The `rate`, as in the paper [UNKNOWN99]."""
    return rate


def no_example(rate: float) -> float:
    """The `rate`."""
    return rate


def complete(values: ArrayLike, rate: float) -> np.ndarray:
    """Multiples of some values ([PUTERMAN94]).

    Args:
        values: [N], in units of the reward.
        rate: greater than 0.

    Returns:
        [N], in the same units.

    Raises:
        ValueError, TypeError: `rate` is no positive number.

    Example:
        >>> complete([1.0], 2.0)
        array([2.])
    """
    check_positive("rate", rate)
    return np.asarray(values) * rate


class NoField(NamedTuple):
    """A record.

    Args:
        width: in pixels.
    """

    width: int
    height: int


class CanGrow(Protocol):
    """What can grow."""

    def grown(self, steps: int) -> float:
        """The size later.

        Args:
            steps: so many of them.
        """
        ...


class Plant(CanGrow):
    """It grows."""

    def grown(self, steps: int) -> float:
        """The size of a plant."""
        return float(steps)

    def watered(self, litres: float) -> float:
        """The size of a plant with water."""
        return litres
