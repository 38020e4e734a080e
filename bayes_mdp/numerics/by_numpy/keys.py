"""Keys on the host: split and selected without a program for it."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray

from bayes_mdp.numerics.by_numpy import threefry_words as threefry
from bayes_mdp.numerics.by_numpy.evaluation import as_numpy
from bayes_mdp.utils.validation import is_concrete

Keys = TypeVar("Keys")


def split_key(key: PRNGKeyArray, number: int) -> Key[Array, " N"]:
    """`jax.random.split(key, number)`, the same keys."""
    if not _is_threefry(key):
        return jax.random.split(key, number)
    return _keys_of(threefry.split(as_numpy(key), shape=(number,)), key)


def fold_in_each(key: PRNGKeyArray, numbers: Int[np.ndarray, " N"]) -> Key[Array, " N"]:
    """`jax.random.fold_in(key, number)` of every number, the same keys."""
    if not _is_threefry(key):
        return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, numbers)
    return _keys_of(threefry.fold_in(as_numpy(key), numbers), key)


def _is_threefry(key: PRNGKeyArray) -> bool:
    """Whether it is a key with a value, whose numbers are those of `threefry_words`: JAX's default, or fused."""
    config: Any = jax.config
    default = str(key.dtype) == "key<fry>" and config.jax_threefry_partitionable
    return is_concrete(key) and (default or str(key.dtype) == "key<fus>")


def _keys_of(numbers: threefry.Array, like: PRNGKeyArray) -> Key[Array, " N"]:
    words = jax.device_put(np.stack(threefry.to_words(numbers), -1))
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(like))


def take_keys(keys: Keys, place: Int[np.ndarray, "..."] | int) -> Keys:
    """`keys[place]`, of typed or raw keys or other arrays; the places exist. Host side."""
    given: Any = keys
    if not jnp.issubdtype(given.dtype, jax.dtypes.prng_key):
        return given[place]
    words: Any = np.asarray(jax.random.key_data(given))[place]
    found: Any = jax.random.wrap_key_data(words, impl=jax.random.key_impl(given))
    return found
