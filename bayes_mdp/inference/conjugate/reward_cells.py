"""What is believed of the rewards: `RewardCells` (a conjugate family on stacked leaves) or `KnownRewards`."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.families import RewardBelief
from bayes_mdp.inference.conjugate.index_tables import Sites, first_tie, is_injective, leaf_index, unless_identity
from bayes_mdp.inference.conjugate.reward_statistics import Statistics, absorb
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.validation import check_finite, check_shape

Cells = Float[Array, "*cells"]


class RewardCells(eqx.Module):
    """Independent beliefs about M leaves, and the table by which the law selects from them (built by `reward_cells`).

    The cells of the law are [*H S A], or [*H S A O] where the reward depends on the outcome (`by_outcome`).

    Args:
        prior: a belief of one family (`bayes_mdp.inference.conjugate.families`) with arrays [M].
        data: [M 3], count, mean and sum of squared deviations of the rewards seen.
        cell: the leaf of each cell of the law, -1 for a known reward; None: row-major, one each.
        known: the known rewards (read where `cell` is -1); None: there is none.
        shape: shape of the cells of the law.
        by_outcome: whether the last axis of `shape` is the outcome.
        independent: no leaf is used by two pairs.
        distinct: no leaf is used by two cells.
        sites: (name, batch shape) of the sites whose leaves are stacked, in order.
    """

    prior: RewardBelief
    data: Statistics
    cell: Int[Array, "*cells"] | None
    known: Cells | None
    shape: tuple[int, ...] = eqx.field(static=True)
    by_outcome: bool = eqx.field(static=True)
    independent: bool = eqx.field(static=True)
    distinct: bool = eqx.field(static=True)
    sites: Sites = eqx.field(static=True, default=())

    @property
    def leaf_belief(self) -> Any:
        """The belief after data, arrays [M]."""
        return self.prior.after(jnp.asarray(self.data))

    @property
    def belief(self) -> Any:
        """The belief after data with the cells of the law as shape; nan where the reward is known."""
        return jax.tree.map(lambda leaf: self._select(leaf, jnp.nan), self.leaf_belief)

    def _select(self, leaf: Float[Array, " M"], otherwise: Any) -> Cells:
        if self.cell is None:
            return leaf.reshape(self.shape)
        cells = leaf[self.cell]
        return cells if self.known is None else jnp.where(self.cell < 0, otherwise, cells).astype(leaf.dtype)

    def gather(self, mean: Float[Array, " M"]) -> Cells:
        """Mean rewards in the cells of the law for the values `mean` of the leaves, known rewards filled in."""
        return self._select(mean, self.known)

    def mean(self) -> Cells:
        """Expected mean reward."""
        return self.gather(self.leaf_belief.mean())

    def variance(self) -> Cells:
        """Epistemic variance of the mean reward; inf where it does not exist, zero where the reward is known."""
        return self._select(self.leaf_belief.variance(), 0.0)

    def noise(self) -> Cells:
        """Expected variance of one reward around its mean; zero where the reward is known."""
        return self._select(self.leaf_belief.noise(), 0.0)

    def sample_leaves(self, key: PRNGKeyArray) -> tuple[Float[Array, " M"], ...]:
        """One draw of the parameters of the leaves, named by `prior.parameters`; the first is the mean reward."""
        return self.leaf_belief.sample(key)

    def sample(self, key: PRNGKeyArray) -> Cells:
        """One draw of the mean rewards."""
        return self.gather(self.sample_leaves(key)[0])

    def sample_with_noise(self, key: PRNGKeyArray) -> tuple[Cells, Cells]:
        """One draw of the mean rewards and of the variance of one reward around them; zero where a reward is known."""
        belief = self.leaf_belief
        drawn = belief.sample(key)
        return self.gather(drawn[0]), self._select(belief.drawn_noise(drawn), 0.0)

    def ties(self, space: StateActionSpace) -> str | None:
        """The first two pairs that share a mean reward, and its site, in words; None: no two do. Host side."""
        shared = not self.independent and self.cell is not None
        return first_tie("the mean reward", self.cell, self.sites, space) if shared else None

    def at_step(self, step: Any) -> "RewardCells":
        """The cells of one step, each with a leaf of its own (right for independent cells only: see `layered`)."""
        shape = self.shape[1:]
        if self.cell is None:
            leaves = jnp.arange(math.prod(shape)) + step * math.prod(shape)
            table = None
        else:
            leaves = jnp.ravel(jnp.asarray(self.cell)[step])
            # A known cell points anywhere: what is drawn there is overwritten.
            table = jnp.where(leaves < 0, -1, jnp.arange(leaves.size)).reshape(shape)
        prior, data = jax.tree.map(lambda leaf: jnp.asarray(leaf)[leaves], (self.prior, self.data))
        known = None if self.known is None else jnp.asarray(self.known)[step]
        return RewardCells(prior, data, table, known, shape, self.by_outcome, self.independent, self.distinct)

    def leaf(self, cell: tuple[Any, ...], outcome: Any) -> Any:
        """Index of the leaf of (step,) state, action `cell` and outcome; M where the reward is known."""
        where = (*cell, outcome) if self.by_outcome else cell
        return leaf_index(self.cell, where, self.shape, self.data.shape[0])

    def update(self, cell: tuple[Any, ...], outcome: Any, statistics: Statistics) -> "RewardCells":
        """The belief after `statistics` [*N 3] of rewards seen at cells [*N]."""
        data = absorb(jnp.asarray(self.data), self.leaf(cell, outcome), statistics)
        return eqx.tree_at(lambda cells: cells.data, self, data)

    def belief_at(self, cell: tuple[Any, ...], outcome: Any) -> tuple[Any, Array]:
        """The belief after data at cells, and whether there is one (else the reward is known)."""
        leaf = self.leaf(cell, outcome)
        prior, data = jax.tree.map(lambda x: jnp.asarray(x).at[leaf].get(mode="clip"), (self.prior, self.data))
        return prior.after(data), leaf < self.data.shape[0]

    def log_evidence(self) -> Float[Array, ""]:
        """Log density of the rewards seen, as a sequence, less the data's own constants."""
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
        """Known rewards tie nothing."""
        return True

    @property
    def distinct(self) -> bool:
        """Known rewards tie nothing."""
        return True

    def ties(self, space: StateActionSpace) -> None:
        """None: known rewards tie nothing."""

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

    def at_step(self, step: Any) -> "KnownRewards":
        """The rewards of one step."""
        return KnownRewards(self.mean()[step], self.by_outcome)


