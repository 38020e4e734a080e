"""Keys on the host: split and selected without a program for it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray, Shaped

from bayes_mdp.mdp.by_numpy import threefry_words as threefry
from bayes_mdp.mdp.by_numpy.evaluation import as_numpy
from bayes_mdp.mdp.typing import AnyArray
from bayes_mdp.mdp.validation import is_concrete


def split_key(key: PRNGKeyArray, number: int) -> Key[Array, " N"]:
    """`jax.random.split(key, number)`, the same keys."""
    if not is_concrete(key) or str(key.dtype) != "key<fry>" or not _in_parallel():
        return jax.random.split(key, number)
    words = threefry.to_words(threefry.split(as_numpy(key), shape=(number,)))
    return jax.random.wrap_key_data(jax.device_put(np.stack(words, -1)))


def _in_parallel() -> bool:
    """Whether JAX numbers the elements of an array as `threefry_words` does: its default."""
    config: Any = jax.config
    return config.jax_threefry_partitionable


def take_keys(
    keys: Key[Array, "N *rest"] | Shaped[AnyArray, "N *rest"], place: Int[np.ndarray, "..."] | int
) -> Key[Array, "..."] | Shaped[AnyArray, "..."]:
    """`keys[place]`, of typed or raw keys or other arrays; the places exist. Host side."""
    if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        return keys[place]
    words = np.asarray(jax.random.key_data(keys))[place]
    return jax.random.wrap_key_data(words, impl=str(jax.random.key_impl(keys)))
