"""The fused key gives the numbers of `jax.random`, bit for bit, and the published answers of Threefry-2x32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.random.threefry import fused_key, key_words, plain_key, threefry_block

pytestmark = [pytest.mark.numerics, pytest.mark.optimised]

SHAPES = [(), (7,), (3, 4), (2, 3, 5)]
DRAWS = {
    "bits": jax.random.bits,
    "bits8": lambda key, shape: jax.random.bits(key, shape, "uint8"),
    "bits16": lambda key, shape: jax.random.bits(key, shape, "uint16"),
    "uniform": jax.random.uniform,
    "normal": jax.random.normal,
    "categorical": lambda key, shape: jax.random.categorical(key, jnp.arange(4.0), shape=shape),
    "split": lambda key, shape: jax.random.key_data(jax.random.split(key, shape)),
    "fold_in": lambda key, shape: jax.random.key_data(jax.random.fold_in(key, 2**31 + len(shape))),
    "permutation": lambda key, shape: jax.random.permutation(key, 11),
}


@pytest.mark.parametrize(
    ("counter", "key_data", "answer"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(counter, key_data, answer):
    """Random123's test vectors, 20 rounds."""
    words = threefry_block(jnp.array(key_data, jnp.uint32), tuple(jnp.uint32(word) for word in counter))
    assert tuple(int(word) for word in words) == answer


@pytest.mark.parametrize("name", [name for name in DRAWS if name != "categorical"])
def test_numbers_are_those_of_jax(name, key):
    draw = jax.jit(lambda k: [DRAWS[name](k, shape) for shape in SHAPES])
    for ours, theirs in zip(draw(fused_key(key)), draw(key), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["bits", "normal", "split", "categorical"])
def test_numbers_are_those_of_jax_under_vmap(name, key):
    draw = jax.jit(jax.vmap(lambda k: DRAWS[name](k, (3, 5))))
    keys = jax.random.split(key, 4)
    np.testing.assert_array_equal(draw(fused_key(keys)), draw(keys))


@pytest.mark.usefixtures("x64")
def test_numbers_are_those_of_jax_in_float64(key):
    draw = jax.jit(lambda k: (jax.random.bits(k, (3, 4), "uint64"), jax.random.normal(k, (3, 4))))
    for ours, theirs in zip(draw(fused_key(key)), draw(key), strict=True):
        assert ours.dtype.itemsize == 8
        np.testing.assert_array_equal(ours, theirs)


def test_seed_of_the_fused_kind(key):
    impl = jax.random.key_impl(fused_key(key))
    for seed in (0, 7, 2**31 - 1):
        np.testing.assert_array_equal(key_words(jax.random.key(seed, impl=impl)), key_words(jax.random.key(seed)))


def test_there_and_back(key):
    keys = jax.random.split(key, (2, 3))
    fused = fused_key(keys)
    assert fused.shape == keys.shape
    assert fused_key(fused) is fused
    assert plain_key(keys) is keys
    assert plain_key(fused).dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(plain_key(fused)), jax.random.key_data(keys))


@pytest.mark.parametrize("function", [fused_key, plain_key, key_words])
def test_other_keys_are_refused(function):
    with pytest.raises(TypeError, match=r"key: expected a typed key such as jax.random.key\(0\), got int"):
        function(0)
    with pytest.raises(TypeError, match="key: expected a typed key"):
        function(jnp.zeros(2, jnp.uint32))
    with pytest.raises(TypeError, match=r"expected a threefry key .*, got one of kind rbg"):
        function(jax.random.key(0, impl="rbg"))
