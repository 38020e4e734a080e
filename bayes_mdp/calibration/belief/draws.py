"""Draws of a posterior and of its prior, at every state-action pair (`draw`, `draw_prior`). Host-side, NumPy.

`Draws` are N draws of the law of a transition, with the sites of the program; `Run` says where they come from.
`RewardDraws` are their reward laws: means, the density of rewards, and sums of fresh rewards, in float64.
"""

import math
from collections.abc import Mapping
from types import EllipsisType, MappingProxyType
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped
from numpyro import handlers

from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.families.family import RewardBelief, families_of
from bayes_mdp.inference.fitted import NOTHING, Fitted, LawDraws, block_size
from bayes_mdp.inference.sampled.conditioned_program import RewardRows
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.abilities import by_pattern
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, RewardTable, reward_table, transition_table
from bayes_mdp.models.reward_laws import law_at
from bayes_mdp.models.sufficient_statistics import RewardStatistics, has_statistics
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.random.resampling import systematic_on_host
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_count, check_key, described

Drawn = Float[np.ndarray, "N *cells"]
Index = tuple[Int[np.ndarray, "..."], ...] | tuple[EllipsisType]  # of cells; (...,): all of them
NUMBERS_AT_ONCE = 2**22
Attributes = Mapping[str, str | float]
NO_ATTRIBUTES: Attributes = MappingProxyType({})
MAX_CHAINS = 4
LEAST_IN_CHAIN = 4  # below it split r-hat does not exist


class Moments(NamedTuple):
    """Number, mean and sum of squared deviations of rewards; one reward r is (1, r, 0), a missing one (0, 0, 0)."""

    count: Float[np.ndarray, "*cells"]  # pyright: ignore[reportIncompatibleMethodOverride]
    mean: Float[np.ndarray, "*cells"]
    ss: Float[np.ndarray, "*cells"]


