"""Draws about the mode of a density, reweighted: Laplace's method, and what is wrong with it taken back by weights.

Newton's method with the exact Hessian finds the mode. The normal distribution with that mode and curvature is Laplace's
approximation. Draws come from a Student t distribution of that place and shape, a fifth wider, whose tails do not miss
those of the density. Each has the weight density / proposal, smoothed by a generalised Pareto distribution [PSIS24],
whose shape k says how far the weights can be relied on: above .7 not at all.

(The normal distribution itself as the proposal has heavier weights: k above .7 in a quarter of small regressions.)
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import gammaln

from bayes_mdp.inference.integrals.importance import effective_size, smooth_tail
from bayes_mdp.random.resampling import systematic_on_host

DEGREES, WIDER = 7.0, 1.2
"""Of the Student t distribution: degrees of freedom, and by how much it is wider than the curvature says."""
MANY, MANY_DEGREES, MANY_WIDER = 20, 12.0, 1.1
"""The same from so many dimensions on, where a far wider proposal is worth little: of 46 the weights would leave 37 %
of the draws of a normal density, not 54 %."""
MOST_STEPS = 100
SETTLED = 1e-20
"""Newton decrement, twice the height that is left, at which the mode is certainly found."""
ROUNDED = 1e-10
"""The same, from which on heights differ by rounding alone."""
RUNAWAY = 30, 0.05
"""A step still so long after so many, or where the density hardly changes, says that there is no mode."""
WARN, REFUSE = 0.5, 0.7
"""Pareto k from which on weights are doubtful, and not to be used."""


class NoModeError(ValueError):
    """A density without a mode that Newton's method finds.

    Args:
        message: one sentence.
        direction: in which the last step went, where it ran away, or in which it is flat; None: unknown.
    """

    def __init__(self, message: str, direction: Float[np.ndarray, " D"] | None = None) -> None:
        super().__init__(message)
        self.direction = direction


@runtime_checkable
class SmoothDensity(Protocol):
    """A density on all of R^D, up to a constant."""

    def slopes(self, point: Float[np.ndarray, " D"]) -> tuple[float, Float[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
        """Minus its log, the gradient and the Hessian of that."""
        ...

    def minus_log(self, points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """Minus its log at many points."""
        ...


class TracedDensity:
    """A density given by a JAX function.

    Args:
        minus_log_density: of one point.
        block: points at once.
    """

    def __init__(self, minus_log_density: Callable[[Float[Array, " D"]], Float[Array, ""]], block: int = 64) -> None:
        self._block = block
        self._one = jax.jit(minus_log_density)
        self._many = jax.jit(jax.vmap(minus_log_density))
        # Forward over reverse: the Hessian costs D gradients.
        slope = jax.grad(minus_log_density)
        self._slopes = jax.jit(lambda x: (minus_log_density(x), slope(x), jax.jacfwd(slope)(x)))

    def slopes(self, point: Float[np.ndarray, " D"]) -> tuple[float, Float[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
        """Minus the log density, its gradient and its Hessian.

        Args:
            point: where.
        """
        height, gradient, hessian = self._slopes(jnp.asarray(point))
        return float(height), np.asarray(gradient), np.asarray(hessian)

    def minus_log(self, points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """Minus the log density at many points, block by block.

        Args:
            points: where.
        """
        blocks = -(-len(points) // self._block)
        # The last block is filled up: one compiled program.
        filled = np.resize(points, (blocks * self._block, points.shape[1])).reshape(blocks, self._block, -1)
        return np.concatenate([np.asarray(self._many(jnp.asarray(block))) for block in filled])[: len(points)]


class ModeDraws(NamedTuple):
    """Draws of equal weight, and how good they are.

    Args:
        points: Float64[N D].
        mode: where the density is largest.
        covariance: inverse of the curvature there.
        log_evidence: log of the integral of the density, by the weights.
        laplace_evidence: by the curvature alone.
        pareto_k: shape of the tail of the weights.
        effective: how many independent draws the weighted ones are worth.
        proposals: how many there were.
    """

    points: Float[np.ndarray, "N D"]
    mode: Float[np.ndarray, " D"]
    covariance: Float[np.ndarray, "D D"]
    log_evidence: float
    laplace_evidence: float
    pareto_k: float
    effective: float
    proposals: int

    def problems(self) -> list[str]:
        """What the weights say against the draws; empty: nothing."""
        if self.pareto_k <= WARN:
            return []
        return [
            f"the weights of the draws about the mode have a heavy tail (Pareto k {self.pareto_k:.2f}, above {WARN}): "
            "means may be off by more than they show; use method='nuts'"
        ]


def find_mode(
    density: SmoothDensity, start: Float[np.ndarray, " D"]
) -> tuple[Float[np.ndarray, " D"], float, Float[np.ndarray, "D D"]]:
    """Newton's method: the mode, minus the log density there, and its Hessian.

    Args:
        density: twice differentiable.
        start: where the search begins.

    Raises:
        NoModeError: none was found; where the steps stay long, the direction in which they go.
    """
    point = np.asarray(start, np.float64)
    height, gradient, hessian = density.slopes(point)
    last = np.inf
    for number in range(MOST_STEPS):
        step, decrement = _step(gradient, hessian)
        long = np.abs(step).max() > RUNAWAY[1]
        # A separated outcome: the height hardly changes, and the step stays long for ever.
        if long and (decrement <= ROUNDED or number >= RUNAWAY[0]):
            raise NoModeError(f"after {number} steps of Newton's method the next one is still long", step)
        # Below rounding no height can be compared: whole steps, as long as each is much smaller than the one before.
        if decrement <= SETTLED or (decrement <= ROUNDED and decrement > last / 4):
            return point, height, hessian
        # Damped Newton with Armijo's rule: full steps near the mode, where convergence is quadratic.
        last, share = decrement, 1.0
        while True:
            after, *slopes = density.slopes(point - share * step)
            lower = after <= height - 1e-4 * share * decrement
            if np.isfinite(after) and (lower or decrement <= ROUNDED):
                break
            # Halved until the density is larger: far from the mode its curvature may mislead.
            share /= 2
            if share < 1e-8:
                raise NoModeError(
                    "no step makes the density larger, although its slope is not zero", step if long else None
                )
        point, height = point - share * step, after
        gradient, hessian = slopes
    raise NoModeError(f"Newton's method did not settle in {MOST_STEPS} steps")


def _step(gradient: Float[np.ndarray, " D"], hessian: Float[np.ndarray, "D D"]) -> tuple[np.ndarray, float]:
    """The Newton step and its decrement; where the Hessian is no positive matrix, more of its diagonal is added."""
    if not (np.isfinite(gradient).all() and np.isfinite(hessian).all()):
        raise NoModeError("the slope of the density is not finite")
    # Levenberg: the diagonal grows until Cholesky succeeds.
    damping, size = 0.0, np.abs(np.diag(hessian)).max() + 1e-300
    while True:
        try:
            step = cho_solve(cho_factor(hessian + damping * np.eye(len(gradient))), gradient)
            return step, float(gradient @ step)
        except np.linalg.LinAlgError:
            damping = max(4.0 * damping, 1e-8 * size)


def draw_about_mode(
    rng: np.random.Generator, density: SmoothDensity, start: Float[np.ndarray, " D"], num_draws: int, per_draw: int = 4
) -> ModeDraws:
    """Draws of a density, of equal weight: proposals about the mode, resampled by their smoothed weights.

    Args:
        rng: of the draws.
        density: twice differentiable.
        start: where the search for the mode begins.
        num_draws: N.
        per_draw: proposals for each of them.

    Raises:
        NoModeError: no mode was found, or its curvature is not positive.
        ValueError: the weights are not to be relied on: Pareto k above .7.
    """
    mode, height, hessian = find_mode(density, start)
    try:
        # Precision = L L': a draw is mode + wide * L'^-1 z.
        root = np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError:
        flattest = np.linalg.eigh(hessian)[1][:, 0]
        raise NoModeError("the curvature of the density at its mode is not positive", flattest) from None
    # Proposals per draw: resampling then repeats few of them.
    size, number = len(mode), per_draw * num_draws
    degrees, wider = (DEGREES, WIDER) if size < MANY else (MANY_DEGREES, MANY_WIDER)
    log_det = 2.0 * np.log(np.diag(root)).sum()
    normal = rng.standard_normal((number, size))
    # A multivariate t: a normal vector over the root of a chi-square, common to its components.
    wide = wider * np.sqrt(degrees / rng.chisquare(degrees, number))
    away = solve_triangular(root.T, normal.T, lower=False).T * wide[:, None]
    # |L' (x - mode)|^2 / wider^2, without forming the product again.
    square = (wide**2) * (normal**2).sum(1) / wider**2
    constant = gammaln((degrees + size) / 2) - gammaln(degrees / 2) - 0.5 * size * np.log(degrees * np.pi)
    # Log density of the t distribution at each proposal.
    proposed = constant + 0.5 * log_det - size * np.log(wider) - 0.5 * (degrees + size) * np.log1p(square / degrees)
    points = mode + away
    # Importance weights: density over proposal, in logs.
    logs = -density.minus_log(points) - proposed
    logs = np.where(np.isnan(logs), -np.inf, logs)
    # Pareto-smoothed: the largest weights follow the fitted tail.
    smoothed, k = smooth_tail(logs)
    if not k <= REFUSE:
        raise ValueError(
            f"method is 'laplace', and draws about the mode do not cover the posterior (Pareto k = {k:.2f}, above "
            f"{REFUSE}), expected method='nuts'"
        )
    # The mean weight estimates the integral; Laplace's own value beside it for comparison.
    evidence = float(np.logaddexp.reduce(logs) - np.log(number))
    laplace = -height + 0.5 * size * np.log(2 * np.pi) - 0.5 * log_det
    weights = np.exp(smoothed - smoothed.max())
    # Systematic by weight, in random order: equal weights after it.
    chosen = rng.permutation(systematic_on_host(rng, weights, num_draws))
    covariance = cho_solve((root, True), np.eye(size))
    return ModeDraws(points[chosen], mode, covariance, evidence, laplace, k, effective_size(smoothed), number)
