"""Numbers of calibration from truths, draws and ranks over many simulations. NumPy in float64, host-side.

In what follows a posterior is calibrated where the truth and its draws are exchangeable given the data. N simulations,
L draws of each posterior, K quantities.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize
from scipy.special import logsumexp

CONSTANT = 1e-5  # spread over size below which a quantity is the same number in every world, but for rounding
LEVELS = np.linspace(0.05, 0.95, 19)
NUM_BINS = 10


class Moments(NamedTuple):
    """Of each posterior and quantity. Means 0 and standard deviations 1 of `z_score` are those of a calibrated one."""

    mean: Float[np.ndarray, "N K"]
    sd: Float[np.ndarray, "N K"]
    z_score: Float[np.ndarray, "N K"]
    contraction: Float[np.ndarray, "N K"]


class Brier(NamedTuple):
    """How forecasts of events did (smaller is better), and how they do where they are calibrated.

    Args:
        score: mean of (forecast - event)^2.
        expected: its mean under calibration, given the draws.
        z: their difference in standard deviations under calibration; positive where forecasts are too sure.
        p_value: two-sided, by Chernoff's bound: at least the exact one.
    """

    score: float
    expected: float
    z: float
    p_value: float


class Reliability(NamedTuple):
    """Per bin of forecasts: the mean forecast, how often the event came true, the standard error of their difference.

    NaN where a bin is empty.
    """

    forecast: Float[np.ndarray, " bin"]
    frequency: Float[np.ndarray, " bin"]
    error: Float[np.ndarray, " bin"]
    count: Int[np.ndarray, " bin"]


def varying(truth: Float[np.ndarray, "N K"]) -> Bool[np.ndarray, " K"]:
    """Which quantities differ between truths by more than rounding; one that is not finite somewhere does."""
    finite = np.isfinite(truth)
    known = np.where(finite, truth, 0.0)
    return (known.std(0) > CONSTANT * np.abs(known).max(0)) | ~finite.all(0)


def coverage(rank: Int[np.ndarray, "N K"], num_draws: int) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, "K P"]]:
    """Nominal levels, and the share of simulations whose truth lies in the central interval of that level.

    The interval runs from the j-th smallest draw to the j-th largest, and holds the truth with probability exactly
    1 - 2 j / (L + 1) under calibration: these are the levels, those nearest to .05, .1, ..., .95.

    Args:
        rank: number of draws below the truth, ties broken at random.
    """
    cut = np.unique(np.clip(np.round((1 - LEVELS) * (num_draws + 1) / 2), 1, num_draws // 2).astype(int))[::-1]
    inside = (rank[..., None] >= cut) & (rank[..., None] <= num_draws - cut)
    return 1 - 2 * cut / (num_draws + 1), inside.mean(0)


def posterior_moments(truth: Float[np.ndarray, "N K"], draws: Float[np.ndarray, "N L K"]) -> Moments:
    """Moments of the draws; the prior variance of the contraction is that of the truths over simulations.

    NaN where the prior variance (contraction) or the posterior variance (z-score) is zero.
    """
    mean, variance = draws.mean(1), draws.var(1, ddof=1)
    prior = truth.var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        contraction = np.where(prior > 0, 1 - variance / prior, np.nan)
        z = np.where(variance > 0, (truth - mean) / np.sqrt(variance), np.nan)
    return Moments(mean, np.sqrt(variance), z, contraction)


def energy_scores(
    rng: np.random.Generator, truth: Float[np.ndarray, "N K"], draws: Float[np.ndarray, "N L K"]
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"], Int[np.ndarray, "N"]]:
    """Energy score of all quantities together: of the truth, mean of the draws in its place, rank of the truth's.

    The score of one point x against the others is E|x - X| - E|X - X'| / 2 (Gneiting and Raftery 2007), each quantity
    in units of its standard deviation over truths and draws. With the truth among L + 1 exchangeable points its rank is
    uniform on 0..L: a rank histogram by the energy-score pre-rank (Gneiting et al. 2008). It sees dependence between
    the quantities, which their ranks one by one do not.
    """
    everyone = np.concatenate([truth[:, None], draws], axis=1)
    scale = everyone.std((0, 1))
    scores = np.stack([_energy(points / np.where(scale > 0, scale, 1.0)) for points in everyone])
    first, rest = scores[:, :1], scores[:, 1:]
    tied = (rest == first).sum(1)
    return scores[:, 0], rest.mean(1), (rest < first).sum(1) + rng.integers(tied + 1)


def _energy(points: Float[np.ndarray, "M K"]) -> Float[np.ndarray, " M"]:
    """Energy score of each of M points against the M - 1 others."""
    others = len(points) - 1
    centred = points - points.mean(0)
    square = (centred**2).sum(-1)
    # Rounding makes the root of a small difference large: equal points are at distance zero.
    squared = square[:, None] + square - 2 * centred @ centred.T
    distance = np.sqrt(np.where(squared > 1e-12 * square.max(initial=1e-300), squared, 0.0))
    own = distance.sum(1)
    return own / others - (own.sum() - 2 * own) / (2 * others**2)


def brier(happened: Float[np.ndarray, "N L E"], event: Float[np.ndarray, "N E"]) -> Brier:
    """Brier score of E forecasts per simulation, each the share of the L draws in which the event comes true.

    Under calibration the truth is one more draw: which of the L + 1 the truth is, given all of them, is uniform. So
    the score of every draw in its place, forecast by all others, gives the exact distribution of the score, over
    simulations too. Events of one simulation may depend on each other, and forecasts may be near 0 and 1.

    Args:
        happened: 0 or 1, whether the event comes true in each draw (a fraction where optimal actions tie).
        event: the same of the truth.
    """
    everyone = np.concatenate([event[:, None], happened], axis=1)
    others = (everyone.sum(1, keepdims=True) - everyone) / happened.shape[1]
    scores = ((others - everyone) ** 2).mean(-1)
    excess = scores - scores.mean(1, keepdims=True)
    error = np.sqrt(excess.var(1).sum())
    if error == 0:
        return Brier(float(scores[:, 0].mean()), float(scores.mean()), 0.0, 1.0)
    excess /= error
    return Brier(float(scores[:, 0].mean()), float(scores.mean()), float(excess[:, 0].sum()), _chernoff(excess))


def _chernoff(excess: Float[np.ndarray, "N M"]) -> float:
    """Bound on both tails of a sum of N independent numbers, each one of its row, at the sum of the first column."""
    total = excess[:, 0].sum()

    def log_bound(t: float) -> float:
        return float((logsumexp(t * excess, axis=1) - np.log(excess.shape[1])).sum() - t * total)

    # Every t of the right sign gives a bound: the search need not be exact.
    side = (0.0, 100.0) if total > 0 else (-100.0, 0.0)
    least = optimize.minimize_scalar(log_bound, bounds=side, method="bounded").fun  # pyright: ignore[reportAttributeAccessIssue]
    return float(min(1.0, 2 * np.exp(min(0.0, least))))


def reliability(happened: Float[np.ndarray, "N L E"], event: Float[np.ndarray, "N E"]) -> Reliability:
    """Forecasts against frequencies, by bins.

    A forecast is binned by one half of its draws and averaged over the other, in turn: binning by what is averaged
    would move every point away from the diagonal (regression to the mean), calibrated or not.

    Args:
        happened, event: as for `brier`.
    """
    halves = happened[:, 0::2].mean(1), happened[:, 1::2].mean(1)
    by = np.stack([halves[0], halves[1]], axis=1)
    forecast = np.stack([halves[1], halves[0]], axis=1)
    where = np.minimum((by * NUM_BINS).astype(int), NUM_BINS - 1)
    columns = [_bin(where == b, forecast, event[:, None]) for b in range(NUM_BINS)]
    return Reliability(*(np.array(column) for column in zip(*columns, strict=True)))


def _bin(
    inside: np.ndarray, forecast: Float[np.ndarray, "N 2 E"], event: Float[np.ndarray, "N 1 E"]
) -> tuple[float, float, float, int]:
    """Mean forecast, frequency, standard error of their difference (simulations are independent), and how many."""
    count = int(inside.sum())
    if count == 0:
        return np.nan, np.nan, np.nan, 0
    gap = np.where(inside, event - forecast, 0.0).sum((1, 2)) / count
    mean = float(np.where(inside, forecast, 0.0).sum() / count)
    frequency = float(np.where(inside, np.broadcast_to(event, forecast.shape), 0.0).sum() / count)
    return mean, frequency, float(np.sqrt((gap**2).sum())), count // 2
