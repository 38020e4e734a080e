"""Draws of closed forms: stacked rows and reward parameters, what law follows, and which sites of the program they are.

A parameter that several pairs share is drawn once and repeated at each of them. Rows, and rewards of the conjugate
families, are drawn by NumPy: compiling a sampler takes longer than many draws.

The values of the program's sites behind draws of a closed form: which are known, and what they are.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped

from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import Rewards
from bayes_mdp.inference.conjugate.site_table import SiteTable
from bayes_mdp.inference.families.family import RewardBelief, RewardStreams
from bayes_mdp.inference.fitted import Fitted, LawDraws, block_size
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.random.host_generator import draw_dirichlet_rows, host_generator
from bayes_mdp.utils.typing import AnyArray, IntScalar

if TYPE_CHECKING:
    from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
    from bayes_mdp.inference.mixtures import MixturePosterior

Closed: TypeAlias = "ConjugatePosterior | MixturePosterior"  # closed form, given the component
Keys = Key[Array, " B"]
Components = Int[AnyArray, " B"]
Rows = tuple[Float[np.ndarray, "B M K"], Float[np.ndarray, "B *H S A O"]]  # stacked rows, and those of the law
Parameters = tuple[Shaped[AnyArray, "..."], ...]
Tables = TypeVar("Tables")


def draw_components(key: PRNGKeyArray, posterior: Closed, index: Int[np.ndarray, " N"]) -> LawDraws:
    """One draw of each component in `index` (a conjugate posterior has no components: as many draws of itself).

    Args:
        key: of all draws.
        posterior: to be drawn from.
        index: components.
    """
    first = posterior.component(0)
    key_rows, key_rewards = jax.random.split(key)
    size = block_size(math.prod((*posterior.space.shape, posterior.space.n_outcomes)))
    with jax.enable_x64(True):
        # In float32 a mean that is known to many digits would not vary at all. The arrays are copied, as JAX may hold
        # float32 versions of the originals.
        posterior = jax.tree.map(np.array, posterior)
        stacked, probs = _in_blocks(_row_drawer(key_rows, posterior), index, size)
        parameters, table, mean = _in_blocks(_reward_drawer(key_rewards, posterior, first.reward_cells), index, size)
        # The draws of a factorised posterior's rewards have their sites beside them.
        sites = site_values(
            posterior,
            index,
            stacked,
            parameters if first.drawn_by is None else (),
            block_size(stacked[0].size),
        )
    known = known_numbers(first.reward_cells)
    return LawDraws(probs, table, np.asarray(mean, np.float64), known, sites)


def known_numbers(rewards: Rewards) -> Bool[np.ndarray, "*cells"]:
    """Cells whose reward is a known number, so that no density is owed."""
    if isinstance(rewards, RewardCells):
        numbers = rewards.cell is not None and rewards.known is not None and rewards.known_law is None
        return np.asarray(rewards.cell) < 0 if numbers else np.zeros(rewards.shape, bool)
    return np.full(rewards.shape, rewards.law is None)


def _row_drawer(key: PRNGKeyArray, posterior: Closed) -> Callable[[Components], Rows]:
    """Draws of the stacked rows of components, and the rows of the law: one after the other from one generator."""
    rng = host_generator(key)

    def draw(index: Components) -> Rows:
        # In single precision, as they are kept: a sixth of the memory that drawing them takes is theirs.
        stacked = draw_dirichlet_rows(rng, np.asarray(_concentrations(posterior, index))).astype(np.float32)
        return stacked, np.asarray(_law_rows(posterior, stacked, index))

    return draw


@jax.jit
def _concentrations(posterior: Closed, index: Components) -> Float[Array, "B M K"]:
    return jax.vmap(lambda k: jnp.asarray(posterior.component(k).transition_probs.site_concentration))(index)


@jax.jit
def _law_rows(posterior: Closed, stacked: Float[AnyArray, "B M K"], index: Components) -> Float[Array, "B *H S A O"]:
    gather = lambda rows, k: jnp.asarray(posterior.component(k).transition_probs.gather(rows))  # noqa: E731
    return jax.vmap(gather)(jnp.asarray(stacked), index)


def _reward_drawer(
    key: PRNGKeyArray, posterior: Closed, kind: Rewards
) -> Callable[[Components], tuple[Parameters, RewardTable, Float[Array, "B *cells"]]]:
    """Draws of the reward parameters of components, their law, and its mean (`kind`: of one component)."""
    if not isinstance(kind, RewardCells):
        rng = host_generator(key)
        keys = lambda num: jax.random.split(jax.random.key(int(rng.integers(2**63))), num)  # noqa: E731
        return lambda index: _reward_laws(posterior, index, _draw_by_jax(keys(len(index)), posterior, index))
    streams = RewardStreams(key, np.arange(len(kind.data)))

    def draw(index: Components) -> tuple[Parameters, RewardTable, Float[Array, "B *cells"]]:
        beliefs = jax.tree.map(np.asarray, _reward_beliefs(posterior, index))
        return _reward_laws(posterior, index, beliefs.draw(streams, len(index)))

    return draw


@jax.jit
def _reward_beliefs(posterior: Closed, index: Components) -> RewardBelief:
    def one(k: IntScalar) -> RewardBelief:
        cells = posterior.component(k).reward_cells
        assert isinstance(cells, RewardCells)  # all components are of one kind
        return cells.site_belief

    return jax.vmap(one)(index)


@jax.jit
def _draw_by_jax(keys: Keys, posterior: Closed, index: Components) -> Parameters:
    def one(key: PRNGKeyArray, k: IntScalar) -> Parameters:
        rewards = posterior.component(k).reward_cells
        # Rewards that are draws themselves: those of the draw that was chosen.
        return rewards.sample_sites(key) if rewards.in_closed_form else (jnp.asarray(k),)

    return jax.vmap(one)(keys, index)


@jax.jit
def _reward_laws(
    posterior: Closed, index: Components, drawn: Parameters
) -> tuple[Parameters, RewardTable, Float[Array, "B *cells"]]:
    def one(k: IntScalar, drawn: Parameters) -> tuple[Parameters, RewardTable, Float[Array, "*cells"]]:
        rewards = posterior.component(k).reward_cells
        return drawn, rewards.table_of(drawn), jnp.asarray(rewards.gather_from_draw(drawn)[0])

    return jax.vmap(one)(index, drawn)


def _in_blocks(draw_block: Callable[[Components], Tables], index: Int[np.ndarray, " N"], size: int) -> Tables:
    """A draw of each of `index`, block by block: one compiled program for any N, and bounded memory.

    Args:
        draw_block: components [B] -> arrays [B ...].
        index: components.
        size: B.
    """
    number = -(-len(index) // size)
    # The last block is filled up, by repeating `index`, and cut below.
    places = np.resize(index, (number, size)).astype(np.int32)
    blocks = [jax.tree.map(np.asarray, draw_block(place)) for place in places]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(index)], *blocks)


def known_sites(posterior: Fitted) -> dict[str, tuple[int, ...]]:
    """The shapes of the latent sites whose values are known in every draw, by name."""
    drawn_shapes = {name: np.shape(x)[1:] for name, x in posterior.site_draws.items()}
    return {**drawn_shapes, **_conjugate_sites(posterior)}


def site_values(
    posterior: Fitted,
    index: Int[np.ndarray, " N"],
    rows: Float[np.ndarray, "N M K"],
    parameters: Parameters,
    block: int,
) -> dict[str, Float[np.ndarray, "N ..."]]:
    """The values of the conjugate sites for N draws of stacked rows and reward parameters. In JAX's 64-bit mode.

    Args:
        posterior: in closed form, given the component.
        index: the component of each draw.
        rows, parameters: the draws.
        block: number of draws that are worked on at once.
    """
    tables = posterior.site_tables
    made = {name: np.zeros((len(rows), *shape)) for name, shape in _conjugate_sites(posterior).items()}
    if not made:
        return {}
    for table in dict.fromkeys(tables):
        # Components with the same table are worked on together.
        components = np.flatnonzero([same_table == table for same_table in tables])
        places = np.flatnonzero(np.isin(index, components)) if len(tables) > 1 else np.arange(len(rows))
        for start in range(0, len(places), block):
            # The last block is filled up, by repeating draws: one compiled program.
            block_rows = np.resize(places[start : start + block], min(block, len(rows)))
            values = _block(table, np.array(rows[block_rows]), tuple(np.array(x[block_rows]) for x in parameters))
            for name, filled in made.items():
                filled[block_rows] = values[name]
    return made


@partial(jax.jit, static_argnums=0)
def _block(table: SiteTable, rows: Float[AnyArray, "B M K"], parameters: Parameters) -> Mapping[str, Array]:
    return jax.vmap(table.values)(rows, parameters)


def _conjugate_sites(posterior: Fitted) -> dict[str, tuple[int, ...]]:
    """The shapes of the conjugate sites all of whose elements are parameters of every component."""
    tables = posterior.site_tables
    if not tables:
        return {}
    closed: Any = posterior.reference  # which is in closed form, as it has tables
    width = int(np.prod(np.shape(closed.transition_probs.prior)))
    covered = [_whole_sites(table, width) for table in dict.fromkeys(tables)]
    return {name: shape for name, shape in tables[0].shapes if all(name in sites for sites in covered)}


def _whole_sites(table: SiteTable, width: int) -> frozenset[str]:
    """The sites all of whose elements lie in the arrays of a closed form, whose stacked rows have `width` entries."""
    sizes = {name: int(np.prod(shape)) for name, shape in table.shapes}
    seen = np.zeros(sum(sizes.values()), bool)
    for elements in (np.arange(width) if table.rows is None else table.rows, *table.cells):
        seen[np.ravel(elements)[np.ravel(elements) >= 0]] = True
    ends = np.cumsum(list(sizes.values()), dtype=int)
    return frozenset(
        name for (name, size), end in zip(sizes.items(), ends, strict=True) if seen[end - size : end].all()
    )
