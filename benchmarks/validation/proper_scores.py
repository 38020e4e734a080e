"""How well stated uncertainty fits the truth: coverage, ratio of standard deviations, proper scores. Plain numpy.

Gneiting and Raftery (2007), *Strictly proper scoring rules, prediction, and estimation*, JASA 102; Dawid and Sebastiani
(1999), *Coherent dispersion criteria for optimal experimental design*, Annals of Statistics 27.
"""

from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr

SHRINKAGE = 1e-3

Values = Float[np.ndarray, "*n"]


def covered(truth: Values, mean: Values, sd: Values, level: float) -> Bool[np.ndarray, "*n"]:
    """Whether the truth lies in the central interval of a normal distribution."""
    return np.abs(truth - mean) <= NormalDist().inv_cdf(0.5 + level / 2) * sd


def covered_by_draws(truth: Values, draws: Float[np.ndarray, "*n D"], level: float) -> Bool[np.ndarray, "*n"]:
    """Whether the truth lies between the quantiles of draws (of the last axis)."""
    low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2], axis=-1)
    return (low <= truth) & (truth <= high)


def crps_normal(truth: Values, mean: Values, sd: Values) -> Values:
    """Continuous ranked probability score of a normal distribution, in units of the value; the less, the better.

    sd (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)), z = (truth - mean) / sd (Gneiting and Raftery 2007, section 4.2);
    |truth - mean| where sd is zero.
    """
    z = (truth - mean) / np.where(sd > 0, sd, 1.0)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    score = sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    return np.where(sd > 0, score, np.abs(truth - mean))


def crps_draws(truth: Values, draws: Float[np.ndarray, "*n D"]) -> Values:
    """The same of the empirical distribution of draws, E|X - truth| - E|X - X'| / 2, by sorting.

    The second mean is over pairs of different draws: unbiased for the distribution that they are from.
    """
    x, number = np.sort(draws, axis=-1), draws.shape[-1]
    weight = (2 * np.arange(1, number + 1) - number - 1) / (number * (number - 1))
    return np.abs(x - truth[..., None]).mean(-1) - x @ weight


def pair_score(
    truth: Float[np.ndarray, "n S"], mean: Float[np.ndarray, "n S"], covariance: Float[np.ndarray, "n S S"]
) -> Float[np.ndarray, " n"]:
    """Mean over pairs of states of the Dawid-Sebastiani score, in nats; the less, the better.

    (log det C + e' C^-1 e) / 2 with the error e and the covariance C of two values: up to a constant minus the log
    density of a normal distribution, and proper whatever the true one, of which it scores the first two moments.
    Correlations are shrunk by one in a thousand: where two values are all but the same (tied rows), rounding would
    decide otherwise. inf where a variance is zero.
    """
    first, second = np.triu_indices(truth.shape[-1], 1)
    error = truth - mean
    a, b = error[:, first], error[:, second]
    va, vb = covariance[:, first, first], covariance[:, second, second]
    ab = (1 - SHRINKAGE) * covariance[:, first, second]
    det = va * vb - ab**2
    regular = det > 0
    safe = np.where(regular, det, 1.0)
    score = 0.5 * (np.log(safe) + (vb * a**2 - 2 * ab * a * b + va * b**2) / safe)
    return np.where(regular, score, np.inf).mean(-1)


def sd_ratio(variance: Float[np.ndarray, "n k"], error: Float[np.ndarray, "n k"]) -> tuple[float, float]:
    """Claimed over true standard deviation, root of mean variance over root of mean squared error, and its error.

    Args:
        variance: stated, of k values in n problems.
        error: truth minus stated mean.

    Returns:
        The ratio, and its standard error over problems (by linearisation; the values of one problem depend on each
        other).
    """
    claimed, true = variance.mean(1), (error**2).mean(1)
    ratio = float(np.sqrt(claimed.mean() / true.mean()))
    linear = 0.5 * (claimed / claimed.mean() - true / true.mean())
    return ratio, float(ratio * linear.std(ddof=1) / np.sqrt(len(linear)))
