"""Which draws of a weighted sample, or of chains, are shown to ArviZ, and what is known of them. Host-side."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Run(NamedTuple):
    """Where N draws come from.

    Args:
        sites: latent sites of the program -> [N ...].
        num_chains: chains, one after the other in the N.
        stats: statistics of the sampler -> [N]; empty where the draws are those of no chain.
        attributes: what a reader of the draws must know: how weighted draws became equal ones.
    """

    sites: Mapping[str, Float[np.ndarray, "N ..."]] = NOTHING
    num_chains: int = 1
    stats: Mapping[str, Float[np.ndarray, " N"]] = NOTHING
    attributes: Mapping[str, Any] = NOTHING


def choose(
    rng: np.random.Generator, belief: Any, sites: Mapping[str, Any], num_draws: int
) -> tuple[Int[np.ndarray, " N"], Run]:
    """The components to show, and their run.

    Chains are kept, thinned evenly to `num_draws` in all, as long as the weights are those that they left (equal). Else
    components are resampled by weight (systematically: each appears its expected number of times, rounded up or down).

    Args:
        belief: with `log_weights` [K] and, where it was sampled, `mcmc`.
        sites: site -> [K ...].
    """
    log_weights = np.asarray(belief.log_weights, np.float64)
    chains = getattr(belief, "mcmc", None)
    if chains is not None and _are_the_chains(chains, sites, log_weights):
        per_chain = min(chains.num_samples, max(1, num_draws // chains.num_chains))
        kept = np.arange(per_chain) * chains.num_samples // per_chain
        index = (np.arange(chains.num_chains)[:, None] * chains.num_samples + kept).ravel()
        return index, Run(_at(sites, index), chains.num_chains, _at(_stats(chains), index))
    weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    places = (rng.random() + np.arange(num_draws)) / num_draws
    index = np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)
    # Equal components would stand side by side, and look like a chain that does not move.
    index = rng.permutation(index)
    said = {"weighted_draws": f"resampled by weight from {len(weights)}", "weights_ess": float(1 / (weights**2).sum())}
    return index, Run(_at(sites, index), attributes=said)


def _are_the_chains(chains: Any, sites: Mapping[str, Any], log_weights: np.ndarray) -> bool:
    """Whether the components are the draws of the chains, in their order, and equally likely."""
    if chains.num_chains * chains.num_samples != len(log_weights) or np.ptp(log_weights) > 1e-6:
        return False
    return all(np.array_equal(np.ravel(chains.draws[name]), np.ravel(values)) for name, values in sites.items())


def _stats(chains: Any) -> dict[str, np.ndarray]:
    """Named as ArviZ does."""
    named = {
        "diverging": chains.diverging,
        "acceptance_rate": chains.accept_prob,
        "n_steps": chains.num_steps,
        "lp": chains.log_density,
    }
    return {name: np.asarray(x).reshape(-1) for name, x in named.items() if x is not None}


def _at(arrays: Mapping[str, Any], index: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.asarray(values)[index] for name, values in arrays.items()}
