"""Exponential rewards of unknown rate.

`statistics` are [..., 3]: count, mean, sum of squared deviations.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import xlogy as jax_xlogy
from jaxtyping import Array, Float

from bayes_mdp.inference.families.family import (
    Cells,
    Laws,
    RewardBelief,
    SitesOf,
    Statistics,
    Terms,
    Values,
    log_rising,
    over,
    register,
    split,
)
from bayes_mdp.numerics.numpy_or_jax import xp


@register
class GammaExponentialBelief(RewardBelief):
    """Rewards Exponential(rate of the law); that rate ~ Gamma(concentration, rate), `rate` in units of reward."""

    concentration: Cells
    rate: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Exponential
    laws: ClassVar[Laws] = {dist.Exponential: lambda law: {"rate": law.rate}}
    sites: ClassVar[SitesOf] = {"rate": ("Gamma",)}
    parameters: ClassVar[tuple[str, ...]] = ("rate",)
    sum_suffices: ClassVar[bool] = True

    def after(self, statistics: Statistics) -> "GammaExponentialBelief":
        """The belief after data."""
        count, mean, _ = split(statistics)
        # Gamma(a + n, b + sum of rewards).
        return GammaExponentialBelief(self.concentration + count, self.rate + count * mean)

    def mean(self) -> Cells:
        """E[1 / rate], that of an inverse gamma; nan where concentration <= 1."""
        return over(self.rate, self.concentration - 1.0, np.nan)

    def variance(self) -> Cells:
        """Var[1 / rate]; inf where concentration <= 2."""
        # An inverse gamma: mean b / (a - 1), variance b^2 / ((a - 1)^2 (a - 2)).
        mean = over(self.rate, self.concentration - 1.0, np.inf)
        return over(mean**2, self.concentration - 2.0, np.inf)

    def noise(self) -> Cells:
        """E[1 / rate^2]; inf where concentration <= 2."""
        mean = over(self.rate, self.concentration - 1.0, np.inf)
        # E[1 / rate^2] = b^2 / ((a - 1) (a - 2)).
        return over(mean * self.rate, self.concentration - 2.0, np.inf)

    @property
    def pseudo_observations(self) -> Cells:
        """concentration - 1; none where there is no prior mean to weigh."""
        return xp.maximum(self.concentration - 1.0, 0.0)

    def conditional_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """1 / rate."""
        return 1.0 / drawn[0]

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """1 / rate^2."""
        return drawn[0] ** -2.0

    def log_constant(self, reward: Cells) -> Cells:
        """Zero; minus infinity for negative rewards."""
        return xp.where(xp.asarray(reward) >= 0, 0.0, -np.inf)

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log density of the rewards behind `statistics`, that of a Lomax sequence."""
        # Gamma(a + n) / Gamma(a) b^a / (b + sum)^(a + n)
        count, mean, _ = split(statistics)
        total = count * mean
        shrink = self.concentration * xp.log1p(total / self.rate) + count * xp.log(self.rate + total)
        # The rising factorial is Gamma(a + n) / Gamma(a).
        return log_rising(self.concentration, count) - shrink

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """log rate - rate r."""
        return np.log(drawn[0]), -drawn[0] * reward

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """P(r < x) = 1 - exp(-rate x)."""
        # log1p keeps digits of small quantiles.
        return -np.log1p(-uniform) / drawn[0]

    @staticmethod
    def log_density_of_sum(law: Any, count: np.ndarray, total: np.ndarray) -> Array:
        """That of a gamma process."""
        # The sum of n exponentials is a gamma variable; its base measure is left out.
        rate = jnp.asarray(law.rate)
        return jax_xlogy(count, rate) - rate * total
