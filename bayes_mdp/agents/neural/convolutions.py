"""Convolutional trunks: MinAtar's (Young and Tian 2019) and that of Nature (Mnih et al. 2015).

What is fast on a CPU was measured. Nature's: XLA's own convolution, channels last (batch 32, one core: 3.6 milliseconds
forwards, 6.7 for patches and a matrix product). MinAtar's small planes: patches (four seeds side by side: 0.38
milliseconds against 0.65, where XLA's convolution becomes one of groups).
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from bayes_mdp.agents.neural.networks import Conv, Dense, dense, dense_init


class Filters(NamedTuple):
    """Sizes of one convolution, without padding: number of filters, side of each, step from one to the next."""

    number: int
    side: int
    stride: int


class ConvNet(NamedTuple):
    """Parameters of a convolutional trunk."""

    convolutions: tuple[Conv, ...]
    hidden: Dense


class MinAtarConv(eqx.Module):
    """16 filters of 3 x 3, then a linear layer, a ReLU after each; planes [height, width, channels].

    Args:
        filters: of the convolution.
        width: D, of the linear layer.
    """

    filters: Filters = eqx.field(default=Filters(16, 3, 1), static=True)
    width: int = eqx.field(default=128, static=True)

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> ConvNet:
        """Its parameters, uniform within 1 / sqrt(inputs of a unit).

        Raises:
            ValueError: an observation is no stack of planes, or smaller than a filter.
        """
        _check("MinAtarConv", observation_shape, "(height, width, channels)")
        return conv_init(key, observation_shape, (self.filters,), self.width)

    def apply(self, parameters: ConvNet, observation: Shaped[Array, "B H W C"]) -> Float[Array, "B D"]:
        """Features of observations."""
        layer, stride = parameters.convolutions[0], self.filters.stride
        pieces = patches(observation.astype(jnp.float32), self.filters.side, stride)
        weights = layer.kernel.reshape(pieces.shape[-1], -1)
        return _features(parameters, jax.nn.relu(pieces @ weights + layer.bias))

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D."""
        del observation_shape
        return self.width


class NatureConv(eqx.Module):
    """32 filters of 8 x 8 (step 4), 64 of 4 x 4 (2), 64 of 3 x 3, then a linear layer, a ReLU after each.

    Frames [frames, height, width] as Atari's environments give them; whole numbers (bytes) are divided by 255.

    Args:
        filters: of the convolutions.
        width: D, of the linear layer.
    """

    filters: tuple[Filters, ...] = eqx.field(
        default=(Filters(32, 8, 4), Filters(64, 4, 2), Filters(64, 3, 1)), static=True
    )
    width: int = eqx.field(default=512, static=True)

    def init(self, key: PRNGKeyArray, observation_shape: tuple[int, ...]) -> ConvNet:
        """Its parameters, uniform within 1 / sqrt(inputs of a unit).

        Raises:
            ValueError: an observation is no stack of frames, or too small for the filters.
        """
        _check("NatureConv", observation_shape, "(frames, height, width)")
        frames, height, width = observation_shape
        return conv_init(key, (height, width, frames), self.filters, self.width)

    def apply(self, parameters: ConvNet, observation: Shaped[Array, "B C H W"]) -> Float[Array, "B D"]:
        """Features of observations."""
        x = observation.astype(jnp.float32)
        if jnp.issubdtype(observation.dtype, jnp.integer):
            x = x / 255
        layout = "NCHW"  # the first convolution reads frames as they come: no transposition is paid
        for layer, size in zip(parameters.convolutions, self.filters, strict=True):
            x, layout = conv_relu(layer, x, size.stride, layout), "NHWC"
        return _features(parameters, x)

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D."""
        del observation_shape
        return self.width


def conv_init(key: PRNGKeyArray, planes: tuple[int, ...], filters: Sequence[Filters], width: int) -> ConvNet:
    """Parameters of convolutions on planes [height, width, channels] and of a linear layer on them.

    Raises:
        ValueError: the planes are too small for the filters.
    """
    key_hidden, *keys = jax.random.split(key, len(filters) + 1)
    height, breadth, channels = planes
    layers = []
    for layer_key, size in zip(keys, filters, strict=True):
        if min(height, breadth) < size.side:
            raise ValueError(
                f"planes of {planes[0]} x {planes[1]} are too small: {height} x {breadth} are left for filters of "
                f"{size.side} x {size.side}"
            )
        inputs = size.side**2 * channels
        flat = dense_init(layer_key, inputs, size.number)
        layers.append(Conv(flat.weight.reshape(size.side, size.side, channels, size.number), flat.bias))
        height, breadth = ((n - size.side) // size.stride + 1 for n in (height, breadth))
        channels = size.number
    return ConvNet(tuple(layers), dense_init(key_hidden, height * breadth * channels, width))


def conv_relu(layer: Conv, x: Float[Array, "B ..."], stride: int, layout: str = "NHWC") -> Float[Array, "B H W O"]:
    """A convolution without padding, then a ReLU; channels last in what comes out, `layout` is that of `x`."""
    out = jax.lax.conv_general_dilated(
        x, layer.kernel, (stride, stride), "VALID", dimension_numbers=(layout, "HWIO", "NHWC")
    )
    return jax.nn.relu(out + layer.bias)


def patches(x: Float[Array, "B H W C"], side: int, stride: int) -> Float[Array, "B h w P"]:
    """What a filter of side x side sees at every place, P = side^2 C numbers in the order of a kernel [H W I]."""
    height, width = ((n - side) // stride * stride + 1 for n in x.shape[1:3])
    return jnp.concatenate(
        [x[:, i : i + height : stride, j : j + width : stride] for i in range(side) for j in range(side)], -1
    )


def _features(parameters: ConvNet, x: Float[Array, "B H W C"]) -> Float[Array, "B D"]:
    return jax.nn.relu(dense(parameters.hidden, x.reshape(len(x), -1)))


def _check(name: str, shape: tuple[int, ...], axes: str) -> None:
    if len(shape) != 3 or np.prod(shape) == 0:
        raise ValueError(f"{name} looks at observations of shape {tuple(shape)}, expected {axes}")
