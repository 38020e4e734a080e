"""The four families of rewards whose unknown is the mean itself: normal (noise known or not), Bernoulli, Poisson.

`statistics` are [..., 3]: count, mean, sum of squared deviations. What a family is: `reward_belief`.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PRNGKeyArray

from bayes_mdp.inference.conjugate.reward_belief import (
    Cells,
    HostDrawn,
    RewardBelief,
    RewardStreams,
    Statistics,
    draw_beta,
)
from bayes_mdp.inference.conjugate.reward_statistics import log_rising, split
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.random import dirichlet, gamma, normal_gamma

MIN_CONCENTRATION = 0.5
"""The mean reward of a normal-gamma belief has an expectation above it only."""
_LOG_2PI = float(np.log(2.0 * np.pi))
_LARGEST = float(np.finfo(np.float64).max)


class NormalGammaBelief(RewardBelief):
    """Rewards Normal(mean, 1 / precision); precision ~ Gamma(concentration, rate),
    mean | precision ~ Normal(loc, 1 / (pseudo_count precision)). All in units of the reward (rate: squared)."""

    loc: Cells
    pseudo_count: Cells
    concentration: Cells
    rate: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Normal
    parameters: ClassVar[tuple[str, ...]] = ("mean", "precision")

    def after(self, statistics: Statistics) -> "NormalGammaBelief":
        """The belief after data."""
        count, mean, ss = split(statistics)
        total = self.pseudo_count + count
        # Precision-weighted mean: loc' = loc + (mean - loc) n / (k + n). The rate adds the scatter around the
        # sample mean and the distance of prior and sample mean, k n / (k + n) (mean - loc)^2 / 2 (Murphy 2007).
        shift = (mean - self.loc) * (count / total)
        rate = self.rate + 0.5 * (ss + self.pseudo_count * shift * (mean - self.loc))
        return NormalGammaBelief(self.loc + shift, total, self.concentration + 0.5 * count, rate)

    def mean(self) -> Cells:
        """Expected mean reward, that of a Student-t; nan where concentration <= 1/2 (one degree of freedom)."""
        return xp.where(self.concentration > MIN_CONCENTRATION, self.loc, np.nan)

    def variance(self) -> Cells:
        """Variance of the mean reward, that of a Student-t; inf where concentration <= 1."""
        # The marginal of the mean is a Student-t with 2 concentration degrees of freedom: its variance is
        # rate / (pseudo_count (concentration - 1)).
        excess = self.concentration - 1.0
        finite = excess > 0
        return xp.where(finite, self.rate / (self.pseudo_count * xp.where(finite, excess, 1.0)), np.inf)

    def noise(self) -> Cells:
        """Expected 1 / precision; inf where concentration <= 1."""
        return self.pseudo_count * self.variance()

    @property
    def pseudo_observations(self) -> Cells:
        """`pseudo_count`."""
        return self.pseudo_count

    def sample(self, key: PRNGKeyArray) -> tuple[Cells, Cells]:
        """One draw of (mean, precision)."""
        parameters = self.loc, self.pseudo_count, self.concentration, self.rate
        return normal_gamma(key, *map(jnp.asarray, parameters))

    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of (mean, precision), by NumPy."""
        log_precision = streams.gamma.log_gammas(num, np.asarray(self.concentration)) - np.log(self.rate)
        # By the logarithm: a precision that underflows still gives a wide mean.
        with np.errstate(over="ignore"):
            scale = np.exp(-0.5 * (log_precision + np.log(self.pseudo_count)))
            mean = self.loc + np.clip(streams.normal.normals(num) * scale, -_LARGEST, _LARGEST)
            return np.clip(mean, -_LARGEST, _LARGEST), np.exp(log_precision)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Normal(mean, precision^-1/2)."""
        return dist.Normal(drawn[0], drawn[1] ** -0.5)

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """1 / precision."""
        return 1.0 / drawn[1]

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log density of the rewards behind `statistics`."""
        # log Gamma(a') / Gamma(a) + a log b - a' log b' - n/2 log 2 pi + log(k / k') / 2, with b'/b by log1p, so that
        # little data cause no cancellation.
        count, posterior = statistics[..., 0], self.after(statistics)
        growth = xp.log1p((posterior.rate - self.rate) / self.rate)
        return (
            log_rising(self.concentration, 0.5 * count)
            - self.concentration * growth
            - 0.5 * count * (_LOG_2PI + xp.log(posterior.rate))
            - 0.5 * xp.log1p(count / self.pseudo_count)
        )


