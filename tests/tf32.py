"""TF32 on a CPU: products of float32 arrays as a recent NVIDIA GPU makes them.

Such a GPU rounds the operands of a product to 10 bits of mantissa unless `Precision.HIGHEST` is asked for. Within
`gpu_products` JAX's default precision is "tensorfloat32", which has no meaning on a CPU; here both operands of such a
product are rounded (`lax.reduce_precision`) when a program is lowered, so that those of gradients, of batches and of
loops are too. JAX tells programs apart by the default precision, the cache on disk by their text: none of one setting
is used in the other. Where the library takes another way on a GPU (`lax.platform_dependent`), it is taken here as well.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.interpreters import mlir
from jax.extend.core import ClosedJaxpr, Jaxpr, primitives
from jax.lax import DotAlgorithmPreset, Precision

MANTISSA = 10
LOOSE = 3e-3
"""Relative error of a network of a few layers whose products are of TF32, a few times 2^-11 each."""
PRODUCTS = (primitives.dot_general_p, primitives.conv_general_dilated_p)
_FULL = (Precision.HIGHEST, Precision.HIGHEST)
_ROUNDED = (DotAlgorithmPreset.DEFAULT, DotAlgorithmPreset.TF32_TF32_F32)


@contextmanager
def gpu_products() -> Iterator[None]:
    """Products of float32 arrays in TF32, and the ways that the library takes on a GPU."""
    cpu = mlir._platform_specific_lowerings["cpu"]
    rules = {primitive: _rule(primitive, cpu.get(primitive) or mlir._lowerings[primitive]) for primitive in PRODUCTS}
    with (
        mock.patch.dict(cpu),
        mock.patch("jax.lax.platform_dependent", lambda *operands, default, **_: default(*operands)),
        jax.default_matmul_precision("tensorfloat32"),
    ):
        for primitive, rule in rules.items():
            mlir.register_lowering(primitive, rule, platform="cpu")
        yield


def _rule(primitive: Any, entry: Any) -> Callable[..., Any]:
    """How a product is lowered: with its operands rounded, or as before."""
    plain = getattr(entry, "rule", entry)

    def lowered(ctx: Any, *operands: Any, precision: Any, **params: Any) -> Any:
        of_float32 = all(x.dtype == jnp.float32 for x in ctx.avals_in)
        rounds = precision in _ROUNDED or (not isinstance(precision, DotAlgorithmPreset) and precision != _FULL)
        if not (of_float32 and rounds):
            return plain(ctx, *operands, precision=precision, **params)

        def product(*operands: Any) -> Any:
            cut = (jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=MANTISSA) for x in operands)
            return primitive.bind(*cut, precision=_FULL, **params)

        return mlir.lower_fun(product, multiple_results=False)(ctx, *operands)

    return lowered


def off() -> float:
    """Relative error of a product whose precision is left to the device: 3e-7 in float32, 3e-4 in TF32."""
    x = np.random.default_rng(0).random((64, 64))
    found = _square(jnp.asarray(x, jnp.float32))
    return float(np.max(np.abs(np.asarray(found, float) / (x @ x) - 1)))


_square = jax.jit(lambda x: x @ x)
MEASURED: list[float] = []
"""Errors that the tests of a run have measured, for `benchmarks/gpu_check.py`."""


def assert_network(found: Any, expected: Any, rtol: float, atol: float = 0.0) -> None:
    """As `assert_allclose`, of numbers that a network computes: within `LOOSE` of the largest in TF32."""
    MEASURED.append(float(np.max(np.abs(np.asarray(found) - expected)) / np.max(np.abs(expected))))
    if off() > 1e-5:
        rtol, atol = max(rtol, LOOSE), atol + LOOSE * float(np.max(np.abs(expected)))
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def loose(program: Any) -> list[str]:
    """The products of float32 arrays in a program that leave their precision to the device."""
    found = []
    if isinstance(program, ClosedJaxpr):
        program = program.jaxpr
    for equation in program.eqns:
        if equation.primitive in PRODUCTS:
            of_floats = all(x.aval.dtype == jnp.float32 for x in equation.invars)
            if of_floats and equation.params["precision"] != _FULL:
                found.append(str(equation))
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                found += loose(value)
    return found
