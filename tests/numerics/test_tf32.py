"""That TF32 on a CPU is what it says: every product rounds its operands, and nothing is left of it afterwards."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import mlir

from bayes_mdp.agents.neural.networks import NatureConv
from bayes_mdp.numerics.products import matmul
from tests import tf32

RNG = np.random.default_rng(0)
X, Y = RNG.random((2, 3, 16, 16), np.float32)


def cut(x: Any) -> np.ndarray:
    """Rounded to 10 bits of mantissa, to even, by the bits."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = bits + 0xFFF + ((bits >> 13) & 1)
    return (bits & 0xFFFFE000).astype(np.uint32).view(np.float32).astype(float)


def convolve(x: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def in_loop(x: Any, y: Any) -> Any:
    """Products of a batch, within a branch of a loop."""

    def body(total: Any, pair: Any) -> Any:
        return jax.lax.cond(total[0, 0] >= 0, lambda: total + pair[0] @ pair[1], lambda: total), None

    return jax.lax.scan(body, jnp.zeros((16, 16)), (x, y))[0]


PROGRAMS: dict[str, tuple[Any, Any]] = {
    "matrices": (lambda x, y: x[0] @ y[0], lambda x, y: x[0] @ y[0]),
    "vector": (lambda x, y: x[0] @ y[0, 0], lambda x, y: x[0] @ y[0, 0]),
    "einsum": (lambda x, y: jnp.einsum("nij,njk->nik", x, y), lambda x, y: np.einsum("nij,njk->nik", x, y)),
    "batch": (jax.vmap(lambda x, y: x @ y), lambda x, y: x @ y),
    "loop": (in_loop, lambda x, y: (x @ y).sum(0)),
    # d sum(W x y) / dx = W y', of what is rounded twice: the slope W and y
    "slope": (jax.grad(lambda x, y: jnp.sum(Y * (x @ y))), lambda x, y: cut(Y) @ y.swapaxes(1, 2)),
    "convolution": (
        lambda x, y: convolve(x[:, :, :, None], y[0, :, :, None, None]),
        lambda x, y: np.einsum("nij,ij->n", x, y[0])[:, None, None, None],
    ),
    "slope of a convolution": (
        jax.grad(lambda x, y: jnp.sum(convolve(x[:, :, :, None], y[0, :, :, None, None]))),
        lambda x, y: np.broadcast_to(y[0], x.shape),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_rounded_operands(name, gpu_products):
    """Those of NumPy in float64, of operands cut by their bits; of the operands themselves they are not."""
    program, expected = PROGRAMS[name]
    found = np.asarray(jax.jit(program)(X, Y))
    np.testing.assert_allclose(found, expected(cut(X), cut(Y)), rtol=2e-6)
    assert np.max(np.abs(found / expected(X.astype(float), Y.astype(float)) - 1)) > 1e-5


def test_what_is_not_rounded(gpu_products):
    """Float32 where it is asked for, its slopes too; float64; whole numbers."""
    right = X.astype(float) @ Y
    np.testing.assert_allclose(jax.jit(matmul)(X, Y), right, rtol=1e-6)
    slope = jax.jit(jax.grad(lambda x: jnp.sum(Y * matmul(x, Y))))(X)
    np.testing.assert_allclose(slope, Y.astype(float) @ Y.swapaxes(1, 2), rtol=1e-6)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(lambda x, y: x @ y)(X.astype(float), Y.astype(float)), right, rtol=1e-14)
    whole = jnp.arange(2**12, 2**12 + 4)
    assert int(whole @ whole) == int(np.arange(2**12, 2**12 + 4) @ np.arange(2**12, 2**12 + 4))


@pytest.fixture
def _float32_is_the_default():
    if tf32.off() > 1e-5:
        pytest.skip("products are of TF32 in the whole run")


@pytest.mark.usefixtures("_float32_is_the_default")
def test_errors_are_those_of_a_gpu():
    """Of a product 1e-4 to 1e-3; of a network of four layers below `LOOSE`, so that a wrong one is still seen."""
    trunk = NatureConv()
    parameters = trunk.init(jax.random.key(0), (4, 84, 84))
    frames = RNG.integers(0, 256, (2, 4, 84, 84), np.uint8)
    apply = jax.jit(trunk.apply)
    full = np.asarray(apply(parameters, frames))
    assert tf32.off() < 1e-6
    with tf32.gpu_products():
        assert 1e-4 < tf32.off() < 1e-3
        rounded = np.asarray(apply(parameters, frames))
        tf32.assert_network(rounded, full, rtol=1e-6)
    assert 1e-5 < np.max(np.abs(rounded - full)) / np.max(full) < tf32.LOOSE
    with pytest.raises(AssertionError):
        tf32.assert_network(rounded, full, rtol=1e-6)


@pytest.mark.usefixtures("_float32_is_the_default")
def test_nothing_is_left_of_it():
    """Rules, branches and programs: one that was compiled before and one that was compiled within are as ever."""
    before, after = (jax.jit(lambda x, y: jnp.tanh(x @ y)) for _ in range(2))
    rules = {p: mlir._platform_specific_lowerings["cpu"].get(p) for p in tf32.PRODUCTS}
    first = np.asarray(before(X, Y))
    text = before.lower(X, Y).as_text()
    branch = jax.jit(lambda: jax.lax.platform_dependent(cpu=lambda: 0, default=lambda: 1))
    with tf32.gpu_products():
        assert np.any(np.asarray(before(X, Y)) != first)
        assert np.any(np.asarray(after(X, Y)) != first)
        # The cache on disk knows programs by their text.
        assert "reduce_precision" in before.lower(X, Y).as_text()
        assert branch() == 1
    assert "reduce_precision" not in text
    assert before.lower(X, Y).as_text() == text
    assert branch() == 0
    np.testing.assert_array_equal(before(X, Y), first)
    np.testing.assert_array_equal(after(X, Y), first)
    assert rules == {p: mlir._platform_specific_lowerings["cpu"].get(p) for p in tf32.PRODUCTS}
