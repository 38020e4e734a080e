"""JAX's default random numbers by NumPy: a key is one unsigned integer of 64 bits, its first word the higher half."""

from typing import Any, TypeAlias

import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_WORD = 32

Array: TypeAlias = Any
"""An array of NumPy, or a number of it, which it gives in the place of an array without axes."""
Words = tuple[Array, Array]


def to_words(key: Array) -> Words:
    """The two words of keys."""
    return (key >> np.uint64(_WORD)).astype(np.uint32), key.astype(np.uint32)


def to_keys(high: Array, low: Array) -> Array:
    """Keys of two words each."""
    return (high.astype(np.uint64) << np.uint64(_WORD)) | low.astype(np.uint64)


def block(key: Words, high: Array, low: Array) -> Words:
    """Threefry-2x32, 20 rounds, elementwise (Salmon et al. 2011)."""
    words = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    high, low = high + words[0], low + words[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            high = high + low
            low = high ^ ((low << np.uint32(rotation)) | (low >> np.uint32(_WORD - rotation)))
        high, low = high + words[(group + 1) % 3], low + (words[(group + 2) % 3] + np.uint32(group + 1))
    return high, low


def numbered(key: Array, shape: Any) -> Words:
    """A block for every element of an array of `shape` under each key, in JAX's partitionable order."""
    number = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    high, low = to_words(key.reshape(key.shape + (1,) * len(shape)))
    return block((high, low), *to_words(number))


def split(key: Array, *, shape: Any) -> Array:
    """`jax.random.split`."""
    return to_keys(*numbered(key, shape))


def fold_in(key: Array, number: Array) -> Array:
    """`jax.random.fold_in`."""
    number = np.asarray(number).astype(np.uint32)
    return to_keys(*block(to_words(key), np.zeros_like(number), number))


def bits(key: Array, *, bit_width: Any, shape: Any) -> Array:
    """`jax.random.bits`."""
    high, low = numbered(key, shape)
    if bit_width == 2 * _WORD:
        return to_keys(high, low)
    return (high ^ low).astype(f"uint{bit_width}")
