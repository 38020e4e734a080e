"""Names of types that stand in many signatures: scalars and arrays of the host or of the device.

`Array` (jax) and `np.ndarray` take jaxtyping's dtypes and axes: `Float[Array, "*H S A"]` is on the device (or traced),
`Float[AnyArray, "*H S A"]` on either side. Axes: S states, A actions, O outcomes (the next states and, where episodes
can end, the end), H steps of an episode (`*H`: there or not), K listed successors or components, N data.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Real

AnyArray: TypeAlias = Array | np.ndarray
"""An array of the host or of the device."""

IntScalar: TypeAlias = int | np.integer | Int[AnyArray, ""]
"""One integer: an index, a step, a count. Traced or not."""

RealScalar: TypeAlias = float | int | np.number | Real[AnyArray, ""]
"""One real number. Traced or not."""

Scalar: TypeAlias = float | Real[Array, ""]
"""One real number for arithmetic with arrays of the device, which stays there. Traced or not."""

Numbers: TypeAlias = float | Real[Array, "..."]
"""A number or an array of the device that broadcasts. Traced or not."""

BoolScalar: TypeAlias = bool | np.bool_ | Bool[AnyArray, ""]
"""True or False. Traced or not."""

RealLike: TypeAlias = float | int | np.number | Real[AnyArray, "..."]
"""A number, or an array of them that broadcasts."""


@runtime_checkable
class HasArray(Protocol):
    """What NumPy can turn into an array: a Series or a DataFrame of pandas, a DataArray of xarray."""

    def __array__(self) -> np.ndarray:
        """Its numbers."""
        ...


ArrayLike: TypeAlias = bool | int | float | complex | np.generic | np.ndarray | Array | Sequence[Any] | HasArray
"""Whatever `np.asarray` reads: an array, a number, (nested) sequences of numbers, a table.

Wider than `jax.typing.ArrayLike`, which has no sequences; a function that takes it checks what it holds.
"""

LogDensity: TypeAlias = Float[AnyArray, "*N"] | np.float64
"""Of one datum or of N; NumPy makes a number of an array without axes."""

Index: TypeAlias = tuple[IntScalar | Int[AnyArray, "..."], ...]
"""The place of a cell, or of many, in a table: (step,) state, action (, outcome)."""

Names: TypeAlias = tuple[Hashable, ...]
"""Names of states or of actions, in order."""

Json: TypeAlias = PyTree
"""A JSON value: a tree of dicts and lists of strings, numbers, True, False and None."""

# A key of a `Mapping` type is invariant: Mapping[Hashable, ...] would refuse a dict[str, ...].
PolicyLabels: TypeAlias = Mapping[Any, Hashable | Mapping[Any, RealLike]]
"""A policy by the labels of a space: state -> action, or state -> {action: probability}."""

PolicyNames: TypeAlias = dict[Hashable, Any] | list[dict[Hashable, Any]]
"""What describes a policy by labels: state -> action or {action: probability}; with steps a list of these.

Any: an action is whatever its label is, and a caller indexes the result without asking which of the two it got.
"""

InitialLike: TypeAlias = ArrayLike | Hashable | Mapping[Any, RealLike]
"""Where episodes start: probabilities [S], the label of a state, {label: probability} or a Series of that, or a `Log`
(as often as its episodes begin in each state)."""
