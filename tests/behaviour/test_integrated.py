import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.behaviour import log_likelihood
from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior, subject_log_likelihood
from tests.behaviour.bandits import MODEL

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)


def test_integrated_likelihood_is_that_of_quadrature(fitted, x64):
    """Gauss-Hermite over both parameters of each person, 24 x 24 nodes, for three draws of the group."""
    found = subject_log_likelihood(jax.random.key(0), fitted, num_draws=3, num_proposals=600)
    grid = np.stack(np.meshgrid(NODES, NODES, indexing="ij")).reshape(2, -1)
    weight = np.outer(WEIGHTS, WEIGHTS).ravel() / (2 * np.pi)
    likelihood = jax.jit(jax.vmap(lambda r, b: log_likelihood(MODEL, {"rate": r, "beta": b}, fitted.log).sum(1)))
    for row, draw in zip(found, fitted.thinned(3), strict=True):
        site = lambda name: np.asarray(fitted.mcmc.draws[name], float).ravel()[draw]  # noqa: B023, E731
        rate, beta = (
            MODEL.parameters[n].constrain(site(f"{n}_mean") + site(f"{n}_sd") * z)
            for n, z in zip(("rate", "beta"), grid, strict=True)
        )
        each = np.asarray(likelihood(rate, beta))
        expected = np.log((weight[:, None] * np.exp(each - each.max(0))).sum(0)) + each.max(0)
        np.testing.assert_allclose(row, expected, atol=0.1)


def test_persons_without_a_group_are_refused(fitted):
    alone = BehaviourPosterior(fitted.params, fitted.mcmc, fitted.model, fitted.log, "none")
    with pytest.raises(ValueError, match=r"posterior\.pooling is 'none', expected 'partial'"):
        subject_log_likelihood(jax.random.key(0), alone)
    assert jnp.isfinite(subject_log_likelihood(jax.random.key(0), fitted, num_draws=2, num_proposals=50)).all()
