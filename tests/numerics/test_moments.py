"""Moments by sums without rounding, against fractions."""

from fractions import Fraction

import numpy as np
import pytest

from bayes_mdp.numerics.moments import (
    ExactSums,
    concatenate_sums,
    exact_moments,
    sum_and_squares,
)

pytestmark = pytest.mark.numerics


def values_of(rng, size):
    """Floats of every kind: ordinary, whole, few, of any magnitude, of float32, subnormal, cancelling."""
    kinds = [
        rng.normal(size=size),
        rng.integers(-5, 5, size).astype(float),
        rng.choice([0.1, 0.25, -3.7], size),
        rng.normal(size=size) * 2.0 ** rng.integers(-1070, 505, size),
        rng.normal(size=size).astype(np.float32).astype(float),
        rng.choice([5e-324, -5e-324, 0.0], size),
        rng.choice([1e150, -1e150, 1.0], size),
        1e9 + rng.normal(size=size),
    ]
    return kinds[rng.integers(len(kinds))]


def by_fractions(values, group, size):
    """Mean and squared deviations by rational numbers, each rounded once."""
    mean, ss = np.zeros(size), np.zeros(size)
    for i in range(size):
        mine = [Fraction(x) for x in values[group == i].tolist()]
        if mine:
            centre = sum(mine) / len(mine)
            mean[i], ss[i] = float(centre), float(sum((x - centre) ** 2 for x in mine))
    return mean, ss


def same(one, two):
    return one.lowest == two.lowest and np.array_equal(one.digits, two.digits)


@pytest.mark.parametrize("seeds", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_moments_are_correctly_rounded_and_shards_add_to_the_same_digits(seeds):
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        number, size = (int(rng.integers(1, most)) for most in (60, 6))
        values, group = values_of(rng, number), rng.integers(0, size, number)
        whole = sum_and_squares(values, group, size)
        count = np.bincount(group, minlength=size)
        for found, exact in zip(exact_moments(count, *whole), by_fractions(values, group, size), strict=True):
            np.testing.assert_array_equal(found, exact)
        # In another order, in three parts: the same digits.
        order = rng.permutation(number)
        parts = [sum_and_squares(values[i], group[i], size) for i in np.array_split(order, 3)]
        for k, total in enumerate(whole):
            joined = concatenate_sums([part[k] for part in parts]).grouped(np.tile(np.arange(size), 3), size)
            assert same(joined, total), seed


def test_many_terms():
    """More than one block, more distinct values than a table takes; the sum of squares has 106 + 22 bits."""
    rng = np.random.default_rng(0)
    values, group = rng.normal(size=2**21 + 5), np.zeros(2**21 + 5, np.intp)
    total, squares = sum_and_squares(values, group, 1)
    scaled = [int(x * 2.0**80) for x in values.tolist()]
    assert Fraction(int(total.to_integers()[0])) * Fraction(2) ** (32 * total.lowest) == Fraction(sum(scaled), 2**80)
    expected = Fraction(sum(x * x for x in scaled), 2**160)
    assert Fraction(int(squares.to_integers()[0])) * Fraction(2) ** (32 * squares.lowest) == expected


def test_sums_of_nothing_are_zero():
    mean, ss = exact_moments(np.zeros(3, int), ExactSums.zero(3), ExactSums.zero(3))
    assert not mean.any() and not ss.any()
    assert same(sum_and_squares(np.zeros(4), np.arange(4), 5)[0], ExactSums.zero(5))


def test_squares_beyond_float64_are_infinite():
    values = np.array([2.0**510, -(2.0**510)] * 40)
    mean, ss = exact_moments(np.array([80]), *sum_and_squares(values, np.zeros(80, np.intp), 1))
    assert mean[0] == 0.0 and ss[0] == np.inf


def test_groups_of_sums_carry_into_further_digits():
    """A thousand sums of either sign, in units of their last digit, by whole numbers of Python."""
    values = np.random.default_rng(2).choice([1.0, -3.0, -(2.0**40)], 1000)
    group = np.arange(1000) % 3
    for power, sums in enumerate(sum_and_squares(values, np.arange(1000), 1000), 1):
        found = sums.grouped(group, 3)
        expected = [sum(int(x) ** power for x in values[group == g]) for g in range(3)]
        assert [int(total) * Fraction(2) ** (32 * found.lowest) for total in found.to_integers()] == expected
