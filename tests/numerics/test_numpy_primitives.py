"""Programs made at random, by NumPy against XLA."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bayes_mdp.numerics.host_program import can_evaluate, small_jit
from bayes_mdp.numerics.numpy_primitives import PRIMITIVES, understood

pytestmark = pytest.mark.numerics

LENGTHS = (1, 2, 3, 5)
MODES = ("fill", "clip", "promise_in_bounds", "wrap")
Array = Any
"""A traced array."""
Step = Callable[[Array], Array]


def bounded(x: Array) -> Array:
    """Numbers of ordinary size: what overflows or is undefined says nothing about the steps before it."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    return jnp.where(jnp.isfinite(x), jnp.clip(x, -50.0, 50.0), 0.5)


def elementwise(rng: np.random.Generator) -> Step:
    """A function of every number."""
    by = float(rng.normal())
    return [
        lambda x: x * by + 1.0,
        lambda x: by - x,
        lambda x: x / (1.0 + x * x),
        lambda x: jnp.exp(-jnp.abs(x)),
        lambda x: jnp.log1p(x * x),
        lambda x: jnp.tanh(x) ** 3,
        lambda x: jnp.where(x > by, x, -x),
        lambda x: jnp.clip(x, -abs(by), 2.0),
        jax.nn.softplus,
        lambda x: lax.rsqrt(1.0 + x * x),
        lambda x: jnp.floor(3.0 * x).astype(jnp.int32) * 0.25,
        lambda x: jnp.sign(x) * jnp.sqrt(jnp.abs(x)),
        lambda x: jax.scipy.special.gammaln(1.5 + jnp.abs(x)),
        lambda x: jnp.maximum(x, by) + jnp.minimum(x, 2 * by),
    ][rng.integers(14)]


def along_an_axis(rng: np.random.Generator, ndim: int) -> Step:
    """A reduction, a cumulative one, or an order."""
    axis, other = int(rng.integers(ndim)), int(rng.integers(2))
    return [
        lambda x: x.sum(axis),
        lambda x: x.max(axis, keepdims=bool(other)),
        lambda x: x.min(axis),
        lambda x: jnp.cumsum(x, axis),
        lambda x: lax.cummax(x, axis, reverse=bool(other)),
        lambda x: x - x.mean(axis, keepdims=True),
        lambda x: jnp.sort(x, axis),
        lambda x: jnp.argmax(x, axis).astype(x.dtype),
        lambda x: jax.nn.logsumexp(x, axis),
        lambda x: jnp.take_along_axis(x, jnp.argsort(-x, axis), axis),
    ][rng.integers(10)]


def reshaped(rng: np.random.Generator, ndim: int) -> Step:
    """Another order or shape."""
    axis, order = int(rng.integers(ndim)), tuple(int(i) for i in rng.permutation(ndim))
    pads = [(int(lo), int(hi), int(gap)) for lo, hi, gap in rng.integers((-1, -1, 0), (3, 3, 2), (ndim, 3))]

    def padded(x: Array) -> Array:
        # No axis may vanish: then there would be nothing to compare.
        fits = all(lo + hi + n + (n - 1) * gap > 0 for n, (lo, hi, gap) in zip(x.shape, pads, strict=True))
        return lax.pad(x, jnp.asarray(0.5, x.dtype), pads) if fits else x

    return [
        lambda x: x.transpose(order),
        lambda x: jnp.flip(x, axis),
        lambda x: x[None],
        lambda x: x.ravel(),
        lambda x: jnp.concatenate([x, -x], axis),
        lambda x: jnp.stack([x, 2 * x], axis),
        lambda x: jnp.repeat(x, 2, axis),
        lambda x: jnp.moveaxis(x, axis, 0)[:: 1 + ndim % 2],
        padded,
    ][rng.integers(9)]


def indexed(rng: np.random.Generator, ndim: int) -> Step:
    """Gather and scatter, with indices that need not exist."""
    axis, mode = int(rng.integers(ndim)), MODES[rng.integers(3)]
    shape = tuple(rng.choice((1, 2, 3), int(rng.integers(1, 3))))
    place = rng.integers(-3, 7, shape).astype(rng.choice(("int32", "uint32")) if rng.random() < 0.2 else "int32")

    def within(x: Array) -> np.ndarray:
        return np.abs(place.astype(np.int64)) % x.shape[axis] if mode == "promise_in_bounds" else place

    def at(x: Array, index: Any) -> Any:
        return x.at[(slice(None),) * axis + (index,)]

    def one_by_one(x: Array) -> Array:
        # The same steps for each part of a batch, each with an index of its own.
        first = np.arange(x.shape[0])
        return jax.vmap(lambda row, i: jnp.roll(row, i) if row.ndim else row + i)(x, first)

    start = rng.integers(-4, 6, ndim)
    return [
        lambda x: at(x, within(x)).get(mode=mode),
        lambda x: at(x, within(x)).add(0.5, mode=mode),
        lambda x: at(x, within(x)).max(0.25, mode=mode),
        lambda x: at(x, within(x)).multiply(1.5, mode=mode),
        lambda x: at(x, int(place.flat[0])).set(7.0),
        lambda x: lax.dynamic_slice(x, [jnp.int32(i) for i in start], [max(1, n - 1) for n in x.shape]),
        lambda x: lax.dynamic_update_slice(x, x[:1] * 2, [jnp.int32(i) for i in start]),
        one_by_one,
    ][rng.integers(8)]


