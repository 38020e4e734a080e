"""Rules of sums: one entry beside zeros is picked, two are opaque."""

# pyright: reportArgumentType=false
# ruff: noqa: PLW0108 (the functions are the cases)
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.inference.detection.readings import check_exact, check_opaque

K = np.array([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0, 0.0, 0.0]])

EXACT = {
    "one hot": lambda x: K @ x,
    "einsum": lambda x: jnp.einsum("ij,jk->ik", x[:2, None] * jnp.ones((2, 1)), jnp.eye(1)),
    "sum of one": lambda x: jnp.sum(jnp.eye(6) * x, axis=1),
}

KINKS = {
    "matrix": lambda x: jnp.array([[1.0, 1e-9, 0.0, 0.0, 0.0, 0.0]]) @ x,
    "cumsum": lambda x: jnp.cumsum(x),
    "softmax": lambda x: jax.nn.softmax(x),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_read_is_what_is_computed(name):
    check_exact(EXACT[name])


@pytest.mark.parametrize("name", KINKS)
def test_a_kink_that_no_point_would_meet_is_opaque(name):
    check_opaque(KINKS[name])
