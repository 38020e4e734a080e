"""Systematic resampling (Carpenter, Clifford and Fearnhead 1999, *Improved particle filter for nonlinear problems*)."""

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import is_concrete


def systematic(key: PRNGKeyArray, weights: Float[AnyArray, " K"], num: int) -> Int[AnyArray, " num"]:
    """Indices of `num` draws by weight, each within one of its expected number; never one of weight zero.

    Of concrete arrays by NumPy: nothing but the uniform number is compiled.
    """
    shift = jax.random.uniform(key)
    if is_concrete(shift, weights):
        shift, weights = float(shift), np.asarray(weights)
    total = xp.cumsum(weights)
    # One uniform number shifts an equally spaced grid in (0, 1]. Zero is left out, so that the first draw that reaches
    # a point has added to the sum.
    points = (np.arange(1, num + 1) - shift) / num
    return xp.searchsorted(total, points * total[-1])


def systematic_on_host(rng: np.random.Generator, weights: Float[np.ndarray, " K"], num: int) -> Int[np.ndarray, " num"]:
    """The same in NumPy: indices in their order, copies side by side."""
    total = np.cumsum(weights)
    points = (rng.random() + np.arange(num)) / num
    return np.minimum(np.searchsorted(total, points * total[-1]), len(weights) - 1)
