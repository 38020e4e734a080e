"""Importance sampling from Student t distributions at the modes, refitted to the draws that they give.

The mixture starts as Laplace's method has it, and its parts are moved to the weighted means and covariances of their
draws [PMC08]. The tail of the weights is smoothed by a generalised Pareto distribution, whose shape k says whether they
can be relied on [PSIS24]. `Integration`, at the end, records an integral of either kind and how far it may be off.
"""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, logsumexp

from bayes_mdp.inference.integrals.quadrature import LogDensity, Mode, NotIntegrableError, without_light
from bayes_mdp.utils.typing import AnyArray

DEGREES = 5.0
"""Of freedom: tails heavier than those of what is integrated."""
WIDER = 1.1
"""A refitted covariance is taken so much larger."""
BROAD, BROAD_SHARE = 3.0, 0.1
"""A tenth of the draws comes from the same places, three times as far spread: what the modes do not show is seen."""
CAUCHY_SHARE = 0.05
"""So many have independent Cauchy numbers along the axes of the covariance: tails like these keep bounded weights."""
MOST_PARTS = 10
ROUNDS, PATIENCE, FIRST_DRAWS, DRAWS, MOST_DRAWS = 16, 3, 1000, 4000, 2**15
PER_NUMBER = 20.0
"""Draws for each number of a covariance that is fitted to them."""
GOOD = 0.5
"""Effective share of the draws at which refitting stops."""
LARGEST_K = 0.5
"""Shape of the tail of the weights from which on they have no variance, so that no standard error can be stated: with
its own standard error it must be below."""
HEAVY_MEAN = 0.7
"""Such a shape of a quantity and its weights, from which on the mean of the quantity is not to be relied on."""
LIGHT_SHARE = 0.01
"""Of a sum, up to which its largest part says that no tail is heavy."""
LEAST_EFFECTIVE = 400.0
MOST_NUMBERS = 100
"""Continuous numbers of importance sampling at most: a Hessian by differences takes twice their square in points."""


class Draws(NamedTuple):
    """Weighted draws.

    Args:
        points: as drawn, but for those of negligible weight.
        log_weights: their exponentials add up to one.
        log_density: of what is integrated, at the points.
        log_evidence: log of the integral.
        error: standard error of `log_evidence`.
        pareto_k: shape of the tail of the weights.
        effective: how many independent draws they are worth.
    """

    points: Float[np.ndarray, "N D"]
    log_weights: Float[np.ndarray, " N"]
    log_density: Float[np.ndarray, " N"]
    log_evidence: float
    error: float
    pareto_k: float
    effective: float


