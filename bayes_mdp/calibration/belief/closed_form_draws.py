"""Draws of closed forms: stacked rows and reward parameters, what law follows, and which sites of the program they are.

A parameter that several pairs share is drawn once and repeated at each of them.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped

from bayes_mdp.calibration.belief.closed_form_sites import site_values
from bayes_mdp.calibration.belief.draws import Draws, Run
from bayes_mdp.calibration.belief.reward_density import RewardDraws
from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import Rewards
from bayes_mdp.inference.factorised.factorised_posterior import FactorisedPosterior
from bayes_mdp.inference.factorised.sampled_rewards import SampledRewards
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.inference.mixtures.mixture_posterior import MixturePosterior
from bayes_mdp.inference.pooled.pooled_posterior import PooledPosterior
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.utils.typing import AnyArray, IntScalar

BLOCK = 50
NUMBERS_AT_ONCE = 2**24  # probabilities that are drawn at once

Closed = ConjugatePosterior | Mixture | CollapsedPosterior | PooledPosterior  # closed form, given the component
Keys = Key[Array, " B"]
Components = Int[AnyArray, " B"]
Rows = tuple[Float[Array, "B M K"], Float[Array, "B *H S A O"]]  # stacked rows, and those of the law
Parameters = tuple[Shaped[AnyArray, "..."], ...]
Tables = TypeVar("Tables")


def draw_components(key: PRNGKeyArray, posterior: Closed, index: Int[np.ndarray, " N"], run: Run) -> Draws:
    """One draw of each component in `index` (a conjugate posterior has no components: as many draws of itself).

    Args:
        key: of all draws.
        posterior: to be drawn from.
        index: components.
        run: where the components come from; the values of the conjugate sites are added to its sites.
    """
    first = posterior if isinstance(posterior, ConjugatePosterior) else posterior.component(0)
    key_rows, key_rewards = jax.random.split(key)
    # A block of draws is one compiled program, and bounds the memory.
    stacked, probs = _in_blocks(_rows_block, key_rows, posterior, index)
    with jax.enable_x64(True):
        # In float32 a mean that is known to many digits would not vary at all. The arrays are copied, as JAX may hold
        # float32 versions of the originals.
        copied = jax.tree.map(np.array, posterior)
        parameters, table, mean = _in_blocks(_rewards_block, key_rewards, copied, index)
        # The draws of a factorised posterior's rewards have their sites beside them.
        sites = site_values(
            posterior,
            index,
            stacked,
            () if isinstance(first, FactorisedPosterior) else parameters,
            block_size(stacked[0].size),
        )
    known = known_numbers(first.reward_cells)
    rewards = RewardDraws(table.law, np.asarray(mean, np.float64), known, table.by_outcome)
    return Draws(probs, rewards, run._replace(sites={**run.sites, **sites}))


def known_numbers(rewards: Rewards) -> Bool[np.ndarray, "*cells"]:
    """Cells whose reward is a known number, so that no density is owed."""
    if isinstance(rewards, RewardCells):
        numbers = rewards.cell is not None and rewards.known is not None and rewards.known_law is None
        return np.asarray(rewards.cell) < 0 if numbers else np.zeros(rewards.shape, bool)
    return np.full(rewards.shape, rewards.law is None)


@jax.jit
def _rows_block(keys: Keys, posterior: Closed, index: Components) -> Rows:
    def one(key: PRNGKeyArray, k: IntScalar) -> tuple[Float[Array, "M K"], Float[Array, "*H S A O"]]:
        rows = _component(posterior, k).transition_probs
        stacked = rows.sample_sites(key)
        return stacked, jnp.asarray(rows.gather(stacked))

    return jax.vmap(one)(keys, index)


@jax.jit
def _rewards_block(
    keys: Keys, posterior: Closed, index: Components
) -> tuple[Parameters, RewardTable, Float[Array, "B *cells"]]:
    def one(key: PRNGKeyArray, k: IntScalar) -> tuple[Parameters, RewardTable, Float[Array, "*cells"]]:
        rewards = _component(posterior, k).reward_cells
        # Rewards that are draws themselves: those of the draw that was chosen.
        drawn = (jnp.asarray(k),) if isinstance(rewards, SampledRewards) else rewards.sample_sites(key)
        return drawn, rewards.table_of(drawn), jnp.asarray(rewards.gather_drawn(drawn)[0])

    return jax.vmap(one)(keys, index)


def _component(posterior: Closed, k: IntScalar) -> ConjugatePosterior:
    return posterior.component(k) if isinstance(posterior, MixturePosterior) else posterior


def block_size(table: int) -> int:
    """How many draws of `table` probabilities are made at once."""
    return max(1, min(BLOCK, NUMBERS_AT_ONCE // table))


def _in_blocks(
    draw_block: Callable[[Keys, Closed, Components], Tables],
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
