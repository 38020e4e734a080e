"""The reader: calls, loops and branches are data flow; known branches are taken, others depend on their predicate."""

# pyright: reportArgumentType=false
# ruff: noqa: PLW0108 (the functions are the cases)
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.inference.detection.entries import OPAQUE
from tests.inference.detection.readings import check_exact, check_opaque, read

EXACT = {
    "jit": lambda x: jax.jit(lambda y: y[1:3])(x),
    "vmap": lambda x: jax.vmap(lambda y: 2.0 * y)(x),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y.at[i].set(x[5 - i]), x),
    "dynamic loop": lambda x: jax.lax.fori_loop(0, jnp.array(3), lambda i, y: y.at[i].set(0.0), x),
    "scan": lambda x: jax.lax.scan(lambda c, y: (c, 2.0 * y), 0.0, x, reverse=True)[1],
    "known branch": lambda x: jax.lax.cond(jnp.array(True), lambda: x[:2], lambda: x[2:4]),
}

KINKS = {
    "cond on itself": lambda x: jax.lax.cond(x[0] > 1e6, lambda: x * 0.0, lambda: x),
    "switch": lambda x: jax.lax.switch((x[0] > 1e6).astype(int), [lambda: x, lambda: x + 1.0]),
    "long loop": lambda x: jax.lax.fori_loop(0, 1000, lambda i, y: y[::-1], x),
    "loop that ends by itself": lambda x: jax.lax.fori_loop(0, (x[0] > 1e6).astype(int), lambda i, y: y[::-1], x),
    "while": lambda x: jax.lax.while_loop(lambda y: y[0] > 1e6, lambda y: y - 1.0, x),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_read_is_what_is_computed(name):
    check_exact(EXACT[name])


@pytest.mark.parametrize("name", KINKS)
def test_a_kink_that_no_point_would_meet_is_opaque(name):
    check_opaque(KINKS[name])


def test_dependence_goes_through_predicates_and_indices():
    for function in (
        lambda x, h: jnp.where(h > 2.05, x, x[::-1]),
        lambda x, h: jax.lax.cond(h > 2.05, lambda: x, lambda: x[::-1]),
        lambda x, h: jnp.stack([x, x[::-1]])[(h > 2.05).astype(int)],
        lambda x, h: jax.lax.dynamic_slice(x, (h.astype(int),), (1,)),
        lambda x, h: jax.lax.while_loop(lambda c: c[0] < h, lambda c: (c[0] + 1.0, c[1][::-1]), (0.0, x))[1],
    ):
        entries, _ = read(function, hyper=1)
        assert (entries.element == OPAQUE).all()
        assert entries.sites == {"x", "h0"}


def test_a_known_parent_decides_its_branches():
    """Held at a value, a discrete parent is a number: every branch on it is the branch that is taken."""
    for value, expected in ((0, [0, 1, 2, 3, 4, 5]), (1, [5, 4, 3, 2, 1, 0])):
        for function in (
            lambda x, z: jnp.where(z == 1, x[::-1], x),
            lambda x, z: jax.lax.cond(z == 1, lambda: x[::-1], lambda: x),
            lambda x, z: jnp.stack([x, x[::-1]])[z],
            lambda x, z: z * x[::-1] + (1 - z) * x,
            lambda x, z: jax.lax.switch(z, [lambda: x, lambda: x[::-1]]),
        ):
            entries, _ = read(function, known=(np.int64(value),))
            assert entries.element.tolist() == expected
