"""`host_generator`: NumPy's random numbers from a key of JAX, for what is drawn on the host."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray


def host_generator(key: PRNGKeyArray) -> np.random.Generator:
    """A generator that the key seeds: the same key, the same numbers."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
