"""The routes over hyperparameters: statistics of the data, an integral or chains, a `CollapsedPosterior`."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference.collapsed.collapse import collapsed_model, find_classes, grouped
from bayes_mdp.inference.collapsed.collapsed_posterior import (
    COLLAPSED,
    SHARE,
    CollapsedPosterior,
    from_draws,
    from_integral,
)
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy, recheck
from bayes_mdp.inference.collapsed.integrate import integrate
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, refit
from bayes_mdp.inference.draws.chains import run_chains
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.integrals.quadrature import NotIntegrableError
from bayes_mdp.mdp import Counts, Transitions
from bayes_mdp.numerics.host_program import quick_jit
from bayes_mdp.random.host_generator import host_generator

NUM_RECHECKED = 2
"""Draws of the posterior at which the closed form is compared with the program once more."""


@lru_cache(maxsize=64)
def fit_of(
    hierarchy: Hierarchy, options: NUTS = NUTS(), method: str = COLLAPSED, *, asked: bool = True
) -> Fit[CollapsedPosterior]:
    """Inference of a hierarchy as a function of the data statistics (held by a `ConjugatePosterior`).

    Args:
        hierarchy: proven.
        options: of the chains.
        method: "quadrature", "importance" or "collapsed" (chains).
        asked: whether it was asked for by name: then chains do not take the place of an integral that fails.
    """
    before, model = jax.tree.map(np.array, hierarchy.prior), collapsed_model(hierarchy)
    classes, drawable = find_classes(hierarchy), hierarchy.draws_prior
    rechecked = list[bool]()
    number = options.num_chains * options.num_samples
    draw = quick_jit(lambda key: jax.vmap(hierarchy.draw)(jax.random.split(key, number)))
    chains_of = jax.jit(lambda key, data_statistics: run_chains(key, model, data_statistics, options))
    mix = jax.jit(lambda draws, data_statistics, classes: from_draws(hierarchy, draws, data_statistics, classes))

    def by_chains(key: PRNGKeyArray, data_statistics: ConjugatePosterior) -> CollapsedPosterior:
        chains = run_chains(key, model, data_statistics, options)
        return replace(from_draws(hierarchy, chains.draws, data_statistics, classes), mcmc=chains, options=options)

    def by_integral(
        key: PRNGKeyArray, data_statistics: ConjugatePosterior, draws: int | None = None
    ) -> CollapsedPosterior:
        rng = host_generator(key)
        integrated = integrate(hierarchy, data_statistics, rng, method=method, draws=draws, strict=asked)
        return from_integral(hierarchy, integrated, data_statistics, classes, options)

    def draws_on_host(key: PRNGKeyArray, data_statistics: ConjugatePosterior, num: int) -> CollapsedPosterior:
        try:
            drawn = by_integral(key, data_statistics, num)
        except NotIntegrableError:
            drawn = chains_on_host(key, data_statistics).thinned(jax.random.fold_in(key, 1), num)
        # Whatever drew them, what is static is the same: simulations are stacked.
        return _numpy(replace(drawn, mcmc=None, integration=None, options=options, route=method, share=SHARE, moves=0))

    def chains_on_host(key: PRNGKeyArray, data_statistics: ConjugatePosterior) -> CollapsedPosterior:
        chains = chains_of(key, grouped(data_statistics, classes))
        return replace(mix(chains.draws, data_statistics, classes), mcmc=chains, options=options)

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> CollapsedPosterior:
        data_statistics = before if data is None else refit(before, data)
        # Without data, and where running the program draws from the prior, nothing has to be integrated.
        if data is None and drawable:
            draws = {name: np.asarray(x)[None] for name, x in draw(key).items()}
            posterior = mix(draws, data_statistics, classes)
            posterior = replace(posterior, options=options, route=method)
        elif method == COLLAPSED:
            posterior = chains_on_host(key, data_statistics)
        else:
            try:
                posterior = by_integral(key, data_statistics)
            except NotIntegrableError as error:
                if asked:
                    raise ValueError(
                        f"method is {method!r}, and {error}, expected {COLLAPSED!r}: chains draw the hyperparameters"
                    ) from error
                sys.stderr.write(f"infer: chains draw the hyperparameters, as an integral fails: {error}\n")
                posterior = chains_on_host(key, data_statistics)
        if data is not None and not rechecked:
            _recheck(hierarchy, posterior)
            rechecked.append(True)
        return _numpy(posterior)

    def summarise(transitions: Transitions) -> ConjugatePosterior:
        return jax.tree.map(np.array, before).update(transitions)

    infer: Callable[[PRNGKeyArray, ConjugatePosterior], CollapsedPosterior] = by_chains
    return Fit(method, before.space, summarise, infer, on_host, None if method == COLLAPSED else draws_on_host)


def _recheck(hierarchy: Hierarchy, posterior: CollapsedPosterior) -> None:
    """The certificate once more where the first result is used: at values from the posterior."""
    heaviest = np.argsort(-np.asarray(posterior.log_weights), kind="stable")
    heaviest = heaviest[np.asarray(posterior.log_weights)[heaviest] > -20.0 + np.max(posterior.log_weights)]
    chosen = heaviest[np.linspace(0, len(heaviest) - 1, NUM_RECHECKED).astype(int)]
    draws = {name: np.asarray(x)[chosen] for name, x in posterior.hyperparameters.items()}
    if all(np.isfinite(x).all() for x in draws.values()):  # otherwise `Chains.problems` reports it
        recheck(hierarchy, draws, np.random.default_rng(0))


def _numpy(posterior: CollapsedPosterior) -> CollapsedPosterior:
    return jax.tree.map(np.asarray, posterior)
