"""Modes by finite differences: where they are, and how wide."""

# scipy types a frozen law as any: discrete, continuous.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import numpy as np
import pytest
from scipy import stats

from bayes_mdp.inference.integrals.quadrature import find_modes, search
from tests.inference.integrals.densities import banana, heavy, kinked, looked_for, two_far, two_widths


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
