"""Convolutional trunks: shapes, sizes of the papers, and numpy's route to the same numbers."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural.networks import Filters, MinAtarConv, NatureConv, convolve, patches
from tests.tf32 import assert_network


def convolved(x, layer, stride):
    """[B, H, W, C] by loops over places, in float64."""
    kernel, bias = np.asarray(layer.kernel, np.float64), np.asarray(layer.bias, np.float64)
    side = len(kernel)
    height, width = ((n - side) // stride + 1 for n in x.shape[1:3])
    out = np.empty((len(x), height, width, kernel.shape[-1]))
    for i in range(height):
        for j in range(width):
            patch = x[:, i * stride : i * stride + side, j * stride : j * stride + side]
            out[:, i, j] = np.einsum("bhwc,hwco->bo", patch, kernel) + bias
    return np.maximum(out, 0)


def features(x, parameters, strides):
    """The whole trunk in numpy."""
    for layer, stride in zip(parameters.convolutions, strides, strict=True):
        x = convolved(x, layer, stride)
    hidden = parameters.hidden
    return np.maximum(x.reshape(len(x), -1) @ np.asarray(hidden.weight, np.float64) + np.asarray(hidden.bias), 0)


def test_nature_is_the_network_of_the_paper(key):
    trunk = NatureConv()
    assert trunk.num_features((4, 84, 84)) == 512
    parameters = jax.eval_shape(lambda k: trunk.init(k, (4, 84, 84)), key)
    shapes = [layer.kernel.shape for layer in parameters.convolutions]
    assert shapes == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    assert parameters.hidden.weight.shape == (3136, 512)
    assert sum(x.size for x in jax.tree.leaves(parameters)) == 1_684_128  # of Nature DQN without its last layer


def test_nature_is_numpys_convolution(key):
    trunk = NatureConv((Filters(5, 8, 4), Filters(6, 4, 2), Filters(7, 3, 1)), 11)
    shape = (3, 52, 60)
    parameters = trunk.init(key, shape)
    frames = np.asarray(jax.random.randint(key, (4, *shape), 0, 256)).astype(np.uint8)
    apply = jax.jit(trunk.apply)
    ours = apply(parameters, jnp.asarray(frames))
    expected = features(frames.transpose(0, 2, 3, 1) / 255, parameters, (4, 2, 1))
    assert_network(ours, expected, rtol=1e-4, atol=1e-6)
    assert ours.dtype == jnp.float32 and (expected > 1e-3).mean() > 0.2
    whole = apply(parameters, jnp.asarray(frames / np.float32(255)))  # floats are taken as they are
    assert_network(whole, ours, rtol=1e-5, atol=1e-6)


def test_patches_may_step(key):
    x = np.asarray(jax.random.normal(key, (2, 9, 8, 3)))
    ours = patches(jnp.asarray(x), 3, 2)
    assert ours.shape == (2, 4, 3, 27)
    np.testing.assert_array_equal(ours[1, 2, 1], x[1, 4:7, 2:5].reshape(-1))


@pytest.mark.parametrize("dtype", ["uint8", "bool"])
def test_minatar_is_numpys_convolution(key, dtype):
    trunk = MinAtarConv()
    parameters = trunk.init(key, (10, 10, 4))
    assert parameters.convolutions[0].kernel.shape == (3, 3, 4, 16)
    assert parameters.hidden.weight.shape == (1024, 128) == (1024, trunk.num_features((10, 10, 4)))
    planes = np.asarray(jax.random.bernoulli(key, 0.2, (6, 10, 10, 4)))
    ours = jax.jit(trunk.apply)(parameters, jnp.asarray(planes, dtype))
    assert_network(ours, features(planes.astype(float), parameters, (1,)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("shape", "side", "stride"), [((12, 13), 4, 2), ((11, 9), 3, 1), ((21, 20), 8, 4)])
def test_slopes_are_those_that_jax_derives(key, shape, side, stride):
    keys = jax.random.split(key)
    x, kernel = jax.random.normal(keys[0], (2, *shape, 3)), jax.random.normal(keys[1], (side, side, 3, 5))

    def plain(x, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=numbers)

    def slopes(f):
        return jax.jit(jax.grad(lambda *args: jnp.sum(f(*args) ** 3), argnums=(0, 1)))(x, kernel)

    ours, theirs = slopes(lambda x, kernel: convolve(x, kernel, stride)), slopes(plain)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
        assert np.abs(b).max() > 0.1


def test_every_convolution_has_channels_last(key):
    """XLA's CPU compiler has a fast program in loops and branches for this form alone."""
    trunk = NatureConv((Filters(2, 8, 4), Filters(3, 4, 2), Filters(4, 3, 1)), 5)
    parameters = trunk.init(key, (2, 44, 44))
    frames = jnp.zeros((3, 2, 44, 44), jnp.uint8)
    slope = jax.grad(lambda p: jnp.sum(trunk.apply(p, frames) ** 2))
    program = jax.jit(lambda p: jax.lax.cond(p.hidden.bias[0] > 0, slope, lambda q: q, p)).lower(parameters)
    forms = re.findall(r"dim_numbers = (.*?), window", program.as_text())
    assert len(forms) == 3 + 3 + 2 and set(forms) == {"[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"}


def test_parameters_are_within_their_bound(key):
    """The largest of n >= 8,192 uniform numbers misses the last 1 % with probability .99^n < 1e-35."""
    parameters = NatureConv().init(key, (4, 84, 84))
    for layer in (*parameters.convolutions, parameters.hidden):
        weight = layer[0]
        bound = 1 / np.sqrt(np.prod(weight.shape[:-1]))
        assert weight.size >= 8192
        assert 0.99 * bound < np.abs(weight).max() <= 1.0001 * bound
        assert np.abs(layer.bias).max() <= 1.0001 * bound


def test_refusals():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"NatureConv: observations have shape \(84, 84\), expected \(frames, h"):
        NatureConv().init(key, (84, 84))
    with pytest.raises(ValueError, match=r"planes of 30 x 84 are too small: 2 x 9 are left for filters of 3 x 3"):
        NatureConv().init(key, (4, 30, 84))
    with pytest.raises(ValueError, match=r"MinAtarConv: observations have shape \(4,\), expected \(height, w"):
        MinAtarConv().init(key, (4,))
