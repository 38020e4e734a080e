"""NUTS, run by hand on `joint`, agrees with the exact posterior.

Every mean is compared in units of its Monte-Carlo standard error (posterior standard deviation over the root of the
effective sample size of the draws). Nine numbers at six standard errors: false-alarm rate 9 * 2e-9 < 1e-6 for normal errors.
Smallest fault to catch: a tie that is not pooled moves a mean by 0.03 or more, over ten standard errors here.
"""

import jax
import numpy as np
import pytest
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from programs import ACCEPTED, draw_transitions, transitions_of

from bayes_mdp.inference.infer import infer
from bayes_mdp.models import joint, summarise, to_mdp


def _compare(name, key, num_samples):
    program = ACCEPTED[name]
    space = program.space
    transitions = transitions_of(program, draw_transitions(program, 40, seed=5))
    posterior = infer(key, program.prior, transitions, space=space)
    model = joint(program.prior, space)
    mcmc = MCMC(NUTS(model), num_warmup=400, num_samples=num_samples, progress_bar=False)
    mcmc.run(key, summarise(program.prior, space, transitions))
    worlds = jax.vmap(lambda values: _world(program, values))(mcmc.get_samples())
    exact = posterior.mean_mdp()
    for draws, mean in ((worlds.transition_probs, exact.transition_probs), (worlds.reward, exact.reward)):
        draws, mean = np.asarray(draws, np.float64), np.asarray(mean, np.float64)
        spread = draws.std(0)
        free = spread > 1e-6
        np.testing.assert_allclose(draws.mean(0)[~free], mean[~free], atol=1e-6)
        ess = np.array([effective_sample_size(column[None]) for column in draws[:, free].T])
        error = (draws.mean(0)[free] - mean[free]) / (spread[free] / np.sqrt(ess))
        assert np.abs(error).max() < 6.0
        assert (spread[free] / np.sqrt(ess)).max() < 0.05


def _world(program, values):
    return to_mdp(handlers.seed(handlers.substitute(program.prior, data=values), 0)(program.space), program.space)


def test_nuts_on_the_joint_model_agrees_with_a_tied_posterior(key):
    _compare("tied", key, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ACCEPTED if name != "tied"])
def test_nuts_on_the_joint_model_agrees(name, key):
    _compare(name, key, 4000)
