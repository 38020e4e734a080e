"""The arrays of a `LazyBelief` from a conjugate belief, or from drawn rewards. Traceable."""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards, Rewards
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.lazy_belief import LazyRewards, LazyRows
from bayes_mdp.utils.typing import AnyArray


def lazy_rows(rows: DirichletRows, space: StateActionSpace) -> LazyRows:
    """Site rows as urns; known rows of the law are added to them as rows that nothing changes."""
    # A leading axis of steps, of length one where rows do not depend on the step.
    full = rows.shape if len(rows.shape) == 4 else (1, *rows.shape)
    pairs, width = full[:-1], full[-1]
    table, learns = jnp.asarray(rows.site_concentration), jnp.ones(len(rows.prior), bool)
    row = jnp.arange(math.prod(pairs)) if rows.row is None else jnp.asarray(rows.row)
    row, outcome = row.reshape(pairs), None
    if rows.column is not None:
        # Which outcome a column is, for each row of the law: the inverse of `column`.
        column = jnp.broadcast_to(jnp.asarray(rows.column), rows.shape).reshape(full)
        site_column = jnp.where(column < 0, table.shape[-1], column)
        index = jnp.indices(full, sparse=True)[:-1]
        number = jnp.arange(width, dtype=jnp.int32)
        outcome = jnp.zeros((*pairs, table.shape[-1]), jnp.int32).at[(*index, site_column)].set(number)
    if rows.known is not None:
        known = jnp.broadcast_to(jnp.asarray(rows.known), rows.shape).reshape(-1, width)
        widest = max(width, table.shape[-1])
        # Known rows of the law become further site rows, numbered after the unknown ones.
        number = len(table) + jnp.arange(len(known)).reshape(pairs)
        if outcome is not None or widest > table.shape[-1]:
            own_columns = jnp.broadcast_to(jnp.arange(widest), (*pairs, widest))
            listed_columns = own_columns if outcome is None else _pad(outcome, widest)
            # A known row has its outcomes in order; a site row may have them by `column`.
            outcome = jnp.where((row < 0)[..., None], own_columns, listed_columns)
        row = jnp.where(row < 0, number, row)
        table = jnp.concatenate([_pad(table, widest), _pad(known, widest).astype(table.dtype)])
        # Nothing is learnt in a known row: its urn is never added to.
        learns = jnp.concatenate([learns, jnp.zeros(len(known), bool)])
    # With one possible outcome there is nothing to learn.
    learns &= (table > 0).sum(-1) > 1
    return LazyRows(_running_sums(table)[None], learns, row, outcome, lazy_successors(space))


def lazy_draws(probs: Float[AnyArray, "N *H S A O"], successor: Array | None) -> LazyRows:
    """Rows of N drawn MDPs: known in each of them.

    Args:
        probs: of the outcomes.
        successor: [T S A O], as in `LazyRows`.
    """
    # Rows that do not depend on the step have one step.
    pairs = probs.shape[1:-1] if probs.ndim == 5 else (1, *probs.shape[1:-1])
    number = math.prod(pairs)
    table = _running_sums(probs.reshape(len(probs), number, -1))
    row = jnp.arange(number).reshape(pairs)
    return LazyRows(table, jnp.zeros(number, bool), row, None, successor)


def lazy_successors(space: StateActionSpace) -> Array | None:
    """[T S A O], the state of each outcome; None: the outcome."""
    if space.successors is None:
        return None
    listed = jnp.asarray(space.successors)
    return listed.reshape(-1, *listed.shape[-3:])


def _running_sums(table: Float[AnyArray, "*rows K"]) -> Float[Array, "*rows K"]:
    """Sums up to each place, which rise at no place of zero.

    XLA adds long rows in blocks: by rounding, its sums rise and fall where nothing is added (in rows of 1000 in float32
    by 4e-7 of the whole), and a simulation would draw outcomes that are impossible.
    """
    table = jnp.asarray(table)
    # The cumulative maximum repairs rounding: sums never fall.
    sums = jnp.where(table > 0, jnp.cumsum(table, -1), 0)
    return jax.lax.cummax(sums, axis=sums.ndim - 1)


def _pad(table: Array, width: int) -> Array:
    return jnp.pad(table, [(0, 0)] * (table.ndim - 1) + [(0, width - table.shape[-1])])


def lazy_rewards(rewards: Rewards, key: PRNGKeyArray, num_draws: int, reward_bins: int) -> LazyRewards:
    """Known rewards; urns of rewards with finitely many values; otherwise `num_draws` draws of the reward laws."""
    if isinstance(rewards, KnownRewards):
        return known_rewards(jnp.asarray(rewards.mean())[None], rewards.by_outcome)
    if isinstance(rewards, RewardCells) and (table := urn_of(rewards)) is not None:
        return _urns(rewards, table)
    return label_rewards(rewards.law, *reward_draws(rewards, key, num_draws), rewards.by_outcome, reward_bins)


def urn_of(rewards: Rewards) -> Float[Array, "M K"] | None:
    """Concentrations of the finitely many values that rewards take; None: they take others, or not in closed form."""
    # Affine rewards are not whole numbers: they have no labels 0 to K - 1.
    if not isinstance(rewards, RewardCells) or rewards.coefficient is not None:
        return None
    table = rewards.site_belief.urn()
    return None if table is None else jnp.asarray(table)