class RewardDraws(NamedTuple):
    """N draws of the law of one reward in every cell, [*H S A], or [*H S A O] if rewards depend on the outcome.

    Args:
        law: a NumPyro distribution whose arrays have the shape [N *cells] (and their event axes); None: rewards are
            known numbers.
        mean: [N *cells], mean reward; nan where it does not exist.
        known: [*cells], whether the reward is a known number; then only its mean is read.
        by_outcome: whether the last axis of the cells is the outcome.
    """

    law: dist.Distribution | None
    mean: Drawn
    known: Bool[np.ndarray, "*cells"]
    by_outcome: bool

    @property
    def has_sums(self) -> bool:
        """Whether the density of several rewards of a cell follows from their moments."""
        return has_sums(None if self.law is None else type(self.law))

    def variables(self) -> dict[str, Drawn]:
        """The parameters that differ between draws: `reward_mean`, and `reward_precision` of normal rewards.

        Of a single draw, which cannot differ: those of a law.
        """
        values = {"reward_mean": self.mean}
        if type(self.law) is dist.Normal:
            scale = np.asarray(self.law.scale, np.float64)
            # A known reward has no precision to show.
            values["reward_precision"] = np.where(self.known, np.nan, scale) ** -2.0
        if len(self.mean) == 1 and self.law is not None:
            return {name: x for name, x in values.items() if np.isfinite(x).any()}
        # What differs between draws, of the numbers that exist.
        return {name: x for name, x in values.items() if (np.isfinite(x) & (x != x[:1])).any()}

    def log_prob(self, reward: Float[np.ndarray, "*where"], counted: Bool[np.ndarray, "*where"], where: Index) -> Drawn:
        """[N *where], log density of one reward in each cell at the index `where`.

        Zero where it is not `counted` (it is missing), and where rewards are known numbers.
        """
        # Known rewards tell nothing.
        counted = counted & ~self.known[where]
        with jax.enable_x64(True):
            return np.asarray(_log_density(*self._table_at(where), np.where(counted, reward, 0.0), counted), np.float64)

    def log_prob_of_sums(self, rewards: Moments, where: Index) -> Drawn:
        """[N *where], log density of the sequence of rewards with these moments, less the log base measure of each.

        Raises:
            ValueError: the density under this law does not follow from moments (`has_sums`).
        """
        if not self.has_sums:
            name = type(self.law).__name__
            raise ValueError(f"data holds sums: the rewards of a {name} law have none, expected the transitions")
        with jax.enable_x64(True):
            law = self._at(where)
            # Moments: count, mean, squared deviations, and a base measure of zero.
            family = _with_density_of_sum(type(law))
            if family is None:
                value = jnp.stack(jnp.broadcast_arrays(*rewards, 0.0), axis=-1)
                density = np.asarray(RewardStatistics(law).log_prob(value))
            else:
                # For other laws count and sum.
                density = np.asarray(family.log_density_of_sum(law, rewards.count, rewards.count * rewards.mean))
        return np.where(self.known[where], 0.0, density)

    def total(self, rng: np.random.Generator, count: Float[np.ndarray, "*where"], where: Index) -> Drawn:
        """[N *where], the sum of `count` fresh rewards of the cells at the index `where`."""
        # Index of all draws and of the cells.
        mean = self.mean[(slice(None), *where)]
        if self.law is None:
            return count * mean
        with jax.enable_x64(True):
            # The family draws the sum itself where its law is known, such as a sum of normals.
            sums = (family.draw_sum(rng, count, self._at(where)) for family in families_of(type(self.law)))
            drawn = next((x for x in sums if x is not None), None)
            drawn = self._total_of_each(rng, count, where) if drawn is None else drawn
        return np.where(self.known[where], count * mean, drawn)

    def _total_of_each(self, rng: np.random.Generator, count: Float[np.ndarray, "*where"], where: Index) -> Drawn:
        """The same, for a law whose sums have no known law: every reward is drawn, a block of draws at a time."""
        cells = tuple(np.ravel(i) for i in np.broadcast_arrays(*_mesh(where, self.known.shape)))
        # One entry for each reward that is summed: the cell that it belongs to.
        number = np.round(np.broadcast_to(count, self.known[where].shape)).astype(np.int64).ravel()
        cell_of_reward = np.repeat(np.arange(number.size), number)
        num_draws = len(self.mean)
        totals = np.zeros((num_draws, number.size))
        # As many draws at once as their rewards fit into memory.
        size = max(1, NUMBERS_AT_ONCE // max(1, cell_of_reward.size))
        for start in range(0, num_draws, size):
            law = self._at(tuple(i[cell_of_reward] for i in cells), slice(start, start + size))
            drawn = np.asarray(law.sample(jax.random.key(int(rng.integers(2**32)))), np.float64)
            for total, rewards in zip(totals[start : start + size], drawn, strict=True):
                np.add.at(total, cell_of_reward, rewards)
        return totals.reshape(num_draws, *self.known[where].shape)

    def _at(self, where: Index, draws: slice = slice(None)) -> dist.Distribution:
        """The laws [N *where] of the cells at the index `where`."""
        return law_at(*self._table_at(where, draws))

    def _table_at(self, where: Index, draws: slice = slice(None)) -> tuple[dist.Distribution, tuple[np.ndarray, ...]]:
        """The table of laws, and the index of these in it."""
        if self.law is None:
            raise TypeError("the rewards are known, expected rewards with a law")
        cells = np.broadcast_arrays(*_mesh(where, self.known.shape))
        # Draws vary along the first axis, cells along the others.
        index = np.arange(len(self.mean))[draws].reshape(-1, *(1,) * cells[0].ndim)
        return self.law, (index, *(axis_index[None] for axis_index in cells))


@jax.jit
def _log_density(
    table: dist.Distribution,
    index: tuple[Int[AnyArray, "..."], ...],
    reward: Float[AnyArray, "*where"],
    counted: Bool[AnyArray, "*where"],
) -> Float[Array, "N *where"]:
    """Log density of rewards under the laws at an index of a table; zero where they are not counted."""
    law = law_at(table, index)
    weight, value = (jnp.broadcast_to(jnp.asarray(x, float), law.batch_shape) for x in (counted, reward))
    return RewardRows(law, weight).log_prob(value)


def has_sums(law: type[dist.Distribution] | None) -> bool:
    """Whether the density of several rewards under this law (None: known numbers) follows from their moments."""
    return law is None or has_statistics(law) or _with_density_of_sum(law) is not None


def _with_density_of_sum(law: type[dist.Distribution]) -> type[RewardBelief] | None:
    """The family whose beliefs draw this law, if number and sum of rewards are all that their density needs."""
    return next((family for family in families_of(law) if family.law is law and family.sum_suffices), None)


def _mesh(where: Index, cells: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Index arrays that broadcast; of all cells for (...,)."""
    return tuple(np.indices(cells, sparse=True)) if where[0] is ... else tuple(map(np.asarray, where))


# The law of a transition, row and reward, and where the draws come from.


class Run(NamedTuple):
    """Where N draws come from.

    Args:
        sites: latent sites of the program -> [N ...].
        num_chains: number of chains, which follow one another in the N draws.
        stats: statistics of the sampler -> [N]; empty if the draws are not those of Markov chains.
        attributes: notes for the reader: what the chains are, how weighted draws became equally weighted ones.
        exchangeable: whether the draws have no order; then the chains are parts of them, and no Markov chains.
    """

    sites: Mapping[str, Shaped[np.ndarray, "N ..."]] = NOTHING
    num_chains: int = 1
    stats: Mapping[str, Shaped[np.ndarray, " N"]] = NOTHING
    attributes: Attributes = NO_ATTRIBUTES
    exchangeable: bool = False

    @property
    def markov_chains(self) -> int:
        """The number of groups of draws that may differ by more than chance."""
        return 1 if self.exchangeable else self.num_chains


class Draws(NamedTuple):
    """N draws.

    Args:
        transition_probs: [N *H S A O], rows of probabilities.
        rewards: the law of one reward in every cell.
        run: where the draws come from.
    """

    transition_probs: Float[np.ndarray, "N *H S A O"]
    rewards: RewardDraws
    run: Run = Run()

    def variables(self) -> dict[str, np.ndarray]:
        """The standard variables of a posterior: rows, and what is unknown of the rewards."""
        return {"transition_probs": self.transition_probs, **self.rewards.variables()}


def run_in_parts(
    num_draws: int,
    sites: Mapping[str, np.ndarray] = NOTHING,
    what: str = "independent draws",
    attributes: Attributes = NO_ATTRIBUTES,
) -> Run:
    """Draws without an order, in as many equal chains as their number divides into: four, three or two, or one.

    Args:
        num_draws: number of draws.
        sites: see `Run`.
        what: the draws, in words.
        attributes: see `Run`.
    """
    # Plots and statistics of ArviZ ask for several chains, of at least as many draws as split r-hat needs.
    parts = (n for n in range(MAX_CHAINS, 0, -1) if n == 1 or (num_draws % n == 0 and num_draws // n >= LEAST_IN_CHAIN))
    note = {"no_markov_chains": f"{what}: the chains are equal parts of them, and r-hat says nothing"}
    return Run(sites, next(parts), attributes={**note, **attributes}, exchangeable=True)


def draws_of(laws: LawDraws, run: Run) -> Draws:
    """`Draws` of laws, whose sites are added to those of `run`."""
    rewards = RewardDraws(laws.rewards.law, laws.mean, laws.known, laws.rewards.by_outcome)
    return Draws(laws.rows, rewards, run._replace(sites={**run.sites, **laws.sites}))


# The first checks of arguments.


def check_posterior(posterior: Fitted, num_draws: int) -> None:
    """Refuse anything but a posterior with transition rows and reward laws, and a number of draws below one.

    Raises:
        TypeError: no posterior with rows and reward laws.
        ValueError: no draws.
    """
    if not isinstance(posterior, Fitted):
        expected = by_pattern(posterior) or "one as infer returns it, or a mixture"
        raise TypeError(f"posterior is {described(posterior)}, expected {expected}")
    check_count("num_draws", num_draws)


def key_or_first(key: PRNGKeyArray | None) -> PRNGKeyArray:
    """`key`, or `jax.random.key(0)` for None.

    Raises:
        TypeError: no typed key.
    """
    key = jax.random.key(0) if key is None else key
    check_key("key", key)
    return key


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
        # Components by weight, then below each one what is in closed form.
        return draws_of(posterior.draw_laws(key, np.zeros(num_draws, np.int32)), run_in_parts(num_draws))
    key_choice, key_draws = jax.random.split(key)
    # Draws of hyperparameters are not to stand on the nodes of a grid.
    posterior = posterior.without_nodes(key_choice, num_draws)
    # No more than the posterior holds.
    index, run = choose(host_generator(key_choice), posterior, min(num_draws, posterior.most_draws or num_draws))
    return draws_of(posterior.draw_laws(key_draws, index), run)


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
    # Bytes of one draw that is kept.
    draw_bytes = 2 * 4 * table + PAIR_BYTES * cells + ROW_BYTES * transitions + beside
    at_once = 4 * SCRATCH * table * block_size(table) + 16 * 8 * table
    log_words = f", {transitions} transitions" if transitions else ""
    check_memory(
        f"num_draws is {num_draws}{log_words}",
        min(num_draws, posterior.most_draws or num_draws) * draw_bytes + at_once,
        "fewer draws take less",
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
    chains = chains_of_draws(posterior)
    if chains is not None:
        # As many of every chain.
        per_chain = min(chains.num_samples, max(1, num_draws // chains.num_chains))
        # Evenly spaced places in a chain.
        draw_index = np.arange(per_chain) * chains.num_samples // per_chain
        index = (np.arange(chains.num_chains)[:, None] * chains.num_samples + draw_index).ravel()
        return index, Run(_pick(sites, index), chains.num_chains, _pick(stats_of(chains, posterior), index))
    weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    # Copies of one component come out next to each other and would look like a chain that does not move: shuffle.
    index = rng.permutation(systematic_on_host(rng, weights, num_draws))
    attributes = {
        "weighted_draws": f"resampled by weight from {len(weights)}",
        # Kish: (sum w)^2 / sum w^2, with weights that sum to one.
        "weights_ess": float(1 / (weights**2).sum()),
    }
    if posterior.in_closed_form:
        origin = "independent draws"
    else:
        approximate = posterior.method in ("svi", "laplace") and np.ptp(log_weights) <= EQUAL
        origin = "independent draws of an approximation" if approximate else "draws resampled by weight"
    return index, run_in_parts(len(index), _pick(sites, index), origin, attributes)


def chains_of_draws(posterior: Fitted) -> Chains | None:
    """The chains whose draws, equally weighted, are those of the posterior; None: there are none."""
    chains = posterior.chains
    if chains is None:
        return None
    log_weights = np.asarray(posterior.log_weights, np.float64)
    # Weights that differ would change what the order of the chains means.
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
    stats = {name: np.asarray(x).reshape(-1) for name, x in named.items() if x is not None}
    options = posterior.chain_options
    if "n_steps" in stats and options is not None and options.kernel is None:
        # NUTS doubles its trajectory: a tree of depth d has at most 2^d - 1 leapfrog steps.
        stats["tree_depth"] = np.ceil(np.log2(stats["n_steps"] + 1.0)).astype(np.int64)
    return stats


def _pick(arrays: Mapping[str, AnyArray], index: np.ndarray) -> dict[str, np.ndarray]:
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
    # Blocks of one size: one compiled program, and bounded memory.
    # Draws that do not fill the last block are cut off.
    size = block_size(math.prod((*space.shape, space.n_outcomes)))
    block = jax.jit(jax.vmap(lambda each: _run_program(prior, space, each)))
    drawn = [block(jax.random.split(chunk_key, size)) for chunk_key in jax.random.split(key, -(-num_draws // size))]
    probs, rewards, sites = jax.tree.map(lambda *parts: np.concatenate(parts)[:num_draws], *drawn)
    return draws_of(LawDraws.of_tables(probs, rewards), run_in_parts(num_draws, sites))


@traced_alone
def _run_program(
    prior: Prior, space: StateActionSpace, key: PRNGKeyArray
) -> tuple[Float[Array, "*H S A O"], RewardTable, dict[str, Array]]:
    """Rows, reward law and latent sites of one draw."""
    with handlers.trace() as traced:
        spec = cast(MDPSpec, handlers.seed(prior, key)(space))
    # Observed sites are data, not parameters.
    drawn = {name: site for name, site in traced.items() if site["type"] == "sample" and not site["is_observed"]}
    latent = {name: site["value"] for name, site in drawn.items()}
    return transition_table(spec, space), reward_table(spec, space), latent
