"""Draws of a posterior and of its prior, at every state-action pair; components are chosen first. Host-side."""

import math
from collections.abc import Mapping
from typing import cast

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.calibration.belief.draws import Draws, Run, draws_of, run_in_parts
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.fitted import Fitted, LawDraws, block_size
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


def draw(key: PRNGKeyArray, posterior: Fitted, num_draws: int) -> Draws:
    """Exact draws, with the values of all sites of the program that the posterior knows.

    Draws of a `ConjugatePosterior` are independent. Of a mixture, a collapsed or a factorised posterior, components
    (draws of the rewards) are chosen first (see `choose`); each gives one independent draw of what is in closed form.

    Raises:
        ValueError: they would not fit in memory.
    """
    check_draws(posterior, num_draws)
    if posterior.log_weights is None:
        return draws_of(posterior.draw_laws(key, np.zeros(num_draws, np.int32)), run_in_parts(num_draws))
    key_choice, key_draws = jax.random.split(key)
    # Draws of hyperparameters are not to stand on the nodes of a grid.
    posterior = posterior.without_nodes(key_choice, num_draws)
    index, run = choose(host_generator(key_choice), posterior, _held(posterior, num_draws))
    return draws_of(posterior.draw_laws(key_draws, index), run)


def _held(posterior: Fitted, num_draws: int) -> int:
    """`num_draws`, but no more than the posterior holds."""
    return num_draws if posterior.most_draws is None else min(num_draws, posterior.most_draws)


def check_draws(posterior: Fitted, num_draws: int, transitions: int = 0, beside: float = 0.0) -> None:
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
    cells = table if posterior.reference.rewards_by_outcome else pairs
    # Joining the blocks holds every draw twice for a moment.
    each = 2 * 4 * table + PAIR_BYTES * cells + ROW_BYTES * transitions + beside
    at_once = 4 * SCRATCH * table * block_size(table) + 16 * 8 * table
    held = f", {transitions} transitions" if transitions else ""
    check_memory(
        f"num_draws is {num_draws}{held}", _held(posterior, num_draws) * each + at_once, "fewer draws take less"
    )


def choose(rng: np.random.Generator, posterior: Fitted, num_draws: int) -> tuple[Int[np.ndarray, " N"], Run]:
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


def kept_chains(posterior: Fitted) -> Chains | None:
    """The chains whose draws, equally weighted, are those of the posterior; None: there are none."""
    chains = posterior.chains
    if chains is None:
        return None
    log_weights = np.asarray(posterior.log_weights, np.float64)
    equal = np.ptp(log_weights) <= EQUAL
    return chains if equal and chains.are_those_of(posterior.site_draws, len(log_weights)) else None


def stats_of(chains: Chains, posterior: Fitted) -> dict[str, np.ndarray]:
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


def draw_prior(key: PRNGKeyArray, posterior: Fitted, num_draws: int) -> Draws:
    """Independent draws of the prior, with the values of all sites of the program that are known.

    Raises:
        ValueError: it cannot be drawn from (`why_no_prior`).
    """
    why = posterior.why_no_prior()
    if why is not None:
        raise ValueError(f"posterior has no prior to draw from, expected a proper one and its program: {why}")
    if posterior.in_closed_form:
        return draw(key, posterior.before_data(), num_draws)
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
    return draws_of(LawDraws.of_tables(probs, rewards), run_in_parts(num_draws, sites))


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
