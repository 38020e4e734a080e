"""Poisson rewards of unknown rate.

`statistics` are [..., 3]: count, mean, sum of squared deviations.
"""

from typing import Any, ClassVar

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float
from scipy.special import gammaln, pdtr, xlogy

from bayes_mdp.inference.families.family import (
    Cells,
    Laws,
    RewardBelief,
    SitesOf,
    Statistics,
    Terms,
    Values,
    log_rising,
    register,
    split,
    whole_quantile,
)
from bayes_mdp.numerics.numpy_or_jax import xp


@register
class GammaBelief(RewardBelief):
    """Rewards Poisson(rate of the law); that rate ~ Gamma(concentration, rate)."""

    concentration: Cells
    rate: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Poisson
    laws: ClassVar[Laws] = {dist.Poisson: lambda law: {"rate": law.rate}}
    sites: ClassVar[SitesOf] = {"rate": ("Gamma",)}
    parameters: ClassVar[tuple[str, ...]] = ("rate",)
    has_constant: ClassVar[bool] = True

    def after(self, statistics: Statistics) -> "GammaBelief":
        """The belief after data."""
        count, mean, _ = split(statistics)
        # Gamma(a + sum of rewards, b + n).
        return GammaBelief(self.concentration + count * mean, self.rate + count)

    def mean(self) -> Cells:
        """Expected mean reward."""
        return self.concentration / self.rate

    def variance(self) -> Cells:
        """Variance of the mean reward."""
        # Var of Gamma(a, b): a / b^2.
        return self.concentration / self.rate**2

    noise = mean  # the variance of a Poisson law is its mean

    @property
    def pseudo_observations(self) -> Cells:
        """`rate`."""
        return self.rate

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """The rate."""
        return drawn[0]

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`, less the log factorials."""
        count, mean, _ = split(statistics)
        # Negative binomial marginal: Gamma(a + sum) / Gamma(a) * rate^a / (rate + n)^(a + sum).
        total = count * mean
        shrink = self.concentration * xp.log1p(count / self.rate) + total * xp.log(self.rate + count)
        return log_rising(self.concentration, total) - shrink

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """r log rate - rate - log r!"""
        return xlogy(reward, drawn[0]), -drawn[0], -gammaln(reward + 1.0)

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """By bisection of the distribution function."""
        return whole_quantile(uniform, lambda k: pdtr(k, drawn[0]))

    @staticmethod
    def draw_sum(rng: np.random.Generator, count: np.ndarray, law: Any) -> Float[np.ndarray, "..."]:
        """Poisson."""
        # A sum of n Poisson numbers has n times the rate.
        return rng.poisson(count * np.asarray(law.mean, np.float64)).astype(float)
