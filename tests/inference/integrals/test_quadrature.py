"""Modes by finite differences, where they are and how wide; the trapezoid rule against SciPy and closed forms.

What the rule cannot state it refuses.
"""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gamma, gammaln, logsumexp

from bayes_mdp.inference.integrals.quadrature import Grid, NotIntegrableError, find_modes, integrate_by_grid, search
from tests.inference.integrals import densities
from tests.inference.integrals.densities import banana, heavy, kinked, looked_for, two_far, two_widths

# scipy types a frozen law as any: discrete, continuous.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false


def random_covariance(seed: int, size: int) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((size, size))
    return root @ root.T + 0.1 * np.eye(size)


@pytest.mark.parametrize("size", [1, 2, 20])
def test_a_quadratic_has_the_mode_and_covariance_of_its_normal(size):
    centre, covariance = np.arange(1.0, size + 1.0), random_covariance(0, size)
    density = stats.multivariate_normal(centre, covariance).logpdf
    starts = np.array([[0.0], [1.0]]) * np.ones(size)
    (mode,) = find_modes(lambda x: np.reshape(density(x), len(x)), starts, np.sqrt(np.diag(covariance)))
    np.testing.assert_allclose(mode.point, centre, atol=1e-3)
    np.testing.assert_allclose(mode.root @ mode.root.T, covariance, rtol=1e-4, atol=1e-4)
    # The normal that touches it is itself: its mass is one.
    assert mode.log_mass + 0.5 * size * np.log(2.0 * np.pi) == pytest.approx(0.0, abs=1e-4)
    expected = np.linalg.solve(np.linalg.cholesky(covariance), np.ones(size))
    np.testing.assert_allclose(mode.standardise(centre[None] + 1.0)[0], expected, atol=1e-2)


def test_a_kinked_density_has_a_width():
    (mode,) = looked_for(kinked, 2).modes
    np.testing.assert_allclose(mode.point, [1.0, -2.0], atol=0.05)
    # A Laplace density falls by a half over half its scale; its standard deviation is 1.4 of it.
    widths = np.sqrt(np.diag(mode.root @ mode.root.T))
    assert (widths > 0.3 * np.array([0.5, 3.0])).all() and (widths < 1.5 * np.array([0.5, 3.0])).all()


@pytest.mark.parametrize(
    ("density", "size", "places"),
    [
        (two_widths, 1, [[0.0], [6.0]]),
        (two_far, 2, [[-3.0, 0.0], [3.0, 2.0]]),
        (heavy, 1, [[0.0]]),
        (banana, 2, [[0.0, 0.0]]),
    ],
)
def test_all_modes_are_found(density, size, places):
    modes = looked_for(density, size).modes
    for place in places:
        assert min(np.abs(mode.point - place).max() for mode in modes) < 0.01
    masses = [mode.log_mass for mode in modes]
    assert masses == sorted(masses, reverse=True)


def test_points_are_no_starts_where_there_is_no_density():
    density = stats.expon.logpdf
    searched = search(lambda x: density(x).sum(-1), np.linspace(-5.0, 5.0, 64)[:, None])
    assert searched is not None and searched.modes[0].point[0] < 0.1
    assert search(lambda x: np.full(len(x), -np.inf), np.zeros((4, 1))) is None


def test_without_numbers_the_height_is_the_mass():
    searched = search(lambda x: np.full(len(x), -2.5), np.zeros((3, 0)))
    assert searched is not None and searched.log_mass == -2.5


# scipy types a frozen law as any: discrete, continuous.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false


def squashed(points: np.ndarray) -> np.ndarray:
    """Numbers whose means are to converge."""
    return np.concatenate([np.tanh(points / 4.0), 1.0 / (16.0 + points**2)], axis=1)


def grid_of(density, size, spread=4.0) -> Grid:
    searched = looked_for(density, size, spread)
    return integrate_by_grid(density, searched.modes, searched.cover, squashed)