def _urns(rewards: RewardCells, table: Float[Array, "M K"]) -> LazyRewards:
    # A Dirichlet-categorical reward is a Polya urn: its labels are its values.
    size = table.shape[-1]
    value = jnp.broadcast_to(jnp.arange(size, dtype=table.dtype), table.shape)
    learns = jnp.ones(len(table), bool)
    number = math.prod(rewards.shape)
    cell = jnp.arange(number) if rewards.cell is None else jnp.ravel(jnp.asarray(rewards.cell))
    if rewards.known is not None:
        # A known reward has one label and pays its mean.
        known = jnp.broadcast_to(jnp.ravel(jnp.asarray(rewards.gather(jnp.zeros(len(table))))), (number,))
        # The urn of a known reward has its first label only.
        first = jnp.zeros((number, size), table.dtype).at[:, 0].set(1.0)
        cell = jnp.where(cell < 0, len(table) + jnp.arange(number), cell)
        value = jnp.concatenate([value, jnp.broadcast_to(known[:, None], (number, size)).astype(table.dtype)])
        table = jnp.concatenate([table, first])
        learns = jnp.concatenate([learns, jnp.zeros(number, bool)])
    cells = cell.reshape(_cells(rewards.shape, rewards.by_outcome))
    return LazyRewards(_running_sums(table)[None], learns, value[None], cells)


def reward_draws(
    rewards: Rewards, key: PRNGKeyArray, num_draws: int
) -> tuple[Float[Array, "D *cells"], Float[Array, "D *cells"]]:
    """Mean and variance of one reward in every cell, in each of `num_draws` draws of the parameters."""

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        mean, noise = rewards.gather_from_draw(rewards.sample_sites(key))
        # Each draw has a law of its own: mean and noise in every cell.
        return jnp.asarray(mean), jnp.asarray(noise)

    return jax.vmap(one)(jax.random.split(key, num_draws))


def known_rewards(mean: Float[AnyArray, "D *cells"], by_outcome: bool) -> LazyRewards:
    """Rewards that are known in each component: one label each."""
    cells = _cells(mean.shape[1:], by_outcome)
    # One label of weight one, which pays the mean.
    number = math.prod(cells)
    table, learns = jnp.ones((1, number, 1)), jnp.zeros(number, bool)
    return LazyRewards(table, learns, jnp.nan_to_num(mean).reshape(-1, number, 1), jnp.arange(number).reshape(cells))


def label_rewards(
    law: type[dist.Distribution] | None,
    mean: Float[AnyArray, "D *cells"],
    noise: Float[AnyArray, "D *cells"],
    by_outcome: bool,
    reward_bins: int,
) -> LazyRewards:
    """Rewards of drawn laws: 0 and 1 are told apart exactly, other rewards by bins; one bin: none is."""
    if reward_bins == 1 or law is None or not issubclass(law, (dist.BernoulliProbs, dist.BernoulliLogits)):
        return bin_rewards(mean, noise, by_outcome, reward_bins)
    # One edge at 1/2 tells 0 from 1.
    flat = jnp.nan_to_num(mean).reshape(len(mean), -1)
    edges = jnp.full((flat.shape[1], 1), 0.5)
    return _label_by_edges(flat, 1.0 - flat[..., None], edges, _cells(mean.shape[1:], by_outcome))


def bin_rewards(
    mean: Float[AnyArray, "D *cells"], noise: Float[AnyArray, "D *cells"], by_outcome: bool, reward_bins: int
) -> LazyRewards:
    """Rewards of drawn laws: each pays its mean; its label is the bin that a reward of it would fall into.

    Bins are quantiles of a normal distribution with the mean and the variance of a reward over all draws. The chance of
    a bin is that of a normal law of the draw's mean and variance: of other laws an approximation.
    """
    if reward_bins == 1:
        return known_rewards(mean, by_outcome)
    mean, noise = jnp.nan_to_num(mean), jnp.nan_to_num(noise)
    number = math.prod(mean.shape[1:])
    flat, spread = mean.reshape(-1, number), jnp.sqrt(noise).reshape(-1, number)
    centre = flat.mean(0)
    # Mean and variance of a reward over all draws: law of total variance.
    scale = jnp.sqrt(flat.var(0) + noise.reshape(-1, number).mean(0))
    edges = ndtri(jnp.arange(1, reward_bins) / reward_bins)  # [J - 1]
    # J bins of equal chance under that normal law: J - 1 quantiles.
    between = centre[:, None] + scale[:, None] * edges  # [L J - 1]
    distance = between - flat[..., None]
    # A reward without noise falls into one bin.
    chance_below = jnp.where(
        spread[..., None] > 0,
        ndtr(distance / jnp.where(spread > 0, spread, 1.0)[..., None]),
        (distance >= 0).astype(flat.dtype),
    )
    return _label_by_edges(flat, chance_below, between, _cells(mean.shape[1:], by_outcome))


def _label_by_edges(
    mean: Float[Array, "D L"], below: Float[Array, "D L B"], edges: Float[Array, "L B"], cells: tuple[int, ...]
) -> LazyRewards:
    """Drawn rewards that pay their means; `below`: the chance that one is below each edge."""
    number = mean.shape[1]
    # The chance to be below the last edge is one.
    cumulative = jnp.concatenate([below, jnp.ones((*mean.shape, 1), below.dtype)], -1)
    value = jnp.broadcast_to(mean[..., None], cumulative.shape)
    return LazyRewards(cumulative, jnp.zeros(number, bool), value, jnp.arange(number).reshape(cells), edges)


def _cells(shape: tuple[int, ...], by_outcome: bool) -> tuple[int, ...]:
    """[T S A W] of cells [*H S A], or [*H S A O] where rewards depend on the outcome."""
    pairs, width = (shape[:-1], shape[-1]) if by_outcome else (shape, 1)
    return (*(pairs if len(pairs) == 3 else (1, *pairs)), width)
