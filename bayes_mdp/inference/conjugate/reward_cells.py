"""The belief about the rewards: `RewardCells` (a conjugate family on stacked sites) or `KnownRewards`."""

import math
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.families import RewardBelief
from bayes_mdp.inference.conjugate.index_tables import Sites, first_shared, is_injective, site_index, unless_identity
from bayes_mdp.inference.conjugate.reward_statistics import Statistics, absorb
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.typing import AnyArray, ArrayLike, Index, IntScalar, RealLike
from bayes_mdp.mdp.validation import check_finite, check_shape

Cells = Float[AnyArray, "*cells"]
Outcome: TypeAlias = IntScalar | Int[AnyArray, "..."]
"""Index of an outcome, or of many."""


class RewardCells(eqx.Module):
    """Independent beliefs about M site elements, and the table by which the law selects from them.

    Built by `reward_cells`.

    The cells of the law are [*H S A], or [*H S A O] where the reward depends on the outcome (`by_outcome`).

    Args:
        prior: a belief of one family (`bayes_mdp.inference.conjugate.families`) with arrays [M].
        data: [M 3], count, mean and sum of squared deviations of the observed rewards.
        cell: the site element of each cell of the law, -1 for a known reward; None: row-major, one each.
        known: the known rewards (read where `cell` is -1); None: there is none.
        shape: shape of the cells of the law.
        by_outcome: whether the last axis of `shape` is the outcome.
        independent: no element is used by two pairs.
        distinct: no element is used by two cells.
        sites: (name, batch shape) of the stacked sites, in order.
    """

    prior: RewardBelief
    data: Float[AnyArray, "M 3"]
    cell: Int[AnyArray, "*cells"] | None
    known: Cells | None
    shape: tuple[int, ...] = eqx.field(static=True)
    by_outcome: bool = eqx.field(static=True)
    independent: bool = eqx.field(static=True)
    distinct: bool = eqx.field(static=True)
    sites: Sites = eqx.field(static=True, default=())

    @property
    def site_belief(self) -> RewardBelief:
        """The belief after data, arrays [M]."""
        return self.prior.after(jnp.asarray(self.data))

    @property
    def belief(self) -> RewardBelief:
        """The belief after data with the cells of the law as shape; nan where the reward is known."""
        return jax.tree.map(lambda values: self._select(values, jnp.nan), self.site_belief)

    def _select(self, element: Float[AnyArray, " M"], otherwise: RealLike) -> Cells:
        if self.cell is None:
            return element.reshape(self.shape)
        cells = element[self.cell]
        return cells if self.known is None else jnp.where(self.cell < 0, otherwise, cells).astype(element.dtype)

    def gather(self, mean: Float[AnyArray, " M"]) -> Cells:
        """Mean rewards in the cells of the law for the values `mean` of the site elements, known rewards filled in."""
        return self._select(mean, 0.0 if self.known is None else self.known)

    def mean(self) -> Cells:
        """Expected mean reward."""
        return self.gather(jnp.asarray(self.site_belief.mean()))

    def variance(self) -> Cells:
        """Epistemic variance of the mean reward; inf where it does not exist, zero where the reward is known."""
        return self._select(jnp.asarray(self.site_belief.variance()), 0.0)

    def noise(self) -> Cells:
        """Expected variance of one reward around its mean; zero where the reward is known."""
        return self._select(jnp.asarray(self.site_belief.noise()), 0.0)

    def sample_sites(self, key: PRNGKeyArray) -> tuple[Float[AnyArray, " M"], ...]:
        """One draw of the parameters (named by `prior.parameters`) of the site elements; first the mean reward."""
        return tuple(map(jnp.asarray, self.site_belief.sample(key)))

    def sample(self, key: PRNGKeyArray) -> Cells:
        """One draw of the mean rewards."""
        return self.gather(self.sample_sites(key)[0])

    def sample_with_noise(self, key: PRNGKeyArray) -> tuple[Cells, Cells]:
        """One draw of the mean rewards and of the variance of one reward around them; zero where a reward is known."""
        belief = self.site_belief
        drawn = belief.sample(key)
        noise = self._select(jnp.asarray(belief.drawn_noise(drawn)), 0.0)
        return self.gather(jnp.asarray(drawn[0])), noise

    def shared_parameters(self, space: StateActionSpace) -> str | None:
        """The first two pairs that share a mean reward, and its site, in words; None: no two do. Host side."""
        if self.independent or self.cell is None:
            return None
        return first_shared("the mean reward", self.cell, self.sites, space)

    def at_step(self, step: IntScalar) -> "RewardCells":
        """The cells of one step, each with an element of its own (right for independent cells only: see `layered`)."""
        shape = self.shape[1:]
        if self.cell is None:
            chosen = jnp.arange(math.prod(shape)) + step * math.prod(shape)
            table = None
        else:
            chosen = jnp.ravel(jnp.asarray(self.cell)[step])
            # A known cell points anywhere: what is drawn there is overwritten.
            table = jnp.where(chosen < 0, -1, jnp.arange(chosen.size)).reshape(shape)
        prior, data = jax.tree.map(lambda values: jnp.asarray(values)[chosen], (self.prior, self.data))
        known = None if self.known is None else jnp.asarray(self.known)[step]
        return RewardCells(prior, data, table, known, shape, self.by_outcome, self.independent, self.distinct)

    def element(self, cell: Index, outcome: Outcome) -> Int[Array, "..."]:
        """Index of the site element of (step,) state, action `cell` and outcome; M where the reward is known."""
        where = (*cell, outcome) if self.by_outcome else cell
        return site_index(self.cell, where, self.shape, self.data.shape[0])

    def update(self, cell: Index, outcome: Outcome, statistics: Statistics) -> "RewardCells":
        """The belief after `statistics` [*N 3] of observed rewards at cells [*N]."""
        data = absorb(jnp.asarray(self.data), self.element(cell, outcome), jnp.asarray(statistics))
        return eqx.tree_at(lambda cells: cells.data, self, data)

    def belief_at(self, cell: Index, outcome: Outcome) -> tuple[RewardBelief, Bool[Array, "..."]]:
        """The belief after data at cells, and whether there is one (else the reward is known)."""
        element = self.element(cell, outcome)
        prior, data = jax.tree.map(lambda x: jnp.asarray(x).at[element].get(mode="clip"), (self.prior, self.data))
        return prior.after(data), element < self.data.shape[0]

    def log_evidence(self) -> Float[Array, ""]:
        """Log density of the observed rewards, as a sequence, less the data's own constants."""
        return self.prior.log_marginal(jnp.asarray(self.data)).sum()


