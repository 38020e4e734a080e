"""The random numbers of the numba loops are those of `jax.random`, bit by bit."""

import jax
import numpy as np
import pytest

pytestmark = pytest.mark.numerics
pytest.importorskip("numba")

from bayes_mdp.experiments.rollout.host.host_draws import fill_bits, fold_in, uniform, uniform32  # noqa: E402


def words_of(key):
    """Two numbers of numpy, as a kernel holds a key."""
    return tuple(np.asarray(jax.random.key_data(key)))


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, 12345])
def test_bits_folds_and_splits(seed):
    key = jax.random.key(seed)
    words = np.empty(300, np.uint32)
    fill_bits(words_of(key), words)
    np.testing.assert_array_equal(words, jax.random.bits(key, (150, 2), np.uint32).ravel())
    for data in (0, 1, 2**31 - 1):
        assert fold_in(words_of(key), data) == words_of(jax.random.fold_in(key, data))
    for i, part in enumerate(jax.random.split(key, 5)):
        assert fold_in(words_of(key), i) == words_of(part)


def test_uniform_numbers(x64):
    for seed in range(20):
        key = jax.random.key(seed)
        assert uniform(words_of(key), 4) == float(jax.random.uniform(key, dtype=np.float32))
        assert uniform(words_of(key), 8) == float(jax.random.uniform(key, dtype=np.float64))
        word = jax.random.bits(key, dtype=np.uint32)
        assert uniform32(np.uint32(word)) == float(jax.random.uniform(key, dtype=np.float32))
