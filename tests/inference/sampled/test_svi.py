"""Variational inference: near the exact posterior, with guides of one's own, and what its loss shows."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.infer.autoguide import AutoMultivariateNormal

from bayes_mdp.inference.draws.methods import SVI
from bayes_mdp.inference.sampled.algorithms import Drawn
from bayes_mdp.inference.sampled.sampled_fit import sampled_fit
from bayes_mdp.mdp import StateActionSpace


def exact_guide(data=None):
    """The family of the exact posterior: Dirichlet rows, normal rewards."""
    positive = constraints.positive
    concentration = numpyro.param("concentration", jnp.full((2, 2, 2), 2.0), constraint=positive)
    loc = numpyro.param("loc", jnp.zeros((2, 2)))
    scale = numpyro.param("scale", jnp.full((2, 2), 0.5), constraint=positive)
    with StateActionSpace(2, 2).plates():
        numpyro.sample("transition", dist.Dirichlet(concentration))
        numpyro.sample("reward", dist.Normal(loc, scale))


@pytest.mark.slow
@pytest.mark.parametrize(
    "guide",
    [None, AutoMultivariateNormal, lambda model: exact_guide],
    ids=["AutoNormal", "AutoMultivariateNormal", "a program"],
)
def test_svi_is_near_the_exact_posterior(small, key, guide):
    """Means to 0.3 posterior standard deviations (the last steps of the optimiser jitter by 0.1), deviations to 15 %.

    It must catch a guide before it is fitted.
    """
    data = small.transitions(40, 5)
    exact = small.normal_oracle(data)

    def worst(posterior):
        mean, ratio = 0.0, 0.0
        for name in ("transition", "reward"):
            draws = np.asarray(posterior.sites[name], np.float64)
            mean = max(mean, np.abs((draws.mean(0) - exact[name]) / exact[name + "_sd"]).max())
            ratio = max(ratio, np.abs(draws.std(0) / exact[name + "_sd"] - 1).max())
        return mean, ratio

    fit = sampled_fit(small.prior, small.space, SVI(guide=guide, learning_rate=0.003, num_samples=20_000))
    posterior = fit.on_host(key, data)
    assert posterior.losses is not None
    assert posterior.problems() == [] and posterior.losses.shape == (5000,)
    assert worst(posterior)[0] < 0.3 and worst(posterior)[1] < 0.15
    short = sampled_fit(small.prior, small.space, SVI(guide=guide, num_steps=1, num_samples=20_000))
    unfitted = short.on_host(key, data)
    assert "too few to see" in unfitted.problems()[0] and worst(unfitted)[0] > 0.9


def drawn(losses, sites=None):
    return Drawn({"x": np.arange(3.0)} if sites is None else sites, None, np.asarray(losses))


def test_what_the_loss_shows():
    """Settled, falling, broken at the end, broken throughout, cut short."""
    noise = np.random.default_rng(0).normal(size=2000)
    step = np.arange(2000)
    assert drawn(70 + noise).problems() == []
    assert drawn(70 + 50 * np.exp(-step / 100) + noise).problems() == []
    assert "still falling (by 2.5 over the last 500 of 2000 steps)" in drawn(70 - step / 200.0).problems()[0]
    assert "still falling" in drawn(70 + 50 * np.exp(-step / 1000) + noise).problems()[0]
    assert "5 of the last 500 steps" in drawn(np.where(step < 1995, 70 + noise, np.nan)).problems()[0]
    assert "impossible under the prior" in drawn(np.full(2000, np.inf)).problems()[0]
    assert "too few" in drawn(noise[:50]).problems()[0]


def test_draws_that_are_none():
    flat = np.zeros(2000)
    assert "site 'x' are one point" in drawn(flat, {"x": np.ones(3)}).problems()[0]
    assert "site 'x' has draws that are not finite" in drawn(flat, {"x": np.array([1.0, np.nan])}).problems()[0]
