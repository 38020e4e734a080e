"""Fixed random features: a layer that is drawn once and never learns, so that a belief on it is never stale."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.neural.networks import flat


class RandomFeatures(eqx.Module):
    """phi = relu(W observation), W of N(0, 1), centred over the units, of unit norm.

    Args:
        num_units: D. About so many states can be told apart by a linear-Gaussian belief.
    """

    num_units: int = eqx.field(default=512, static=True)

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> Float[Array, "I D"]:
        """W."""
        return jax.random.normal(key, (int(np.prod(observation_shape)), self.num_units))

    def apply(self, parameters: Float[Array, "I D"], observation: Array) -> Float[Array, "B D"]:
        """Features of observations [B ...]."""
        x = jax.nn.relu(flat(observation) @ parameters)
        x = x - jnp.mean(x, 1, keepdims=True)
        return x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1e-6)

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D."""
        del observation_shape
        return self.num_units
