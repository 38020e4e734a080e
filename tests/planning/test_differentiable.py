"""Differentiable systems of chains against LAPACK: every route, forward, adjoint and second order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import MDP
from bayes_mdp.planning.derivatives import solve_with_derivatives
from tests.planning.planning_problems import listed


@pytest.mark.parametrize(("size", "sparse"), [(5, False), (5, True), pytest.param(140, False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("anchored", [False, True])
def test_solution_and_derivatives(size, sparse, anchored, x64):
    rng = np.random.default_rng(size)
    rows = rng.dirichlet(np.full(size, 0.3), size)
    way = rng.normal(size=(size, size))
    way -= way.mean(1, keepdims=True)  # rows go on summing to one
    rhs, weights = rng.normal(size=(2, size))
    discount = 1.0 if anchored else 0.9999

    def matrix(t):
        chain = rows + t * way
        return np.eye(size) - discount * chain + (anchored * chain.sum(1))[:, None] * np.eye(size)[0]

    def number(t):
        mdp = MDP((rows + t * way)[:, None], jnp.zeros((size, 1)))
        return weights @ solve_with_derivatives(
            listed(mdp) if sparse else mdp, discount, jnp.asarray(rhs), anchored=anchored
        )

    # d of M^-1 b is -M^-1 dM M^-1 b, and the second one twice the square of that.
    inverse = np.linalg.inv(matrix(0.0))
    step = -inverse @ (matrix(1.0) - matrix(0.0))
    x = inverse @ rhs
    expected = weights @ x, weights @ step @ x, 2 * weights @ step @ step @ x
    got = jax.jit(lambda t: (number(t), jax.grad(number)(t), jax.jacfwd(jax.grad(number))(t)))(0.0)
    np.testing.assert_allclose(got, expected, rtol=1e-7)


def test_no_solution_is_no_number(x64):
    """Two classes without end have no single gain: the system is singular."""
    mdp = MDP(np.eye(150)[:, None], np.zeros((150, 1)))
    x = solve_with_derivatives(mdp, 1.0, jnp.arange(150.0), anchored=True)
    assert np.isnan(x).all()