def by_panels(density, breaks) -> np.ndarray:
    """The integral, and the means, by Gauss-Legendre quadrature of many panels between breaks."""
    edges = np.concatenate([np.linspace(a, b, 41)[:-1] for a, b in itertools.pairwise(breaks)] + [breaks[-1:]])

    def between(weigh) -> float:
        def value(x: np.ndarray) -> np.ndarray:
            return np.exp(density(x[:, None])) * weigh(x[:, None])

        return sum(integrate.fixed_quad(value, a, b, n=20)[0] for a, b in itertools.pairwise(edges))

    total = between(lambda x: 1.0)
    parts = [between(lambda x, i=i: squashed(x)[:, i]) for i in range(2)]
    return np.array([total, *[part / total for part in parts]])


ONE = {
    "normal": (densities.normal, (-1.0, 2.0, 3.0, 4.0, 7.0)),
    "skew": (densities.skew, (-12.0, -1.0, 1.0, 12.0)),
    "heavy": (densities.heavy, (-3e5, -3e3, -100.0, 0.0, 100.0, 3e3, 3e5)),
    "two widths": (densities.two_widths, (-12.0, 0.0, 5.5, 6.0, 6.5, 12.0)),
    "flat-topped": (densities.flat_topped, (-3.0, 0.0, 3.0)),
    "exponential tails": (densities.exponential_tails, (-60.0, -10.0, 0.0, 6.0)),
    "logistic": (densities.logistic, (-60.0, 1.0, 60.0)),
}


@pytest.mark.parametrize("name", ONE)
def test_one_number_against_scipy(name):
    density, breaks = ONE[name]
    grid, expected = grid_of(density, 1), by_panels(density, breaks)
    assert grid.log_evidence == pytest.approx(np.log(expected[0]), abs=1e-7)
    np.testing.assert_allclose(np.exp(grid.log_weights) @ squashed(grid.points), expected[1:], atol=1e-7)
    assert logsumexp(grid.log_weights) == pytest.approx(0.0, abs=1e-12) and grid.error <= 1e-7
    assert len(grid.points) < 1000


def test_one_number_against_closed_forms():
    assert grid_of(densities.flat_topped, 1).log_evidence == pytest.approx(np.log(2.0 * gamma(9 / 8)), abs=1e-7)
    for density in (densities.normal, densities.skew, densities.heavy, densities.two_widths, densities.logistic):
        assert grid_of(density, 1).log_evidence == pytest.approx(0.0, abs=1e-7)
    shape = 0.01  # log of a gamma number: a tail over hundreds of units
    grid = grid_of(lambda x: shape * x[:, 0] - np.exp(x[:, 0]), 1)
    assert grid.log_evidence == pytest.approx(gammaln(shape), abs=1e-7)


TWO = {
    "correlated": (densities.correlated, 0.0),
    "banana": (densities.banana, 0.0),
    "heavy": (densities.heavy_in_two, 0.0),
    "two modes": (densities.two_far, 0.0),
}


@pytest.mark.parametrize("name", TWO)
def test_two_numbers_integrate_to_one(name):
    density, right = TWO[name]
    assert grid_of(density, 2).log_evidence == pytest.approx(right, abs=1e-7)


def test_two_numbers_have_the_means_that_are_known():
    searched = looked_for(densities.heavy_in_two, 2)
    grid = integrate_by_grid(densities.heavy_in_two, searched.modes, searched.cover, lambda x: x[:, 1:])
    mean = 4.0 / np.sqrt(17.0) * np.sqrt(2.0 / np.pi)  # the mean of a skew normal of slant 4
    assert np.exp(grid.log_weights) @ grid.points[:, 1] == pytest.approx(mean, abs=1e-7)


def ridge(points: np.ndarray) -> np.ndarray:
    """A curve a thousandth wide."""
    return -0.5 * (points[:, 0] / 3.0) ** 2 - 0.5 * ((points[:, 1] - np.sin(3.0 * points[:, 0])) / 1e-3) ** 2


@pytest.mark.parametrize(
    ("density", "size", "why"),
    [
        (lambda x: np.zeros(len(x)), 1, "does not vanish"),
        (lambda x: -0.5 * np.log1p(x[:, 0] ** 2), 1, "does not vanish"),
        (lambda x: -0.5 * x[:, 0] ** 2 + 0.0 * x[:, 1], 2, "does not vanish|nodes"),
        (ridge, 2, "nodes"),
        (lambda x: np.where(x[:, 0] > 1.0, np.inf, -(x[:, 0] ** 2)), 1, "infinite"),
    ],
)
def test_what_cannot_be_stated_is_refused(density, size, why):
    modes = search(density, np.linspace(-3.0, 0.5, 64)[:, None] * np.ones(size)).modes  # pyright: ignore
    with pytest.raises(NotIntegrableError, match=why):
        integrate_by_grid(density, modes, np.zeros((0, size)), squashed)


