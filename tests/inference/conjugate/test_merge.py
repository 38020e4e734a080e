# pyright: reportArgumentType=false
"""Merged shards against the posterior of all data."""

import jax
import numpy as np
import pytest

from bayes_mdp.inference.conjugate.merge import merge


@pytest.mark.some(2)
def test_shards_merge_to_the_whole(case):
    parts = [case.take(case.data, np.arange(60) % 3 == i) for i in range(3)]
    shards = [case.prior.update(part) for part in parts]
    shards[1] = shards[1].listed(np.zeros((*case.space.shape, 1), int))
    merged, whole = merge(shards), case.prior.update(case.data)
    assert type(merged) is type(whole)
    for one, two in zip(jax.tree.leaves(merged), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(merged.log_evidence, whole.log_evidence, rtol=1e-9)


def test_other_priors_are_refused(cases):
    one, two, three = cases("flat").prior, cases("poisson").prior, cases("known").prior
    with pytest.raises(ValueError, match=r"posteriors\[1\] has another space"):
        merge([one, three])
    with pytest.raises(ValueError, match=r"posteriors\[2\] has another prior"):
        other = type(one)(two.transition_probs, one.reward_cells, one.space, one.visits, one.constant)
        merge([one, one, other])
    with pytest.raises(ValueError, match="posteriors is empty"):
        merge([])
    with pytest.raises(TypeError, match=r"posteriors\[1\] is a int"):
        merge([one, 3])
