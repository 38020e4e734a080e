# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`evidence`: the log evidence of a posterior, whatever the route that it was inferred by."""

import warnings
from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference.draws.chains import Chains, SamplingWarning
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.integrals.importance import Integration
from bayes_mdp.inference.model_evidence.bridge import Evidence, bridge_sampling, check_sites
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_key, check_type

EQUAL_WEIGHTS = 1e-8
"""Spread of the log weights of draws that is rounding."""
_LOADED = "posterior was loaded and has no program, expected one from infer"


def evidence(posterior: Fitted, key: PRNGKeyArray | None = None) -> Evidence:
    """The log marginal likelihood of all data that `posterior` has seen: log p(next states, rewards | states, actions).

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
    check_type("posterior", posterior, Fitted, "a posterior as infer returns it, or a mixture")
    if not posterior.keeps_density:
        raise TypeError(
            f"posterior is a {type(posterior).__name__}, whose evidence is not estimated: its Gibbs chains keep no "
            "density of what they draw; compare priors by held-out data instead (criticise)"
        )
    if posterior.is_batch:
        raise ValueError("posterior is a batch (its arrays have extra leading axes), expected one posterior")
    if posterior.lacks_factorials:
        raise ValueError(_SUMS)
    with stage("evidence"):
        estimate = _exact(posterior) if posterior.in_closed_form else _estimate(key, posterior)
    # Warnings name the caller's line.
    for problem in estimate.problems:
        warnings.warn(f"evidence: {problem}", SamplingWarning, stacklevel=2)
    return estimate


_SUMS = (
    "posterior: the density of its data is not known (Counts of a law that needs every reward), expected one inferred "
    "from Transitions"
)


def _exact(posterior: Fitted) -> Evidence:
    value = float(posterior.log_evidence)  # pyright: ignore[reportAttributeAccessIssue] - all in closed form have it
    if np.isnan(value):
        raise ValueError(_SUMS)
    # A closed form is exact; what its rewards complain of is said.
    part = posterior.exact_part
    return Evidence(value, problems=() if part is None else tuple(part.reward_cells.problems()))


def _estimate(key: PRNGKeyArray, posterior: Fitted) -> Evidence:
    """That of the closed form in it, times an integral, or an estimate from chains, of all else."""
    integration = posterior.integration
    # An integral that states its error is taken; else the chains are asked.
    if integration is not None and np.isfinite(integration.error):
        estimate = _integrate(integration, posterior)
    else:
        estimate = _bridge(key, posterior)
    part = posterior.exact_part
    return (
        # log p(data) = log p(outcomes) + log p(rewards | ...), rows and rewards being independent.
        estimate if part is None else replace(estimate, log_evidence=float(part.log_evidence) + estimate.log_evidence)
    )


def _integrate(integration: Integration, posterior: Fitted) -> Evidence:
    """That of an integral over what has no closed form.

    Raises:
        ValueError: the prior has no normalising constant that is known.
    """
    value = float(integration.log_evidence)
    _refuse_bent(posterior.is_bent or not np.isfinite(value))
    error, effective = float(integration.error), float(integration.effective)
    number = np.asarray(posterior.log_weights).size
    # Of a closed form of the rows, what is integrated over is behind the rewards: by importance sampling.
    method = posterior.method if posterior.exact_part is None else "importance"
    return Evidence(value, error, method, integration.numbers, number, effective)


def _bridge(key: PRNGKeyArray, posterior: Fitted) -> Evidence:
    """The estimate by bridge sampling, with what is wrong with the chains as well."""
    if posterior.program is None and (posterior.drawn_by is None or posterior.drawn_by.prior is None):
        raise ValueError(_LOADED)
    _refuse_bent(posterior.is_bent)
    if not np.asarray(posterior.visit_counts()).any() and not posterior.num_rewards_observed():
        return Evidence(0.0)  # it has seen nothing, which is certain under every prior
    model, data = posterior.density_of_draws()
    sites = posterior.site_draws
    try:
        # What more draws would not help comes first.
        with jax.enable_x64(True):
            check_sites(model, jax.tree.map(np.array, data))
        chains = _chains(posterior.chains, sites, np.asarray(posterior.log_weights))
        estimate = bridge_sampling(key, model, data, {name: chains.draws[name] for name in sites})
    except ValueError as error:
        raise ValueError(f"posterior: {error}") from error
    # What the prior observes and tells of nothing is no part of the data.
    value = estimate.log_evidence - posterior.log_constant
    return replace(estimate, log_evidence=value, problems=(*chains.problems(), *estimate.problems))


def _chains(chains: Chains | None, sites: Mapping[str, AnyArray], log_weights: AnyArray) -> Chains:
    """The chains whose draws these are.

    Raises:
        ValueError: the draws have weights of their own, or there are no chains behind them.
    """
    weights = np.asarray(log_weights, np.float64)
    # Draws with weights are no sample of the posterior that bridges could use.
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


def _refuse_bent(is_bent: bool) -> None:
    if is_bent:
        raise ValueError(
            "prior: a factor, an observation, a scale or a mask bends its density, whose normalising constant is not "
            "known, expected a prior of sample sites alone"
        )
