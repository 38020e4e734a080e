"""Rules of arithmetic: what is read of an array is what its numbers are, and a kink is never read over."""

# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.inference.detection.readings import check_exact, check_opaque, read

EXACT = {
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
}

KINKS = {
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
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_read_is_what_is_computed(name):
    check_exact(EXACT[name], rtol=1e-6 if name == "float32" else 1e-12)


@pytest.mark.parametrize("name", KINKS)
def test_a_kink_that_no_point_would_meet_is_opaque(name):
    check_opaque(KINKS[name])


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
