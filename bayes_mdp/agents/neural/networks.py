"""Trunks: observations -> features. Each holds its sizes only; parameters are trees of arrays.

What may be TF32 on a recent NVIDIA GPU, JAX's default there: the products of hidden layers and of convolutions, and
those of their gradients (relative errors of about 1e-3). All else is in float32: last layers (`dense`), where weights
cancel biases and a variance of 1e-3 may be left of numbers of size 1; the head of u; features that are fixed; beliefs.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import AnyArray

Features: TypeAlias = Float[Array, "B D"] | Int[Array, "B k"]
"""Features of B observations: D numbers each, or in sparse form the indices of the k active ones (`HashedFeatures`)."""


class Dense(NamedTuple):
    """A linear layer of I inputs and O outputs: x `weight` + `bias`."""

    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]


class Conv(NamedTuple):
    """A convolution, channels last: a window of H times W pixels, I channels in, O out.

    Args:
        kernel, bias: its parameters.
    """

    kernel: Float[Array, "H W I O"]
    bias: Float[Array, " O"]


def dense_init(key: PRNGKeyArray, inputs: int, outputs: int) -> Dense:
    """Weights uniform within 1 / sqrt(inputs), the usual law of a linear layer; biases likewise.

    Args:
        key: of the draw.
        inputs: I.
        outputs: O.
    """
    bound = 1 / np.sqrt(inputs)  # variance 1 / (3 inputs)
    key_weight, key_bias = jax.random.split(key)
    weight = jax.random.uniform(key_weight, (inputs, outputs), minval=-bound, maxval=bound)
    return Dense(weight, jax.random.uniform(key_bias, (outputs,), minval=-bound, maxval=bound))


def dense(layer: Dense, x: Float[AnyArray, "B I"]) -> Float[Array, "B O"]:
    """The outputs x weight + bias of B inputs, in float32 on every device.

    Args:
        layer: its parameters.
        x: the inputs.
    """
    return jnp.asarray(matmul(x, layer.weight) + layer.bias)


def hidden(layer: Dense, x: Float[AnyArray, "B I"]) -> Float[Array, "B O"]:
    """The outputs after a ReLU, their product in the default precision of the device.

    Args:
        layer: its parameters.
        x: the inputs.
    """
    return jax.nn.relu(x @ layer.weight + layer.bias)


@runtime_checkable
class Trunk(Protocol):
    """A network without its last layer."""

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> PyTree:
        """Its parameters.

        Args:
            key: of the draw.
            observation_shape: of one observation.
        """
        ...

    def apply(self, parameters: PyTree, observation: AnyArray) -> Features:
        """Features of B observations.

        Args:
            parameters: from `init`, or learned.
            observation: [B ...].
        """
        ...

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D, the number of features of one observation.

        Args:
            observation_shape: of one observation.
        """
        ...


def flat(observation: AnyArray) -> Float[Array, "B I"]:
    """Observations as rows of I numbers.

    Args:
        observation: [B ...].
    """
    return jnp.asarray(observation.reshape(len(observation), -1).astype(jnp.float32))


def rectified(layers: Iterable[Dense], x: Float[Array, "B I"]) -> Float[Array, "B D"]:
    """Features after linear layers with a ReLU each.

    Args:
        layers: one after the other.
        x: the inputs.
    """
    for layer in layers:
        x = hidden(layer, x)
    return x


class MLP(eqx.Module):
    """Linear layers with a ReLU after each.

    Args:
        widths: of the layers; () gives the observation itself.

    Example:
        >>> from bayes_mdp.agents.neural import MLP
        >>> trunk = MLP(widths=(32, 16))
        >>> parameters = trunk.init(jax.random.key(0), (4, 4))
        >>> trunk.apply(parameters, jnp.zeros((3, 4, 4))).shape, trunk.num_features((4, 4))
        ((3, 16), 16)
    """

    widths: tuple[int, ...] = eqx.field(default=(120, 84), static=True)

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> tuple[Dense, ...]:
        """Its parameters."""
        sizes = (int(np.prod(observation_shape)), *self.widths)
        keys = jax.random.split(key, max(len(self.widths), 1))
        return tuple(dense_init(k, *pair) for k, pair in zip(keys, pairwise(sizes), strict=False))

    def apply(self, parameters: tuple[Dense, ...], observation: AnyArray) -> Float[Array, "B D"]:
        """Features of observations [B ...]."""
        return rectified(parameters, flat(observation))

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """The last width."""
        return self.widths[-1] if self.widths else int(np.prod(observation_shape))


class OneHotMLP(MLP):
    """The function of `MLP` with the same parameters, for observations of zeros and at most one 1 (a position).

    The first layer takes a row of its weights where `MLP` multiplies by all of them, whatever their number. Other
    observations, several ones or other numbers, are not told apart from these and give another function: take `MLP`
    there.

    Args:
        widths: of the layers, at least one.

    Raises:
        ValueError: no layer.
    """

    widths: tuple[int, ...] = eqx.field(default=(64, 64), static=True)

    def __check_init__(self) -> None:
        if not self.widths:
            raise ValueError("widths is (), expected at least one layer")

    def apply(self, parameters: tuple[Dense, ...], observation: AnyArray) -> Float[Array, "B D"]:
        """Features of observations [B ...]."""
        first, *others = parameters
        # The index of the 1 and whether there is one, by a product with (0, 1, 2, ...) and (1, 1, ...).
        number = np.arange(len(first.weight), dtype=np.float32)  # exact up to 2^24
        place, present = matmul(flat(observation), np.stack([number, np.ones_like(number)], 1)).T
        x = jax.nn.relu(present[:, None] * first.weight[place.astype(jnp.int32)] + first.bias)
        return rectified(others, x)
