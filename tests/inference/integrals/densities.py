"""Log densities with known integrals, written with NumPy and SciPy."""

# scipy types a frozen law as any: discrete, continuous.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

from collections.abc import Callable

import numpy as np
from scipy import stats
from scipy.special import log_ndtr

from bayes_mdp.inference.integrals.quadrature import Search, search

LogDensity = Callable[[np.ndarray], np.ndarray]
CORRELATED = np.array([[4.0, 1.2], [1.2, 0.5]])


def normal(points: np.ndarray) -> np.ndarray:
    return stats.norm(3.0, 0.2).logpdf(points[:, 0])


def skew(points: np.ndarray) -> np.ndarray:
    """Skew normal, of slant 4."""
    x = points[:, 0]
    return np.log(2.0) + stats.norm.logpdf(x) + log_ndtr(4.0 * x)


def heavy(points: np.ndarray) -> np.ndarray:
    """Student's t of three degrees of freedom."""
    return stats.t(3.0).logpdf(points[:, 0])


def two_widths(points: np.ndarray) -> np.ndarray:
    """A wide mode, and a narrow one of .3 of the mass."""
    x = points[:, 0]
    return np.logaddexp(np.log(0.7) + stats.norm(0.0, 1.0).logpdf(x), np.log(0.3) + stats.norm(6.0, 0.05).logpdf(x))


def flat_topped(points: np.ndarray) -> np.ndarray:
    return -(points[:, 0] ** 8)


def exponential_tails(points: np.ndarray) -> np.ndarray:
    """Log of an exponential number: tails exp(u) and exp(-exp(u))."""
    return points[:, 0] - np.exp(points[:, 0])


def logistic(points: np.ndarray) -> np.ndarray:
    return stats.logistic(1.0, 0.5).logpdf(points[:, 0])


def correlated(points: np.ndarray) -> np.ndarray:
    return stats.multivariate_normal([1.0, -2.0], CORRELATED).logpdf(points)


def banana(points: np.ndarray) -> np.ndarray:
    """y bends with x^2: normal in x and in y given x."""
    return stats.norm.logpdf(points[:, 0]) + stats.norm(0.4 * points[:, 0] ** 2, 0.5).logpdf(points[:, 1])


def heavy_in_two(points: np.ndarray) -> np.ndarray:
    return stats.t(3.0).logpdf(points[:, 0]) + skew(points[:, 1:])


def two_far(points: np.ndarray) -> np.ndarray:
    """Two modes of a plane, one of a quarter of the mass."""
    one = stats.multivariate_normal([-3.0, 0.0], [0.5, 1.0]).logpdf(points)
    other = stats.multivariate_normal([3.0, 2.0], [0.3, 0.5]).logpdf(points)
    return np.logaddexp(np.log(0.75) + one, np.log(0.25) + other)


def kinked(points: np.ndarray) -> np.ndarray:
    """Laplace laws, one beside the other."""
    return stats.laplace([1.0, -2.0], [0.5, 3.0]).logpdf(points).sum(-1)


def looked_for(log_density: LogDensity, size: int, spread: float = 4.0, seed: int = 0) -> Search:
    """The modes, from points all over the place."""
    points = spread * np.random.default_rng(seed).standard_normal((256, size))
    searched = search(log_density, points)
    assert searched is not None
    return searched
