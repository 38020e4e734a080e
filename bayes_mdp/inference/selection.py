"""Is an array of a program a selection of leaf elements, and of which? A test by values, no walk over the program.

Let f map the N elements of all leaves to an array, h = f - f(0), w = h(1, ..., 1). Were an entry of h w times *one*
element, h(1, ..., N) / w would be the number i of that element. It is iff h(x) = w x_i and h(y) = w y_i; it is a
selection iff, besides, w is 0 (nothing) or 1. f(0) holds what is known beside the unknown. x and y are random: a map
that is something else passes with probability zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

# Smallest and largest magnitude of a random point, and whether its sign is random too.
REAL, POSITIVE, UNIT = (1e-3, 1e3, 1.0), (1e-6, 1e3, 0.0), (1e-9, 0.5, 0.0)
POINTS = ("zero", "one", "count", "x", "y")
PART = 2**14


class Layout(NamedTuple):
    """All elements of the leaf sites in one vector: site after site, each row-major.

    Args:
        shapes: shape of the value of each site.
        domains: `REAL`, `POSITIVE` or `UNIT` for the elements of each site, or one for each entry of its last axis.
    """

    shapes: Mapping[str, tuple[int, ...]]
    domains: Mapping[str, Any]

    @property
    def size(self) -> int:
        """N, the number of elements."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def elements(self, name: str) -> np.ndarray:
        """Numbers of the elements of a site, in its shape."""
        start = 0
        for site, shape in self.shapes.items():
            if site == name:
                return start + np.arange(int(np.prod(shape))).reshape(shape)
            start += int(np.prod(shape))
        raise KeyError(name)

    def split(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """{site: value} of one vector (views)."""
        values, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + int(np.prod(shape))
            values[name] = flat[start:stop].reshape(shape)
            start = stop
        return values

    def site(self, element: int) -> str:
        """The site of an element."""
        stops = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        return list(self.shapes)[int(np.searchsorted(stops, element, side="right"))]

    def points(self, rng: np.random.Generator, only: str | None = None) -> dict[str, np.ndarray]:
        """The points of the test; with `only`, the elements of all other sites are zero."""
        x, y = (np.concatenate([[], *(self._draw(rng, name).ravel() for name in self.shapes)]) for _ in range(2))
        # Divided by N + 1: inside every domain.
        count = np.arange(1, self.size + 1) / (self.size + 1)
        points: dict[str, np.ndarray] = dict(
            zip(POINTS, (np.zeros(self.size), np.ones(self.size), count, x, y), strict=True)
        )
        if only is None:
            return points
        kept = np.zeros(self.size)
        kept[self.elements(only)] = 1.0
        return {name: kept * point for name, point in points.items()}

    def _draw(self, rng: np.random.Generator, name: str) -> np.ndarray:
        shape, domain = self.shapes[name], np.asarray(self.domains[name])
        low, high, signed = np.moveaxis(domain, -1, 0)
        # One number gives magnitude and sign.
        drawn = rng.uniform(-1.0, 1.0, size=shape)
        magnitude = np.exp(np.log(low) + np.abs(drawn) * np.log(high / low))
        return np.where(signed > 0, np.copysign(magnitude, drawn), magnitude) if np.any(signed) else magnitude


@dataclass(frozen=True, eq=False)
class Entries:
    """An array of the program at the points of the test (all of one shape).

    Args:
        values: {point: the array there}.
        points: {point: the elements there, [N]}.
        tolerance: relative rounding of the array.
    """

    values: Mapping[str, np.ndarray]
    points: Mapping[str, np.ndarray]
    tolerance: float

    @property
    def zero(self) -> np.ndarray:
        """What is known beside the unknown."""
        return self.values["zero"]

    @cached_property
    def weight(self) -> np.ndarray:
        """w, the sum of the weights of all elements in each entry."""
        return self.values["one"] - self.zero

    @cached_property
    def _read(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The element in each entry, where it is single, where it selects."""
        shape = self.zero.shape
        flat = [self.values[name].ravel() for name in POINTS]
        # Without any element, -1 must still be an index.
        elements = [self.points[name] if self.points[name].size else np.zeros(1) for name in ("x", "y")]
        size = flat[0].size
        index, single, selects = np.empty(size, int), np.empty(size, bool), np.empty(size, bool)
        # In parts that stay in the cache: on millions of entries whole-array steps wait for memory.
        for start in range(0, size, PART):
            part = slice(start, start + PART)
            zero, one, count, x, y = (values[part] for values in flat)
            index[part], none, unit = _elements(one - zero, count - zero, np.abs(zero), self)
            weight = np.where(none, 0.0, one - zero)
            single[part] = _multiples(weight, zero, (x, y), [e[index[part]] for e in elements], self.tolerance)
            single[part] &= none | (index[part] >= 0)
            selects[part] = unit & single[part]
        return index.reshape(shape), single.reshape(shape), selects.reshape(shape)

    def index(self) -> np.ndarray:
        """Number of the element in each entry, -1 where there is none. Defined where `single`."""
        return self._read[0]

    def single(self) -> np.ndarray:
        """Where an entry is a weight times one element, or nothing."""
        return self._read[1]

    def selects(self) -> np.ndarray:
        """Where an entry is one element, or nothing."""
        return self._read[2]


def _elements(weight: np.ndarray, count: np.ndarray, known: np.ndarray, entries: Entries) -> tuple[np.ndarray, ...]:
    """The number that `count` names (-1: none), where there is no weight, where it is none or one."""
    size = len(entries.points["zero"])
    slack = entries.tolerance * (1.0 + known)
    none = np.abs(weight) <= slack
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        number = np.rint(count * (size + 1) / weight)
        index = np.where((number >= 1) & (number <= size) & ~none, number, 0).astype(int) - 1
        return index, none, none | (np.abs(weight - 1.0) <= slack)


def _multiples(weight: Any, zero: Any, values: Any, elements: Any, tolerance: float) -> np.ndarray:
    """Where every value, less what is known, is the weight times the element (zero where there is none)."""
    found = np.ones(zero.shape, bool)
    with np.errstate(invalid="ignore"):
        for value, element in zip(values, elements, strict=True):
            expected = element * weight
            size = np.abs(value) + np.abs(expected) + np.abs(zero)
            found &= np.abs(value - zero - expected) <= tolerance * size
    return found


def entries(arrays: Sequence[np.ndarray], points: Mapping[str, np.ndarray]) -> Entries:
    """`Entries` of an array given at each of `points`, in their order."""
    values = {name: array.astype(np.float64, copy=False) for name, array in zip(points, arrays, strict=True)}
    return Entries(values, points, tolerance=1e3 * rounding(arrays[0].dtype))


def rounding(dtype: np.dtype) -> float:
    """Relative rounding of what is computed in `dtype` (integers: they turn into float64)."""
    return float(np.finfo(dtype if np.issubdtype(dtype, np.inexact) else np.float64).eps)
