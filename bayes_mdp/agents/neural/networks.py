"""Trunks: observations -> features. Each holds its sizes only; parameters are trees of arrays.

What may be TF32 on a recent NVIDIA GPU, JAX's default there: the products of hidden layers and of convolutions, and
those of their gradients (relative errors of about 1e-3). All else is in float32: last layers (`dense`), where weights
cancel biases and a variance of 1e-3 may be left of numbers of size 1; the head of u; features that are fixed; beliefs.

Convolutional trunks: MinAtar's (Young and Tian 2019) and that of Nature (Mnih et al. 2015). What is fast on a CPU was
measured. Nature's: XLA's own convolution (batch 32, one core: 3.6 milliseconds forwards, 6.7 for patches and a matrix
product), with channels last in gradients too (`convolve`). MinAtar's small planes: patches (four seeds side by side:
0.38 milliseconds against 0.65, where XLA's convolution becomes one of groups).
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

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


def apply_relu_layers(layers: Iterable[Dense], x: Float[Array, "B I"]) -> Float[Array, "B D"]:
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
        return apply_relu_layers(parameters, flat(observation))

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
        first, *rest = parameters
        # The index of the 1 and whether there is one, by a product with (0, 1, 2, ...) and (1, 1, ...).
        number = np.arange(len(first.weight), dtype=np.float32)  # exact up to 2^24
        place, present = matmul(flat(observation), np.stack([number, np.ones_like(number)], 1)).T
        # A row of the weights in place of a product with a one-hot vector.
        x = jax.nn.relu(present[:, None] * first.weight[place.astype(jnp.int32)] + first.bias)
        return apply_relu_layers(rest, x)


class Filters(NamedTuple):
    """Sizes of one convolution, without padding.

    Args:
        number: of filters.
        side: of each, in pixels.
        stride: from one place to the next, in pixels.
    """

    number: int
    side: int
    stride: int


class ConvNet(NamedTuple):
    """Parameters of a convolutional trunk.

    Args:
        convolutions: one after the other.
        hidden: the linear layer on the last of them.
    """

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

    def apply(self, parameters: ConvNet, observation: Shaped[AnyArray, "B H W C"]) -> Float[Array, "B D"]:
        """Features of observations."""
        layer, stride = parameters.convolutions[0], self.filters.stride
        # A convolution as a matrix product of patches: fast for small planes.
        pieces = patches(jnp.asarray(observation, jnp.float32), self.filters.side, stride)
        weights = layer.kernel.reshape(pieces.shape[-1], -1)
        x = jax.nn.relu(pieces @ weights + layer.bias)
        return hidden(parameters.hidden, x.reshape(len(x), -1))

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

    def apply(self, parameters: ConvNet, observation: Shaped[AnyArray, "B C H W"]) -> Float[Array, "B D"]:
        """Features of observations."""
        # Frames are the channels, and stand last.
        x = jnp.asarray(observation.transpose(0, 2, 3, 1), jnp.float32)
        # Bytes are scaled to [0, 1].
        if jnp.issubdtype(observation.dtype, jnp.integer):
            x = x / 255
        for layer, size in zip(parameters.convolutions, self.filters, strict=True):
            x = jax.nn.relu(convolve(x, layer.kernel, size.stride) + layer.bias)
        return hidden(parameters.hidden, x.reshape(len(x), -1))

    def num_features(self, observation_shape: tuple[int, ...]) -> int:
        """D."""
        del observation_shape
        return self.width


def conv_init(key: PRNGKeyArray, planes: tuple[int, ...], filters: Sequence[Filters], width: int) -> ConvNet:
    """Parameters of convolutions and of a linear layer on them.

    Args:
        key: of the draw.
        planes: height, width and channels of an observation.
        filters: sizes of each convolution.
        width: units of the linear layer.

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
        # The law of a linear layer with as many inputs as a window has numbers.
        inputs = size.side**2 * channels
        flat = dense_init(layer_key, inputs, size.number)
        layers.append(Conv(flat.weight.reshape(size.side, size.side, channels, size.number), flat.bias))
        # Places that a filter without padding reaches.
        height, breadth = ((n - size.side) // size.stride + 1 for n in (height, breadth))
        channels = size.number
    return ConvNet(tuple(layers), dense_init(key_hidden, height * breadth * channels, width))


_LAST = ("NHWC", "HWIO", "NHWC")


def convolve(x: Float[Array, "B H W C"], kernel: Float[Array, "s s C O"], stride: int) -> Float[Array, "B h w O"]:
    """The outputs of a convolution without padding.

    On a CPU its gradients are convolutions with channels last as well, and not those that JAX derives: XLA's compiler
    brings the latter into that form only outside loops and branches, but all training is inside, where it is 20 to 50
    times slower (gradient of the first kernel at batch 32: 146 milliseconds against 3.7). The numbers are the same.

    Args:
        x: inputs, B images of C channels.
        kernel: O filters of side s.
        stride: in pixels.
    """
    # Other devices have fast gradients of their own.
    if jax.default_backend() != "cpu":
        return _plain(x, kernel, stride)
    return _convolve(x, kernel, stride)


def _plain(x: Array, kernel: Array, stride: int) -> Array:
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=_LAST)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolve(x: Array, kernel: Array, stride: int) -> Array:
    return _plain(x, kernel, stride)


def _forwards(x: Array, kernel: Array, stride: int) -> tuple[Array, tuple[Array, Array]]:
    return _convolve(x, kernel, stride), (x, kernel)


def _backwards(stride: int, kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, kernel = kept
    side = len(kernel)
    height, width = ((n - 1) * stride + side for n in gradient.shape[1:3])  # of x, as far as filters reach
    # d kernel: x (batch as channels) convolved with the gradient, its entries `stride` apart.
    reached_x, steps = x[:, :height, :width].transpose(3, 1, 2, 0), (stride, stride)
    of_kernel = jax.lax.conv_general_dilated(
        reached_x, gradient.transpose(1, 2, 0, 3), (1, 1), "VALID", rhs_dilation=steps, dimension_numbers=_LAST
    ).transpose(1, 2, 0, 3)
    pads = [(side - 1, side - 1 + n - reached) for n, reached in zip(x.shape[1:3], (height, width), strict=True)]
    # d x: the gradient, its entries `stride` apart, convolved with the kernel turned by 180 degrees.
    turned = kernel[::-1, ::-1].transpose(0, 1, 3, 2)
    of_x = jax.lax.conv_general_dilated(gradient, turned, (1, 1), pads, lhs_dilation=steps, dimension_numbers=_LAST)
    return of_x, of_kernel


_convolve.defvjp(_forwards, _backwards)


def patches(x: Float[Array, "B H W C"], side: int, stride: int) -> Float[Array, "B h w P"]:
    """The input of a filter of side x side at every place, P = side^2 C numbers in the order of a kernel [H W I].

    Args:
        x: inputs, B images of C channels.
        side: of the filter, in pixels.
        stride: in pixels.
    """
    height, width = ((n - side) // stride * stride + 1 for n in x.shape[1:3])
    # One slice of x for every entry of a filter: few large copies in place of many small windows.
    return jnp.concatenate(
        [x[:, i : i + height : stride, j : j + width : stride] for i in range(side) for j in range(side)], -1
    )


def _check(name: str, shape: tuple[int, ...], axes: str) -> None:
    if len(shape) != 3 or np.prod(shape) == 0:
        raise ValueError(f"{name}: observations have shape {tuple(shape)}, expected {axes}")
