"""The reader and its rules: what is read of an array is what its numbers are, and a kink is never read over."""

# pyright: reportArgumentType=false
# ruff: noqa: PLW0108 (the functions are the cases)
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.inference.detection.entries import OPAQUE
from tests.inference.detection.readings import check_exact, check_opaque, read

K = np.array([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0, 0.0, 0.0]])

EXACT = {
    # control flow
    "jit": lambda x: jax.jit(lambda y: y[1:3])(x),
    "vmap": lambda x: jax.vmap(lambda y: 2.0 * y)(x),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y.at[i].set(x[5 - i]), x),
    "dynamic loop": lambda x: jax.lax.fori_loop(0, jnp.array(3), lambda i, y: y.at[i].set(0.0), x),
    "scan": lambda x: jax.lax.scan(lambda c, y: (c, 2.0 * y), 0.0, x, reverse=True)[1],
    "known branch": lambda x: jax.lax.cond(jnp.array(True), lambda: x[:2], lambda: x[2:4]),
    # entries are moved
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
    # arithmetic
    "affine": lambda x: 2.0 * x / 3.0 - 1.0 + 0.5,
    "masked": lambda x: jnp.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0]) * x + jnp.array([0.0, 1.0] * 3) * x[::-1],
    "scale": lambda x: (x[2:4] ** -0.5) ** -2.0,
    "scales": lambda x: 1.0 / jnp.square(jnp.sqrt(1.0 / x[2:4])),
    "rsqrt": lambda x: jax.lax.rsqrt(3.0 * x[2:4]) ** -2,
    "logits": lambda x: jax.nn.sigmoid(jnp.log(x[4:]) - jnp.log1p(-x[4:])),
    "logit": lambda x: jax.nn.sigmoid(jax.scipy.special.logit(x[4:])),
    "exp log": lambda x: jnp.exp(jnp.log(x[2:])),
    "squares": lambda x: x[:2] * x[:2] / x[:2],
    "float32": lambda x: x.astype(jnp.float32),
    # one entry of many
    "one hot": lambda x: K @ x,
    "einsum": lambda x: jnp.einsum("ij,jk->ik", x[:2, None] * jnp.ones((2, 1)), jnp.eye(1)),
    "sum of one": lambda x: jnp.sum(jnp.eye(6) * x, axis=1),
}

KINKS = {
    # control flow
    "cond on itself": lambda x: jax.lax.cond(x[0] > 1e6, lambda: x * 0.0, lambda: x),
    "switch": lambda x: jax.lax.switch((x[0] > 1e6).astype(int), [lambda: x, lambda: x + 1.0]),
    "long loop": lambda x: jax.lax.fori_loop(0, 1000, lambda i, y: y[::-1], x),
    "loop that ends by itself": lambda x: jax.lax.fori_loop(0, (x[0] > 1e6).astype(int), lambda i, y: y[::-1], x),
    "while": lambda x: jax.lax.while_loop(lambda y: y[0] > 1e6, lambda y: y - 1.0, x),
    # entries are moved
    "select on itself": lambda x: jnp.where(x > 1e6, 0.0, x),
    "gather on itself": lambda x: jnp.stack([x, 2 * x])[(x[0] > 1e6).astype(int)],
    "sort": lambda x: jnp.sort(x),
    # arithmetic
    "minimum": lambda x: jnp.minimum(x, 1e6),
    "maximum": lambda x: jnp.maximum(x, -1e6),
    "clip": lambda x: jnp.clip(x, -1e6, 1e6),
    "abs": lambda x: jnp.abs(x[:2]),
    "root of a square": lambda x: jnp.sqrt(x[:2] ** 2),
    "sum": lambda x: x[:3] + 1e-9 * x[3:],
    "product": lambda x: x[:3] * x[3:],
    "ratio": lambda x: x[:3] / x[3:],
    "floor": lambda x: jnp.floor(x) + x,
    "round trip by int": lambda x: x.astype(int).astype(float),
    "wrong logit": lambda x: jax.nn.sigmoid(jnp.log(x[4:]) - jnp.log1p(-x[5:3:-1])),
    "log of a real": lambda x: jnp.exp(jnp.log(x[:2])),
    "bitcast": lambda x: jax.lax.bitcast_convert_type(x, jnp.int64).astype(float),
    "half precision": lambda x: x.astype(jnp.float16),
    "reduce precision": lambda x: jax.lax.reduce_precision(x, 8, 7),
    "nextafter": lambda x: jnp.nextafter(x, 2.0),
    "remainder": lambda x: x % 1e6,
    # one entry of many
    "matrix": lambda x: jnp.array([[1.0, 1e-9, 0.0, 0.0, 0.0, 0.0]]) @ x,
    "cumsum": lambda x: jnp.cumsum(x),
    "softmax": lambda x: jax.nn.softmax(x),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_read_is_what_is_computed(name):
    check_exact(EXACT[name], rtol=1e-6 if name == "float32" else 1e-12)


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


def test_a_factor_of_a_parent_is_followed():
    """(h tau) ** -0.5 to the power -2 is h tau: one multiple of the element, free of an offset."""
    entries, domain = read(lambda x, h: ((h * x[2:4]) ** -0.5) ** -2.0, hyper=1)
    assert entries.element.tolist() == [2, 3] and entries.power.tolist() == [1.0, 1.0]
    assert domain.symbols.equals(entries.offset, 0.0).all() and not domain.symbols.known(entries.coefficient).any()


def test_equal_symbols_are_equal_operations():
    """Entries of one symbol are equal at every value of the parents; those of a diagonal differ from the others."""
    entries, _ = read(lambda x, h: 0.5 + h * jnp.eye(4)[:, None, :] * jnp.ones((4, 2, 4)), hyper=1)
    assert entries.free
    ids = entries.offset
    assert len(np.unique(ids)) == 2 and (ids[np.arange(4), 0, np.arange(4)] == ids[0, 0, 0]).all()
    rare, _ = read(lambda x, h: jnp.where(h > 2.05, jnp.arange(4.0), 1.0), hyper=1)
    assert len(np.unique(rare.offset)) == 4
    rows, _ = read(lambda x, h: jax.nn.softmax(h * jnp.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])), hyper=1)
    assert (rows.offset[0] == rows.offset[1]).all() and (rows.offset[0] != rows.offset[2]).any()
