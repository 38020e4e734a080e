"""Systematic resampling (Carpenter, Clifford and Fearnhead 1999, *Improved particle filter for nonlinear problems*)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray


@partial(jax.jit, static_argnames="num")
def systematic(key: PRNGKeyArray, weights: Float[Array, " K"], num: int) -> Int[Array, " num"]:
    """Indices of `num` draws by weight, each within one of its expected number; never one of weight zero."""
    total = jnp.cumsum(weights)
    # One uniform number shifts an equally spaced grid in (0, 1]. Zero is left out, so that the first draw that reaches
    # a point has added to the sum.
    points = (jnp.arange(1, num + 1) - jax.random.uniform(key)) / num
    return jnp.searchsorted(total, points * total[-1])


def systematic_on_host(rng: np.random.Generator, weights: Float[np.ndarray, " K"], num: int) -> Int[np.ndarray, " num"]:
    """The same in NumPy: indices in their order, copies side by side."""
    total = np.cumsum(weights)
    points = (rng.random() + np.arange(num)) / num
    return np.minimum(np.searchsorted(total, points * total[-1]), len(weights) - 1)
