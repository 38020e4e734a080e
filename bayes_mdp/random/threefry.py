"""Threefry-2x32 with unrolled rounds: the numbers of `jax.random.key`, in a form that XLA fuses on CPU.

On CPU, JAX lowers the generator to a rolled loop, which XLA cannot fuse with the arithmetic that uses the words: every
random array goes through memory. Here the twenty rounds are written out, so a draw is one loop from counter to value:
words first, then the uniforms, exponentials and normals that are made of them.

Source: Salmon, Moraes, Dror and Shaw (2011), *Parallel random numbers: as easy as 1, 2, 3*.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import define_prng_impl
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Float32, Key, UInt32

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
_PLAIN_NAME = "threefry2x32"
_FUSED_NAME = "threefry2x32_fused"
_WORD = np.uint32(0xFFFFFFFF)

Words = UInt32[Array, "*shape"]
Block = tuple[Words, Words]


def threefry_block(key_data: UInt32[Array, "2"], counter: Block) -> Block:
    """Return the two words that Threefry-2x32 (20 rounds) makes of a 64-bit counter `(high, low)`, elementwise."""
    return threefry_blocks(key_data, [counter])[0]


def threefry_blocks(key_data: UInt32[Array, "2"], counters: Sequence[Block]) -> list[Block]:
    """Return `threefry_block` of several counters, the rounds interleaved.

    One hash is a chain of dependent instructions. Inside a fusion a processor overlaps several hashes only if their
    instructions lie close to each other, and newer XLA emits them hash by hash, at half the speed. `_after` keeps them
    in step.
    """
    # The key schedule: the third word is the parity of the other two.
    keys = (key_data[0], key_data[1], key_data[0] ^ key_data[1] ^ PARITY)
    state = [(high + keys[0], low + keys[1]) for high, low in counters]
    # Five groups of four rounds; after each, the next two words of the schedule and the group number are added.
    for group in range(5):
        for rotations in (ROTATIONS[group % 2][:2], ROTATIONS[group % 2][2:]):
            state = _rounds(state, rotations)
        first, second, number = keys[(group + 1) % 3], keys[(group + 2) % 3], np.uint32(group + 1)
        # In this order: a sum of key and number alone would be moved out of every loop, into a kernel of its own.
        state = [(high + first, low + second + number) for high, low in state]
    return state


def _rounds(state: list[Block], rotations: Sequence[int]) -> list[Block]:
    done: list[Block] = []
    for high, low in state:
        if len(state) > 1:
            high = _after(high, (done or state)[-1][1])
        # One round: add, rotate, exclusive or.
        for rotation in rotations:
            high = high + low
            low = high ^ ((low << np.uint32(rotation)) | (low >> np.uint32(32 - rotation)))
        done.append((high, low))
    return done


def _after(word: Words, earlier: Words) -> Words:
    """Return `word`, to be computed after `earlier`: adds `min(earlier, 0) = 0`, which LLVM drops, but XLA does not."""
    return word + jnp.minimum(earlier, np.uint32(0))


def _counters(shape: tuple[int, ...]) -> Block:
    """Number the elements of an array in row-major order, as 64-bit counters `(high, low)`."""
    if math.prod(shape) > 2**32:
        raise ValueError(f"shape: one key numbers at most 2**32 elements, got {shape}")
    # Row-major number = sum over axes of index x stride, modulo 2^32.
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    low = jnp.zeros(shape, jnp.uint32)
    for axis, stride in enumerate(strides):
        low = low + lax.broadcasted_iota(jnp.uint32, shape, axis) * np.uint32(stride & _WORD)
    return jnp.zeros(shape, jnp.uint32), low


def _seed(seed: Array) -> UInt32[Array, "2"]:
    bits = np.uint32(0) if seed.dtype.itemsize < 8 else (seed >> 32).astype(jnp.uint32)
    return jnp.stack([jnp.asarray(bits, jnp.uint32), seed.astype(jnp.uint32)])


def _split(key_data: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "*shape 2"]:
    return jnp.stack(threefry_block(key_data, _counters(shape)), axis=-1)


def _random_bits(key_data: UInt32[Array, "2"], bit_width: int, shape: tuple[int, ...]) -> Array:
    high, low = threefry_block(key_data, _counters(shape))
    if bit_width == 64:
        return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)
    return (high ^ low).astype(jnp.dtype(f"uint{bit_width}"))


def _fold_in(key_data: UInt32[Array, "2"], data: Array | int) -> UInt32[Array, "2"]:
    folded = (jnp.zeros((), jnp.uint32), jnp.asarray(data).astype(jnp.uint32))
    return jnp.stack(threefry_block(key_data, folded))


_FUSED = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name=_FUSED_NAME, tag="fus"
)


def fused_key(key: Key[Array, "*batch"]) -> Key[Array, "*batch"]:
    """Rewrap a threefry key so that whatever is drawn from it fuses on CPU; the numbers stay the same, bit for bit.

    Bits, splits and folds equal those of `jax.random.key` in JAX's partitionable layout (its default), hence so does
    everything that `jax.random` builds on them. A fused key is returned unchanged.

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    return key if _impl_name(key) == "fused" else jax.random.wrap_key_data(jax.random.key_data(key), impl=_FUSED)


def plain_key(key: Key[Array, "*batch"]) -> Key[Array, "*batch"]:
    """Rewrap a fused key as an ordinary threefry key, the inverse of `fused_key`. A plain key is returned unchanged.

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    return key if _impl_name(key) == "plain" else jax.random.wrap_key_data(jax.random.key_data(key), impl=_PLAIN_NAME)


def key_words(key: Key[Array, ""]) -> UInt32[Array, "2"]:
    """Return the two words of a threefry key, the first argument of `threefry_block`.

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    _impl_name(key)
    return jax.random.key_data(key)


def _impl_name(key: Array) -> str:
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key: expected a typed key such as jax.random.key(0), got {type(key).__name__}")
    impl = jax.random.key_impl(key)
    if impl == _FUSED:
        return "fused"
    if str(impl) == _PLAIN_NAME:
        return "plain"
    raise TypeError(f"key: expected a threefry key (the default of jax.random.key), got one of kind {impl}")


# From random words to uniforms, exponentials and normals, elementwise. In float32 a draw takes 23 bits of one word, in
# float64 52 bits of a block of two: every value of a uniform sits at the middle of its cell, so none is 0 or 1 and no
# logarithm is infinite. The float32 logarithm is a polynomial (XLA's own takes twice the time inside a fusion), within
# 3e-7 of the true value, relatively.

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
