"""The dataset of a check, and its scores, from truths, draws and ranks. NumPy in float64, host-side.

There are N simulations, L draws of each posterior, K quantities. A posterior is calibrated if the truth and its draws
are exchangeable given the data.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from scipy import optimize
from scipy.special import logsumexp

from bayes_mdp.calibration.simulation_based.ecdf import p_value
from bayes_mdp.calibration.simulation_based.quantities import varying

INTERVAL = 0.9  # probability of the intervals in the dataset
Variables = dict[str, tuple]  # name -> (dims, values) or (dims, values, attributes)
LEVELS = np.linspace(0.05, 0.95, 19)
NUM_BINS = 10


class Simulated(NamedTuple):
    """Results of N simulations with L draws of each posterior.

    Args:
        names: of the K quantities.
        truth, draws: their values.
        rank: number of draws below the truth, ties broken at random.
        pairs: names of the E pairs (step, state and action) whose action may be optimal.
        event, happened: whether it is, in the truth and in each draw; fractions where actions tie.
    """

    names: Sequence[str]
    truth: Float[np.ndarray, "N K"]
    draws: Float[np.ndarray, "N L K"]
    rank: Int[np.ndarray, "N K"]
    pairs: Sequence[str]
    event: Float[np.ndarray, "N E"]
    happened: Float[np.ndarray, "N L E"]


def numbers(rng: np.random.Generator, simulated: Simulated) -> xr.Dataset:
    """The dataset of a check: variables and dims as `check` describes them.

    Raises:
        ValueError: a quantity that is not finite, or no quantity that differs between truths.
    """
    varies = _varying_quantities(simulated)
    data = {**_marginal(simulated, varies), **_joint(rng, simulated, varies)}
    if len(simulated.pairs):
        data.update(_optimal(simulated))
    coords = {"simulation": np.arange(len(simulated.truth)), "quantity": list(simulated.names)}
    levels, covered = coverage(simulated.rank, simulated.draws.shape[1])
    data["coverage"] = (("quantity", "level"), covered)
    if len(simulated.pairs):
        coords["pair"] = list(simulated.pairs)
    return xr.Dataset(data, {**coords, "level": levels})


def _varying_quantities(simulated: Simulated) -> np.ndarray:
    """Which quantities differ between truths by more than rounding."""
    for name, truth, draws in zip(simulated.names, simulated.truth.T, np.moveaxis(simulated.draws, -1, 0), strict=True):
        if not (np.isfinite(truth).all() and np.isfinite(draws).all()):
            raise ValueError(f"quantities: {name} is not finite in some draw, expected finite numbers")
    varies = varying(simulated.truth)
    if not varies.any():
        raise ValueError("quantities: none differs between truths, expected at least one that the prior leaves open")
    return varies


def _marginal(simulated: Simulated, varies: np.ndarray) -> Variables:
    num_draws = simulated.draws.shape[1]
    moments = posterior_moments(simulated.truth, simulated.draws)
    low, high = np.quantile(simulated.draws, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2], axis=1)
    each = ("simulation", "quantity")
    ranks = zip(simulated.rank.T, varies, strict=True)
    return {
        "truth": (each, simulated.truth),
        "rank": (each, simulated.rank),
        "posterior_mean": (each, moments.mean),
        "posterior_sd": (each, moments.sd),
        "interval_low": (each, low, {"probability": INTERVAL}),
        "interval_high": (each, high, {"probability": INTERVAL}),
        "z_score": (each, moments.z_score),
        "contraction": (each, moments.contraction),
        "varies": ("quantity", varies),
        "p_value": ("quantity", np.array([p_value(r, num_draws) if v else np.nan for r, v in ranks])),
    }


def _joint(rng: np.random.Generator, simulated: Simulated, varies: np.ndarray) -> Variables:
    """All quantities together, if there are at least two that vary."""
    if varies.sum() < 2:
        return {}
    score, expected, rank = energy_scores(rng, simulated.truth[:, varies], simulated.draws[..., varies])
    return {
        "energy_score": ("simulation", score),
        "energy_score_draws": ("simulation", expected),
        "joint_rank": ("simulation", rank),
        "joint_p_value": ((), p_value(rank, simulated.draws.shape[1])),
    }


def _optimal(simulated: Simulated) -> Variables:
    scored = brier(simulated.happened, simulated.event)
    bins = reliability(simulated.happened, simulated.event)
    each = ("simulation", "pair")
    return {
        "optimal": (each, simulated.event),
        "forecast": (each, simulated.happened.mean(1)),
        **{f"brier_{name}": ((), value) for name, value in scored._asdict().items()},
        **{f"reliability_{name}": ("bin", value) for name, value in bins._asdict().items()},
    }


class Moments(NamedTuple):
    """Of each posterior and quantity. `z_score` has mean 0 and standard deviation 1 if the posterior is calibrated."""

    mean: Float[np.ndarray, "N K"]
    sd: Float[np.ndarray, "N K"]
    z_score: Float[np.ndarray, "N K"]
    contraction: Float[np.ndarray, "N K"]


class Brier(NamedTuple):
    """The Brier score of forecasts (smaller is better), and its distribution under calibration.

    Args:
        score: mean of (forecast - event)^2.
        expected: its mean under calibration, given the draws.
        z: their difference in standard deviations under calibration; positive if forecasts are overconfident.
        p_value: two-sided, by Chernoff's bound: at least the exact p-value.
    """

    score: float
    expected: float
    z: float
    p_value: float


class Reliability(NamedTuple):
    """Per bin of forecasts: mean forecast, frequency of the event, standard error of their difference, number.

    nan where a bin is empty.
    """

    forecast: Float[np.ndarray, " bin"]
    frequency: Float[np.ndarray, " bin"]
    error: Float[np.ndarray, " bin"]
    count: Int[np.ndarray, " bin"]  # pyright: ignore[reportIncompatibleMethodOverride]


def coverage(rank: Int[np.ndarray, "N K"], num_draws: int) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, "K P"]]:
    """Nominal levels, and the share of simulations whose truth lies in the central interval of that level.

    The interval runs from the j-th smallest draw to the j-th largest, and holds the truth with probability exactly
    1 - 2 j / (L + 1) under calibration: these are the levels, those nearest to .05, .1, ..., .95.

    Args:
        rank: number of draws below the truth, ties broken at random.
        num_draws: L.
    """
    cut = np.unique(np.clip(np.round((1 - LEVELS) * (num_draws + 1) / 2), 1, num_draws // 2).astype(int))[::-1]
    inside = (rank[..., None] >= cut) & (rank[..., None] <= num_draws - cut)
    return 1 - 2 * cut / (num_draws + 1), inside.mean(0)


def posterior_moments(truth: Float[np.ndarray, "N K"], draws: Float[np.ndarray, "N L K"]) -> Moments:
    """Moments of the draws; the prior variance of the contraction is that of the truths over simulations.

    nan where the prior variance (contraction) or the posterior variance (z-score) is zero.
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
    uniform on 0..L: a rank histogram by the energy-score pre-rank (Gneiting et al. 2008). It depends
    on the joint distribution of the quantities, which their single ranks do not.
    """
    everyone = np.concatenate([truth[:, None], draws], axis=1)
    scale = everyone.std((0, 1))
    scores = np.stack([_energy(points / np.where(scale > 0, scale, 1.0)) for points in everyone])
    first, rest = scores[:, :1], scores[:, 1:]
    # Ties are broken at random.
    tied = (rest == first).sum(1)
    return scores[:, 0], rest.mean(1), (rest < first).sum(1) + rng.integers(tied + 1)


def _energy(points: Float[np.ndarray, "M K"]) -> Float[np.ndarray, " M"]:
    """Energy score of each of M points against the M - 1 others."""
    others = len(points) - 1
    # |x - y|^2 = |x|^2 + |y|^2 - 2 x.y by one matrix product; centring keeps the cancellation small.
    centred = points - points.mean(0)
    square = (centred**2).sum(-1)
    # Equal points are at distance zero: the root of a rounding error would be large.
    squared = square[:, None] + square - 2 * centred @ centred.T
    distance = np.sqrt(np.where(squared > 1e-12 * square.max(initial=1e-300), squared, 0.0))
    # Of each point x: E|x - X| over the others, minus half of E|X - X'| over pairs of the others.
    own = distance.sum(1)
    return own / others - (own.sum() - 2 * own) / (2 * others**2)


def brier(happened: Float[np.ndarray, "N L E"], event: Float[np.ndarray, "N E"]) -> Brier:
    """Brier score of E forecasts per simulation, each the fraction of the L draws in which the event occurs.

    Under calibration each of the L + 1 points (truth and draws) is equally likely to be the truth. So the scores of all
    points, each forecast by the others, are the exact null distribution of the score of a simulation, and simulations
    are independent. Events of one simulation may depend on each other, and forecasts may be near 0 and 1.

    Args:
        happened: whether the event occurs in each draw, 0 or 1 (a fraction where optimal actions tie).
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
    """Chernoff's bound: two-sided p-value of the sum of the first column of `excess`.

    Under the null hypothesis the sum takes one number of each row, uniformly and independently; its tail probability is
    at most E exp(t (sum - total)), for every t of the right sign.
    """
    total = excess[:, 0].sum()

    def log_bound(t: float) -> float:
        return float((logsumexp(t * excess, axis=1) - np.log(excess.shape[1])).sum() - t * total)

    # Every t gives a valid bound: the minimum need not be exact.
    side = (0.0, 100.0) if total > 0 else (-100.0, 0.0)
    least = optimize.minimize_scalar(log_bound, bounds=side, method="bounded").fun  # pyright: ignore[reportAttributeAccessIssue]
    return float(min(1.0, 2 * np.exp(min(0.0, least))))


def reliability(happened: Float[np.ndarray, "N L E"], event: Float[np.ndarray, "N E"]) -> Reliability:
    """Forecasts against frequencies, by bins.

    A forecast is binned by one half of its draws and averaged over the other half, and vice versa: binning by the
    averaged forecast itself would move every point off the diagonal (regression to the mean), calibrated or not.

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
