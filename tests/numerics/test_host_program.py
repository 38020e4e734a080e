"""Programs by NumPy against the same programs by XLA: numbers, dtypes, and when which of them is taken."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bayes_mdp.numerics.host_program import TooLongError, can_evaluate, evaluate, small_jit

pytestmark = pytest.mark.numerics

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 5))
WORDS = RNG.integers(0, 2**32, size=(3, 4), dtype=np.uint32)
NUMBERS = np.array([[5, -7, 0, 2], [1, 3, -2, 9], [4, 4, 4, -1]], np.int32)
INDEX = np.array([[0, 2], [1, 9], [-1, 0]], np.int32)
KEY = jax.random.key(3)


def _refined(x):
    """Every row halves until it is small: rows stop at different turns."""
    return jax.vmap(lambda row: lax.while_loop(lambda r: jnp.max(jnp.abs(r)) > 0.1, lambda r: r / 2, row))(x)


def _scanned(x, reverse):
    return lax.scan(lambda c, row: (c + row.sum(), c * row), jnp.zeros(()), x, reverse=reverse)


PROGRAMS = {
    "arithmetic": (lambda x: (x + 1, x - x.T[0, 0], -x / 3, x**3, x**-2, jnp.abs(x) ** 0.5, jnp.sign(x)), X),
    "functions": (lambda x: (jnp.exp(x), jnp.log1p(x**2), jnp.tanh(x), jax.nn.sigmoid(x), jnp.expm1(x)), X),
    "special": (lambda x: (jax.scipy.special.gammaln(x**2 + 0.1), lax.erf_inv(jnp.tanh(x)), jax.lax.erf(x)), X),
    "rounding": (lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x), lax.round(3 * x), lax.rsqrt(x**2)), X),
    "integers": (lambda n: (n // 2, n % 3, lax.div(n, jnp.int32(2)), lax.rem(n, jnp.int32(3)), n**2, ~n), NUMBERS),
    "bits": (lambda w: (w << 5, w >> 27, w ^ (w * 3), w | 1, w & 255, w + w), WORDS),
    "arithmetic shift": (
        lambda n: (n >> 3, lax.shift_right_logical(n, jnp.int32(3)), lax.shift_left(n, jnp.int32(31))),
        NUMBERS,
    ),
    "shift too far": (
        lambda n, by: (lax.shift_left(n, by), lax.shift_right_logical(n, by)),
        WORDS,
        11 * NUMBERS.astype(np.uint32),
    ),
    "conversions": (
        lambda x: ((1e10 * x).astype(jnp.int32), (x / 0).astype(jnp.int32), x > 0, x.astype(jnp.float32)),
        X,
    ),
    "bitcast": (lambda w: lax.bitcast_convert_type(w, jnp.int32), WORDS),
    "comparisons": (lambda x: (x > 0, (x <= 0.5) & (x != 0), jnp.isfinite(1 / (x - x[0, 0])), jnp.isnan(x)), X),
    "clip": (lambda x: (jnp.clip(x, -0.5, 0.5), jnp.maximum(x, jnp.nan), jnp.minimum(x, 0)), X),
    "reductions": (lambda x: (x.sum(0), x.prod(), x.max(1), x.min((0, 1)), (x > 0).all(0), (x > 0).any()), X),
    "arguments": (lambda x: (x.argmax(0), x.argmin(), jnp.argmax(jnp.where(x > 0, jnp.nan, x), 1)), X),
    "cumulative": (lambda x: (jnp.cumsum(x, 0), lax.cumsum(x, 1, reverse=True), jnp.cumprod(x), lax.cummax(x, 1)), X),
    "products": (lambda x, y: (x @ y, jnp.einsum("ij,jk->ki", x, y), x[0] @ y[:, 0], jnp.tensordot(x, y, 0)), X, Y),
    "batched products": (
        lambda x: (jnp.einsum("bi,bij->bj", x, x[:, :, None] * x[:, None]), jnp.einsum("ij,ij->i", x, x)),
        X,
    ),
    "shapes": (
        lambda x: (x.reshape(2, 6), x.T[None], x[::-1], x[1:, ::2], jnp.pad(x, ((1, 0), (0, 2))), x[..., None]),
        X,
    ),
    "joining": (lambda x: (jnp.concatenate([x, x], 1), jnp.stack([x, x], 1), jnp.repeat(x, 3, 0), jnp.tile(x, 2)), X),
    "negative padding": (lambda x: lax.pad(x, 0.0, ((-1, 2, 1), (1, -2, 0))), X),
    "selection": (
        lambda x, n: (
            jnp.where(x > 0, x, -1),
            jnp.choose(n % 2, [x, 2 * x], mode="clip"),
            lax.select_n(n % 3, x, -x, 0 * x),
        ),
        X,
        NUMBERS,
    ),
    "sorting": (lambda x: (jnp.sort(x, 0), jnp.argsort(-x, 1), lax.sort((x > 0, x), num_keys=2)[1]), X),
    "gather rows": (lambda x, i: (x[i], x[i[:, 0]], x[:, i[:, 0]], x[i[:, 0], i[:, 1]], x[1], x[:, i[0, 1]]), X, INDEX),
    "gather fill": (lambda x, i: (x.at[i].get(mode="fill"), x.at[:, i].get(mode="fill", fill_value=7.0)), X, INDEX),
    "gather clip": (lambda x, i: (x.at[i].get(mode="clip"), jnp.take(x, i, 1, mode="clip")), X, INDEX),
    "gather batched": (lambda x, i: (jax.vmap(lambda r, j: r[j])(x, i), jnp.take_along_axis(x, i, 1)), X, INDEX),
    "scatter": (
        lambda x, i: (x.at[i[:, 0], i[:, 1]].set(9.0), x.at[i[:, 0]].add(1.0), x.at[:, i[1]].mul(2.0)),
        X,
        INDEX,
    ),
    "scatter extremes": (lambda x, i: (x.at[i].max(0.3), x.at[i[0], 1].min(-5.0), x.at[2].set(x[0])), X, INDEX),
    "scatter twice": (lambda i: jnp.zeros((3, 2)).at[i[:, 0] * 0].add(jnp.arange(6.0).reshape(3, 2)), INDEX),
    "scatter batched": (jax.vmap(lambda r, j: r.at[j].add(1.0)), X, INDEX),
    "segments": (
        lambda x: (jax.ops.segment_sum(x, np.array([0, 0, 2]), 4), jax.ops.segment_max(x, np.array([1, 1, 0]), 3)),
        X,
    ),
    "windows": (
        lambda x, n: (
            lax.dynamic_slice(x, (n[0, 0], n[1, 0]), (2, 2)),
            lax.dynamic_update_slice(x, x[:2, :2], (n[0, 3], n[0, 1])),
        ),
        X,
        NUMBERS,
    ),
    "while of a batch": (_refined, X),
    "while that never starts": (lambda x: lax.while_loop(lambda c: c[0] < 0, lambda c: (c[0], 0 * c[1]), (1, x)), X),
    "loop": (lambda x: lax.fori_loop(0, 5, lambda i, c: c * 2 + i, x), X),
    "scan": (lambda x: (_scanned(x, False), _scanned(x, True)), X),
    "empty scan": (lambda x: lax.scan(lambda c, row: (c, row * 2), 0, x[:0]), X),
    "branches": (
        lambda x, n: (lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), lax.switch(n[0, 0], [jnp.sin, jnp.cos], x)),
        X,
        NUMBERS,
    ),
    "custom rules": (
        lambda x: (
            jax.nn.relu(x),
            jax.nn.softplus(x),
            jax.nn.logsumexp(x, 1),
            jax.grad(lambda y: jnp.sum(jax.nn.silu(y)))(x),
        ),
        X,
    ),
}


def are_small(small):
    """Of each program that was traced, whether it is answered by NumPy."""
    return [traced.small for traced in small._traced.values()]


@pytest.mark.some(43)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numpy_does_what_xla_does(name, wide):
    function, *arrays = PROGRAMS[name]
    with jax.enable_x64(wide):
        small = small_jit(function, most=10.0)
        found, expected = small(*arrays), jax.jit(function)(*arrays)
        assert are_small(small) == [True], "it was compiled"
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            if not jnp.issubdtype(ours.dtype, jnp.floating):
                np.testing.assert_array_equal(ours, theirs)
                continue
            rtol = 1e-12 if ours.dtype == jnp.float64 else 2e-4
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol / 10)


def test_it_is_traced_once_for_a_shape_and_a_width():
    table, traces = np.arange(6.0).reshape(2, 3), []

    def scaled(given):
        traces.append(given["x"].shape)
        return {"answer": jnp.sum(jnp.asarray(table) * given["x"]) * given["by"]}

    small = small_jit(scaled)
    for x in (np.ones(3), 2 * np.ones(3)):
        answer = small({"x": x, "by": np.float32(2.0)})["answer"]
        np.testing.assert_allclose(answer, 2 * (table * x).sum())
    assert len(traces) == 1
    small({"x": np.ones((2, 3)), "by": np.float32(2.0)})
    assert len(traces) == 2
    with jax.enable_x64(True):
        assert small({"x": np.ones(3), "by": 2.0})["answer"].dtype == jnp.float64


def test_large_programs_are_compiled_and_long_loops_too():
    def down(x):
        return lax.while_loop(lambda c: c > 0, lambda c: c - 1, x)

    large = small_jit(lambda x: jnp.sin(x) + 1, most=1e-3)
    assert np.isclose(large(np.zeros(3))[0], 1.0) and are_small(large) == [True]
    np.testing.assert_allclose(large(np.zeros(10**7))[0], 1.0)
    assert are_small(large) == [True, False]
    # What a loop takes is seen when it runs.
    long = small_jit(down, most=1e-3)
    assert (int(long(3)), int(long(10**6))) == (0, 0) and are_small(long) == [True]
    closed = jax.make_jaxpr(down)(3)
    assert int(evaluate(closed, [np.asarray(3)], 1e-3)[0]) == 0
    with pytest.raises(TooLongError):
        evaluate(closed, [np.asarray(10**6)], 1e-3)


def test_no_large_constant_is_left_in_the_program():
    table = np.random.default_rng(0).normal(size=4099)
    function = lambda x: jnp.sum(jnp.sin(jnp.asarray(table)) * x)  # noqa: E731
    assert "dense<" in jax.jit(function).lower(1.0).as_text()
    small = small_jit(function, most=0.0)
    assert np.isclose(small(1.0), np.sin(table).sum(), rtol=1e-4)
    (traced,) = small._traced.values()
    compiled: Any = traced.compiled
    text = compiled.lower(traced.closed.consts, [1.0]).as_text()
    # The table is an argument: no line spells its 4,099 numbers.
    assert "tensor<4099xf32>" in text and max(map(len, text.splitlines())) < 4099


def test_what_numpy_cannot_do_is_compiled():
    def solved(x):
        return jnp.linalg.solve(x @ x.T + jnp.eye(3), jnp.ones(3))

    assert not can_evaluate(jax.make_jaxpr(solved)(X).jaxpr)
    np.testing.assert_allclose(small_jit(solved)(X), jax.jit(solved)(X), rtol=1e-4)
    # Random numbers, and effects.
    np.testing.assert_array_equal(small_jit(jax.random.bits)(KEY), jax.random.bits(KEY))
    assert not can_evaluate(jax.make_jaxpr(lambda x: jax.debug.print("{}", x))(X).jaxpr)


def test_only_what_is_needed_is_evaluated():
    def endless(x):
        never = lax.while_loop(lambda c: True, lambda c: c + 1, x)
        return never, 2 * x

    inner = eqx.filter_jit(endless)
    np.testing.assert_array_equal(small_jit(lambda x: inner(x)[1])(1), 2)


def test_arguments_are_left_as_they_are():
    table = np.zeros(3)
    small_jit(lambda x: x.at[0].set(1.0))(table)
    np.testing.assert_array_equal(table, 0.0)


def test_the_results_of_a_program_with_constants():
    table = jnp.arange(4.0)
    closed = jax.make_jaxpr(lambda i: table[i] + 1)(2)
    np.testing.assert_array_equal(evaluate(closed, [np.asarray(2)], 1.0), [3.0])
