"""The trapezoid rule over one, two or three numbers, in coordinates standardised at the mode.

For a smooth density that vanishes at both ends the trapezoid rule converges faster than any power of the spacing
[TRAP14]. Coordinates t with z = sinh(a t) / a reach heavy tails in few nodes: near the mode z is t, far out it grows
exponentially.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from bayes_mdp.inference.integrals.modes import LogDensity, Mode
from bayes_mdp.random.resampling import systematic_on_host

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
    points = mode.point + np.sinh(STRETCH * t) / STRETCH @ mode.root.T
    return points, np.log(np.cosh(STRETCH * t)).sum(-1) + np.log(np.diag(mode.root)).sum()


def _to_grid(mode: Mode, points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    return np.arcsinh(STRETCH * mode.standardise(points)) / STRETCH


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
    held = _to_grid(centre, np.concatenate([np.stack([mode.point for mode in modes]), cover]))
    low, high = np.minimum(held.min(0) - 2.0, -FIRST), np.maximum(held.max(0) + 2.0, FIRST)
    # As fine as the narrowest mode asks for, in the coordinates of the heaviest.
    relative = [np.linalg.norm(np.linalg.solve(centre.root, mode.root), axis=1).min() for mode in modes]
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
    kept = (log_weights > np.log(DROPPED)) | (before.share > DROPPED)
    log_weights = log_weights[kept] - logsumexp(log_weights[kept])
    points = _from_grid(centre, t[kept])[0]
    return Grid(points, log_weights, after.log_integral, float(error), spacing, t[kept], centre)


def without_light(logs: Float[np.ndarray, " N"]) -> tuple[Bool[np.ndarray, " N"], Float[np.ndarray, " K"]]:
    """Which weights are no less than `DROPPED` of all, and their logs; the exponentials of these add up to one.

    Args:
        logs: of the weights, up to a constant.
    """
    log_weights = logs - logsumexp(logs)
    kept = log_weights > np.log(DROPPED)
    return kept, log_weights[kept] - logsumexp(log_weights[kept])


def _lattice(low: Float[np.ndarray, " D"], high: Float[np.ndarray, " D"], spacing: float) -> Float[np.ndarray, "N D"]:
    axes = [a + spacing * np.arange(round((b - a) / spacing) + 1) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def _check_size(low: Float[np.ndarray, " D"], high: Float[np.ndarray, " D"], spacing: float) -> None:
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
    weights = np.exp(logs - total)
    seen, share = weights > TINY, np.zeros(len(logs))
    values = means(_from_grid(mode, t[seen])[0])
    found = weights[seen] @ values
    parts = weights[seen, None] * np.abs(values) / np.maximum(np.abs(found), 1.0)
    share[seen] = parts.max(1, initial=0.0)
    return _Summary(total + t.shape[1] * np.log(spacing), found, share)
