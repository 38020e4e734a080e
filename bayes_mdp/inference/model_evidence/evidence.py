"""`evidence`: the log evidence of a posterior, whatever the route that it was inferred by."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from bayes_mdp.inference.collapsed.collapse import collapsed_model, find_classes, grouped
from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.draws.chains import Chains, Model, SamplingWarning
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.factorised.factorised_posterior import FactorisedPosterior
from bayes_mdp.inference.factorised.sampled_rewards import SampledRewards
from bayes_mdp.inference.integrals.importance import Integration
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.model_evidence.bridge import Evidence, bridge_sampling, check_sites
from bayes_mdp.inference.pooled.pooled_posterior import PooledPosterior
from bayes_mdp.inference.sampled.conditioned_program import Rows, conditioned
from bayes_mdp.inference.sampled.recipe import Recipe
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_key, check_type

InferredPosterior: TypeAlias = (
    ConjugatePosterior | Mixture | CollapsedPosterior | FactorisedPosterior | PooledPosterior | SampledPosterior
)
KINDS = (ConjugatePosterior, Mixture, CollapsedPosterior, FactorisedPosterior, SampledPosterior)
EQUAL_WEIGHTS = 1e-8
"""Spread of the log weights of draws that is rounding."""
_LOADED = "posterior was loaded and has no program, expected one from infer"


def evidence(posterior: InferredPosterior, key: PRNGKeyArray | None = None) -> Evidence:
    """log p(next states, rewards | states, actions) of all data that `posterior` has seen, under its prior.

    The density is that of the sequence of the data, base measures included, whatever the route; a site that the program
    holds at a known value, and that tells of no other, does not count. Exact posteriors and
    mixtures have it in closed form; an integral over hyperparameters, or over what is behind the rewards, states it
    with its error. Of the others it is estimated from the draws of their chains by bridge sampling, with a standard
    error (`bridge`): of the hyperparameters alone, or of what is behind the rewards alone, where the
    rest is in closed form. A problem that was found, of the chains or of the bridge, is a `SamplingWarning` and in
    `problems`. Host side.

    Args:
        posterior: as `infer` returns it, or a mixture.
        key: of the draws from the proposal; None: `jax.random.key(0)`.

    Raises:
        ValueError: a posterior without chains (by SVI or Laplace, loaded, thinned, after `update` without `refit`);
            discrete or improper latent sites; a prior with a factor, an observation, a scale or a mask; fewer draws
            than its dimension needs; data whose density is not known; an estimate that failed (see `bridge_sampling`).
        TypeError: another posterior; one of partial pooling, whose chains have no density that a bridge could use.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 4, [0] * 4, [1.0] * 4, [0] * 4)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> print(bm.evidence(posterior))  # four rewards of 1 under a uniform prior: log(1 / 5)
        log evidence -1.60944 (exact)
    """
    key = jax.random.key(0) if key is None else key
    check_key("key", key)
    if isinstance(posterior, PooledPosterior):
        raise TypeError(
            "posterior is a PooledPosterior, whose evidence is not estimated: its Gibbs chains keep no density of what "
            "they draw; compare priors by held-out data instead (criticise)"
        )
    check_type("posterior", posterior, KINDS, "a posterior as infer returns it, or a mixture")
    if posterior.is_batch:
        raise ValueError("posterior is a batch (its arrays have extra leading axes), expected one posterior")
    if isinstance(posterior, CollapsedPosterior):
        found = _of_collapsed(key, posterior)
    elif isinstance(posterior, FactorisedPosterior):
        found = _of_factorised(key, posterior)
    elif isinstance(posterior, SampledPosterior):
        found = _of_sampled(key, posterior, posterior)
    else:
        found = _exact(posterior)
    for problem in found.problems:
        warnings.warn(f"evidence: {problem}", SamplingWarning, stacklevel=2)
    return found


def _exact(posterior: ConjugatePosterior | Mixture) -> Evidence:
    value = float(posterior.log_evidence)
    if np.isnan(value):
        raise ValueError(
            "posterior: the density of its data is not known (Counts of a law that needs every reward), expected one "
            "inferred from Transitions"
        )
    problems = posterior.reward_cells.problems() if isinstance(posterior, ConjugatePosterior) else []
    return Evidence(value, problems=tuple(problems))


def _of_collapsed(key: PRNGKeyArray, posterior: CollapsedPosterior) -> Evidence:
    hierarchy = posterior.hierarchy
    if hierarchy is not None:
        _refuse_bent(hierarchy.draws_prior)
    if posterior.integration is not None and np.isfinite(posterior.integration.error):
        return _integrated(posterior.integration, posterior.route, posterior.num_components)
    if hierarchy is None:
        raise ValueError(_LOADED)
    if _is_before_data(posterior):
        return Evidence(0.0)
    with jax.enable_x64(True):
        data = grouped(jax.tree.map(np.array, posterior.data_statistics), find_classes(hierarchy))
    found = _bridged(key, _collapsed(hierarchy), data, posterior, posterior.hyperparameters)
    return replace(found, log_evidence=found.log_evidence - hierarchy.log_constant)


def _integrated(integration: Integration, method: str, number: int) -> Evidence:
    """That of an integral over what has no closed form.

    Raises:
        ValueError: the prior has no normalising constant that is known.
    """
    value = float(integration.log_evidence)
    _refuse_bent(bool(np.isfinite(value)))
    error, effective = float(integration.error), float(integration.effective)
    return Evidence(value, error, method, integration.numbers, number, effective)


def _of_factorised(key: PRNGKeyArray, posterior: FactorisedPosterior) -> Evidence:
    """That of the rows in closed form, times that of the rewards given the outcomes."""
    shape = posterior.space.shape
    rows = conjugate_posterior(posterior.transition_probs, known_rewards(np.zeros(shape)), posterior.space)
    of_rows = float(replace(rows, constant=posterior.constant).log_evidence)
    integration, recipe = posterior.rewards.integration, posterior.rewards.recipe
    if integration is not None and np.isfinite(integration.error):
        _refuse_bent(recipe.drawable)
        of_rewards = _integrated(integration, "importance", posterior.num_draws)
    else:
        of_rewards = _of_sampled(key, posterior, posterior.rewards)
    return replace(of_rewards, log_evidence=of_rows + of_rewards.log_evidence)


def _of_sampled(
    key: PRNGKeyArray, posterior: SampledPosterior | FactorisedPosterior, draws: SampledPosterior | SampledRewards
) -> Evidence:
    """Of what `draws`, all of `posterior` or its rewards, are draws of."""
    recipe, data = draws.recipe, draws.data_statistics
    if recipe.prior is None:
        raise ValueError(_LOADED)
    if recipe.improper:
        raise ValueError(
            f"prior: site {recipe.improper[0]!r} is ImproperUniform, whose density has no normalising constant, so "
            "that no evidence is defined, expected a proper prior"
        )
    _refuse_bent(recipe.drawable)
    if _is_before_data(posterior):
        return Evidence(0.0)
    if not isinstance(recipe.method, NUTS):
        raise ValueError(
            f"posterior was inferred by {type(recipe.method).__name__}, whose draws are not of the posterior itself, "
            "expected one by chains: infer(key, prior, data, space=space, method=NUTS())"
        )
    if isinstance(data, Rows) and int(data.used) > data.capacity:
        raise ValueError("posterior: its buffer of rewards has overflowed, expected one that holds all of its data")
    found = _bridged(key, _sampled(recipe), data, draws, draws.sites)
    return replace(found, log_evidence=found.log_evidence - recipe.log_constant)


def _bridged(
    key: PRNGKeyArray,
    model: Model,
    data: PyTree,
    posterior: CollapsedPosterior | SampledPosterior | SampledRewards,
    sites: Mapping[str, AnyArray],
) -> Evidence:
    """The estimate, with what is wrong with the chains as well."""
    try:
        # What more draws would not help comes first.
        with jax.enable_x64(True):
            check_sites(model, jax.tree.map(np.array, data))
        chains = _chains(posterior.mcmc, sites, posterior.log_weights)
        found = bridge_sampling(key, model, data, {name: chains.draws[name] for name in sites})
    except ValueError as error:
        raise ValueError(f"posterior: {error}") from error
    return replace(found, problems=(*chains.problems(), *found.problems))


@lru_cache(maxsize=64)
def _collapsed(hierarchy: Hierarchy) -> Model:
    """One model object for equal hierarchies: the bridge compiles for an object."""
    return collapsed_model(hierarchy)


def _sampled(recipe: Recipe) -> Model:
    return _conditioned(replace(recipe, method=NUTS()))  # how it was sampled does not matter here


@lru_cache(maxsize=64)
def _conditioned(recipe: Recipe) -> Model:
    assert recipe.prior is not None
    return conditioned(recipe.prior, recipe.space, rewards_only=recipe.rewards_only)


def _chains(chains: Chains | None, sites: Mapping[str, AnyArray], log_weights: AnyArray) -> Chains:
    """The chains whose draws these are.

    Raises:
        ValueError: the draws have weights of their own, or there are no chains behind them.
    """
    weights = np.asarray(log_weights, np.float64)
    if not np.ptp(weights) <= EQUAL_WEIGHTS:
        raise ValueError(
            "it has learnt since its chains were run (the weights of its draws differ), expected draws of the "
            "posterior itself: call refit(key) first"
        )
    if chains is None or not chains.are_those_of(sites, len(weights)):
        raise ValueError(
            "there are no chains behind its draws (they are of the prior, thinned or moved), expected one from "
            "infer(key, prior, data, space=space) with all of the data"
        )
    return chains


def _refuse_bent(drawable: bool) -> None:
    if not drawable:
        raise ValueError(
            "prior: a factor, an observation, a scale or a mask bends its density, whose normalising constant is not "
            "known, expected a prior of sample sites alone"
        )


def _is_before_data(posterior: CollapsedPosterior | SampledPosterior | FactorisedPosterior) -> bool:
    """Whether it has seen nothing, which is certain under every prior."""
    return not np.asarray(posterior.visit_counts()).any() and not posterior.rewards_seen()