class NormalBelief(RewardBelief):
    """Rewards Normal(mean, noise_scale^2), noise known; mean ~ Normal(loc, scale^2). Units of the reward."""

    loc: Cells
    scale: Cells
    noise_scale: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Normal
    parameters: ClassVar[tuple[str, ...]] = ("mean",)

    def _shrink(self, count: Cells) -> Cells:
        return 1.0 / (1.0 + count * (self.scale / self.noise_scale) ** 2)

    def after(self, statistics: Statistics) -> "NormalBelief":
        """The belief after data."""
        count, mean, _ = split(statistics)
        # shrink = posterior variance / prior variance = noise / (noise + n scale^2).
        shrink = self._shrink(count)
        # The weight of the data is 1 - shrink, written without the cancellation for small counts.
        weight = count * (self.scale / self.noise_scale) ** 2 * shrink
        loc = self.loc + weight * (mean - self.loc)
        return NormalBelief(loc, self.scale * xp.sqrt(shrink), self.noise_scale)

    def mean(self) -> Cells:
        """Expected mean reward."""
        return self.loc

    def variance(self) -> Cells:
        """Variance of the mean reward."""
        return self.scale**2

    def noise(self) -> Cells:
        """noise_scale^2."""
        return xp.asarray(self.noise_scale) ** 2

    @property
    def pseudo_observations(self) -> Cells:
        """noise_scale^2 / scale^2."""
        return (self.noise_scale / self.scale) ** 2

    def sample(self, key: PRNGKeyArray) -> tuple[Cells]:
        """One draw of (mean,)."""
        loc = jnp.asarray(self.loc)
        return (loc + self.scale * jax.random.normal(key, loc.shape, loc.dtype),)

    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of (mean,), by NumPy."""
        return (np.asarray(self.loc) + np.asarray(self.scale) * streams.normal.normals(num),)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Normal(mean, noise_scale)."""
        return dist.Normal(drawn[0], self.noise_scale)

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """noise_scale^2, which is known."""
        return self.noise()

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log density of the rewards behind `statistics`."""
        count, mean, ss = split(statistics)
        shrink = self._shrink(count)
        square = (ss + shrink * count * (mean - self.loc) ** 2) / self.noise_scale**2
        return -0.5 * (count * (_LOG_2PI + 2.0 * xp.log(self.noise_scale)) - xp.log(shrink) + square)


class BetaBelief(RewardBelief):
    """Rewards Bernoulli(probs); probs ~ Beta(concentration1, concentration0)."""

    concentration1: Cells
    concentration0: Cells
    law: ClassVar[type[dist.Distribution]] = dist.BernoulliProbs
    parameters: ClassVar[tuple[str, ...]] = ("probs",)

    def after(self, statistics: Statistics) -> "BetaBelief":
        """The belief after data."""
        count, mean, _ = split(statistics)
        return BetaBelief(self.concentration1 + count * mean, self.concentration0 + count * (1.0 - mean))

    def mean(self) -> Cells:
        """Expected mean reward."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    def variance(self) -> Cells:
        """Variance of the mean reward."""
        total = self.concentration1 + self.concentration0
        # p (1 - p) / (total + 1), factor by factor: the product of two large concentrations would overflow in float32.
        return (self.concentration1 / total) * (self.concentration0 / total) / (total + 1.0)

    def noise(self) -> Cells:
        """Expected probs (1 - probs)."""
        return (self.concentration1 + self.concentration0) * self.variance()

    @property
    def pseudo_observations(self) -> Cells:
        """concentration1 + concentration0."""
        return self.concentration1 + self.concentration0

    @property
    def flat_weight(self) -> float:
        """That of Beta(1, 1)."""
        return 2.0

    def sample(self, key: PRNGKeyArray) -> tuple[Cells]:
        """One draw of (probs,)."""
        # A Beta draw is the first entry of a Dirichlet draw over two outcomes.
        return (dirichlet(key, jnp.stack([self.concentration1, self.concentration0], axis=-1))[..., 0],)

    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of (probs,), by NumPy."""
        return (draw_beta(streams, num, self.concentration1, self.concentration0),)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Bernoulli(probs)."""
        return dist.BernoulliProbs(drawn[0])

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """probs (1 - probs)."""
        return drawn[0] * (1.0 - drawn[0])

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`."""
        count, mean, _ = split(statistics)
        ones = log_rising(self.concentration1, count * mean)
        zeros = log_rising(self.concentration0, count * (1.0 - mean))
        return ones + zeros - log_rising(self.concentration1 + self.concentration0, count)


class GammaBelief(RewardBelief):
    """Rewards Poisson(rate of the law); that rate ~ Gamma(concentration, rate)."""

    concentration: Cells
    rate: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Poisson
    parameters: ClassVar[tuple[str, ...]] = ("rate",)
    has_constant: ClassVar[bool] = True

    def after(self, statistics: Statistics) -> "GammaBelief":
        """The belief after data."""
        count, mean, _ = split(statistics)
        return GammaBelief(self.concentration + count * mean, self.rate + count)

    def mean(self) -> Cells:
        """Expected mean reward."""
        return self.concentration / self.rate

    def variance(self) -> Cells:
        """Variance of the mean reward."""
        return self.concentration / self.rate**2

    def noise(self) -> Cells:
        """Expected rate."""
        return self.mean()

    @property
    def pseudo_observations(self) -> Cells:
        """`rate`."""
        return self.rate

    def sample(self, key: PRNGKeyArray) -> tuple[Cells]:
        """One draw of (rate,)."""
        return (gamma(key, jnp.asarray(self.concentration)) / self.rate,)

    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of (rate,), by NumPy."""
        return (np.exp(streams.gamma.log_gammas(num, np.asarray(self.concentration))) / self.rate,)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Poisson(rate)."""
        return dist.Poisson(drawn[0])

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """The rate."""
        return drawn[0]

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`, less the log factorials."""
        count, mean, _ = split(statistics)
        # Negative binomial marginal: Gamma(a + sum) / Gamma(a) * rate^a / (rate + n)^(a + sum).
        total = count * mean
        shrink = self.concentration * xp.log1p(count / self.rate) + total * xp.log(self.rate + count)
        return log_rising(self.concentration, total) - shrink
