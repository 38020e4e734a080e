"""Gamma, exponential and normal-gamma draws as array arithmetic: the rejection loop runs only while it has to.

Sources: Marsaglia and Tsang (2000), *A simple method for generating gamma variables*; the boost
`Gamma(a) = Gamma(a + 1) U^(1/a)` is applied at every shape, so the proposals run at shapes of at least one, where 95 %
and more are accepted, and shapes below one lose nothing to underflow on the log scale.
"""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Key, UInt32

from bayes_mdp.random.threefry import (
    Block,
    exponentials,
    fast_log,
    key_words,
    normal_and_exponential,
    polynomial,
    threefry_block,
    threefry_blocks,
)

_UNROLLED_ROUNDS = 3  # fewer than 1e-5 of the elements are left
_BOOST_STREAM = np.uint32(0x80000000)  # streams that no round reaches: under one key the draws stay independent
EXPONENTIAL_STREAM = np.uint32(0x40000000)
NORMAL_STREAM = np.uint32(0x20000000)


def element_numbers(shape: tuple[int, ...]) -> UInt32[Array, "*shape"]:
    """Number the elements of an array in row-major order."""
    return lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)


def _log1p_tail(t: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return `log(1 + t) - t + t^2/2 - t^3/3` for t > -1, without cancellation at small t."""
    # Near 0 the terms of the direct form cancel: there the Taylor series, from t^4 on.
    threshold = 0.25 if t.dtype == jnp.float32 else 0.02
    series = polynomial([(-1.0) ** (power + 1) / power for power in range(4, 12)], t)
    square = t * t
    direct = fast_log(1 + t) - t + square * (0.5 - t * (1 / 3))
    return jnp.where(jnp.abs(t) < threshold, square * square * series, direct)


def _round(blocks: Sequence[Block], d: Float[Array, " N"]) -> Float[Array, " N"]:
    """Propose t, where `d (1 + t)^3` is the gamma draw, for every element; inf where the proposal is rejected.

    The test `log u < x^2/2 + d - d v + d log v` with `v = (1 + t)^3`, `t = x / sqrt(9 d)` is, the terms that cancel
    taken out, `log u < 3 d (log(1 + t) - t + t^2/2 - t^3/3)`. A nan (an invalid shape) is accepted.
    """
    # -exponential is distributed as log u.
    normal, exponential = normal_and_exponential(blocks)
    t = normal * lax.rsqrt(9 * d)
    # v <= 0 is rejected; the logarithm is taken of a clipped t, so that it is finite there too.
    inside = jnp.maximum(t, -1 + 2 * jnp.finfo(d.dtype).eps)
    rejected = (t <= -1) | (-exponential > 3 * d * _log1p_tail(inside))
    return jnp.where(rejected, jnp.inf, t)


def _propose(
    words: UInt32[Array, "2"],
    rounds: Sequence[Array | int],
    shape: Float[Array, " N"],
    number: UInt32[Array, " N"],
    finish: Callable,
) -> Float[Array, " N"]:
    """Return `finish(d, t, boost)` of the first round that is accepted, element by element; inf where none is."""
    width = 2 if shape.dtype == jnp.float64 else 1  # blocks a round
    streams = [jnp.uint32(index) * np.uint32(width) + np.uint32(part) for index in rounds for part in range(width)]
    counters = [(jnp.broadcast_to(stream, shape.shape), number) for stream in (_BOOST_STREAM, *streams)]
    # All rounds in one call: their hashes are independent, and the processor overlaps them.
    boost_block, *blocks = threefry_blocks(words, counters)
    # Shape a + 1 in place of a: d = (a + 1) - 1/3.
    d = shape + np.asarray(2 / 3, shape.dtype)
    t = _round(blocks[:width], d)
    # The first accepted proposal of each element: later rounds fill in what is still inf.
    for first in range(width, len(blocks), width):
        t = jnp.where(jnp.isposinf(t), _round(blocks[first : first + width], d), t)
    # U^(1/a) = exp(-boost), boost = E / a with E exponential: on the log scale nothing underflows.
    boost = jnp.where(shape == 0, jnp.inf, exponentials(boost_block, shape.dtype)[0] / shape)
    return jnp.where(jnp.isposinf(t), t, jnp.minimum(finish(d, t, boost), jnp.finfo(shape.dtype).max))


def _draw(
    key: Key[Array, ""],
    concentration: Float[Array, "*shape"],
    finish: Callable,
    element: Int[Array, "*shape"] | None = None,
) -> Float[Array, "*shape"]:
    """Return `finish(d, t, boost)` of accepted proposals, where the gamma draw is `d (1 + t)^3 exp(-boost)`.

    Three rules keep the code fast on XLA:CPU. One flat axis: only the last axis is vectorised. Everything is finished
    before the loop: what comes after it may be fused with a reduction, which is scalar code. Rejection is marked inside
    the float, as inf: a boolean beside it would be a second output, and the draw would be computed twice.
    """
    words, flat = key_words(key), concentration.reshape(-1)
    number = element_numbers(flat.shape) if element is None else element.reshape(-1).astype(jnp.uint32)
    # An invalid shape becomes nan, which is accepted at once: it must not keep the loop running.
    shape = jnp.where((flat >= 0) & (flat < jnp.inf), flat, jnp.nan)

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        index, draw = carry
        # Tied to the round, or what does not depend on it would be moved out of the loop: a dozen small kernels that
        # take a quarter of a second to compile, and run whether or not the loop does.
        index, (words_now, shape_now, number_now) = lax.optimization_barrier((index, (words, shape, number)))
        proposed = _propose(words_now, [index], shape_now, number_now, finish)
        return index + 1, jnp.where(jnp.isposinf(draw), proposed, draw)

    # Three rounds for everything, then single rounds of fresh words until nothing is inf.
    start = (jnp.uint32(_UNROLLED_ROUNDS), _propose(words, range(_UNROLLED_ROUNDS), shape, number, finish))
    _, draw = lax.while_loop(lambda carry: jnp.isposinf(carry[1]).any(), again, start)
    return draw.reshape(concentration.shape)


def exponential(
    key: Key[Array, ""], shape: tuple[int, ...] = (), dtype: DTypeLike = jnp.float32
) -> Float[Array, "*shape"]:
    """Draws of standard exponentials, `-log(u)` with u uniform at the middle of 2**23 (float64: 2**52) cells of (0, 1).

    They are independent of what `gamma` and `loggamma` draw from the same key.

    Args:
        shape: of the answer.
        dtype: float32 or float64.

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    # Counter = (stream, element): words that no round of `_propose` uses.
    number = element_numbers(shape)
    block = threefry_block(key_words(key), (jnp.zeros_like(number) + EXPONENTIAL_STREAM, number))
    return exponentials(block, jnp.dtype(dtype))[0]


def gamma(key: Key[Array, ""], concentration: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Draws from Gamma(concentration, rate 1), elementwise, in the dtype of `concentration`.

    A concentration of 0 gives 0; small ones underflow to 0 (at .01, 42 % of float32 draws): use `loggamma` there.
    An invalid concentration (negative, nan) gives nan.

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    return _draw(key, jnp.asarray(concentration), lambda d, t, boost: d * (1 + t) ** 3 * jnp.exp(-boost))


def loggamma(
    key: Key[Array, ""], concentration: Float[Array, "*shape"], element: Int[Array, "*shape"] | None = None
) -> Float[Array, "*shape"]:
    """Logarithms of draws from Gamma(concentration, rate 1), elementwise, in the dtype of `concentration`.

    Finite at every positive concentration, -inf at 0, nan at an invalid one (negative, nan).

    Args:
        key: typed threefry key.
        concentration: of each draw.
        element: the row-major number of each draw in a larger array (below 2^32), of which these are some: they get the
            numbers that they have there. None: 0, 1, ...

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    concentration = jnp.asarray(concentration)
    # log(d (1 + t)^3 exp(-boost)), term by term: the boost is subtracted, so that tiny shapes stay finite.
    draw = _draw(key, concentration, lambda d, t, boost: fast_log(d) + 3 * fast_log(1 + t) - boost, element)
    return jnp.where(concentration > 0, jnp.maximum(draw, jnp.finfo(draw.dtype).min), draw)


def normal_gamma(
    key: Key[Array, ""],
    loc: Float[Array, "*#shape"],
    pseudo_count: Float[Array, "*#shape"],
    concentration: Float[Array, "*#shape"],
    rate: Float[Array, "*#shape"],
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Draws `(mean, precision)`: Gamma(concentration, rate), then N(loc, 1 / (pseudo_count precision)) given it.

    The scale of the mean is formed on the log scale, so a small concentration gives a wide mean, never nan; a precision
    that is too small for the dtype comes out as 0 and its mean saturates at the largest finite number.

    Args:
        key: typed threefry key.
        loc: prior mean of the mean.
        pseudo_count: weight of `loc`, greater than 0.
        concentration, rate: of the Gamma law of the precision, greater than 0.

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    loc, pseudo_count, concentration, rate = jnp.broadcast_arrays(loc, pseudo_count, concentration, rate)
    dtype = jnp.result_type(loc, pseudo_count, concentration, rate)
    log_precision = loggamma(key, concentration.astype(dtype)) - jnp.log(rate).astype(dtype)
    # log precision = log Gamma(concentration, 1) - log rate.
    normal = _normal(key_words(key), loc.shape, dtype)
    largest = jnp.finfo(dtype).max
    # sd = (pseudo_count precision)^(-1/2), from the logarithm: a precision that underflows still gives a wide mean.
    scale = jnp.exp(-0.5 * (log_precision + jnp.log(pseudo_count)))
    mean = loc + jnp.clip(normal * scale, -largest, largest)
    return jnp.clip(mean, -largest, largest), jnp.exp(log_precision)


def _normal(words: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "*shape"]:
    # A stream of its own: independent of the gamma draws under the same key.
    number = element_numbers(shape)
    counters = [(jnp.zeros_like(number) + NORMAL_STREAM + np.uint32(part), number) for part in range(2)]
    blocks = threefry_blocks(words, counters if dtype == jnp.float64 else counters[:1])
    return normal_and_exponential(blocks)[0]