class KnownRewards(eqx.Module):
    """Rewards that are known: nothing is learnt, no density is owed.

    Args:
        known: [*H S A], or [*H S A O] where the reward depends on the outcome (`by_outcome`).
    """

    known: Cells
    by_outcome: bool = eqx.field(static=True, default=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the cells."""
        return jnp.shape(self.known)

    @property
    def independent(self) -> bool:
        """Known rewards share no parameter."""
        return True

    @property
    def distinct(self) -> bool:
        """Known rewards share no parameter."""
        return True

    def shared_parameters(self, space: StateActionSpace) -> None:
        """None: known rewards share no parameter."""

    def mean(self) -> Cells:
        """The rewards."""
        return jnp.asarray(self.known)

    def variance(self) -> Cells:
        """Zero."""
        return jnp.zeros_like(self.mean())

    def noise(self) -> Cells:
        """Zero."""
        return jnp.zeros_like(self.mean())

    def sample(self, key: PRNGKeyArray) -> Cells:
        """The rewards; `key` is not used."""
        return self.mean()

    def sample_with_noise(self, key: PRNGKeyArray) -> tuple[Cells, Cells]:
        """The rewards, and zero; `key` is not used."""
        return self.mean(), self.noise()

    def at_step(self, step: IntScalar) -> "KnownRewards":
        """The rewards of one step."""
        return KnownRewards(self.mean()[step], self.by_outcome)


def _unshared(table: Int[np.ndarray, "*cells"] | None, by_outcome: bool) -> tuple[bool, bool]:
    """Whether no element is used by two pairs, and whether none is used by two cells."""
    distinct = is_injective(table)
    if distinct or table is None or not by_outcome:
        return distinct, distinct
    # Rewards by outcome: a pair may repeat an element among its outcomes and stay independent of others.
    per_pair = [np.unique(cells[cells >= 0]) for cells in table.reshape(-1, table.shape[-1])]
    used = np.concatenate(per_pair)
    return np.unique(used).size == used.size, False


def reward_cells(
    prior: RewardBelief,
    shape: tuple[int, ...],
    *,
    by_outcome: bool = False,
    cell: ArrayLike | None = None,
    known: ArrayLike | None = None,
    sites: Sites = (),
) -> RewardCells:
    """Cells before any data (arguments: see `RewardCells`; the arrays of `prior` broadcast). Host side.

    Raises:
        ValueError: no element, a parameter that is not positive or finite, a table that points outside them.
    """
    prior.check("reward")
    arrays = np.broadcast_arrays(*(np.asarray(values, float) for values in jax.tree.leaves(prior)))
    prior = jax.tree.unflatten(jax.tree.structure(prior), [np.ravel(array) for array in arrays])
    size = arrays[0].size
    if size == 0:
        raise ValueError("prior has 0 elements, expected at least 1 (`known_rewards` where every reward is known)")
    if cell is None and size != math.prod(shape):
        raise ValueError(f"prior has {size} elements, expected {math.prod(shape)}, one for each cell of {tuple(shape)}")
    cells = np.arange(size).reshape(shape) if cell is None else np.asarray(cell)
    check_shape("cell", cells, shape, "the cells of the reward law")
    table = unless_identity(cells, size, "cell")
    known = None if table is None or not (table < 0).any() else np.asarray(known, float)
    if known is not None:
        check_shape("known", known, shape, "the cells of the reward law")
    independent, distinct = _unshared(table, by_outcome)
    data = np.zeros((size, 3))
    return RewardCells(prior, data, table, known, tuple(shape), by_outcome, independent, distinct, sites)


def known_rewards(mean: ArrayLike, *, by_outcome: bool = False) -> KnownRewards:
    """Known rewards [*H S A], or [*H S A O] with `by_outcome`.

    Raises:
        ValueError: a reward is not finite.
    """
    mean = np.asarray(mean, float)
    check_finite("reward", mean)
    return KnownRewards(mean, by_outcome)
