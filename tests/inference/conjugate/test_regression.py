"""Linear regression rewards: what rounding costs their evidence is said."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
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
