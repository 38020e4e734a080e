"""Weibull rewards of known shape k: the family that "Add a reward law" of CONTRIBUTING.md adds.

Of a Weibull reward r, r^k is exponential, of rate scale^-k. So that rate ~ Gamma(concentration, rate) is conjugate, and
what is kept of the rewards are count, mean and squared deviations of r^k.
"""

from typing import ClassVar

import numpy as np
import numpyro.distributions as dist

from bayes_mdp.inference.families.family import Cells, Laws, RewardBelief, SitesOf, log_rising, register, statistics
from bayes_mdp.numerics.numpy_or_jax import xp


@register
class WeibullBelief(RewardBelief):
    """Rewards Weibull(rate^(-1 / shape), shape), `shape` known; rate ~ Gamma(concentration, rate)."""

    concentration: Cells
    rate: Cells
    shape: Cells
    law: ClassVar = dist.Weibull
    laws: ClassVar[Laws] = {
        dist.Weibull: lambda law: {"rate": law.scale**-law.concentration, "shape": law.concentration}
    }
    sites: ClassVar[SitesOf] = {"rate": ("Gamma",)}
    known: ClassVar = ("shape",)
    parameters: ClassVar = ("rate",)
    has_constant: ClassVar = True
    takes_counts: ClassVar = False

    def after(self, statistics):
        count, mean = statistics[..., 0], statistics[..., 1]
        return WeibullBelief(self.concentration + count, self.rate + count * mean, self.shape)

    def statistics(self, weight, reward):
        power = xp.where(weight != 0, reward, 1.0) ** self.shape  # a reward of weight zero may be anything
        return statistics(weight, power, xp.zeros_like(power))

    def _scale_moment(self, power, otherwise):
        """E[scale^power] = rate^m Gamma(concentration - m) / Gamma(concentration), m = power / shape."""
        m = power / xp.asarray(self.shape)
        exists = self.concentration > m
        left = xp.where(exists, self.concentration - m, 1.0)
        return xp.where(exists, xp.exp(m * xp.log(self.rate) - log_rising(left, m)), otherwise)

    def _factor(self, power):
        """E[(r / scale)^power] of one reward."""
        return xp.exp(xp.gammaln(1.0 + power / xp.asarray(self.shape)))

    def mean(self):
        return self._factor(1) * self._scale_moment(1, np.nan)

    def variance(self):
        square = self._scale_moment(2, np.inf)
        return self._factor(1) ** 2 * (square - xp.where(square < np.inf, self._scale_moment(1, np.inf), 0.0) ** 2)

    def noise(self):
        return (self._factor(2) - self._factor(1) ** 2) * self._scale_moment(2, np.inf)

    @property
    def pseudo_observations(self):
        return xp.maximum(self.concentration - 1.0 / xp.asarray(self.shape), 0.0)

    def data_mean(self, statistics):
        seen = statistics[..., 0] > 0
        count, mean = (xp.where(seen, statistics[..., i], 1.0) for i in (0, 1))
        return xp.where(seen, WeibullBelief(count, count * mean, self.shape).mean(), np.nan)

    def law_of(self, drawn):
        return dist.Weibull(drawn[0] ** (-1.0 / xp.asarray(self.shape)), self.shape)

    def conditional_mean(self, drawn):
        return self._factor(1) * drawn[0] ** (-1.0 / xp.asarray(self.shape))

    def conditional_noise(self, drawn):
        return (self._factor(2) - self._factor(1) ** 2) * drawn[0] ** (-2.0 / xp.asarray(self.shape))

    def log_constant(self, reward):
        positive = xp.asarray(reward) > 0
        inside = xp.where(positive, reward, 1.0)
        return xp.where(positive, xp.log(self.shape) + (self.shape - 1.0) * xp.log(inside), -np.inf)

    def log_marginal(self, statistics):
        # Gamma(a + n) / Gamma(a) b^a / (b + sum r^k)^(a + n)
        count, total = statistics[..., 0], statistics[..., 0] * statistics[..., 1]
        shrink = self.concentration * xp.log1p(total / self.rate) + count * xp.log(self.rate + total)
        return log_rising(self.concentration, count) - shrink

    def log_density(self, reward, drawn):
        return np.log(self.shape), np.log(drawn[0]), (self.shape - 1.0) * np.log(reward), -drawn[0] * reward**self.shape

    def quantile(self, drawn, uniform):
        return (-np.log1p(-uniform) / drawn[0]) ** (1.0 / np.asarray(self.shape))
