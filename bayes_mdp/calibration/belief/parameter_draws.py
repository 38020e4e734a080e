"""Draws of a posterior and of its prior, at every state-action pair; components are chosen first. Host-side."""

import math
from collections.abc import Mapping
from typing import cast

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.calibration.belief.closed_form_draws import block_size, draw_components
from bayes_mdp.calibration.belief.draws import Draws, Run, of_tables, run_in_parts
from bayes_mdp.calibration.belief.posterior_views import (
    FittedPosterior,
    before_data,
)
from bayes_mdp.inference.collapsed.collapsed_posterior import LEAST_COMPONENTS, CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, RewardTable, reward_table, transition_table
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.random.resampling import systematic_on_host
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray

SCRATCH = 12  # float32 numbers beside each probability while it is drawn (a gamma number by rejection: measured)
EQUAL = 1e-6  # by how much the log weights of draws of equal weight may differ
ROW_BYTES = 160  # of a transition under one draw: densities, weights, a replicate
PAIR_BYTES = 64  # of the reward of a cell under one draw


def draw(key: PRNGKeyArray, posterior: FittedPosterior, num_draws: int) -> Draws:
    """Exact draws, with the values of all sites of the program that the posterior knows.

    Draws of a `ConjugatePosterior` are independent. Of a mixture, a collapsed or a factorised posterior, components
    (draws of the rewards) are chosen first (see `choose`); each gives one independent draw of what is in closed form.

    Raises:
        ValueError: they would not fit in memory.
    """
    check_draws(posterior, num_draws)
    if isinstance(posterior, SampledPosterior):
        index, run = choose(host_generator(key), posterior, min(num_draws, posterior.num_draws))
        tables = (posterior.transition_probs, posterior.rewards)
        probs, rewards = jax.tree.map(lambda x: np.asarray(x)[index], tables)
        return of_tables(probs, rewards, run)
    if posterior.log_weights is None:
        return draw_components(key, posterior, np.zeros(num_draws, np.int32), run_in_parts(num_draws))
    key_choice, key_draws = jax.random.split(key)
    if isinstance(posterior, CollapsedPosterior) and posterior.integration is not None:
        # Between the nodes of a grid too: draws of the hyperparameters are not to stand on its nodes.
        posterior = posterior.thinned(key_choice, max(num_draws, LEAST_COMPONENTS))
    index, run = choose(host_generator(key_choice), posterior, num_draws)
    return draw_components(key_draws, posterior, index, run)


def check_draws(posterior: FittedPosterior, num_draws: int, transitions: int = 0, beside: float = 0.0) -> None:
    """Refuse draws that would not fit in memory, before they are made.

    Args:
        posterior: to be drawn from; only its shapes are read.
        num_draws: number of draws.
        transitions: number of transitions that are evaluated one by one under each draw.
        beside: bytes that are needed beside each draw.

    Raises:
        ValueError: the number of draws, the memory that they take, the memory that is free.
    """
    pairs = math.prod(posterior.space.shape)
    table = pairs * posterior.space.n_outcomes
    sampled = isinstance(posterior, SampledPosterior)
    cells = table if posterior.reference.rewards_by_outcome else pairs
    made = min(num_draws, posterior.num_draws) if sampled else num_draws
    # Joining the blocks holds every draw twice for a moment.
    each = 2 * 4 * table + PAIR_BYTES * cells + ROW_BYTES * transitions + beside
    at_once = 4 * SCRATCH * table * block_size(table) + 16 * 8 * table
    held = f", {transitions} transitions" if transitions else ""
    check_memory(f"num_draws is {num_draws}{held}", made * each + at_once, "fewer draws take less")


