"""Functions and classes whose docstrings leave something out, for the tests of `tools/docstrings.py`."""

from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_positive


def no_docstring(share: float) -> float:
    return share


def no_sentence() -> None:
    """A line that goes on after its end, as if a sentence that is too long were no matter, until it
    stops."""


def no_parameter(share: float, size: int) -> float:
    """The ratio of a size.

    Args:
        share: per step.
    """
    return share * size


def no_result(share: float) -> float:
    """Compute with `share`."""
    return share


def no_shape(values: ArrayLike, table: Float[Array, "S A"]) -> float:
    """The largest of `values` and `table`."""
    return float(np.max(values)) + float(table.max())


def no_shape_of_result(number: int) -> np.ndarray:
    """The first numbers, as many as `number`."""
    return np.arange(number)


def no_unit(height: float, when: "float | None" = None) -> float:
    """The `height` of a thing at a time.

    Args:
        height: of the thing.
        when: at what time.
    """
    return height * (when or 1.0)


def no_unit_of_result() -> float:
    """The height of a thing."""
    return 1.0


def no_error(share: float) -> float:
    """The `share`.

    Raises:
        TypeError: it is none.
    """
    if share < 0:
        raise ValueError("share is negative")
    return share


def no_error_of_check(share: float) -> float:
    """The `share`.

    Raises:
        ValueError: it is not positive.
    """
    check_positive("share", share)
    return share


def no_source(share: float) -> float:
    """The `share`, as in the paper [UNKNOWN99]."""
    return share


def no_example(share: float) -> float:
    """The `share`."""
    return share


def complete(values: ArrayLike, share: float) -> np.ndarray:
    """Multiples of some values ([PUTERMAN94]).

    Args:
        values: [N], in units of the reward.
        share: greater than 0.

    Returns:
        [N], in the same units.

    Raises:
        ValueError, TypeError: `share` is no positive number.

    Example:
        >>> complete([1.0], 2.0)
        array([2.])
    """
    check_positive("share", share)
    return np.asarray(values) * share


class NoField(NamedTuple):
    """A record.

    Args:
        width: in pixels.
    """

    width: int
    height: int


class CanGrow(Protocol):
    """What can grow."""

    def grown(self, steps: int) -> int:
        """The size later.

        Args:
            steps: so many of them.
        """
        ...


class Plant(CanGrow):
    """It grows."""

    def grown(self, steps: int) -> int:
        """The size of a plant."""
        return steps

    def watered(self, litres: int) -> int:
        """The size of a plant with water."""
        return litres
