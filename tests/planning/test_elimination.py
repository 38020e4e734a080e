"""Elimination against LAPACK, with and without exchanges of rows."""

import jax
import numpy as np
import pytest

from bayes_mdp.planning.linear_systems import eliminate


@pytest.mark.parametrize("size", [1, 2, 17, 50, 64])
def test_dominant_systems(x64, size):
    rng = np.random.default_rng(size)
    matrix = np.eye(size) - 0.99 * rng.dirichlet(np.ones(size), size=size)
    rhs = rng.normal(size=size)
    np.testing.assert_allclose(jax.jit(eliminate)(matrix, rhs), np.linalg.solve(matrix, rhs), rtol=1e-10)


def test_a_zero_on_the_diagonal_needs_exchanges(x64):
    matrix = np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 0.0], [3.0, 1.0, 0.0]])
    rhs = np.array([1.0, 2.0, 3.0])
    answer = jax.jit(lambda m, r: eliminate(m, r, pivot=True))(matrix, rhs)
    np.testing.assert_allclose(answer, np.linalg.solve(matrix, rhs), rtol=1e-12)
    assert not np.isfinite(jax.jit(eliminate)(matrix, rhs)).all()


def test_pivots_by_blocks(x64):
    """A permuted matrix, so that no pivot is where it would be without exchanges; several right sides."""
    rng = np.random.default_rng(0)
    matrix = np.roll(np.eye(50), 20, axis=0) * 3 + 0.1 * rng.normal(size=(50, 50))
    rhs = rng.normal(size=(50, 3))
    answer = jax.jit(lambda m, r: eliminate(m, r, pivot=True))(matrix, rhs)
    np.testing.assert_allclose(answer, np.linalg.solve(matrix, rhs), rtol=1e-10, atol=1e-13)
    singular = jax.jit(lambda m, r: eliminate(m, r, pivot=True))(np.zeros((50, 50)), rhs)
    assert not np.isfinite(singular).any()


def test_two_batched_systems_in_one_program_come_back():
    """What hangs with batched LAPACK calls on two cores (jaxlib 0.10)."""
    rng = np.random.default_rng(0)
    matrices = (np.eye(30) - 0.9 * rng.dirichlet(np.ones(30), size=(50, 30))).astype(np.float32)
    rhs = np.ones((50, 30), np.float32)
    both = jax.jit(lambda m, r: (jax.vmap(eliminate)(m, r), jax.vmap(eliminate)(2 * m, r)))
    for _ in range(5):
        first, second = both(matrices, rhs)
        np.testing.assert_allclose(first, 2 * second, rtol=1e-5)
