"""The reward laws of N draws: their means, the density of rewards, and sums of fresh rewards. Host-side, float64."""

from types import EllipsisType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.inference.families.family import RewardBelief, families_of
from bayes_mdp.inference.sampled.conditioned_program import RewardRows
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.models.reward_laws import law_at
from bayes_mdp.models.sufficient_statistics import RewardStatistics, has_statistics
from bayes_mdp.utils.typing import AnyArray

Drawn = Float[np.ndarray, "N *cells"]
Index = tuple[Int[np.ndarray, "..."], ...] | tuple[EllipsisType]  # of cells; (...,): all of them
NUMBERS_AT_ONCE = 2**22


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

    def shown(self) -> dict[str, Drawn]:
        """The parameters that differ between draws: `reward_mean`, and `reward_precision` of normal rewards.

        Of a single draw, which cannot differ: those of a law.
        """
        found = {"reward_mean": self.mean}
        if type(self.law) is dist.Normal:
            scale = np.asarray(self.law.scale, np.float64)
            found["reward_precision"] = np.where(self.known, np.nan, scale) ** -2.0
        if len(self.mean) == 1 and self.law is not None:
            return {name: x for name, x in found.items() if np.isfinite(x).any()}
        return {name: x for name, x in found.items() if _differs(x)}

    def log_prob(self, reward: Float[np.ndarray, "*where"], counted: Bool[np.ndarray, "*where"], where: Index) -> Drawn:
        """[N *where], log density of one reward in each cell at the index `where`.

        Zero where it is not `counted` (it is missing), and where rewards are known numbers.
        """
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
            family = _with_density_of_sum(type(law))
            if family is None:
                value = jnp.stack(jnp.broadcast_arrays(*rewards, 0.0), axis=-1)
                density = np.asarray(RewardStatistics(law).log_prob(value))
            else:
                density = np.asarray(family.log_density_of_sum(law, rewards.count, rewards.count * rewards.mean))
        return np.where(self.known[where], 0.0, density)

    def total(self, rng: np.random.Generator, count: Float[np.ndarray, "*where"], where: Index) -> Drawn:
        """[N *where], the sum of `count` fresh rewards of the cells at the index `where`."""
        mean = self.mean[(slice(None), *where)]
        if self.law is None:
            return count * mean
        with jax.enable_x64(True):
            sums = (family.draw_sum(rng, count, self._at(where)) for family in families_of(type(self.law)))
            drawn = next((x for x in sums if x is not None), None)
            drawn = self._total_of_each(rng, count, where) if drawn is None else drawn
        return np.where(self.known[where], count * mean, drawn)

    def _total_of_each(self, rng: np.random.Generator, count: Float[np.ndarray, "*where"], where: Index) -> Drawn:
        """The same, for a law whose sums have no known law: every reward is drawn, a block of draws at a time."""
        cells = tuple(np.ravel(i) for i in np.broadcast_arrays(*_mesh(where, self.known.shape)))
        number = np.round(np.broadcast_to(count, self.known[where].shape)).astype(np.int64).ravel()
        each = np.repeat(np.arange(number.size), number)
        many = len(self.mean)
        found = np.zeros((many, number.size))
        size = max(1, NUMBERS_AT_ONCE // max(1, each.size))
        for start in range(0, many, size):
            law = self._at(tuple(i[each] for i in cells), slice(start, start + size))
            drawn = np.asarray(law.sample(jax.random.key(int(rng.integers(2**32)))), np.float64)
            for total, rewards in zip(found[start : start + size], drawn, strict=True):
                np.add.at(total, each, rewards)
        return found.reshape(many, *self.known[where].shape)

    def _at(self, where: Index, draws: slice = slice(None)) -> dist.Distribution:
        """The laws [N *where] of the cells at the index `where`."""
        return law_at(*self._table_at(where, draws))

    def _table_at(self, where: Index, draws: slice = slice(None)) -> tuple[dist.Distribution, tuple[np.ndarray, ...]]:
        """The table of laws, and the index of these in it."""
        if self.law is None:
            raise TypeError("the rewards are known, expected rewards with a law")
        cells = np.broadcast_arrays(*_mesh(where, self.known.shape))
        index = np.arange(len(self.mean))[draws].reshape(-1, *(1,) * cells[0].ndim)
        return self.law, (index, *(each[None] for each in cells))


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


def mean_of(rewards: RewardTable) -> Drawn:
    """The mean reward of every draw and cell, in float64."""
    with jax.enable_x64(True):
        copied = jax.tree.map(np.array, rewards)
        return np.asarray(jax.vmap(lambda each: each.mean)(copied), np.float64)


def has_sums(law: type[dist.Distribution] | None) -> bool:
    """Whether the density of several rewards under this law (None: known numbers) follows from their moments."""
    return law is None or has_statistics(law) or _with_density_of_sum(law) is not None


def _with_density_of_sum(law: type[dist.Distribution]) -> type[RewardBelief] | None:
    """The family whose beliefs draw this law, if number and sum of rewards are all that their density needs."""
    return next((family for family in families_of(law) if family.law is law and family.sum_suffices), None)


def _mesh(where: Index, cells: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Index arrays that broadcast; of all cells for (...,)."""
    return tuple(np.indices(cells, sparse=True)) if where[0] is ... else tuple(map(np.asarray, where))


def _differs(values: Drawn) -> bool:
    """Whether a number that exists differs between draws."""
    return bool((np.isfinite(values) & (values != values[:1])).any())
