"""From random words to uniforms, exponentials and normals, elementwise, in code that XLA:CPU fuses and vectorises.

In float32 a draw takes 23 bits of one word, in float64 52 bits of a block of two: every value of a uniform sits at the
middle of its cell, so none is 0 or 1 and no logarithm is infinite. The float32 logarithm is a polynomial (XLA's own
takes twice the time inside a fusion), within 3e-7 of the true value, relatively.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Float32, UInt32

from bayes_mdp.random.threefry import Block

_LOG_2 = np.float32(np.log(2.0))
_SQRT_HALF_BITS = np.int32(0x3F3504F3)
# log(1 + t) / t for t in [sqrt(1/2) - 1, sqrt(2) - 1]: minimax in relative error, 2.6e-8
_LOG1P_OVER_T = (
    1.0, -0.4999998807907, 0.3333418667316, -0.2500207424164, 0.1995683312416, -0.1656239330769, 0.1495226621628,
    -0.1436684280634, 0.0872235521674,
)  # fmt: skip
_ERFINV_CENTRE = np.array([
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06, -3.5233877e-06,
    3.43273939e-07, 2.81022636e-08,
], np.float32)  # fmt: skip
_ERFINV_TAIL = np.array([
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322,
    0.000100950558, -0.000200214257,
], np.float32)  # fmt: skip


def polynomial(coefficients: Sequence[ArrayLike], t: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Evaluate `sum_k coefficients[k] t^k` by Estrin's scheme: halves the chain of dependent products of Horner's."""
    terms, power = [jnp.asarray(c, t.dtype) for c in coefficients], t
    while len(terms) > 1:
        pairs = [low + high * power for low, high in zip(terms[::2], terms[1::2], strict=False)]
        terms, power = pairs + terms[len(terms) & ~1 :], power * power
    return terms[0]


def _split_log(x: Float32[Array, "*shape"]) -> tuple[Float32[Array, "*shape"], Float32[Array, "*shape"]]:
    """Write `log(x) = exponent * log(2) + rest`, `x` a positive normal float32; `rest` in [-0.35, 0.35]."""
    # x = 2^exponent m with m in [sqrt(1/2), sqrt(2)): the offset moves the boundary of the exponent to sqrt(1/2).
    bits = lax.bitcast_convert_type(x, jnp.int32)
    exponent = lax.shift_right_arithmetic(bits - _SQRT_HALF_BITS, np.int32(23))
    # m - 1, exact: the exponent is taken out of the bits.
    t = lax.bitcast_convert_type(bits - lax.shift_left(exponent, np.int32(23)), jnp.float32) - 1
    return exponent.astype(jnp.float32), t * polynomial(_LOG1P_OVER_T, t)


def fast_log(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return the logarithm of positive normal numbers: a polynomial in float32, `jnp.log` in float64."""
    if x.dtype != jnp.float32:
        return jnp.log(x)
    exponent, rest = _split_log(x)
    return exponent * _LOG_2 + rest


def _exponential_from_word(word: UInt32[Array, "*shape"]) -> Float32[Array, "*shape"]:
    # u = scaled 2^-23, so -log u = (23 - exponent) log 2 - rest.
    scaled = (word >> np.uint32(9)).astype(jnp.int32).astype(jnp.float32) + np.float32(0.5)  # uniform * 2**23
    exponent, rest = _split_log(scaled)
    return (23 - exponent) * _LOG_2 - rest


def _unit_from_block(block: Block) -> Float[Array, "*shape"]:
    """Return float64 uniforms in (0, 1): 52 bits, at the middle of their cells."""
    high = (block[0] >> np.uint32(6)).astype(jnp.float64)  # 26 bits
    low = (block[1] >> np.uint32(6)).astype(jnp.float64)
    return (high * 2.0**26 + low + 0.5) * 2.0**-52


def exponentials(block: Block, dtype: DTypeLike) -> tuple[Float[Array, "*shape"], ...]:
    """Turn a block into independent standard exponentials `-log(u)`: two in float32, one in float64."""
    if dtype == jnp.float64:
        return (-jnp.log(_unit_from_block(block)),)
    return _exponential_from_word(block[0]), _exponential_from_word(block[1])


def normal_from_word(word: UInt32[Array, "*shape"]) -> Float32[Array, "*shape"]:
    """Return `sqrt(2) erfinv(x)`, x uniform on the odd multiples of 2**-23 in (-1, 1).

    Giles (2010), *Approximating the erfinv function*, single precision: 4e-7, relatively.
    """
    # The top 24 bits as a signed odd integer: symmetric around 0, never 0, never -1 or 1.
    signed = lax.shift_right_arithmetic(lax.bitcast_convert_type(word, jnp.int32), np.int32(8)) | np.int32(1)
    x = signed.astype(jnp.float32) * np.float32(2.0**-23)
    # Giles: a polynomial in w = -log(1 - x^2), and another in sqrt(w) for the tail; both by one evaluation.
    w = -fast_log((1 - x) * (1 + x))
    central = w < 5
    shifted = jnp.where(central, w - np.float32(2.5), jnp.sqrt(w) - 3)
    series = polynomial([jnp.where(central, *pair) for pair in zip(_ERFINV_CENTRE, _ERFINV_TAIL, strict=True)], shifted)
    return np.float32(np.sqrt(2.0)) * x * series


def normal_and_exponential(blocks: Sequence[Block]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Return a standard normal and an independent standard exponential: float32 from one block, float64 from two."""
    if len(blocks) == 1:
        return normal_from_word(blocks[0][0]), _exponential_from_word(blocks[0][1])
    normal = np.sqrt(2.0) * lax.erf_inv(2 * _unit_from_block(blocks[0]) - 1)
    return normal, exponentials(blocks[1], jnp.float64)[0]
