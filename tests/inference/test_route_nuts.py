"""NUTS, run by hand on `joint`, agrees with the exact posterior.

Means are compared in units of their Monte-Carlo standard error (posterior standard deviation over the root of the
effective sample size of the draws). The default test compares 12 different numbers at six standard errors: false-alarm
rate 12 * 2e-9, below 1e-6. The smallest fault it must catch is kept beside it: the same belief without the tie.
"""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false

import jax
import numpy as np
import pytest
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

from bayes_mdp.inference.route import infer
from bayes_mdp.models import dirichlet_bernoulli, joint
from bayes_mdp.models.joint import summarise
from bayes_mdp.models.mdp_spec import to_mdp
from tests.inference.programs import ACCEPTED, draw_transitions, transitions_of


def _draws(program, transitions, key, num_samples):
    """Worlds drawn by NUTS."""
    data = summarise(program.prior, program.space, transitions)
    mcmc = MCMC(NUTS(joint(program.prior, program.space)), num_warmup=400, num_samples=num_samples, progress_bar=False)
    mcmc.run(key, data)
    return jax.vmap(lambda values: _world(program, values))(mcmc.get_samples())


def _worst_error(mdps, posterior):
    """The largest error of a mean, in standard errors."""
    exact, worst = posterior.mean_mdp(), 0.0
    for draws, mean in ((mdps.transition_probs, exact.transition_probs), (mdps.reward, exact.reward)):
        draws, mean = np.asarray(draws, np.float64), np.asarray(mean, np.float64)
        free = draws.std(0) > 1e-6
        np.testing.assert_allclose(draws.mean(0)[~free], mean[~free], atol=1e-6)
        size = np.array([effective_sample_size(column[None]) for column in draws[:, free].T])
        error = np.abs(draws.mean(0) - mean)[free] / (draws.std(0)[free] / np.sqrt(size))
        worst = max(worst, float(error.max()))
    return worst


def _world(program, values):
    return to_mdp(handlers.seed(handlers.substitute(program.prior, data=values), 0)(program.space), program.space)


def _data(program):
    return transitions_of(program, draw_transitions(program, 40, seed=5))


@pytest.mark.slow
def test_nuts_on_the_joint_model_agrees_with_a_tied_posterior(key):
    program = ACCEPTED["tied"]
    transitions = _data(program)
    mdps = _draws(program, transitions, key, 2000)
    assert _worst_error(mdps, infer(key, program.prior, transitions, space=program.space)) < 6.0
    break_ties = dirichlet_bernoulli(1.0, 1.5, 0.5)
    assert _worst_error(mdps, infer(key, break_ties, transitions, space=program.space)) > 10.0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ACCEPTED if name != "tied"])
def test_nuts_on_the_joint_model_agrees(name, key):
    program = ACCEPTED[name]
    transitions = _data(program)
    mdps = _draws(program, transitions, key, 4000)
    assert _worst_error(mdps, infer(key, program.prior, transitions, space=program.space)) < 6.0
