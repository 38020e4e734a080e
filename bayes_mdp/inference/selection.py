"""Is an array of a program a selection of leaf elements, and of which? A test by values, no walk over the program.

Let f map the N elements of all leaves to an array, h = f - f(0), w = h(1, ..., 1). An entry of h is w times *one*
element iff h(x + y) = h(x) + h(y) and h(x^2) w = h(x)^2; it is a selection iff, besides, w is 0 (nothing) or 1. Then h
at (1, ..., N) is the index table. f(0) holds what is known beside the unknown. x and y are random: a map that is
something else passes with probability zero.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# Smallest and largest magnitude of a random point, and whether its sign is random too.
REAL, POSITIVE, UNIT = (1e-3, 1e3, 1.0), (1e-6, 1e3, 0.0), (1e-9, 0.5, 0.0)
POINTS = ("zero", "one", "x", "y", "sum", "square", "count")


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
        """{site: value} of one vector."""
        return {name: flat[self.elements(name)] for name in self.shapes}

    def site(self, element: int) -> str:
        """The site of an element."""
        stops = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        return list(self.shapes)[int(np.searchsorted(stops, element, side="right"))]

    def points(self, rng: np.random.Generator, only: str | None = None) -> dict[str, np.ndarray]:
        """The points of the test; with `only`, the elements of all other sites are zero."""
        x, y = (np.concatenate([[], *(self._draw(rng, name).ravel() for name in self.shapes)]) for _ in range(2))
        mask = np.ones(self.size)
        if only is not None:
            mask = np.zeros(self.size)
            mask[self.elements(only)] = 1.0
        # Divided by N + 1: inside every domain.
        count = np.arange(1, self.size + 1) / (self.size + 1)
        points = (np.zeros(self.size), np.ones(self.size), x, y, x + y, x * x, count)
        return {name: mask * point for name, point in zip(POINTS, points, strict=True)}

    def _draw(self, rng: np.random.Generator, name: str) -> np.ndarray:
        shape = self.shapes[name]
        low, high, signed = np.moveaxis(np.broadcast_to(self.domains[name], (*shape, 3)), -1, 0)
        sign = np.where(signed > 0, rng.choice([-1.0, 1.0], size=shape), 1.0)
        return sign * np.exp(rng.uniform(np.log(low), np.log(high)))


class Entries(NamedTuple):
    """An array of the program at the points of the test, and the relative rounding of its dtype. All of one shape."""

    zero: np.ndarray
    one: np.ndarray
    x: np.ndarray
    y: np.ndarray
    sum: np.ndarray
    square: np.ndarray
    count: np.ndarray
    tolerance: float
    size: int

    @property
    def weight(self) -> np.ndarray:
        """w, the sum of the weights of all elements in each entry."""
        return self.one - self.zero

    def single(self) -> np.ndarray:
        """Where an entry is a weight times one element, or nothing."""
        x, y, total, square = (value - self.zero for value in (self.x, self.y, self.sum, self.square))
        known = np.abs(self.zero)
        additive = np.abs(total - x - y) <= self.tolerance * (np.abs(x) + np.abs(y) + known)
        scale = x**2 + np.abs(square * self.weight) + known * (1.0 + np.abs(x) + np.abs(self.weight))
        return additive & (np.abs(square * self.weight - x**2) <= self.tolerance * scale)

    def selects(self) -> np.ndarray:
        """Where an entry is one element, or nothing."""
        unit = np.minimum(np.abs(self.weight), np.abs(self.weight - 1.0))
        return self.single() & (unit <= self.tolerance * (1.0 + np.abs(self.zero)))

    def index(self) -> np.ndarray:
        """Number of the element in each entry, -1 where there is none. Defined where `single`."""
        none = np.abs(self.weight) <= self.tolerance * (1.0 + np.abs(self.zero))
        share = (self.count - self.zero) / np.where(none, 1.0, self.weight)
        return np.where(none, 0, np.rint(share * (self.size + 1)).astype(int)) - 1


def entries(arrays: Sequence[np.ndarray], size: int) -> Entries:
    """`Entries` of an array given at `POINTS`, in that order; `size` is N."""
    return Entries(
        *(array.astype(np.float64) for array in arrays), tolerance=1e3 * rounding(arrays[0].dtype), size=size
    )


def rounding(dtype: np.dtype) -> float:
    """Relative rounding of what is computed in `dtype` (integers: they turn into float64)."""
    return float(np.finfo(dtype if np.issubdtype(dtype, np.inexact) else np.float64).eps)