def _ties(table: np.ndarray | None, by_outcome: bool) -> tuple[bool, bool]:
    """Whether no leaf is used by two pairs, and whether none is used by two cells."""
    distinct = is_injective(table)
    if distinct or table is None or not by_outcome:
        return distinct, distinct
    per_pair = [np.unique(cells[cells >= 0]) for cells in table.reshape(-1, table.shape[-1])]
    used = np.concatenate(per_pair)
    return np.unique(used).size == used.size, False


def reward_cells(
    prior: RewardBelief,
    shape: tuple[int, ...],
    *,
    by_outcome: bool = False,
    cell: Any = None,
    known: Any = None,
    sites: Sites = (),
) -> RewardCells:
    """Cells before any data (arguments: see `RewardCells`; the arrays of `prior` broadcast). Host side.

    Raises:
        ValueError: no leaf, a parameter that is not positive or finite, a table that points outside the leaves.
    """
    prior.check("reward")
    arrays = np.broadcast_arrays(*(np.asarray(leaf, float) for leaf in jax.tree.leaves(prior)))
    prior = jax.tree.unflatten(jax.tree.structure(prior), [np.ravel(array) for array in arrays])
    size = arrays[0].size
    if size == 0:
        raise ValueError("prior has 0 leaves, expected at least 1 (`known_rewards` where every reward is known)")
    if cell is None and size != math.prod(shape):
        raise ValueError(f"prior has {size} leaves, expected {math.prod(shape)}, one for each cell of {tuple(shape)}")
    cells = np.arange(size).reshape(shape) if cell is None else np.asarray(cell)
    check_shape("cell", cells, shape, "the cells of the reward law")
    table: Any = unless_identity(cells, size, "cell")
    known = None if table is None or not (table < 0).any() else np.asarray(known, float)
    if known is not None:
        check_shape("known", known, shape, "the cells of the reward law")
    independent, distinct = _ties(table, by_outcome)
    data: Any = np.zeros((size, 3))
    return RewardCells(prior, data, table, known, tuple(shape), by_outcome, independent, distinct, sites)


def known_rewards(mean: Any, *, by_outcome: bool = False) -> KnownRewards:
    """Known rewards [*H S A], or [*H S A O] with `by_outcome`.

    Raises:
        ValueError: a reward is not finite.
    """
    mean = np.asarray(mean, float)
    check_finite("reward", mean)
    return KnownRewards(mean, by_outcome)
