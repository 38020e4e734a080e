"""Data that count less: the same as transitions with weights."""

import jax
import numpy as np
import pytest

from bayes_mdp.inference.families.categorical import DirichletCategoricalBelief

FACTOR = 0.7


def assert_close(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.few(6)
def test_discounted_data_are_weighted_data(case):
    weighted, full = case.prior.update(case.data, FACTOR), case.prior.update(case.data)
    assert_close(full.discount_data(FACTOR), weighted)
    np.testing.assert_allclose(full.discount_data(FACTOR).log_evidence, weighted.log_evidence, rtol=1e-5)
    # Twice by half is once by a quarter; the prior is where it was.
    assert_close(full.discount_data(0.5).discount_data(0.5), full.discount_data(0.25))
    assert_close(full.discount_data(1.0), full)
    assert_close(case.prior.discount_data(0.5), case.prior)


def test_update_discounts_what_was_there_and_counts_what_is_new_in_full(cases):
    case = cases("flat")
    old, new = (case.take(case.data, np.arange(60) % 3 == i) for i in (0, 1))
    after = case.prior.update(old).update(new, discount_data=FACTOR)
    assert_close(after, case.prior.update(old, FACTOR).update(new))


def test_counts_of_single_values_are_scaled_whole():
    """A table of three counts is no (count, mean, squared deviations)."""
    belief = DirichletCategoricalBelief(np.ones((2, 3)))
    np.testing.assert_allclose(belief.discount_data(np.array([[1.0, 2.0, 3.0]]), 0.5), [[0.5, 1.0, 1.5]])


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.5, np.nan])
def test_a_factor_outside_is_refused(cases, factor):
    with pytest.raises(ValueError, match=r"factor is .* expected a number greater than 0, at most 1"):
        cases("flat").prior.discount_data(factor)