def choose(rng: np.random.Generator, posterior: FittedPosterior, num_draws: int) -> tuple[Int[np.ndarray, " N"], Run]:
    """The components to draw from, and where they come from.

    As long as the components are the draws of the chains, equally weighted, they keep the chains, thinned evenly to
    `num_draws` in all, one of each at least. Otherwise they are resampled by weight, and their order is lost.

    Args:
        rng: for resampling.
        posterior: with K weighted components.
        num_draws: number of draws to show, at most.
    """
    log_weights, sites = np.asarray(posterior.log_weights, np.float64), posterior.site_draws
    chains = kept_chains(posterior)
    if chains is not None:
        per_chain = min(chains.num_samples, max(1, num_draws // chains.num_chains))
        kept = np.arange(per_chain) * chains.num_samples // per_chain
        index = (np.arange(chains.num_chains)[:, None] * chains.num_samples + kept).ravel()
        return index, Run(_picked(sites, index), chains.num_chains, _picked(stats_of(chains, posterior), index))
    weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    # Copies of one component come out next to each other and would look like a chain that does not move: shuffle.
    index = rng.permutation(systematic_on_host(rng, weights, num_draws))
    attributes = {
        "weighted_draws": f"resampled by weight from {len(weights)}",
        "weights_ess": float(1 / (weights**2).sum()),
    }
    if posterior.in_closed_form:
        what = "independent draws"
    else:
        approximate = posterior.method in ("svi", "laplace") and np.ptp(log_weights) <= EQUAL
        what = "independent draws of an approximation" if approximate else "draws resampled by weight"
    return index, run_in_parts(len(index), _picked(sites, index), what, attributes)


def kept_chains(posterior: FittedPosterior) -> Chains | None:
    """The chains whose draws, equally weighted, are those of the posterior; None: there are none."""
    chains = posterior.chains
    if chains is None:
        return None
    log_weights = np.asarray(posterior.log_weights, np.float64)
    equal = np.ptp(log_weights) <= EQUAL
    return chains if equal and chains.are_those_of(posterior.site_draws, len(log_weights)) else None


def stats_of(chains: Chains, posterior: FittedPosterior) -> dict[str, np.ndarray]:
    """Statistics of the sampler under ArviZ's names, one chain after the other."""
    named = {
        "diverging": chains.diverging,
        "acceptance_rate": chains.accept_prob,
        "n_steps": chains.num_steps,
        "lp": chains.log_density,
        "energy": chains.energy,
    }
    found = {name: np.asarray(x).reshape(-1) for name, x in named.items() if x is not None}
    options = posterior.chain_options
    if "n_steps" in found and options is not None and options.kernel is None:
        # NUTS doubles its trajectory: a tree of depth d has at most 2^d - 1 leapfrog steps.
        found["tree_depth"] = np.ceil(np.log2(found["n_steps"] + 1.0)).astype(np.int64)
    return found


def _picked(arrays: Mapping[str, AnyArray], index: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.asarray(values)[index] for name, values in arrays.items()}


def draw_prior(key: PRNGKeyArray, posterior: FittedPosterior, num_draws: int) -> Draws:
    """Independent draws of the prior, with the values of all sites of the program that are known.

    Raises:
        ValueError: it cannot be drawn from (`why_no_prior`).
    """
    why = posterior.why_no_prior()
    if why is not None:
        raise ValueError(f"posterior has no prior to draw from, expected a proper one and its program: {why}")
    if isinstance(posterior, ConjugatePosterior | Mixture) and posterior.in_closed_form:
        return draw(key, before_data(posterior), num_draws)
    check_draws(posterior, num_draws)
    program = posterior.program
    assert program is not None  # else there is no prior
    return draw_program(key, program, posterior.space, num_draws)


def draw_program(key: PRNGKeyArray, prior: Prior, space: StateActionSpace, num_draws: int) -> Draws:
    """Independent draws of the program, with every latent site in `run.sites`."""
    size = block_size(math.prod((*space.shape, space.n_outcomes)))

    @jax.jit
    def block(keys: Key[Array, " N"]) -> tuple[Array, RewardTable, dict[str, Array]]:
        return jax.vmap(lambda each: _run_program(prior, space, each))(keys)

    drawn = [block(jax.random.split(each, size)) for each in jax.random.split(key, -(-num_draws // size))]
    probs, rewards, sites = jax.tree.map(lambda *parts: np.concatenate(parts)[:num_draws], *drawn)
    return of_tables(probs, rewards, run_in_parts(num_draws, sites))


@traced_alone
def _run_program(
    prior: Prior, space: StateActionSpace, key: PRNGKeyArray
) -> tuple[Float[Array, "*H S A O"], RewardTable, dict[str, Array]]:
    """Rows, reward law and latent sites of one draw."""
    with handlers.trace() as traced:
        spec = cast(MDPSpec, handlers.seed(prior, key)(space))
    drawn = {name: site for name, site in traced.items() if site["type"] == "sample" and not site["is_observed"]}
    latent = {name: site["value"] for name, site in drawn.items()}
    return transition_table(spec, space), reward_table(spec, space), latent
