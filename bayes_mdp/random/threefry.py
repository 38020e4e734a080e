"""Threefry-2x32 with unrolled rounds: the numbers of `jax.random.key`, in a form that XLA fuses on CPU.

On CPU, JAX lowers the generator to a rolled loop, which XLA cannot fuse with the arithmetic that uses the words: every
random array goes through memory. Here the twenty rounds are written out, so a draw is one loop from counter to value.

Source: Salmon, Moraes, Dror and Shaw (2011), *Parallel random numbers: as easy as 1, 2, 3*.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Key, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
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
    keys = (key_data[0], key_data[1], key_data[0] ^ key_data[1] ^ _PARITY)
    state = [(high + keys[0], low + keys[1]) for high, low in counters]
    # Five groups of four rounds; after each, the next two words of the schedule and the group number are added.
    for group in range(5):
        for rotations in (_ROTATIONS[group % 2][:2], _ROTATIONS[group % 2][2:]):
            state = _rounds(state, rotations)
        low_key = keys[(group + 2) % 3] + np.uint32(group + 1)
        state = [(high + keys[(group + 1) % 3], low + low_key) for high, low in state]
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
