"""Linear regression rewards: what rounding costs their evidence is said."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.inference.conjugate.regression import RegressionPrior, regression_rewards
from bayes_mdp.inference.draws.chains import SamplingWarning

SPACE = bm.StateActionSpace(2, 1)
FEATURES = np.array([[[1.0, 0.0]], [[1.0, 1.0]]])


def prior(space):
    """Two weights, noise of one."""
    weights = numpyro.sample("w", dist.Normal(np.zeros(2), 1e9).to_event(1))
    return bm.models.MDPSpec(np.full(2, 0.5), dist.Normal(FEATURES @ weights, 1.0))


@pytest.mark.parametrize(("far", "said"), [(1.0, False), (1e8, True)])
def test_lost_digits_are_reported(far, said):
    data = bm.Transitions([0, 1, 0], [0, 0, 0], far * np.array([1.0, 2.0, 1.0]), [0, 1, 1])
    posterior = bm.infer(jax.random.key(0), prior, data, space=SPACE)
    assert any("accurate to about" in problem for problem in posterior.problems()) == said
    if said:
        with pytest.warns(SamplingWarning, match="accurate to about"):
            assert bm.evidence(posterior).problems
    else:
        assert not bm.evidence(posterior).problems


def test_evidence_and_predictive_densities_are_those_of_one_normal_law():
    """Known noise: all rewards together are normal, and each given those before it too."""
    rng = np.random.default_rng(0)
    features, offset, precision = rng.normal(size=(3, 1, 2)), rng.normal(size=(3, 1)), rng.uniform(0.5, 2.0, (3, 1))
    prior = RegressionPrior(np.array([0.3, -0.4]), np.diag([0.5, 2.0]))
    state, reward = np.array([0, 1, 2, 1]), rng.normal(size=4)
    x, cell = features[state, 0], (state, np.zeros(4, int))
    covariance: Any = x @ np.linalg.inv(prior.precision) @ x.T + np.diag(1 / precision[cell])
    law = stats.multivariate_normal(x @ prior.loc + offset[cell], covariance)
    belief, growth = regression_rewards(prior, features, offset, precision), 0.0
    for i in range(4):
        one = tuple(index[i] for index in cell)
        growth += float(belief.log_predictive(one, 0, np.asarray(reward[i]), np.ones(())))
        belief, constant = belief.observe(one, 0, np.asarray(reward[i]), np.ones(()))
        del constant
    np.testing.assert_allclose(growth, law.logpdf(reward), rtol=1e-9)
    known = 0.5 * np.log(precision[cell]).sum()
    np.testing.assert_allclose(belief.log_evidence() + known, law.logpdf(reward), rtol=1e-9)