class _Proposal(NamedTuple):
    """A mixture of Student t distributions; the last `cauchy` parts are products of Cauchy distributions."""

    shares: Float[np.ndarray, " M"]
    centres: Float[np.ndarray, "M D"]
    roots: Float[np.ndarray, "M D D"]
    cauchy: int = 0

    @classmethod
    def at(cls, modes: list[Mode]) -> "_Proposal":
        used_modes = modes[:MOST_PARTS]
        masses = np.array([mode.log_mass for mode in used_modes])
        # A light mode is drawn from too: Laplace's method may have its mass wrong.
        shares = 0.9 * np.exp(masses - logsumexp(masses)) + 0.1 / len(used_modes)
        return cls(shares, np.stack([mode.point for mode in used_modes]), np.stack([mode.root for mode in used_modes]))

    def with_broad(self) -> "_Proposal":
        # A defensive mixture [OWEN13]: the fitted parts, the same ones wider, and Cauchy products for heavy tails. A
        # weight is large only where all three fall faster than the density.
        kinds = 1.0 - BROAD_SHARE - CAUCHY_SHARE, BROAD_SHARE, CAUCHY_SHARE
        shares = np.concatenate([kind * self.shares for kind in kinds])
        roots = np.concatenate([self.roots, BROAD * self.roots, self.roots])
        return _Proposal(shares, np.tile(self.centres, (3, 1)), roots, len(self.shares))

    def draw(self, rng: np.random.Generator, num: int) -> Float[np.ndarray, "num D"]:
        # Each part as often as its share says, but for rounding: less noise than by chance.
        edges = np.round(np.cumsum(self.shares) / self.shares.sum() * num).astype(int)
        part = np.searchsorted(edges, np.arange(num), side="right")
        normal = rng.standard_normal((num, self.centres.shape[1]))
        # A Student t draw is a normal one over the root of an independent chi-square by its degrees.
        spread = np.sqrt(DEGREES / rng.chisquare(DEGREES, num))
        deviation, alone = normal * spread[:, None], part >= len(self.shares) - self.cauchy
        deviation[alone] = rng.standard_cauchy((int(alone.sum()), deviation.shape[1]))
        return self.centres[part] + np.einsum("nij,nj->ni", self.roots[part], deviation)

    def log_parts(self, points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N M"]:
        """Log of share times density of every part."""
        size = points.shape[1]
        constant = gammaln((DEGREES + size) / 2) - gammaln(DEGREES / 2) - 0.5 * size * np.log(DEGREES * np.pi)
        logs = []
        for m, (share, centre, root) in enumerate(zip(self.shares, self.centres, self.roots, strict=True)):
            square = np.linalg.solve(root, (points - centre).T) ** 2
            height = np.log(share) - np.log(np.diag(root)).sum()
            if m < len(self.shares) - self.cauchy:
                fall = constant - 0.5 * (DEGREES + size) * np.log1p(square.sum(0) / DEGREES)
            else:
                fall = -np.log(np.pi * (1.0 + square)).sum(0)
            logs.append(height + fall)
        return np.stack(logs, -1)

    def refitted(self, points: Float[np.ndarray, "N D"], weights: Float[np.ndarray, " N"]) -> "_Proposal":
        """Every part at the weighted mean and covariance of the draws that are likely its own."""
        logs = self.log_parts(points)
        # The E step of a mixture: how far each weighted draw belongs to each part.
        share = np.exp(logs - logsumexp(logs, axis=1, keepdims=True)) * weights[:, None]
        # The M step, part by part; a part that holds nothing goes.
        total = share.sum(0)
        parts = np.flatnonzero(total > 1e-3)
        size, centres, roots = points.shape[1], [], []
        for part in parts:
            part_weights = share[:, part] / total[part]
            centre = part_weights @ points
            deviation = points - centre
            covariance = WIDER * (part_weights[:, None] * deviation).T @ deviation
            # Few draws leave a covariance short of rank: some of the one before keeps it whole.
            trust = size / max(1.0 / (part_weights**2).sum(), 1.0)
            before = self.roots[part] @ self.roots[part].T
            covariance = (covariance + min(trust, 1.0) * before) / (1.0 + min(trust, 1.0))
            centres.append(centre)
            try:
                roots.append(np.linalg.cholesky(covariance + 1e-12 * np.diag(np.diag(before))))
            except np.linalg.LinAlgError as error:  # a funnel: widths that differ by more than rounding allows
                raise NotIntegrableError("its draws have no covariance to rounding") from error
        return _Proposal(total[parts] / total[parts].sum(), np.stack(centres), np.stack(roots))


def integrate_by_draws(rng: np.random.Generator, log_density: LogDensity, modes: list[Mode]) -> Draws:
    """The integral of exp(`log_density`) by weighted draws.

    Args:
        rng: of the draws.
        log_density: of points.
        modes: the heaviest first; the first draws are made about these.

    Raises:
        NotIntegrableError: the weights are not to be relied on, or too few draws carry them.
    """
    proposal, size = _adapt(rng, log_density, _Proposal.at(modes)), modes[0].point.size
    number, points, logs, heights = DRAWS, np.zeros((0, size)), np.zeros(0), np.zeros(0)
    while True:
        # More of the same draws, until they are worth what was asked for.
        new_draws = _draw_and_weigh(rng, log_density, proposal, number - len(points))
        pairs = zip((points, logs, heights), new_draws, strict=True)
        points, logs, heights = (np.concatenate([before, new]) for before, new in pairs)
        smoothed, k = smooth_tail(logs)
        worth = effective_size(smoothed)
        # Several sizes are tried: a heavy tail may look light in one of them by chance.
        error = shape_error(k, len(logs))
        light = k + error < LARGEST_K
        if light and worth >= LEAST_EFFECTIVE:
            break
        if 2 * number > MOST_DRAWS:
            why = f"the tail of the weights is too heavy (Pareto k = {k:.2f} +- {error:.2f})"
            too_few = f"{number} draws are worth {worth:.0f} independent ones, of {LEAST_EFFECTIVE:.0f}"
            raise NotIntegrableError(too_few if light else why)
        if not light:
            # A tail that the proposal lacks: it is refitted to what has been seen of it, and draws start anew.
            proposal = proposal.refitted(points, _temper(smoothed, PER_NUMBER * size))
            points, logs, heights = np.zeros((0, size)), np.zeros(0), np.zeros(0)
        # Twice the number in each round: the cost of all rounds together is twice that of the last.
        number *= 2
    return _join(points, logs, heights, smoothed, k)


def rate(points: Float[np.ndarray, "N D"], logs: Float[np.ndarray, " N"], heights: Float[np.ndarray, " N"]) -> Draws:
    """Draws with the logs of their weights, if these are to be relied on.

    Args:
        points: as drawn.
        logs: log density of what is integrated less that of the draws.
        heights: log density of what is integrated.

    Raises:
        NotIntegrableError: they are not; says why.
    """
    logs = np.where(np.isnan(logs), -np.inf, logs)
    if not np.isfinite(logs.max()):
        raise NotIntegrableError("its density is zero or infinite at every draw")
    smoothed, k = smooth_tail(logs)
    worth, error = effective_size(smoothed), shape_error(k, len(logs))
    if not k + error < LARGEST_K:
        raise NotIntegrableError(f"the tail of the weights is too heavy (Pareto k = {k:.2f} +- {error:.2f})")
    if worth < LEAST_EFFECTIVE:
        raise NotIntegrableError(f"{len(logs)} draws are worth {worth:.0f} independent ones, of {LEAST_EFFECTIVE:.0f}")
    return _join(points, logs, heights, smoothed, k)


def _join(
    points: Float[np.ndarray, "N D"],
    logs: Float[np.ndarray, " N"],
    heights: Float[np.ndarray, " N"],
    smoothed: Float[np.ndarray, " N"],
    k: float,
) -> Draws:
    # The evidence is the mean of the weights as drawn; the smoothed ones, which are biased, serve for the means alone.
    evidence, error = float(np.logaddexp.reduce(logs) - np.log(len(logs))), standard_error(logs)
    # Draws far out, where parameters overflow, have no weight.
    has_weight, log_weights = without_light(smoothed)
    return Draws(points[has_weight], log_weights, heights[has_weight], evidence, error, k, effective_size(smoothed))


def draw_roughly(
    rng: np.random.Generator, log_density: LogDensity, modes: list[Mode], num: int
) -> Float[np.ndarray, "num D"]:
    """Points all over a density: draws about its modes, by weights that are flattened where few would carry them.

    Args:
        rng: of the draws.
        log_density: of points.
        modes: the heaviest first.
        num: how many.

    Raises:
        NotIntegrableError: the density is zero or infinite at every draw.
    """
    points, logs, _ = _draw_and_weigh(rng, log_density, _Proposal.at(modes), 4 * num)
    return points[rng.choice(len(points), num, p=_temper(logs, 0.25 * num))]


def _adapt(rng: np.random.Generator, log_density: LogDensity, proposal: _Proposal) -> _Proposal:
    """The proposal refitted to its own draws, again and again while that helps."""
    best, best_share, best_round = proposal, -1.0, 0
    size = proposal.centres.shape[1]
    number = max(FIRST_DRAWS, int(PER_NUMBER * size))
    for turn in range(ROUNDS):
        points, logs, _ = _draw_and_weigh(rng, log_density, proposal, number)
        smoothed, k = smooth_tail(logs)
        share = effective_size(smoothed) / number
        if k < LARGEST_K and share > GOOD:
            return proposal
        # A heavy tail makes a share look better than it is.
        if share / (1.0 + max(k, 0.0)) > best_share:
            best, best_share, best_round = proposal, share / (1.0 + max(k, 0.0)), turn
        if turn - best_round >= PATIENCE:
            break
        proposal = proposal.refitted(points, _temper(smoothed, min(PER_NUMBER * size, 0.25 * number)))
    return best


def _draw_and_weigh(
    rng: np.random.Generator, log_density: LogDensity, proposal: _Proposal, num: int
) -> tuple[Float[np.ndarray, "num D"], Float[np.ndarray, " num"], Float[np.ndarray, " num"]]:
    """Draws, the logs of their weights, and their log densities."""
    broad = proposal.with_broad()
    points = broad.draw(rng, num)
    with np.errstate(all="ignore"):
        heights = log_density(points)
        # All parts of the mixture make up the denominator (balance heuristic), not the one that a draw came from.
        logs = heights - logsumexp(broad.log_parts(points), axis=1)
    logs = np.where(np.isnan(logs), -np.inf, logs)
    if not np.isfinite(logs.max()):
        raise NotIntegrableError("its density is zero or infinite at every draw")
    return points, logs, heights


def standard_error(logs: Float[np.ndarray, " N"]) -> float:
    """Of the log of the mean of weights, given their logs."""
    weights = np.exp(logs - logs.max())
    return float(weights.std() / weights.mean() / np.sqrt(len(weights)))


def effective_size(logs: Float[np.ndarray, " N"]) -> float:
    """How many independent draws weighted ones are worth, given the logs of their weights."""
    weights = np.exp(logs - logs.max())
    return float(weights.sum() ** 2 / (weights**2).sum())


def tail_shapes(log_weights: Float[np.ndarray, " N"], values: Float[np.ndarray, "N F"]) -> Float[np.ndarray, " F"]:
    """Shape k of the tail of weight times distance from the median, of each column of values [PSIS24].

    From .7 on the weighted mean of a column rests on a few draws, from 1 on it does not exist. Minus infinity: no draw
    holds a hundredth of the sum, so that k is not looked at.

    Args:
        log_weights: of the draws.
        values: whose means are asked for.
    """
    shapes = np.full(values.shape[1], -np.inf)
    with np.errstate(all="ignore"):
        logs = log_weights[:, None] + np.log(np.abs(values - np.median(values, axis=0)))
        share = np.exp(logs.max(0) - logsumexp(logs, axis=0))
    for column in np.flatnonzero(share > LIGHT_SHARE):
        shapes[column] = smooth_tail(logs[:, column])[1]
    return shapes


def _temper(logs: Float[np.ndarray, " N"], least: float) -> Float[np.ndarray, " N"]:
    """Weights to the largest power, at most one, at which they are worth `least` draws; they add up to one."""
    power = 1.0
    while effective_size(power * logs) < least and power > 1e-3:
        power *= 0.8
    weights = np.exp(power * (logs - logs.max()))
    return weights / weights.sum()


def _tail_size(number: int) -> int:
    return int(np.ceil(min(0.2 * number, 3.0 * np.sqrt(number))))


def shape_error(k: float, number: int) -> float:
    """Standard error of the shape of a tail, by maximum likelihood for many draws.

    Args:
        k: the shape.
        number: of draws.
    """
    return (1.0 + max(k, 0.0)) / np.sqrt(_tail_size(number))


def smooth_tail(logs: Float[np.ndarray, " N"]) -> tuple[Float[np.ndarray, " N"], float]:
    """The log weights with their largest replaced by quantiles of a Pareto fit, and the shape k of that fit.

    Args:
        logs: of the weights, up to a constant.
    """
    number = len(logs)
    tail = _tail_size(number)
    order = np.argsort(logs)
    largest, cutoff = order[-tail:], logs[order[-tail - 1]]
    shifted = logs - logs[order[-1]]
    threshold = np.exp(cutoff - logs[order[-1]])
    excess = np.exp(shifted[largest]) - threshold
    if not excess[-1] > 0 or np.isneginf(cutoff):  # all alike, or hardly any draw is possible
        return logs, np.inf if np.isneginf(cutoff) else -np.inf
    k, sigma = _fit_pareto(np.maximum(excess, 1e-300))
    quantiles = (np.arange(tail) + 0.5) / tail
    with np.errstate(over="ignore"):  # of a heavy tail: what is infinite is cut off below
        fitted = sigma * (np.expm1(-k * np.log1p(-quantiles)) / k if abs(k) > 1e-12 else -np.log1p(-quantiles))
    smoothed = logs.copy()
    # No weight becomes larger than the largest was.
    smoothed[largest] = np.minimum(np.log(fitted + threshold), 0.0) + logs[order[-1]]
    return smoothed, float(k)


def _fit_pareto(excess: Float[np.ndarray, " M"]) -> tuple[float, float]:
    """Shape k and scale of a generalised Pareto distribution of sorted numbers (Zhang and Stephens 2009)."""
    number, quartile = len(excess), excess[int(len(excess) / 4 + 0.5) - 1]
    grid = 30 + int(np.sqrt(number))
    theta = 1.0 / excess[-1] + (1.0 - np.sqrt(grid / (np.arange(grid) + 0.5))) / (3.0 * quartile)
    k = np.log1p(-theta[:, None] * excess).mean(-1)
    profile = number * (np.log(-theta / k) - k - 1.0)
    weights = np.exp(profile - logsumexp(profile))
    chosen = weights @ theta
    shape = float(np.log1p(-chosen * excess).mean())
    # A weakly informed prior about 1/2, worth ten draws, as in the paper.
    return (shape * number + 5.0) / (number + 10.0), -shape / chosen


class Integration(eqx.Module):
    """How hyperparameters, or what is behind the rewards, were integrated over, and how well.

    Args:
        log_evidence: of all data.
        error: "quadrature": its change by the last halving of the grid's spacing; "importance": its standard error.
            nan: the weights have changed since.
        effective: number of independent draws that the weights are worth; of a grid the number of its nodes.
        pareto_k: shape of the tail of the weights, below .5; of a grid minus infinity.
        numbers: continuous numbers that were integrated over.
    """

    log_evidence: Float[AnyArray, ""]
    error: Float[AnyArray, ""]
    effective: Float[AnyArray, ""]
    pareto_k: Float[AnyArray, ""]
    numbers: int = eqx.field(static=True)

    def after(self, before: Float[AnyArray, " K"], after: Float[AnyArray, " K"]) -> "Integration":
        """The integral after new data, by the weights that it has: its error is no longer known. Traceable.

        Args:
            before, after: the log weights, without any shift between them.
        """
        gain = jax.nn.logsumexp(jnp.asarray(after)) - jax.nn.logsumexp(jnp.asarray(before))
        unknown = jnp.full_like(jnp.asarray(self.error), jnp.nan)
        return replace(self, log_evidence=jnp.asarray(self.log_evidence) + gain, error=unknown)


def integration_of(log_evidence: float, error: float, effective: float, pareto_k: float, numbers: int) -> Integration:
    """The record of an integral; the arguments are its fields."""
    evidence, deviation, worth, k = (np.asarray(x, np.float64) for x in (log_evidence, error, effective, pareto_k))
    return Integration(evidence, deviation, worth, k, numbers)
