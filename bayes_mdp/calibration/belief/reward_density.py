"""Reward laws under N draws of their parameters: log density, and sums of fresh rewards. Host-side, float64."""

from collections.abc import Callable
from types import EllipsisType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Int

from bayes_mdp.inference.conjugate.families import BetaBelief, GammaBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.sampled.conditioned_program import RewardRows
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.models.reward_laws import law_at
from bayes_mdp.models.sufficient_statistics import RewardStatistics, log_base_measure

Drawn = Float[np.ndarray, "N *cells"]
Index = tuple[Int[np.ndarray, "..."], ...] | tuple[EllipsisType]  # of cells; (...,): all of them


class Moments(NamedTuple):
    """Number, mean and sum of squared deviations of rewards; one reward r is (1, r, 0), a missing one (0, 0, 0)."""

    count: Float[np.ndarray, "*cells"]  # pyright: ignore[reportIncompatibleMethodOverride]
    mean: Float[np.ndarray, "*cells"]
    ss: Float[np.ndarray, "*cells"]


class Law(NamedTuple):
    """A law of rewards. Parameters are arrays [N *cells], one value per draw and cell, the mean reward first.

    Args:
        kind: the family of NumPyro.
        arguments: parameters -> what `kind` takes.
        total: (rng, count, *parameters) -> [N *cells], the sum of `count` independent rewards.
    """

    kind: type[dist.Distribution]
    arguments: Callable[..., tuple[Drawn, ...]]
    total: Callable[..., Drawn]

    def log_prob(self, rewards: Moments, *parameters: Drawn) -> Drawn:
        """Log density of the sequence of rewards with these moments, less the log base measure of each."""
        with jax.enable_x64(True):
            law = self.kind(*map(jnp.asarray, self.arguments(*parameters)))
            value = jnp.stack(jnp.broadcast_arrays(*rewards, 0.0), axis=-1)
            return np.asarray(RewardStatistics(law).log_prob(value))

    def log_base(self, reward: Float[np.ndarray, "*T"]) -> Float[np.ndarray, "*T"]:
        """Log base measure of single rewards: - log r! where they are Poisson."""
        with jax.enable_x64(True):
            return np.asarray(log_base_measure(self.kind, jnp.asarray(reward)))


def _normal_total(rng: np.random.Generator, count: np.ndarray, mean: Drawn, precision: Drawn) -> Drawn:
    return count * mean + np.sqrt(count / precision) * rng.standard_normal(mean.shape)


def _bernoulli_total(rng: np.random.Generator, count: np.ndarray, probs: Drawn) -> Drawn:
    return rng.binomial(np.round(count).astype(np.int64), np.clip(probs, 0.0, 1.0)).astype(float)


def _poisson_total(rng: np.random.Generator, count: np.ndarray, rate: Drawn) -> Drawn:
    return rng.poisson(count * rate).astype(float)


_NORMAL = Law(dist.Normal, lambda mean, precision: (mean, precision**-0.5), _normal_total)

LAWS: dict[type, Law] = {
    NormalGammaBelief: _NORMAL,
    NormalBelief: _NORMAL,
    BetaBelief: Law(dist.BernoulliProbs, lambda probs: (probs,), _bernoulli_total),
    GammaBelief: Law(dist.Poisson, lambda rate: (rate,), _poisson_total),
}
"""The law of one reward for each conjugate belief about its parameters."""


class TableLaw(NamedTuple):
    """A reward law of any other family, as one NumPyro distribution over draws and cells.

    Args:
        table: a law whose parameters have the shape [N *cells] (and their event axes).
        num_draws: N.
    """

    table: dist.Distribution
    num_draws: int

    def log_prob(self, rewards: Moments, where: Index) -> Drawn:
        """Log density of single rewards in the cells at `where`; zero where `rewards.count` is zero.

        Raises:
            ValueError: sums of several rewards, from which the density under this law does not follow.
        """
        self._check_single(rewards.count)
        law = self._at(where)
        weight = jnp.broadcast_to(jnp.asarray(rewards.count, float), law.batch_shape)
        return np.asarray(RewardRows(law, weight).log_prob(jnp.broadcast_to(rewards.mean, law.batch_shape)), np.float64)

    def total(self, rng: np.random.Generator, count: np.ndarray, where: Index) -> Drawn:
        """Fresh single rewards, zero where `count` is zero. Errors: as `log_prob`."""
        self._check_single(count)
        key = jax.random.key(int(rng.integers(2**32)))
        return count * np.asarray(self._at(where).sample(key), np.float64)

    def _check_single(self, count: np.ndarray) -> None:
        if np.any(count > 1):
            name = type(self.table).__name__
            raise ValueError(f"data is None, expected the transitions: the rewards of a {name} law have no sums")

    def _at(self, where: Index) -> dist.Distribution:
        cells = np.broadcast_arrays(*where)  # pyright: ignore[reportArgumentType] - sums of all cells were refused
        draws = np.arange(self.num_draws).reshape(-1, *(1,) * cells[0].ndim)
        return law_at(self.table, (draws, *(each[None] for each in cells)))


def law_of(rewards: RewardTable) -> tuple[Law | TableLaw, tuple[Drawn, ...], tuple[str, ...]]:
    """The law, its parameters and the names of those to show.

    Args:
        rewards: with a law, whose arrays have a leading axis N (draws).

    Raises:
        TypeError: the rewards are known.
    """
    law = rewards.law
    if law is None:
        raise TypeError("the rewards are known, expected rewards with a law")
    mean = np.asarray(jax.vmap(lambda each: each.mean)(rewards), np.float64)
    if type(law) is dist.Normal:
        return _NORMAL, (mean, np.asarray(law.scale, np.float64) ** -2.0), ("reward_mean", "reward_precision")
    if isinstance(law, dist.BernoulliProbs | dist.BernoulliLogits):
        return LAWS[BetaBelief], (mean,), ("reward_mean",)
    if type(law) is dist.Poisson:
        return LAWS[GammaBelief], (mean,), ("reward_mean",)
    return TableLaw(law, len(mean)), (mean,), ("reward_mean",)
