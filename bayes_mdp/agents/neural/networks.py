"""Trunks: observations -> features. Each holds its sizes only; parameters are trees of arrays."""

from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


class Dense(NamedTuple):
    """A linear layer: x weight + bias."""

    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]


class Conv(NamedTuple):
    """A convolution, channels last."""

    kernel: Float[Array, "H W I O"]
    bias: Float[Array, " O"]


def dense_init(key: PRNGKeyArray, inputs: int, outputs: int) -> Dense:
    """Weights uniform within 1 / sqrt(inputs), the usual law of a linear layer; biases likewise."""
    bound = 1 / np.sqrt(inputs)
    key_weight, key_bias = jax.random.split(key)
    weight = jax.random.uniform(key_weight, (inputs, outputs), minval=-bound, maxval=bound)
    return Dense(weight, jax.random.uniform(key_bias, (outputs,), minval=-bound, maxval=bound))


def dense(layer: Dense, x: Float[Array, "B I"]) -> Float[Array, "B O"]:
    """x weight + bias."""
    return x @ layer.weight + layer.bias


class Trunk(Protocol):
    """A network without its last layer."""

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> Any:
        """Its parameters."""
        ...

    def apply(self, parameters: Any, observation: Array) -> Float[Array, "B D"]:
        """Features of observations [B ...]."""
        ...

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D."""
        ...


def flat(observation: Array) -> Float[Array, "B I"]:
    """Observations [B ...] as rows of numbers."""
    return observation.reshape(len(observation), -1).astype(jnp.float32)


class MLP(eqx.Module):
    """Linear layers with a ReLU after each.

    Args:
        widths: of the layers; () gives the observation itself.
    """

    widths: tuple[int, ...] = eqx.field(default=(120, 84), static=True)

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> tuple[Dense, ...]:
        """Its parameters."""
        sizes = (int(np.prod(observation_shape)), *self.widths)
        keys = jax.random.split(key, max(len(self.widths), 1))
        return tuple(dense_init(k, *pair) for k, pair in zip(keys, pairwise(sizes), strict=False))

    def apply(self, parameters: tuple[Dense, ...], observation: Array) -> Float[Array, "B D"]:
        """Features of observations [B ...]."""
        x = flat(observation)
        for layer in parameters:
            x = jax.nn.relu(dense(layer, x))
        return x

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """The last width."""
        return self.widths[-1] if self.widths else int(np.prod(observation_shape))
