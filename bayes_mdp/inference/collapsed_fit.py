"""The collapsed route: statistics of the data, NUTS on the collapsed model, a `CollapsedPosterior`."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from bayes_mdp.inference.chains import run_chains
from bayes_mdp.inference.collapse import collapsed_model
from bayes_mdp.inference.collapsed import CollapsedPosterior, from_draws
from bayes_mdp.inference.compact import NUM_DISCRETE_PROBES, NUM_PROBES, Classes, checked_classes, find_classes
from bayes_mdp.inference.fitting import Fit
from bayes_mdp.inference.grouped import grouped
from bayes_mdp.inference.hierarchy import Hierarchy
from bayes_mdp.inference.methods import NUTS
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.refit import refit
from bayes_mdp.mdp import Counts, Transitions


@lru_cache(maxsize=64)
def fit_of(hierarchy: Hierarchy, options: NUTS = NUTS()) -> Fit:
    """Collapsed inference as a function of what was seen (a `ConjugatePosterior` that holds the statistics)."""
    before, model = jax.tree.map(np.array, hierarchy.prior), collapsed_model(hierarchy)
    draw = jax.jit(jax.vmap(hierarchy.draw))
    classes = _classes(hierarchy, draw)
    drawable = hierarchy.program.drawable
    chains_of = jax.jit(lambda key, seen: run_chains(key, model, seen, options))
    mix = jax.jit(lambda draws, seen, classes: from_draws(hierarchy, draws, seen, classes))

    def run(key: PRNGKeyArray, seen: ConjugatePosterior) -> CollapsedPosterior:
        chains = run_chains(key, model, seen, options)
        return replace(from_draws(hierarchy, chains.draws, seen, classes), mcmc=chains, options=options)

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> CollapsedPosterior:
        seen = before if data is None else seen_on_host(before, data)
        used, exact, chains, draws = None, classes, None, {}
        while used is not exact:  # again where the counts were grouped by classes that do not hold at the draws
            used = exact
            if data is None and drawable:
                total = options.num_chains * options.num_samples
                draws = {name: x[None] for name, x in draw(jax.random.split(key, total)).items()}
            else:
                chains = chains_of(key, grouped(seen, used))
                draws = chains.draws
            flat = {name: np.asarray(x).reshape(-1, *x.shape[2:]) for name, x in draws.items()}
            exact = checked_classes(hierarchy, used, flat)
        return jax.tree.map(np.asarray, replace(mix(draws, seen, exact), mcmc=chains, options=options))

    def summarise(transitions: Transitions) -> ConjugatePosterior:
        return jax.tree.map(np.array, before).update(transitions)

    return Fit("collapsed", before.space, summarise, run, on_host)


def seen_on_host(before: ConjugatePosterior, data: Transitions | Counts) -> ConjugatePosterior:
    """The statistics of data, exact in float64."""
    if isinstance(data, Transitions):
        return refit(before, data)
    return jax.tree.map(np.asarray, before.update(data))


def _classes(hierarchy: Hierarchy, draw: Callable[[Any], dict[str, Array]]) -> Classes:
    """The classes of entries of the parameters, read off at draws from the prior."""
    few = draw(jax.random.split(jax.random.key(0), NUM_PROBES))
    if all(jnp.issubdtype(x.dtype, jnp.floating) for x in few.values()):
        return find_classes(hierarchy, few)
    return find_classes(hierarchy, draw(jax.random.split(jax.random.key(0), NUM_DISCRETE_PROBES)))
