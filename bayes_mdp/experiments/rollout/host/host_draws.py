"""What both numba loops draw: random numbers, outcomes, rewards; and the first of the largest values.

Threefry-2x32 gives the numbers of `jax.random`, bit by bit (see `bayes_mdp.random.threefry`). A key is two words, and
so is what a key makes of a counter (high word, low word). JAX's partitionable layout: element n of an array has the
counter (0, n). Searches take whole arrays and indices, not slices: a slice would be counted as a reference, at every
step.
"""

from pathlib import Path

import numpy as np

from bayes_mdp.numerics.numba_function import code_of, compile_loop
from bayes_mdp.random.threefry import PARITY, ROTATIONS
from bayes_mdp.utils.typing import RealScalar

_PACKAGE = Path(__file__).parents[3]
CODE = code_of(
    Path(__file__).parent,
    _PACKAGE / "numerics/numba_function.py",
    _PACKAGE / "experiments/rollout/sweep_loop.py",
    _PACKAGE / "planning/prioritized_sweeping.py",
    _PACKAGE / "random/threefry.py",
)
"""A number of the text of the loops of this folder, and of the files whose constants they use: see `kept`."""
_UNIT32 = np.float32(2.0**-23)
_UNIT64 = 2.0**-52

Words = tuple[np.uint32, np.uint32]


@compile_loop
def _round(high: np.uint32, low: np.uint32, left: int) -> Words:
    """Add, rotate, exclusive or."""
    high = np.uint32(high + low)
    turned = np.uint32(np.uint32(low << np.uint32(left)) | np.uint32(low >> np.uint32(32 - left)))
    return high, np.uint32(turned ^ high)


@compile_loop
def block(key: Words, low: np.uint32) -> Words:
    """The two words that a key makes of the counter (0, low), in 20 rounds."""
    first, second = key
    # The key schedule of Threefry: the third word is the parity of the first two.
    words = first, second, np.uint32(np.uint32(first ^ second) ^ PARITY)
    x, y = first, np.uint32(low + second)
    # Five groups of four rounds; after each, two words of the schedule and the number of the group are added.
    for group in range(5):
        for left in ROTATIONS[group % 2]:
            x, y = _round(x, y, left)
        x = np.uint32(x + words[(group + 1) % 3])
        y = np.uint32(y + words[(group + 2) % 3] + np.uint32(group + 1))
    return x, y


@compile_loop
def fold_in(key: Words, data: int) -> Words:
    """`jax.random.fold_in`; `split(key)[n]` is the same."""
    return block(key, np.uint32(data))


@compile_loop
def fill_bits(key: Words, words: np.ndarray) -> None:
    """`jax.random.bits` of 32 bits, into all of `words` (UInt32[n])."""
    for n in range(words.size):
        high, low = block(key, np.uint32(n))
        words[n] = high ^ low


@compile_loop
def uniform32(word: np.uint32) -> np.float32:
    """In [0, 1), from 23 bits of a word, exactly."""
    return np.float32(np.float32(word >> np.uint32(9)) * _UNIT32)


@compile_loop
def as_uniform(high: np.uint32, low: np.uint32, size: int) -> float:
    """A float of so many bytes (4 or 8) in [0, 1), from two words: 23 or 52 bits, exactly."""
    if size == 4:
        # 32 bits: the two words are combined as JAX combines them.
        return np.float64(uniform32(high ^ low))
    word64 = (np.uint64(high) << np.uint64(32)) | np.uint64(low)
    # The upper 52 bits, times 2^-52.
    return np.float64(word64 >> np.uint64(12)) * _UNIT64


@compile_loop
def uniform(key: Words, size: int) -> float:
    """`jax.random.uniform` of a float of so many bytes."""
    high, low = block(key, np.uint32(0))
    return as_uniform(high, low, size)


@compile_loop
def search(u: RealScalar, threshold: np.ndarray, state: int, action: int) -> int:
    """How many of the 2^m - 1 increasing thresholds of a pair a uniform number reaches, as in `Simulator`."""
    # Binary search; thresholds are padded to 2^m - 1, so that every search takes m steps.
    half, position = (threshold.shape[2] + 1) // 2, 0
    while half:
        if u >= threshold[state, action, position + half - 1]:
            position += half
        half //= 2
    return position


@compile_loop
def first_of_largest(q: np.ndarray, first: int, n_actions: int) -> int:
    """The first action of largest value, of those from place `first` of `q` on."""
    best, top = 0, q[first]
    for a in range(1, n_actions):
        if q[first + a] > top:
            best, top = a, q[first + a]
    return best


@compile_loop
def draw_reward(key: Words, weight: np.ndarray, value: np.ndarray, row: int) -> np.floating:
    """A reward in a row of `value` [M E], by their cumulative weights: the numbers of `ListedReward.sample`."""
    kind, last = weight.dtype.type, weight.shape[1] - 1
    # The number of cumulative weights that u times their total reaches.
    reached, k = kind(uniform(key, weight.itemsize)) * weight[row, last], 0
    for e in range(last):
        k += reached >= weight[row, e]
    return value[row, k]
