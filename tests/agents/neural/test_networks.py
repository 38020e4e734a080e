# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""The multi-layer perceptron beside numpy, and the law of its first parameters."""

from itertools import pairwise

import jax
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.agents.neural.networks import MLP, dense_init
from tests.tf32 import assert_network


@pytest.mark.parametrize(("shape", "widths"), [((4,), (6, 3)), ((2, 3), (5,)), ((2, 3), ())])
def test_mlp(key, shape, widths):
    """Layers with a ReLU after each; observations of any shape and type are rows of numbers; () is the identity."""
    trunk = MLP(widths)
    parameters = trunk.init(key, shape)
    observation = np.random.default_rng(0).integers(0, 9, (7, *shape), dtype=np.uint8)
    expected = observation.reshape(7, -1).astype(float)
    sizes = [expected.shape[1], *widths]
    assert [p.weight.shape for p in parameters] == list(pairwise(sizes))
    for layer in parameters:
        expected = np.maximum(expected @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float), 0.0)
    found = trunk.apply(parameters, observation)
    assert found.dtype == np.float32
    assert found.shape == (7, trunk.num_features(shape))
    assert_network(found, expected, rtol=1e-5, atol=1e-5)


def test_first_parameters(key):
    """Uniform within 1 / sqrt(inputs) (Kolmogorov and Smirnov, false alarm 1e-6 each); layers differ.

    20,000 weights show an error of 6 % in the bound; the twin has it.
    """
    layer = dense_init(key, 100, 200)
    for numbers in layer:
        assert stats.kstest(np.ravel(numbers), "uniform", args=(-0.1, 0.2)).pvalue > 1e-6
    assert stats.kstest(np.ravel(layer.weight) * 1.06, "uniform", args=(-0.1, 0.2)).pvalue < 1e-6
    first, second = MLP((8, 8)).init(key, (8,))
    assert not np.any(np.asarray(first.weight) == np.asarray(second.weight))
    other = MLP((8, 8)).init(jax.random.fold_in(key, 1), (8,))
    assert not np.any(np.asarray(first.weight) == np.asarray(other[0].weight))
