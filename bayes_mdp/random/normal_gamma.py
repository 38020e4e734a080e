"""Draws from the normal-gamma law of an unknown mean and precision."""

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key

from bayes_mdp.random.elementary import normal_and_exponential
from bayes_mdp.random.gamma import NORMAL_STREAM, element_numbers, loggamma
from bayes_mdp.random.threefry import key_words, threefry_blocks


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
