"""Features that never learn: written out by hand, and no gradient into them."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural.features import Box, Fourier, RadialBasis, RandomFeatures, Tiles

BOX = Box((-1.2, -0.07), (0.6, 0.07))
RNG = np.random.default_rng(0)
LOW, HIGH = np.array(BOX.low), np.array(BOX.high)
POINTS = (LOW + (HIGH - LOW) * RNG.random((20, 2))).astype(np.float32)
FIXED = [Fourier(BOX, 3), RadialBasis(BOX, 4, 0.7), Tiles(BOX, 4, 5)]


def unit(points):
    """In the unit square."""
    return (np.asarray(points, np.float64) - LOW) / (HIGH - LOW)


@pytest.mark.parametrize("trunk", FIXED, ids=lambda t: type(t).__name__)
def test_sizes_and_bounds(trunk):
    """As many as announced, length at most 1, and beyond the box what is at its bound."""
    parameters = trunk.init(jax.random.key(0), (2,))
    assert parameters == ()
    x = np.asarray(trunk.apply((), jnp.asarray(POINTS)))
    assert x.shape == (20, trunk.num_features((2,)))
    assert np.all(np.linalg.norm(x, axis=1) < 1 + 1e-5)
    outside = trunk.apply((), jnp.array([[-9.0, 9.0], [-1.2, 0.07]]))
    assert np.allclose(outside[0], outside[1])


def test_fourier_by_hand():
    """cos(pi c . x) / 4 for 16 vectors c."""
    rows = [[np.cos(np.pi * (c @ x)) / 4 for c in map(np.array, product(range(4), repeat=2))] for x in unit(POINTS)]
    assert np.allclose(FIXED[0].apply((), jnp.asarray(POINTS)), rows, atol=1e-5)


def test_bumps_by_hand():
    """Gaussians around 16 centres, 0.7 steps wide, then unit norm."""
    centres = [np.array(c) / 3 for c in product(range(4), repeat=2)]
    rows = np.array([[np.exp(-0.5 * np.sum((3 * (x - c)) ** 2) / 0.7**2) for c in centres] for x in unit(POINTS)])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.allclose(FIXED[1].apply((), jnp.asarray(POINTS)), rows, atol=1e-5)


def test_tiles_by_hand():
    """One tile of every tiling; two points share a tile of tiling k exactly where the moved grid says so."""
    tiles = np.asarray(FIXED[2].apply((), jnp.asarray(POINTS))).reshape(20, 5, 25)
    assert np.allclose(tiles.sum(-1), 1 / np.sqrt(5))
    assert np.all(np.sum(tiles > 0, -1) == 1)
    chosen = np.argmax(tiles, -1)
    x = 4 * unit(POINTS)
    for k, (i, j) in product(range(5), product(range(20), repeat=2)):
        cells = [tuple(np.floor(x[m] + (k / 5 % 1, 3 * k / 5 % 1)).astype(int)) for m in (i, j)]
        assert (chosen[i, k] == chosen[j, k]) == (cells[0] == cells[1])


def test_random_units_do_not_learn():
    """The gradient with respect to W is zero; length 1, mean 0."""
    trunk = RandomFeatures(8)
    parameters = trunk.init(jax.random.key(1), (2,))
    x = trunk.apply(parameters, jnp.asarray(POINTS))
    assert np.allclose(np.linalg.norm(x, axis=1), 1, atol=1e-5)
    assert np.allclose(np.mean(x, axis=1), 0, atol=1e-6)
    slope = jax.grad(lambda w: jnp.sum(trunk.apply(w, jnp.asarray(POINTS)) ** 3))(parameters)
    assert np.array_equal(slope, np.zeros((2, 8)))


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"high\[1\] is -1.0, expected more than low"):
        Box((0, 0), (1, -1))
    with pytest.raises(ValueError, match=r"high has shape \(1,\), expected \(2,\)"):
        Box((0, 0), (1,))
    with pytest.raises(ValueError, match="order is 0"):
        Fourier(BOX, 0)
    with pytest.raises(ValueError, match="width is 0"):
        RadialBasis(BOX, width=0)
    with pytest.raises(ValueError, match=r"observation_shape is \(4,\), 4 numbers, expected the 2 of the box"):
        Tiles(BOX).init(jax.random.key(0), (4,))