def controlled(rng: np.random.Generator) -> Step:
    """Loops and branches around another step."""
    inner, turns, reverse = elementwise(rng), int(rng.integers(4)), bool(rng.integers(2))

    def scanned(x: Array) -> Array:
        carry, rows = lax.scan(
            lambda c, row: (bounded(inner(c + row.mean())), inner(row) + c), jnp.zeros((), x.dtype), x, reverse=reverse
        )
        return rows + carry

    def halved(x: Array) -> Array:
        return lax.while_loop(lambda c: jnp.max(jnp.abs(c)) > 0.3, lambda c: c / 2, x)

    return [
        lambda x: lax.fori_loop(0, turns, lambda i, c: bounded(inner(c)) + i * 0.1, x),
        scanned,
        halved,
        jax.vmap(halved),
        lambda x: lax.cond(x.sum() > 0, inner, lambda y: -y, x),
        lambda x: lax.switch(jnp.int32(turns), [inner, jnp.negative, jnp.abs], x),
        jax.vmap(inner),
        jax.grad(lambda y: jnp.sum(jnp.tanh(inner(y)) * y)),
    ][rng.integers(8)]


def products(rng: np.random.Generator) -> Step:
    """Products of matrices."""

    def last_with_first(x: Array) -> Array:
        return jnp.tensordot(x, x, ((x.ndim - 1,), (x.ndim - 1,))) if x.size < 200 else x

    return [
        lambda x: jnp.einsum("...i,...i->...", x, 1 - x),
        last_with_first,
        lambda x: x @ jnp.linspace(0.0, 1.0, x.shape[-1]).astype(x.dtype),
    ][rng.integers(3)]


KINDS: tuple[Callable[[np.random.Generator, int], Step], ...] = (
    lambda rng, ndim: elementwise(rng),
    along_an_axis,
    reshaped,
    indexed,
    lambda rng, ndim: controlled(rng),
    lambda rng, ndim: products(rng),
)


def random_program(rng: np.random.Generator) -> tuple[Step, np.ndarray]:
    """A chain of up to eight steps, and an array for it."""
    kinds, choices = rng.integers(6, size=int(rng.integers(2, 9))), rng.integers(2**31, size=9)

    def program(x: Array) -> Array:
        for kind, seed in zip(kinds, choices, strict=False):
            if x.ndim == 0 or x.size > 400:
                x = jnp.broadcast_to(x, (3,)) if x.ndim == 0 else x.ravel()[:7]
            step = KINDS[kind](np.random.default_rng(int(seed)), x.ndim)
            x = bounded(step(x))
        return x

    return program, rng.normal(size=tuple(rng.choice(LENGTHS, int(rng.integers(1, 4)))))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_random_programs(seed, wide):
    """Rounding may decide a comparison: at most one program in fifty may differ, and none in its shape."""
    rng, differ, number = np.random.default_rng(seed), [], 60
    with jax.enable_x64(wide):
        for i in range(number):
            program, x = random_program(rng)
            assert can_evaluate(jax.make_jaxpr(program)(x).jaxpr), f"program {i} is compiled"
            ours, theirs = small_jit(program, most=10.0)(x), jax.jit(program)(x)
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), i
            close = np.allclose(ours, theirs, rtol=1e-9 if wide else 1e-3, atol=1e-10 if wide else 1e-4, equal_nan=True)
            if not close:
                differ.append(i)
    assert len(differ) <= number // 50, differ


@pytest.mark.some(3)
@pytest.mark.parametrize("name", ["cummax", "gather", "scatter-mul", "sort", "dot_general", "dynamic_slice", "pad"])
def test_a_wrong_primitive_is_caught(name, monkeypatch):
    """One that is off by one in a hundred, wherever it is used."""
    right = PRIMITIVES[name]

    def wrong(*arrays: np.ndarray, **params: Any) -> Any:
        found = right(*arrays, **params)
        return [1.01 * x for x in found] if isinstance(found, list) else (1.01 * found).astype(found.dtype)

    monkeypatch.setitem(PRIMITIVES, name, wrong)
    rng, caught = np.random.default_rng(0), 0
    for _ in range(60):
        program, x = random_program(rng)
        traced = jax.make_jaxpr(program)(x)
        if f" {name}[" in str(traced):
            ours, theirs = small_jit(program, most=10.0)(x), jax.jit(program)(x)
            caught += not np.allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    assert caught > 60 // 50, caught


def test_an_unknown_parameter_is_not_understood():
    """Another version of JAX may mean something else by it."""
    assert understood("cumsum", {"axis": 0, "reverse": False})
    assert not understood("cumsum", {"axis": 0, "reverse": False, "exclusive": True})
    assert not understood("reshape", {"new_sizes": (4,), "dimensions": (1, 0), "sharding": None})
    assert not understood("a primitive of tomorrow", {})
