"""Log-normal rewards, the noise of their logarithms known or not. Units of the logarithm.

`statistics` are those of the logarithms, [..., 3]: count, mean, sum of squared deviations.
"""

from typing import Any, ClassVar

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from bayes_mdp.inference.families.family import (
    Cells,
    Laws,
    RewardBelief,
    SitesOf,
    Statistics,
    Terms,
    Values,
    register,
    split,
    statistics,
)
from bayes_mdp.inference.families.normal import NormalBelief, NormalGammaBelief, location_and_precision
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.utils.typing import AnyArray


class _OfLogarithms(RewardBelief):
    """What a family of rewards is whose logarithms are a family: the next class in the order of bases."""

    has_constant: ClassVar[bool] = True
    takes_counts: ClassVar[bool] = False

    def statistics(self, weight: Float[AnyArray, "*N"], reward: Float[AnyArray, "*N"]) -> Statistics:
        """Those of the logarithms."""
        # A masked reward may be anything: its logarithm must not poison what it is merged with.
        logs = xp.log(xp.where(weight != 0, reward, 1.0))
        return statistics(weight, logs, xp.zeros_like(logs))

    def log_constant(self, reward: Cells) -> Cells:
        """- log r: the density of r is that of log r, over r."""
        positive = xp.asarray(reward) > 0
        # Density of log r to that of r: d log r / dr = 1 / r.
        return xp.where(positive, -xp.log(xp.where(positive, reward, 1.0)), -np.inf)

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """That of the logarithm, over the reward."""
        return *super().log_density(np.log(reward), drawn), -np.log(reward)

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The exponential of that of the logarithm."""
        with np.errstate(over="ignore"):
            # A quantile goes along with a monotone map.
            return np.exp(super().quantile(drawn, uniform))


@register
class LogNormalBelief(_OfLogarithms, NormalBelief):
    """Rewards LogNormal(mu, noise_scale), noise known; mu ~ Normal(loc, scale^2). Units of the logarithm."""

    law: ClassVar[type[dist.Distribution]] = dist.LogNormal
    laws: ClassVar[Laws] = {dist.LogNormal: location_and_precision}
    sites: ClassVar[SitesOf] = {"loc": ("Normal",)}
    parameters: ClassVar[tuple[str, ...]] = ("log_mean",)

    def after(self, statistics: Statistics) -> "LogNormalBelief":
        """The belief after data."""
        # The normal family on logarithms; only moments of rewards differ.
        after = NormalBelief.after(self, statistics)
        return LogNormalBelief(after.loc, after.scale, after.noise_scale)

    def mean(self) -> Cells:
        """E exp(mu + noise_scale^2 / 2)."""
        # The mean of a log-normal law, whose normal has both variances.
        return xp.exp(self.loc + 0.5 * (self.scale**2 + xp.asarray(self.noise_scale) ** 2))

    def variance(self) -> Cells:
        """Var exp(mu + noise_scale^2 / 2)."""
        # (e^v - 1) E^2: expm1 keeps digits for small variances.
        return self.mean() ** 2 * xp.expm1(self.scale**2)

    def noise(self) -> Cells:
        """E (exp(noise_scale^2) - 1) exp(2 mu + noise_scale^2)."""
        # E exp(2 mu + noise^2) is mean^2 e^(scale^2).
        return self.mean() ** 2 * xp.exp(self.scale**2) * xp.expm1(xp.asarray(self.noise_scale) ** 2)

    def data_mean(self, statistics: Statistics) -> Cells:
        """E exp(mu + noise_scale^2 / 2) for mu ~ Normal(mean of the logarithms, noise_scale^2 / count)."""
        count, mean, _ = split(statistics)
        seen = count > 0
        # Variance of one logarithm, and of its mean estimated from n of them.
        spread = xp.asarray(self.noise_scale) ** 2 * (1.0 + 1.0 / xp.where(seen, count, 1.0))
        return xp.where(seen, xp.exp(mean + 0.5 * spread), np.nan)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """LogNormal(mu, noise_scale)."""
        # The law given mu: its noise alone.
        return dist.LogNormal(drawn[0], self.noise_scale)

    def conditional_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """exp(mu + noise_scale^2 / 2)."""
        return xp.exp(drawn[0] + 0.5 * xp.asarray(self.noise_scale) ** 2)

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """(exp(noise_scale^2) - 1) exp(2 mu + noise_scale^2)."""
        # (e^v - 1) mean^2, v the noise of the logarithm.
        return self.conditional_mean(drawn) ** 2 * xp.expm1(xp.asarray(self.noise_scale) ** 2)

    @staticmethod
    def draw_sum(rng: np.random.Generator, count: np.ndarray, law: Any) -> None:
        """None: the sum of log-normal numbers has no known law."""


@register
class LogNormalGammaBelief(_OfLogarithms, NormalGammaBelief):
    """Rewards LogNormal(mu, precision^-1/2), mu and precision normal-gamma. Units of the logarithm.

    The mean reward exp(mu + 1 / (2 precision)) has no expectation: precisions near zero are too likely. Draws have one.
    """

    law: ClassVar[type[dist.Distribution]] = dist.LogNormal
    laws: ClassVar[Laws] = {dist.LogNormal: location_and_precision}
    sites: ClassVar[SitesOf] = {
        "loc": ("Normal", "NormalGamma"),
        "precision": ("Gamma", "NormalGamma"),
    }
    parameters: ClassVar[tuple[str, ...]] = ("log_mean", "precision")

    def after(self, statistics: Statistics) -> "LogNormalGammaBelief":
        """The belief after data."""
        after = NormalGammaBelief.after(self, statistics)
        return LogNormalGammaBelief(after.loc, after.pseudo_count, after.concentration, after.rate)

    def mean(self) -> Cells:
        """nan: it does not exist."""
        return xp.full_like(xp.asarray(self.loc), np.nan)

    def variance(self) -> Cells:
        """inf: it does not exist."""
        return xp.full_like(xp.asarray(self.loc), np.inf)

    noise = variance  # no more than that of the mean does the variance of one reward exist

    def data_mean(self, statistics: Statistics) -> Cells:
        """nan: it does not exist."""
        return self.mean()

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """LogNormal(mu, precision^-1/2)."""
        return dist.LogNormal(drawn[0], drawn[1] ** -0.5)

    def conditional_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """exp(mu + 1 / (2 precision))."""
        return xp.exp(drawn[0] + 0.5 / drawn[1])

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """(exp(1 / precision) - 1) exp(2 mu + 1 / precision)."""
        return self.conditional_mean(drawn) ** 2 * xp.expm1(1.0 / drawn[1])
