# pyright: reportArgumentType=false
"""Predictive densities against scipy's Student-t, normal, Bernoulli and negative binomial, to 1e-9 in float64."""

import numpy as np
import pytest

from bayes_mdp.inference.mixtures import (
    log_predictive,
    log_predictive_outcome,
    log_predictive_reward,
)
from bayes_mdp.mdp import Transitions


@pytest.mark.some(3)
def test_predictive_densities(case):
    seen, fresh = (case.take(case.data, part) for part in (slice(0, 40), slice(40, None)))
    for transition in case.each(seen, case.space):
        case.oracle.see(*transition)
    expected = np.array([case.oracle.log_predictive(*transition) for transition in case.each(fresh, case.space)])
    posterior = case.prior.update(seen)
    np.testing.assert_allclose(log_predictive_outcome(posterior, fresh), expected[:, 0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_predictive_reward(posterior, fresh), expected[:, 1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_predictive(posterior, fresh), expected.sum(-1), rtol=1e-9, atol=1e-9)


@pytest.mark.some(2)
def test_the_next_predictive_is_the_growth_of_the_evidence(case):
    before = case.prior.update(case.take(case.data, slice(0, 59)))
    last = case.take(case.data, slice(59, 60))
    growth = before.update(last).log_evidence - before.log_evidence
    np.testing.assert_allclose(log_predictive(before, last)[0], growth, rtol=1e-8, atol=1e-8)


def test_rewards_out_of_the_law_are_refused(cases):
    with pytest.raises(ValueError, match=r"transitions.reward\[0\] is 0.5"):
        log_predictive(cases("poisson").prior, Transitions([0], [0], [0.5], [0]))
