"""The tridiagonal preconditioner: exact where all moves are to neighbours, harmless where it is singular."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import SparseMDP
from bayes_mdp.planning.linear_systems import neighbour_solver, solve_chain

N = 9


def walk(rng, size=N):
    """A chain that moves to neighbours, its rows with repeated successors at the ends; and its matrix."""
    states = np.arange(size)
    successor = np.clip(states[:, None] + np.array([1, -1, 0]), 0, size - 1)
    probability = rng.dirichlet(np.ones(3), size)
    rows = np.zeros((size, size))
    np.add.at(rows, (np.repeat(states, 3), successor.ravel()), probability.ravel())
    return SparseMDP(successor[:, None], probability[:, None], np.zeros((size, 1))), rows


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("anchored", [False, True])
def test_exact_on_a_line(adjoint, anchored, x64):
    rng = np.random.default_rng(0)
    chain, rows = walk(rng)
    discount = 1.0 if anchored else 0.999
    matrix = np.eye(N) - discount * rows + anchored * np.eye(N)[0]
    b = rng.normal(size=N)
    x = neighbour_solver(chain, discount, anchored=anchored, adjoint=adjoint)(jnp.asarray(b))
    np.testing.assert_allclose(x, np.linalg.solve(matrix.T if adjoint else matrix, b), rtol=1e-9)


def test_a_singular_matrix_is_left_out(x64):
    chain = SparseMDP(np.arange(N)[:, None, None], np.ones((N, 1, 1)), np.zeros((N, 1)))
    b = np.arange(float(N))
    np.testing.assert_array_equal(neighbour_solver(chain, 1.0)(jnp.asarray(b)), b)


def test_a_long_cycle(x64):
    """Krylov iterations alone fail on a deterministic cycle: sum_t discount^t r(s + t), by hand from the last state."""
    size, discount = 5000, 0.9999
    rng = np.random.default_rng(1)
    chain = SparseMDP(((np.arange(size) + 1) % size)[:, None, None], np.ones((size, 1, 1)), np.zeros((size, 1)))
    rhs = rng.normal(size=size)
    solved = jax.jit(lambda b: solve_chain(chain, discount, b, jnp.zeros(size)))(rhs)
    value = np.sum(discount ** np.arange(size) * rhs) / (1 - discount**size)  # of state 0, once round and again
    expected = np.empty(size)
    for state in reversed(range(size)):
        value = expected[state] = rhs[state] + discount * value
    np.testing.assert_allclose(solved, expected, rtol=1e-9, atol=1e-8)
