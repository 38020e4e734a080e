"""Draws of a posterior, at every state-action pair, as NumPy arrays. Host-side."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped

from bayes_mdp.calibration.belief.posterior_views import FittedPosterior, chains_of, reference, sites_of
from bayes_mdp.calibration.belief.reward_density import LAWS, Index, Law, Moments, TableLaw, law_of
from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import KnownRewards
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.inference.mixtures.mixture_posterior import MixturePosterior
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.mdp.memory import check_memory
from bayes_mdp.mdp.typing import AnyArray
from bayes_mdp.models.mdp_spec import RewardTable

BLOCK = 50
NUMBERS_AT_ONCE = 2**24  # probabilities that are drawn at once
SCRATCH = 12  # float32 numbers beside each probability while it is drawn (a gamma number by rejection: measured)
ROW_BYTES = 160  # of a transition under one draw: densities, weights, a replicate
PAIR_BYTES = 64  # of the reward of a cell under one draw

Tables = TypeVar("Tables")
Keys = Key[Array, " B"]
Closed = ConjugatePosterior | Mixture | CollapsedPosterior  # rows and rewards in closed form, given the component
Attributes = Mapping[str, str | float]
NOTHING: Mapping[str, np.ndarray] = MappingProxyType({})
NO_ATTRIBUTES: Attributes = MappingProxyType({})


class Run(NamedTuple):
    """Where N draws come from.

    Args:
        sites: latent sites of the program -> [N ...].
        num_chains: number of chains, which follow one another in the N draws.
        stats: statistics of the sampler -> [N]; empty if the draws are not those of chains.
        attributes: notes for the reader: how weighted draws became equally weighted ones.
    """

    sites: Mapping[str, Shaped[np.ndarray, "N ..."]] = NOTHING
    num_chains: int = 1
    stats: Mapping[str, Shaped[np.ndarray, " N"]] = NOTHING
    attributes: Attributes = NO_ATTRIBUTES


class Draws(NamedTuple):
    """N draws. The cells of the rewards are [*H S A], or [*H S A O] if rewards depend on the outcome.

    Args:
        transition_probs: [N *H S A O], rows of probabilities.
        parameters: [N *cells] each, the parameters of the reward law; the first is the mean reward.
        names: of those parameters that are unknown.
        law: of one reward; None: rewards are known.
        known: [*cells], whether the reward is known; then only its mean is read.
        by_outcome: whether the last axis of the cells is the outcome.
        run: where the draws come from.
    """

    transition_probs: Float[np.ndarray, "N *H S A O"]
    parameters: tuple[Float[np.ndarray, "N *cells"], ...]
    names: tuple[str, ...]
    law: Law | TableLaw | None
    known: Bool[np.ndarray, "*cells"]
    by_outcome: bool
    run: Run = Run()

    def reward_total(self, rng: np.random.Generator, count: np.ndarray, where: Index) -> np.ndarray:
        """[N *where], the sum of `count` fresh rewards of the cells at the index `where`."""
        if isinstance(self.law, TableLaw):
            return self.law.total(rng, count, where)
        law, known, mean, parameters = self._at(where)
        return np.where(known, count * mean, law.total(rng, count, *parameters))

    def reward_log_prob(self, rewards: Moments, where: Index) -> np.ndarray:
        """[N *where], log density of `rewards` in the cells at the index `where`; 0 where the reward is known."""
        if isinstance(self.law, TableLaw):
            return self.law.log_prob(rewards, where)
        law, known, _, parameters = self._at(where)
        return np.where(known, 0.0, law.log_prob(rewards, *parameters))

    def _at(self, where: Index) -> tuple[Law, np.ndarray, np.ndarray, list[np.ndarray]]:
        """The law; at `where`: whether the reward is known, its mean, its parameters."""
        if not isinstance(self.law, Law):
            raise TypeError("the rewards are known, expected rewards with a law")
        known = self.known[where]
        picked = [p[(slice(None), *where)] for p in self.parameters]
        # Where the reward is known the result is not read: any valid parameter will do.
        return self.law, known, picked[0], [np.where(known, 0.5, p) for p in picked]


def draw(key: PRNGKeyArray, posterior: FittedPosterior, num_draws: int) -> Draws:
    """Exact draws; a parameter that several pairs share is drawn once and repeated at each of them.

    Draws of a `ConjugatePosterior` are independent. Of a mixture or a collapsed posterior, components are chosen
    first (see `choose`); each gives one independent draw of rows and rewards.

    Raises:
        ValueError: they would not fit in memory.
    """
    check_draws(posterior, num_draws)
    if isinstance(posterior, SampledPosterior):
        index, run = choose(generator(key), posterior, posterior.sites, min(num_draws, posterior.num_draws))
        tables = (posterior.transition_probs, posterior.rewards)
        probs, rewards = jax.tree.map(lambda x: np.asarray(x)[index], tables)
        return of_tables(probs, rewards, run)
    if isinstance(posterior, ConjugatePosterior):
        return _draw_components(key, posterior, np.zeros(num_draws, np.int32))
    key_choice, key_draws = jax.random.split(key)
    index, run = choose(generator(key_choice), posterior, sites_of(posterior), num_draws)
    return _draw_components(key_draws, posterior, index)._replace(run=run)


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
    by_outcome = posterior.rewards.by_outcome if sampled else reference(posterior).rewards_by_outcome
    cells = table if by_outcome else pairs
    made = min(num_draws, posterior.num_draws) if sampled else num_draws
    # Joining the blocks holds every draw twice for a moment.
    each = 2 * 4 * table + PAIR_BYTES * cells + ROW_BYTES * transitions + beside
    at_once = 4 * SCRATCH * table * block_size(table) + 16 * 8 * table
    held = f", {transitions} transitions" if transitions else ""
    check_memory(f"num_draws is {num_draws}{held}", made * each + at_once, "fewer draws take less")


def block_size(table: int) -> int:
    """How many draws of `table` probabilities are made at once."""
    return max(1, min(BLOCK, NUMBERS_AT_ONCE // table))


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """NumPy's generator, seeded with the bits of a key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def choose(
    rng: np.random.Generator,
    posterior: Mixture | CollapsedPosterior | SampledPosterior,
    sites: Mapping[str, AnyArray],
    num_draws: int,
) -> tuple[Int[np.ndarray, " N"], Run]:
    """The components to draw from, and where they come from.

    As long as the components are the draws of the chains, equally weighted, they keep the chains, thinned evenly to
    `num_draws` in all. Otherwise they are resampled by weight.

    Args:
        rng: for resampling.
        posterior: with K weighted components.
        sites: site -> [K ...].
        num_draws: number of draws to show, at most.
    """
    log_weights = np.asarray(posterior.log_weights, np.float64)
    chains = chains_of(posterior)
    equal = np.ptp(log_weights) <= 1e-6
    if chains is not None and equal and chains.are_those_of(sites, len(log_weights)):
        per_chain = min(chains.num_samples, max(1, num_draws // chains.num_chains))
        kept = np.arange(per_chain) * chains.num_samples // per_chain
        index = (np.arange(chains.num_chains)[:, None] * chains.num_samples + kept).ravel()
        return index, Run(_picked(sites, index), chains.num_chains, _picked(_stats(chains), index))
    # Systematic resampling: one uniform offset u, then the components at the quantiles (u + i) / N of the cumulative
    # weights. Each appears its expected number of times, rounded up or down.
    weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    quantiles = (rng.random() + np.arange(num_draws)) / num_draws
    index = np.minimum(np.searchsorted(np.cumsum(weights), quantiles), len(weights) - 1)
    # Copies of one component come out next to each other and would look like a chain that does not move: shuffle.
    index = rng.permutation(index)
    attributes = {
        "weighted_draws": f"resampled by weight from {len(weights)}",
        "weights_ess": float(1 / (weights**2).sum()),
    }
    return index, Run(_picked(sites, index), attributes=attributes)


def _stats(chains: Chains) -> dict[str, np.ndarray]:
    """Statistics of the sampler under ArviZ's names."""
    named = {
        "diverging": chains.diverging,
        "acceptance_rate": chains.accept_prob,
        "n_steps": chains.num_steps,
        "lp": chains.log_density,
    }
    return {name: np.asarray(x).reshape(-1) for name, x in named.items() if x is not None}


def _picked(arrays: Mapping[str, AnyArray], index: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.asarray(values)[index] for name, values in arrays.items()}


def of_tables(probs: Float[np.ndarray, "N *H S A O"], rewards: RewardTable, run: Run) -> Draws:
    """`Draws` from existing tables: rows, and a reward law whose arrays have a leading axis N."""
    cells = probs.shape[1:] if rewards.by_outcome else probs.shape[1:-1]
    if rewards.law is None:
        mean = np.asarray(rewards.known, np.float64)
        return Draws(probs, (mean,), _if_varying(mean), None, np.ones(cells, bool), rewards.by_outcome, run)
    law, parameters, names = law_of(rewards)
    return Draws(probs, parameters, names, law, np.zeros(cells, bool), rewards.by_outcome, run)


def _if_varying(mean: Float[np.ndarray, "N *cells"]) -> tuple[str, ...]:
    """The name of known mean rewards where they differ between draws (they depend on latent sites), else nothing."""
    return ("reward_mean",) if bool((mean != mean[:1]).any()) else ()


def _draw_components(key: PRNGKeyArray, posterior: Closed, index: Int[np.ndarray, " N"]) -> Draws:
    """One draw of each component in `index` (a conjugate posterior has no components: as many draws of itself)."""
    first = posterior if isinstance(posterior, ConjugatePosterior) else posterior.component(0)
    rewards = first.reward_cells
    key_rows, key_rewards = jax.random.split(key)
    # A block of draws is one compiled program, and bounds the memory.
    probs = _in_blocks(_rows_block, key_rows, posterior, index)
    with jax.enable_x64(True):
        # In float32 a mean that is known to many digits would not vary at all. The arrays are copied, as JAX may hold
        # float32 versions of the originals.
        mean, noise = _in_blocks(_rewards_block, key_rewards, jax.tree.map(np.array, posterior), index)
    if isinstance(rewards, KnownRewards):
        known = np.ones(mean.shape[1:], bool)
        return Draws(probs, (mean,), _if_varying(mean), None, known, rewards.by_outcome)
    known = np.zeros(rewards.shape, bool) if rewards.cell is None else np.asarray(rewards.cell) < 0
    parameters = (mean,)
    if rewards.prior.law is dist.Normal:
        parameters += (1.0 / np.where(known, np.nan, noise),)
    names = ("reward_mean", "reward_precision")[: len(rewards.prior.parameters)]
    return Draws(probs, parameters, names, LAWS[type(rewards.prior)], known, rewards.by_outcome)


@jax.jit
def _rows_block(keys: Keys, posterior: Closed, index: Int[AnyArray, " B"]) -> Float[Array, "B *H S A O"]:
    return jax.vmap(lambda key, k: _component(posterior, k).transition_probs.sample(key))(keys, index)


@jax.jit
def _rewards_block(
    keys: Keys, posterior: Closed, index: Int[AnyArray, " B"]
) -> tuple[Float[AnyArray, "B *cells"], ...]:
    return jax.vmap(lambda key, k: _component(posterior, k).reward_cells.sample_with_noise(key))(keys, index)


def _component(posterior: Closed, k: Int[Array, ""]) -> ConjugatePosterior:
    return posterior.component(k) if isinstance(posterior, MixturePosterior) else posterior


def _in_blocks(
    draw_block: Callable[[Keys, Closed, Int[np.ndarray, " B"]], Tables],
    key: PRNGKeyArray,
    posterior: Closed,
    index: Int[np.ndarray, " N"],
) -> Tables:
    """A draw of each of `index`, block by block: one compiled program for any N, and bounded memory.

    Args:
        draw_block: (keys [B], posterior, components [B]) -> arrays [B ...].
        key: of all draws.
        posterior: to be drawn from.
        index: components.
    """
    size = block_size(math.prod((*posterior.space.shape, posterior.space.n_outcomes)))
    number = -(-len(index) // size)
    # The last block is filled up, by repeating `index`, and cut below.
    places = np.resize(index, (number, size)).astype(np.int32)
    keys = jax.random.split(key, (number, size))
    blocks = [jax.tree.map(np.asarray, draw_block(keys[i], posterior, places[i])) for i in range(number)]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(index)], *blocks)
