"""The collapsed route: statistics of the data, NUTS on the collapsed model, a `CollapsedPosterior`."""

from dataclasses import replace
from functools import lru_cache

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference.collapsed.collapse import collapsed_model, recheck
from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior, from_draws
from bayes_mdp.inference.collapsed.compression import find_classes, grouped
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.refit import refit
from bayes_mdp.inference.draws.chains import run_chains
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.mdp import Counts, Transitions

NUM_RECHECKED = 2
"""Draws of the posterior at which the closed form is compared with the program once more."""


@lru_cache(maxsize=64)
def fit_of(hierarchy: Hierarchy, options: NUTS = NUTS()) -> Fit[CollapsedPosterior]:
    """Collapsed inference as a function of the data statistics (held by a `ConjugatePosterior`)."""
    before, model = jax.tree.map(np.array, hierarchy.prior), collapsed_model(hierarchy)
    draw, classes = jax.jit(jax.vmap(hierarchy.draw)), find_classes(hierarchy)
    drawable = hierarchy.program.drawable
    chains_of = jax.jit(lambda key, data_statistics: run_chains(key, model, data_statistics, options))
    mix = jax.jit(lambda draws, data_statistics, classes: from_draws(hierarchy, draws, data_statistics, classes))

    def run(key: PRNGKeyArray, data_statistics: ConjugatePosterior) -> CollapsedPosterior:
        chains = run_chains(key, model, data_statistics, options)
        return replace(from_draws(hierarchy, chains.draws, data_statistics, classes), mcmc=chains, options=options)

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> CollapsedPosterior:
        data_statistics = before if data is None else refit(before, data)
        chains = None
        # Without data, and where running the program draws from the prior, no chains are needed.
        if data is None and drawable:
            total = options.num_chains * options.num_samples
            draws = {name: x[None] for name, x in draw(jax.random.split(key, total)).items()}
        else:
            chains = chains_of(key, grouped(data_statistics, classes))
            draws = chains.draws
        flat = {name: np.asarray(draws[name]).reshape(-1, *draws[name].shape[2:]) for name in hierarchy.hyperparameters}
        # The certificate once more where the result is used: at draws from the posterior.
        chosen = np.linspace(0, len(next(iter(flat.values()))) - 1, NUM_RECHECKED).astype(int)
        if all(np.isfinite(x[chosen]).all() for x in flat.values()):  # otherwise `Chains.problems` reports it
            recheck(hierarchy, {name: x[chosen] for name, x in flat.items()}, np.random.default_rng(0))
        return jax.tree.map(np.asarray, replace(mix(draws, data_statistics, classes), mcmc=chains, options=options))

    def summarise(transitions: Transitions) -> ConjugatePosterior:
        return jax.tree.map(np.array, before).update(transitions)

    return Fit("collapsed", before.space, summarise, run, on_host)
