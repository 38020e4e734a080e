"""Arrays of NumPy become arrays of JAX without a program for the conversion."""

import jax
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Shaped

from bayes_mdp.utils.typing import AnyArray


def place_as(array: Shaped[AnyArray, "*shape"], dtype: DTypeLike | None = None) -> Shaped[Array, "*shape"]:
    """`jnp.asarray(array, dtype)` of an array with values: converted by NumPy, then copied to the device."""
    wanted = jax.dtypes.canonicalize_dtype(np.asarray(array).dtype if dtype is None else dtype)
    return jax.device_put(np.asarray(array).astype(wanted))
