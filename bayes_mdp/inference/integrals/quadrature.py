"""Integrals of a log density over one, two or three numbers: its modes, and the trapezoid rule about them.

Modes: Newton's method by finite differences, from many starts at once. A call of the density for a block of points
costs little more than one for a single point. So all starts move together, and a gradient and a Hessian are one call
each: 1 + 2 D^2 points for D numbers.

The rule: for a smooth density that vanishes at both ends the trapezoid rule converges faster than any power of the
spacing [TRAP14]. In coordinates standardised at the mode, t with z = sinh(a t) / a reaches heavy tails in few nodes:
near the mode z is t, far out it grows exponentially.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from bayes_mdp.random.resampling import systematic_on_host

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
        # A solve by the root, not by the covariance: its condition number is the square root of that.
        return np.linalg.solve(self.root, (points - self.point).T).T

    @property
    def log_mass(self) -> float:
        """Log of the mass of the normal density that touches, but for a constant (Laplace's method)."""
        # The mass of a Gaussian is its height times det(root) (2 pi)^(D / 2); the last factor is common to all.
        return self.log_density + float(np.log(np.diag(self.root)).sum())


def find_modes(log_density: LogDensity, starts: Float[np.ndarray, "B D"], scale: Float[np.ndarray, " D"]) -> list[Mode]:
    """The different modes that Newton's method reaches from the starts, the heaviest first.

    Args:
        log_density: of finite value at the starts.
        starts: several, at different places.
        scale: a length of each number on which its density may change, such as a standard deviation.
    """
    # Every start climbs on its own; all that still move share one call of the density for each round.
    steps = np.tile(0.1 * scale, (len(starts), 1))
    radius, points = np.full(len(starts), 2.0), np.array(starts, np.float64)
    heights, moving = log_density(points), np.ones(len(starts), bool)
    for _ in range(MOST_STEPS):
        active = np.flatnonzero(moving)
        if not active.size:
            break
        gradient, curvature = _derivatives(log_density, points[active], heights[active], steps[active])
        # In units of the scale, with |eigenvalues|: a step leads up also where the density is not concave.
        values, vectors = np.linalg.eigh(curvature * scale[:, None] * scale)
        slope = np.einsum("bij,bi->bj", vectors, gradient * scale)
        move = np.einsum("bij,bj->bi", vectors, slope / np.maximum(np.abs(values), WIDEST**-2.0))
        length = np.maximum(np.linalg.norm(move, axis=-1), 1e-300)
        move *= np.minimum(1.0, radius[active] / length)[:, None]
        # The line search: the whole step and fractions of it, all tried at once, of which the best is kept.
        tried = points[active, None] + np.asarray(LINE)[:, None] * (move * scale)[:, None]
        reached = log_density(tried.reshape(-1, tried.shape[-1])).reshape(len(active), len(LINE))
        best = reached.argmax(-1)
        better = reached[np.arange(len(active)), best] > heights[active]
        # A long step that was good may be longer; one that was not is shortened, and looks more closely.
        radius[active] = np.where(better, np.where(best == 0, 2.0, 0.5) * radius[active], 0.1 * radius[active])
        widths = 1.0 / np.sqrt(np.maximum(np.einsum("bii->bi", curvature), (WIDEST * scale) ** -2.0))
        steps[active] = np.minimum(0.1 * widths, np.where(better[:, None], np.inf, 0.3 * steps[active]))
        points[active] = np.where(better[:, None], tried[np.arange(len(active)), best], points[active])
        heights[active] = np.where(better, reached[np.arange(len(active)), best], heights[active])
        # Newton's decrement: what the quadratic model still promises, half of g' H^-1 g.
        promised = 0.5 * np.abs((slope**2 / np.maximum(np.abs(values), WIDEST**-2.0)).sum(-1))
        done = (promised < DECREMENT) | (radius[active] < 1e-9)
        moving[active] = ~done
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
    # f(x + e_i), f(x - e_i), f(x + e_i + e_j), f(x - e_i - e_j): the second differences need no other points.
    offsets = np.concatenate([units, -units, pairs, -pairs])
    stencil = points[:, None] + offsets * steps[:, None]
    values = log_density(stencil.reshape(-1, size)).reshape(number, len(offsets))
    # Where a neighbour is impossible nothing is known of the slope: flat, so that the step comes from the others.
    values = np.where(np.isfinite(values), values, heights[:, None])
    plus, minus, both_plus, neither = np.split(values, np.cumsum([size, size, len(pairs)]), axis=1)
    gradient = (plus - minus) / (2.0 * steps)
    curvature = np.zeros((number, size, size))
    curvature[:, range(size), range(size)] = -(plus + minus - 2.0 * heights[:, None]) / steps**2
    # f_ij ~ (f(+i+j) + f(-i-j) + 2 f - f(+i) - f(-i) - f(+j) - f(-j)) / (2 h_i h_j).
    mixed = both_plus + neither + 2.0 * heights[:, None]
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
        # Over one standard deviation a normal density falls by 1/2; the fall grows with the square of the step.
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
        # Without continuous numbers the "mode" is the one point there is.
        return Search([mode], np.zeros((0, 0)), height) if np.isfinite(height) else None
    # The half distance between the 16 % and 84 % quantiles: a standard deviation that far draws do not inflate.
    scale = np.maximum(np.ptp(np.quantile(points, (0.16, 0.84), axis=0), axis=0) / 2.0, 1e-8)
    if expected is not None:
        points = np.concatenate([expected[np.isfinite(expected).all(-1)], points])
    heights = log_density(points)
    if not np.isfinite(heights).any():
        return None
    # One that is known where to look needs a second start only to see whether there is another mode.
    num_starts = 2 if expected is not None else STARTS if size <= FEW else FEW_STARTS
    chosen = _apart(points / scale, heights, starts or num_starts)
    modes = find_modes(log_density, points[chosen], scale)
    # What the points show beside the modes has to lie within a grid.
    cover = points[heights > modes[0].log_density + FAR]
    return Search(modes, cover, float(np.logaddexp.reduce([mode.log_mass for mode in modes])))


def _apart(points: Float[np.ndarray, "N D"], heights: Float[np.ndarray, " N"], most: int) -> list[int]:
    """The highest point, and others that are high for how far they are from those before."""
    chosen: list[int] = [int(np.argmax(heights))]
    distance = np.full(len(points), np.inf)
    # Farthest-point selection with a bonus for height: starts cover the space, high places first.
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


STRETCH = 0.4
"""a of z = sinh(a t) / a."""
FIRST, FURTHEST = 6.0, 60.0
"""Where a grid ends at first, and at last (t = 60: 3e10 standard deviations)."""
NEGLIGIBLE = -30.0
"""Log density, less that of the largest node, from which on nothing is left that counts (1e-13)."""
TOLERANCE = 1e-7
"""Largest change by another halving of the spacing: of the log evidence in nats, of means relative to their size (at
least 1)."""
MOST_NODES = {1: 2**13, 2: 2**15, 3: 2**16}
"""Nodes of a grid, by the number of its axes."""
DROPPED = 1e-12
"""Share of the integral, and of every mean (relative to its size, at least 1), less than which a node is left out."""
TINY = 1e-30
"""Weight below which the means are not looked at."""
AT_FACES = 1e-9
"""Such a share of a mean, less than which a face of the grid may hold."""

Means: TypeAlias = Callable[[Float[np.ndarray, "N D"]], Float[np.ndarray, "N F"]]
"""Points -> numbers whose expectations are to be right as well."""


class NotIntegrableError(Exception):
    """An integral that a method cannot state to its tolerance; says why."""


class Grid(NamedTuple):
    """A rule that has converged.

    Args:
        points: its nodes.
        log_weights: of the nodes; their exponentials add up to one.
        log_evidence: log of the integral.
        error: change of `log_evidence` by the last halving of the spacing.
        spacing: of the nodes, in the coordinates t.
        nodes: the same nodes in these coordinates.
        mode: about which they are standardised.
    """

    points: Float[np.ndarray, "K D"]
    log_weights: Float[np.ndarray, " K"]
    log_evidence: float
    error: float
    spacing: float
    nodes: Float[np.ndarray, "K D"]
    mode: Mode

    def propose(
        self, rng: np.random.Generator, num: int
    ) -> tuple[Float[np.ndarray, "num D"], Float[np.ndarray, " num"], Int[np.ndarray, " num"]]:
        """Points spread over the cells of the nodes, minus the log density with which they were chosen, and the node of
        each.

        Args:
            rng: of the points.
            num: how many.
        """
        # One point after the other along the cumulative weights, then anywhere in its cell.
        chosen = systematic_on_host(rng, np.exp(self.log_weights), num)
        t = self.nodes[chosen] + self.spacing * (rng.random((num, self.nodes.shape[1])) - 0.5)
        points, log_volume = _from_grid(self.mode, t)
        return points, log_volume + t.shape[1] * np.log(self.spacing) - self.log_weights[chosen], chosen


def _from_grid(mode: Mode, t: Float[np.ndarray, "N D"]) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
    """The points, and log of the volume that a unit of t takes there."""
    # z = sinh(a t) / a in standardised coordinates, then back by the root.
    points = mode.point + np.sinh(STRETCH * t) / STRETCH @ mode.root.T
    # Jacobian of t to points: prod cosh(a t) det(root).
    return points, np.log(np.cosh(STRETCH * t)).sum(-1) + np.log(np.diag(mode.root)).sum()


def integrate_by_grid(
    log_density: LogDensity,
    modes: list[Mode],
    cover: Float[np.ndarray, "N D"],
    means: Means,
    tolerance: float = TOLERANCE,
) -> Grid:
    """The integral of exp(`log_density`), and nodes whose weighted means are those of the density.

    Args:
        log_density: of points.
        modes: all that are known, the heaviest first.
        cover: points that must lie within the grid, such as further places of high density.
        means: what is to converge beside the integral.
        tolerance: see `TOLERANCE`; where it is larger the finer of the last two grids is kept.

    Raises:
        NotIntegrableError: the grid would need too many nodes (a narrow ridge, modes far apart), or the density, or its
            product with a mean, does not vanish at its ends.
    """
    centre = modes[0]
    # The box holds every known mode and all of `cover`, and grows until nothing is left outside of its faces.
    inside = np.concatenate([np.stack([mode.point for mode in modes]), cover])
    in_grid = np.arcsinh(STRETCH * centre.standardise(inside)) / STRETCH
    low, high = np.minimum(in_grid.min(0) - 2.0, -FIRST), np.maximum(in_grid.max(0) + 2.0, FIRST)
    # As fine as the narrowest mode asks for, in the coordinates of the heaviest.
    relative = [np.linalg.norm(np.linalg.solve(centre.root, mode.root), axis=1).min() for mode in modes]
    # The trapezoidal rule in t, where z = sinh(a t) / a: for an analytic density that vanishes at the faces it gains
    # digits in proportion to the number of nodes, and halving the spacing says how far it has come.
    spacing = float(min(1.0, max(min(relative), 2.0**-8)))
    low, high = np.floor(low / spacing) * spacing, np.ceil(high / spacing) * spacing
    t, logs = _vanishing(log_density, centre, low, high, spacing)
    before = _summary(centre, t, logs, spacing, means)
    # A mean may reach further out than the density does.
    while _grow(low, high, t, before.share > AT_FACES, spacing):
        t, logs = _vanishing(log_density, centre, low, high, spacing)
        before = _summary(centre, t, logs, spacing, means)
    while True:
        spacing /= 2.0
        _check_size(low, high, spacing)
        finer = _lattice(low, high, spacing)
        finer_logs = _on_grid(log_density, centre, finer)
        # The integral on a grid twice as fine: what it changes is the error of the coarser one.
        after = _summary(centre, finer, finer_logs, spacing, means)
        error = abs(after.log_integral - before.log_integral)
        change = np.abs(after.means - before.means) / np.maximum(np.abs(after.means), 1.0)
        done = error <= tolerance and (not change.size or change.max() <= tolerance)
        if done and tolerance <= TOLERANCE:
            # The rule before the last halving is as good, as has just been seen, and has fewer nodes.
            spacing *= 2.0
            break
        t, logs, before = finer, finer_logs, after
        if done:
            break
    log_weights = logs - logsumexp(logs)
    # Nodes that hold nothing of the integral and of no mean are left out: most of a grid.
    has_weight = (log_weights > np.log(DROPPED)) | (before.share > DROPPED)
    log_weights = log_weights[has_weight] - logsumexp(log_weights[has_weight])
    points = _from_grid(centre, t[has_weight])[0]
    return Grid(points, log_weights, after.log_integral, float(error), spacing, t[has_weight], centre)


def without_light(logs: Float[np.ndarray, " N"]) -> tuple[Bool[np.ndarray, " N"], Float[np.ndarray, " K"]]:
    """Which weights are no less than `DROPPED` of all, and their logs; the exponentials of these add up to one.

    Args:
        logs: of the weights, up to a constant.
    """
    log_weights = logs - logsumexp(logs)
    has_weight = log_weights > np.log(DROPPED)
    return has_weight, log_weights[has_weight] - logsumexp(log_weights[has_weight])


def _lattice(low: Float[np.ndarray, " D"], high: Float[np.ndarray, " D"], spacing: float) -> Float[np.ndarray, "N D"]:
    axes = [a + spacing * np.arange(round((b - a) / spacing) + 1) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def _check_size(low: Float[np.ndarray, " D"], high: Float[np.ndarray, " D"], spacing: float) -> None:
    # Nodes grow with the power of the dimension: refused before they are made.
    number = np.prod((high - low) / spacing + 1)
    if number > MOST_NODES[len(low)]:
        raise NotIntegrableError(f"a grid fine enough for it has more than {MOST_NODES[len(low)]} nodes")


def _on_grid(log_density: LogDensity, mode: Mode, t: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """The integrand in the coordinates of the grid."""
    points, log_volume = _from_grid(mode, t)
    with np.errstate(all="ignore"):
        logs = log_density(points) + log_volume
    # Far out parameters overflow: there is no density where it is no number.
    return np.where(np.isnan(logs), -np.inf, logs)


def _vanishing(
    log_density: LogDensity, mode: Mode, low: Float[np.ndarray, " D"], high: Float[np.ndarray, " D"], spacing: float
) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
    """A lattice at whose faces the integrand is negligible, and the integrand on it; `low` and `high` are moved."""
    while True:
        _check_size(low, high, spacing)
        t = _lattice(low, high, spacing)
        logs = _on_grid(log_density, mode, t)
        highest = logs.max()
        if not np.isfinite(highest):
            raise NotIntegrableError("its density is infinite, or nowhere a number")
        if not _grow(low, high, t, logs > highest + NEGLIGIBLE, spacing):
            return t, logs


def _grow(
    low: Float[np.ndarray, " D"],
    high: Float[np.ndarray, " D"],
    t: Float[np.ndarray, "N D"],
    counted: Bool[np.ndarray, " N"],
    spacing: float,
) -> bool:
    """Move the faces outwards that have nodes which count, in place; whether there are any."""
    grown = False
    for axis, end in itertools.product(range(len(low)), (low, high)):
        face: Bool[np.ndarray, " N"] = np.abs(t[:, axis] - end[axis]) < 0.25 * spacing
        if (counted & face).any():
            if abs(end[axis]) >= FURTHEST:
                raise NotIntegrableError("its density, or a mean, does not vanish far from the mode")
            # By half of its length, in whole spacings.
            longer = max(spacing, np.floor(0.5 * abs(end[axis]) / spacing) * spacing)
            end[axis] += longer if end is high else -longer
            grown = True
    return grown


class _Summary(NamedTuple):
    """Log of the integral, the means, and the largest share of a mean that each node holds."""

    log_integral: float
    means: Float[np.ndarray, " F"]
    share: Float[np.ndarray, " N"]


def _summary(
    mode: Mode, t: Float[np.ndarray, "N D"], logs: Float[np.ndarray, " N"], spacing: float, means: Means
) -> _Summary:
    total = float(np.logaddexp.reduce(logs))
    # Weights of the nodes, normalised; their sum times the volume of a cell is the integral.
    weights = np.exp(logs - total)
    # Of nodes without weight no mean is computed: there it may overflow.
    seen, share = weights > TINY, np.zeros(len(logs))
    values = means(_from_grid(mode, t[seen])[0])
    expectation = weights[seen] @ values
    # A mean near zero is held to an absolute share, any other to one of its own size.
    parts = weights[seen, None] * np.abs(values) / np.maximum(np.abs(expectation), 1.0)
    share[seen] = parts.max(1, initial=0.0)
    return _Summary(total + t.shape[1] * np.log(spacing), expectation, share)