def drawn(density, num: int, size: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Points between the nodes, and their weights."""
    grid = grid_of(density, size)
    points, log_offset, _ = grid.propose(np.random.default_rng(0), num)
    log_weights = density(points) + log_offset
    return points, np.exp(log_weights - logsumexp(log_weights))


def distance(points: np.ndarray, weights: np.ndarray, cdf) -> float:
    """Kolmogorov's, of weighted draws, times the root of how many they are worth."""
    order = np.argsort(points)
    seen, expected = np.cumsum(weights[order]), cdf(points[order])
    return float(np.abs(seen - expected).max() / np.sqrt((weights**2).sum()))


LAWS = {
    "skew": (densities.skew, stats.skewnorm(4.0).cdf),
    "heavy": (densities.heavy, stats.t(3.0).cdf),
    "two widths": (densities.two_widths, lambda x: 0.7 * stats.norm.cdf(x) + 0.3 * stats.norm.cdf(x, 6.0, 0.05)),
}
KOLMOGOROV = 2.7
"""Exceeded by independent draws with probability 2 exp(-2 2.7^2) < 1e-6."""


@pytest.mark.parametrize("name", LAWS)
def test_draws_between_the_nodes_follow_the_density(name):
    density, cdf = LAWS[name]
    points, weights = drawn(density, 20_000)
    assert len(np.unique(points)) == 20_000
    assert 1.0 / (weights**2).sum() > 10_000
    assert distance(points[:, 0], weights, cdf) < KOLMOGOROV


def test_the_check_of_draws_catches_what_is_wrong():
    """The same distance where the weights of the nodes are forgotten, and with one mode of two."""
    nodes = grid_of(densities.two_widths, 1).points[:, 0]
    assert distance(nodes, np.full(len(nodes), 1.0 / len(nodes)), LAWS["two widths"][1]) > KOLMOGOROV
    density, cdf = LAWS["two widths"]
    points, weights = drawn(density, 20_000)
    alone = points[:, 0] < 3.0
    assert distance(points[alone, 0], weights[alone] / weights[alone].sum(), cdf) > KOLMOGOROV


@pytest.mark.parametrize("fault", ["jacobian", "one mode"])
def test_the_check_of_integrals_catches_what_is_wrong(fault):
    """A density of a positive number without the Jacobian of its logarithm; a grid about one mode of two."""
    if fault == "jacobian":
        grid = grid_of(lambda x: stats.gamma(3.0).logpdf(np.exp(x[:, 0])), 1)
    else:
        searched = looked_for(densities.two_widths, 1)
        wide = next(mode for mode in searched.modes if abs(mode.point[0]) < 1.0)
        grid = integrate_by_grid(lambda x: stats.norm.logpdf(x[:, 0]) + np.log(0.7), [wide], np.zeros((0, 1)), squashed)
    assert abs(grid.log_evidence) > 1e-3


def test_a_mean_may_reach_further_than_the_density():
    """E exp(6 z) of a standard normal is e^18: its integrand has its peak at 6, where the density is 6e-9."""

    def steep(points: np.ndarray) -> np.ndarray:
        return np.exp(30.0 * (points - 3.0))

    searched = looked_for(densities.normal, 1, 4.0)
    grid = integrate_by_grid(densities.normal, searched.modes, searched.cover, steep)
    assert np.exp(grid.log_weights) @ steep(grid.points[:, 0]) == pytest.approx(np.exp(18.0), rel=1e-6)


def test_a_mean_that_does_not_exist_is_refused():
    searched = looked_for(densities.exponential_tails, 1, 4.0)
    with pytest.raises(NotIntegrableError, match=r"a mean, does not vanish|more than 8192 nodes"):
        integrate_by_grid(
            densities.exponential_tails, searched.modes, searched.cover, lambda points: np.exp(-2.0 * points)
        )
