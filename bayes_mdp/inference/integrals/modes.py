"""Modes of a log density, and its curvature there: Newton's method by finite differences, from many starts at once.

A call of the density for a block of points costs little more than one for a single point. So all starts move together,
and a gradient and a Hessian are one call each: 1 + 2 D^2 points for D numbers.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

LogDensity: TypeAlias = Callable[[Float[np.ndarray, "N D"]], Float[np.ndarray, " N"]]
"""Points -> their log densities, up to one constant; minus infinity where there is none."""

MOST_STEPS = 60
DECREMENT = 1e-3
"""Gain that a Newton step still promises, in nats, at which a mode is taken as found: to .05 standard deviations."""
WIDEST = 10.0
"""Standard deviations of the starts that a mode is wide at most: where the density is flat it has no curvature."""
SAME = 0.5
"""Standard deviations below which two modes are one."""
STARTS, FEW_STARTS, FEW = 24, 6, 12
"""Starts of a search, as a mode that none leads to is missed in silence; over more than 12 numbers 6, as a Hessian then
takes many points."""
FAR = -30.0
"""Log density less that of the best mode, below which a point need not lie within a grid."""
WIDENINGS, CLOSE = 5, 1.3
"""Corrections of a width, and the factor of a correction at which it is taken as found."""
LINE = (1.0, 0.4, 0.1, 0.01)
"""Parts of a step that are tried together."""


class Mode(NamedTuple):
    """A local maximum, and the normal density that touches it there.

    Args:
        point: where.
        log_density: how high.
        root: lower triangular; root root' is the covariance, the inverse of minus the Hessian.
    """

    point: Float[np.ndarray, " D"]
    log_density: float
    root: Float[np.ndarray, "D D"]

    def standardise(self, points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """The points in standard deviations from the mode.

        Args:
            points: on the scale of the density.
        """
        return np.linalg.solve(self.root, (points - self.point).T).T

    @property
    def log_mass(self) -> float:
        """Log of the mass of the normal density that touches, but for a constant (Laplace's method)."""
        return self.log_density + float(np.log(np.diag(self.root)).sum())


def find_modes(log_density: LogDensity, starts: Float[np.ndarray, "B D"], scale: Float[np.ndarray, " D"]) -> list[Mode]:
    """The different modes that Newton's method reaches from the starts, the heaviest first.

    Args:
        log_density: of finite value at the starts.
        starts: several, at different places.
        scale: a length of each number on which its density may change, such as a standard deviation.
    """
    steps = np.tile(0.1 * scale, (len(starts), 1))
    radius, points = np.full(len(starts), 2.0), np.array(starts, np.float64)
    heights, moving = log_density(points), np.ones(len(starts), bool)
    for _ in range(MOST_STEPS):
        at = np.flatnonzero(moving)
        if not at.size:
            break
        gradient, curvature = _derivatives(log_density, points[at], heights[at], steps[at])
        # In units of the scale, with |eigenvalues|: a step leads up also where the density is not concave.
        values, vectors = np.linalg.eigh(curvature * scale[:, None] * scale)
        slope = np.einsum("bij,bi->bj", vectors, gradient * scale)
        move = np.einsum("bij,bj->bi", vectors, slope / np.maximum(np.abs(values), WIDEST**-2.0))
        length = np.maximum(np.linalg.norm(move, axis=-1), 1e-300)
        move *= np.minimum(1.0, radius[at] / length)[:, None]
        tried = points[at, None] + np.asarray(LINE)[:, None] * (move * scale)[:, None]
        reached = log_density(tried.reshape(-1, tried.shape[-1])).reshape(len(at), len(LINE))
        best = reached.argmax(-1)
        better = reached[np.arange(len(at)), best] > heights[at]
        # A long step that was good may be longer; one that was not is shortened, and looks more closely.
        radius[at] = np.where(better, np.where(best == 0, 2.0, 0.5) * radius[at], 0.1 * radius[at])
        wide = 1.0 / np.sqrt(np.maximum(np.einsum("bii->bi", curvature), (WIDEST * scale) ** -2.0))
        steps[at] = np.minimum(0.1 * wide, np.where(better[:, None], np.inf, 0.3 * steps[at]))
        points[at] = np.where(better[:, None], tried[np.arange(len(at)), best], points[at])
        heights[at] = np.where(better, reached[np.arange(len(at)), best], heights[at])
        promised = 0.5 * np.abs((slope**2 / np.maximum(np.abs(values), WIDEST**-2.0)).sum(-1))
        done = (promised < DECREMENT) | (radius[at] < 1e-9)
        moving[at] = ~done
    return _different(log_density, points, heights, steps, scale)


def _derivatives(
    log_density: LogDensity,
    points: Float[np.ndarray, "B D"],
    heights: Float[np.ndarray, " B"],
    steps: Float[np.ndarray, "B D"],
) -> tuple[Float[np.ndarray, "B D"], Float[np.ndarray, "B D D"]]:
    """Gradients, and minus the Hessians, by central differences in one call of the density."""
    number, size = points.shape
    units = np.eye(size)
    first, second = np.triu_indices(size, 1)
    pairs = units[first] + units[second]
    offsets = np.concatenate([units, -units, pairs, -pairs])
    stencil = points[:, None] + offsets * steps[:, None]
    values = log_density(stencil.reshape(-1, size)).reshape(number, len(offsets))
    # Where a neighbour is impossible nothing is known of the slope: flat, so that the step comes from the others.
    values = np.where(np.isfinite(values), values, heights[:, None])
    plus, minus, both, neither = np.split(values, np.cumsum([size, size, len(pairs)]), axis=1)
    gradient = (plus - minus) / (2.0 * steps)
    curvature = np.zeros((number, size, size))
    curvature[:, range(size), range(size)] = -(plus + minus - 2.0 * heights[:, None]) / steps**2
    mixed = both + neither + 2.0 * heights[:, None]
    mixed = mixed - plus[:, first] - minus[:, first] - plus[:, second] - minus[:, second]
    curvature[:, first, second] = -mixed / (2.0 * steps[:, first] * steps[:, second])
    curvature[:, second, first] = curvature[:, first, second]
    return gradient, curvature


def _half_widths(
    log_density: LogDensity,
    points: Float[np.ndarray, "B D"],
    heights: Float[np.ndarray, " B"],
    steps: Float[np.ndarray, "B D"],
    scale: Float[np.ndarray, " D"],
) -> Float[np.ndarray, "B D"]:
    """Steps along each axis over which the log density falls by about a half, as over a standard deviation.

    Differences over such steps measure the width of a density with kinks too, such as one of Laplace laws.
    """
    number, size = points.shape
    units = np.concatenate([np.eye(size), -np.eye(size)])
    widths = np.array(steps)
    for _ in range(WIDENINGS):
        tried = points[:, None] + units * widths[:, None]
        values = log_density(tried.reshape(-1, size)).reshape(number, 2, size)
        falls = heights[:, None] - np.where(np.isfinite(values), values, -np.inf).mean(1)
        factor = np.sqrt(0.5 / np.maximum(np.where(np.isfinite(falls), falls, 50.0), 1e-4))
        if (np.abs(np.log(factor)) < np.log(CLOSE)).all():
            break
        widths = np.minimum(widths * np.clip(factor, 0.1, 10.0), WIDEST * scale)
    return widths


def _different(
    log_density: LogDensity,
    points: Float[np.ndarray, "B D"],
    heights: Float[np.ndarray, " B"],
    steps: Float[np.ndarray, "B D"],
    scale: Float[np.ndarray, " D"],
) -> list[Mode]:
    """The modes that differ by more than rounding, with their curvature."""
    modes: list[Mode] = []
    order = np.argsort(-heights)
    widths = _half_widths(log_density, points[order], heights[order], steps[order], scale)
    _, curvature = _derivatives(log_density, points[order], heights[order], widths)
    values, vectors = np.linalg.eigh(curvature * scale[:, None] * scale)
    for b, place in enumerate(order):
        width = np.maximum(values[b], WIDEST**-2.0) ** -0.5
        # Triangular by QR: no covariance is formed, which would be singular to rounding where widths differ by 1e8.
        upper = np.asarray(np.linalg.qr((scale[:, None] * vectors[b] * width).T, mode="r"))
        mode = Mode(points[place], float(heights[place]), upper.T * np.sign(np.diag(upper)))
        if not any(np.abs(known.standardise(mode.point[None])).max() < SAME for known in modes):
            modes.append(mode)
    return sorted(modes, key=lambda mode: -mode.log_mass)


class Search(NamedTuple):
    """Where a density is high.

    Args:
        modes: the heaviest first.
        cover: further points of some density.
        log_mass: of the modes, by Laplace's method.
    """

    modes: list[Mode]
    cover: Float[np.ndarray, "N D"]
    log_mass: float


def search(
    log_density: LogDensity,
    points: Float[np.ndarray, "N D"],
    expected: Float[np.ndarray, "M D"] | None = None,
    starts: int | None = None,
) -> Search | None:
    """The modes of a density, from the highest of many points and others apart from it; None: it is zero at all.

    Args:
        log_density: of points.
        points: such as draws from a prior: their spread is the scale on which the density may change.
        expected: further points, where it is expected to be high.
        starts: from how many of them to climb; None: by the number of numbers, few where something is expected.
    """
    points = points[np.isfinite(points).all(-1)]
    size = points.shape[1]
    if not size:
        height = float(log_density(points[:1])[0])
        mode = Mode(np.zeros(0), height, np.zeros((0, 0)))
        return Search([mode], np.zeros((0, 0)), height) if np.isfinite(height) else None
    scale = np.maximum(np.ptp(np.quantile(points, (0.16, 0.84), axis=0), axis=0) / 2.0, 1e-8)
    if expected is not None:
        points = np.concatenate([expected[np.isfinite(expected).all(-1)], points])
    heights = log_density(points)
    if not np.isfinite(heights).any():
        return None
    # One that is known where to look needs a second start only to see whether there is another mode.
    most = 2 if expected is not None else STARTS if size <= FEW else FEW_STARTS
    chosen = _apart(points / scale, heights, starts or most)
    modes = find_modes(log_density, points[chosen], scale)
    # What the points show beside the modes has to lie within a grid.
    cover = points[heights > modes[0].log_density + FAR]
    return Search(modes, cover, float(np.logaddexp.reduce([mode.log_mass for mode in modes])))


def _apart(points: Float[np.ndarray, "N D"], heights: Float[np.ndarray, " N"], most: int) -> list[int]:
    """The highest point, and others that are high for how far they are from those before."""
    chosen: list[int] = [int(np.argmax(heights))]
    distance = np.full(len(points), np.inf)
    finite = np.isfinite(heights)
    while len(chosen) < min(most, int(finite.sum())):
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=-1))
        # A basin of its own is likely where a point is higher than a normal fall from the best would have it.
        merit = np.where(finite & (distance > 0.1), np.log(np.maximum(distance, 1e-300)) + 0.02 * heights, -np.inf)
        best = int(np.argmax(merit))
        if not np.isfinite(merit[best]):
            break
        chosen.append(best)
    return chosen
