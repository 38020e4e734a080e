"""Rules that move entries: where each entry comes from, and no guess where an index depends on a site."""

# pyright: reportArgumentType=false
# ruff: noqa: PLW0108 (the functions are the cases)
import jax
import jax.numpy as jnp
import pytest

from tests.inference.detection.readings import check_exact, check_opaque

EXACT = {
    "index": lambda x: x[jnp.array([3, 0, 0])],
    "slice": lambda x: x[::-2],
    "reshape": lambda x: x.reshape(2, 3).T,
    "broadcast": lambda x: jnp.broadcast_to(x[:, None], (6, 2)),
    "stack": lambda x: jnp.stack([x, x[::-1]], axis=1),
    "pad": lambda x: jnp.pad(x, (1, 2), constant_values=0.25),
    "set": lambda x: jnp.zeros((3, 3)).at[1, :2].set(x[:2]).at[2, 2].set(7.0),
    "where": lambda x: jnp.where(jnp.arange(6) % 2 == 0, x, 0.5),
    "dynamic slice": lambda x: jax.lax.dynamic_slice(x, (jnp.argmax(jnp.array([0, 1, 0])),), (3,)),
    "take": lambda x: jnp.take(x, jnp.array([5, 5]), axis=0),
    "concatenate": lambda x: jnp.concatenate([x[:1], jnp.array([0.1]), x[4:]]),
    "roll": lambda x: jnp.roll(x, 2),
}

KINKS = {
    "select on itself": lambda x: jnp.where(x > 1e6, 0.0, x),
    "gather on itself": lambda x: jnp.stack([x, 2 * x])[(x[0] > 1e6).astype(int)],
    "sort": lambda x: jnp.sort(x),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_read_is_what_is_computed(name):
    check_exact(EXACT[name])


@pytest.mark.parametrize("name", KINKS)
def test_a_kink_that_no_point_would_meet_is_opaque(name):
    check_opaque(KINKS[name])
