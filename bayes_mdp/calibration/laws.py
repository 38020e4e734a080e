"""Laws of one reward, for draws of their parameters: log density, and sums of fresh rewards. Host-side, float64."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from bayes_mdp.inference.families import BetaBelief, GammaBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.models.statistics import RewardStatistics, log_base_measure

Drawn = Float[np.ndarray, "N *cells"]


class Moments(NamedTuple):
    """Number, mean and sum of squared deviations of rewards; one reward r is (1, r, 0), a missing one (0, 0, 0)."""

    count: Float[np.ndarray, "*cells"]
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

    def log_prob(self, seen: Moments, *parameters: Drawn) -> Drawn:
        """Log density of the rewards behind `seen`, in the order they came, less the log base measure of each."""
        with jax.enable_x64(True):
            law = self.kind(*map(jnp.asarray, self.arguments(*parameters)))
            value = jnp.stack(jnp.broadcast_arrays(*seen, 0.0), axis=-1)
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
