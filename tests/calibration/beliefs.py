# pyright: reportArgumentType=false, reportCallIssue=false
"""Collapsed and sampled posteriors, built without running a chain: draws of the prior stand in for its draws."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.sampled.recipe import recipe_for
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior, from_draws
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec

CHAINS, SAMPLES = 2, 40
SPACE = StateActionSpace(2, 2, states=("low", "high"), actions=("stay", "go"))


def transitions(number: int = 60) -> Transitions:
    """Rewards are 0 or 1; one of them is missing."""
    rng = np.random.default_rng(3)
    state, action, next_state = (rng.integers(0, 2, number) for _ in range(3))
    return Transitions(
        state, action, rng.integers(0, 2, number).astype(float), next_state, reward_observed=np.arange(number) != 4
    )


def student(space: StateActionSpace) -> MDPSpec:
    """A law without sufficient statistics; `drift` is one number per state, `m` depends on `width`."""
    width = numpyro.sample("width", dist.Gamma(2.0, 1.0))
    with space.plates("state"):
        drift = numpyro.sample("drift", dist.Normal(0.0, 1.0))
    with space.plates():
        rows = numpyro.sample("transition", dist.Dirichlet(jnp.full(2, 1.5)))
        mean = numpyro.sample("m", dist.Normal(drift, width))
    return MDPSpec(rows, reward=dist.StudentT(4.0, mean, 1.0))


@cache
def sampled() -> SampledPosterior:
    """Draws of the prior of `student`, in two chains of forty, given `transitions`."""
    recipe = recipe_for(student, SPACE, NUTS(0, SAMPLES, CHAINS))
    seen = recipe.summarise(transitions())
    drawn = jax.jit(recipe.draw_prior)(jax.random.key(0))
    posterior = jax.jit(lambda d, s: from_draws(recipe, d, s))(drawn, seen)
    return jax.tree.map(np.asarray, replace(posterior, mcmc=chains(posterior.sites)))


@cache
def collapsed() -> CollapsedPosterior:
    """A Dirichlet whose concentration is drawn, Beta(1, 1) rewards, without a program (as after `load`)."""
    rows = dirichlet_rows(np.ones((4, 2)), (2, 2, 2))
    cells = reward_cells(BetaBelief(np.ones(4), np.ones(4)), (2, 2))
    with jax.enable_x64(True):
        seen = jax.tree.map(np.asarray, conjugate_posterior(rows, cells, SPACE).update(transitions()))
    number = CHAINS * SAMPLES
    scale: Any = np.random.default_rng(1).gamma(2.0, 1.0, number).astype(np.float32)
    ones = np.ones((number, 1), np.float32)
    values: Any = (scale[:, None], ones, ones)
    index: Any = (np.zeros((4, 2), np.int32), np.zeros(4, np.int32), np.zeros(4, np.int32))
    weights: Any = np.zeros(number, np.float32)
    hyper = {"scale": scale}
    return CollapsedPosterior(seen, values, index, weights, hyper, np.zeros(2, np.uint32), chains(hyper))


def chains(sites: Any) -> Chains:
    """The draws as those of two chains; three diverged."""
    split = {name: np.asarray(x).reshape(CHAINS, SAMPLES, *x.shape[1:]) for name, x in sites.items()}
    shape = (CHAINS, SAMPLES)
    diverging = np.zeros(shape, bool)
    diverging[0, :3] = True
    energy = np.random.default_rng(5).normal(3.0, 1.0, shape)
    made: Any = (diverging, np.full(shape, 0.8), np.full(shape, 7), np.zeros(shape), energy)
    return Chains(split, *made)
