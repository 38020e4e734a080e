"""An MLP for observations with a single one (a position): its first layer is a look-up, whatever their size."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.neural.networks import MLP, Dense, dense, flat


class OneHotMLP(eqx.Module):
    """The function of `MLP` with the same parameters, for observations of zeros and at most one 1.

    The first layer takes a row of its weights where `MLP` multiplies by all of them. Other observations, several ones
    or other numbers, are not told apart from these and give another function: take `MLP` there.

    Args:
        widths: of the layers, at least one.
    """

    widths: tuple[int, ...] = eqx.field(default=(64, 64), static=True)

    def __check_init__(self) -> None:
        if not self.widths:
            raise ValueError("widths is (), expected at least one layer")

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> tuple[Dense, ...]:
        """Its parameters."""
        return MLP(self.widths).init(key, observation_shape)

    def apply(self, parameters: tuple[Dense, ...], observation: Array) -> Float[Array, "B D"]:
        """Features of observations [B ...]."""
        first, *others = parameters
        number = np.arange(len(first.weight), dtype=np.float32)  # exact up to 2^24
        place, present = (flat(observation) @ np.stack([number, np.ones_like(number)], 1)).T
        x = jax.nn.relu(present[:, None] * first.weight[place.astype(jnp.int32)] + first.bias)
        for layer in others:
            x = jax.nn.relu(dense(layer, x))
        return x

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """The last width."""
        del observation_shape
        return self.widths[-1]
