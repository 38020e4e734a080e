# pyright: reportArgumentType=false
"""Pooled and merged statistics against numpy on the raw numbers."""

import numpy as np
import pytest
from scipy.special import gammaln

from bayes_mdp.inference.families.family import absorb, log_rising, merge_statistics, pool, statistics

pytestmark = pytest.mark.numerics


def _of(values):
    return np.array([len(values), np.mean(values), np.sum((values - np.mean(values)) ** 2)])


def test_merge_is_the_whole_sample(x64):
    values = np.random.default_rng(0).normal(1e3, 1.0, 50)
    first, second = (_of(part)[None] for part in (values[:20], values[20:]))
    np.testing.assert_allclose(merge_statistics(first, second), _of(values)[None], rtol=1e-10)


def test_pool_and_absorb_agree_with_numpy(x64):
    rng = np.random.default_rng(1)
    values, index = rng.normal(size=40), rng.integers(0, 4, 40)
    pooled = pool(index, statistics(1.0, values, 0.0), 5)
    table = pooled * 0.0
    for i, value in zip(index, values, strict=True):
        table = absorb(table, int(i), statistics(1.0, value, 0.0))
    expected = [_of(values[index == i]) if (index == i).any() else np.zeros(3) for i in range(5)]
    np.testing.assert_allclose(pooled, expected, atol=1e-12)
    np.testing.assert_allclose(table, expected, atol=1e-12)


def test_an_index_out_of_range_is_dropped(x64):
    table = pool(np.array([0, 1]), statistics(1.0, np.array([2.0, 3.0]), 0.0), 1)
    np.testing.assert_array_equal(table, [[1.0, 2.0, 0.0]])
    np.testing.assert_array_equal(absorb(table, 1, statistics(1.0, 5.0, 0.0)), table)


def test_log_rising(x64):
    a, n = np.array([1e-3, 0.3, 2.0, 50.0]), np.array([1.0, 2.5, 0.0, 1e4])
    np.testing.assert_allclose(log_rising(a, n), gammaln(a + n) - gammaln(a), rtol=1e-10)
    np.testing.assert_allclose(log_rising(np.array(3e16), np.array(2.0)), 2 * np.log(3e16), rtol=1e-14)
