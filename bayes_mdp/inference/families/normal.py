"""Normal rewards: of unknown mean, of unknown precision, of both. Units of the reward.

`statistics` are [..., 3]: count, mean, sum of squared deviations.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, PRNGKeyArray
from scipy.special import ndtri

from bayes_mdp.inference.families.family import (
    Cells,
    HostDrawn,
    Laws,
    Parameters,
    RewardBelief,
    RewardStreams,
    SitesOf,
    Statistics,
    Terms,
    Values,
    gamma_terms,
    log_rising,
    normal_terms,
    over,
    register,
    split,
)
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.random.gamma_draws import normal_gamma

MIN_CONCENTRATION = 0.5
"""The mean reward of a normal-gamma belief has an expectation above it only."""
LOG_2PI = float(np.log(2.0 * np.pi))
_LARGEST = float(np.finfo(np.float64).max)


def location_and_precision(law: Any) -> Parameters:
    """The parameters of a normal law, or of the normal law of a logarithm."""
    return {"loc": law.loc, "precision": law.scale**-2.0}


@register
class NormalBelief(RewardBelief):
    """Rewards Normal(mean, noise_scale^2), noise known; mean ~ Normal(loc, scale^2). Units of the reward."""

    loc: Cells
    scale: Cells
    noise_scale: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Normal
    laws: ClassVar[Laws] = {dist.Normal: location_and_precision}
    sites: ClassVar[SitesOf] = {"loc": ("Normal",)}
    parameters: ClassVar[tuple[str, ...]] = ("mean",)

    def _shrink(self, count: Cells) -> Cells:
        # 1 / (1 + n scale^2 / noise^2).
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
        # So many rewards tell as much of the mean as the prior does.
        return (self.noise_scale / self.scale) ** 2

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Normal(mean, noise_scale)."""
        return dist.Normal(drawn[0], self.noise_scale)

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """noise_scale^2, which is known."""
        return self.noise()

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log density of the rewards behind `statistics`."""
        count, mean, ss = split(statistics)
        shrink = self._shrink(count)
        # Rewards integrated over the mean: scatter around their average, and its distance from the prior mean, shrunk.
        square = (ss + shrink * count * (mean - self.loc) ** 2) / self.noise_scale**2
        return -0.5 * (count * (LOG_2PI + 2.0 * xp.log(self.noise_scale)) - xp.log(shrink) + square)

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """That of Normal(mean, noise_scale)."""
        return normal_terms(reward, drawn[0], np.asarray(self.noise_scale))

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """That of Normal(mean, noise_scale)."""
        return normal_quantile(drawn[0], self.noise_scale, uniform)

    @staticmethod
    def draw_sum(rng: np.random.Generator, count: np.ndarray, law: Any) -> Float[np.ndarray, "..."] | None:
        """The sum of normal numbers is normal."""
        loc, scale = np.asarray(law.loc, np.float64), np.asarray(law.scale, np.float64)
        return count * loc + np.sqrt(count) * scale * rng.standard_normal(loc.shape)


@register
class GammaPrecisionBelief(RewardBelief):
    """Rewards Normal(0, 1 / precision); precision ~ Gamma(concentration, rate). Rate: in squared units of the reward.

    A known mean other than zero is an offset of the cell (`RewardCells.offset`).
    """

    concentration: Cells
    rate: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Normal
    laws: ClassVar[Laws] = {dist.Normal: location_and_precision}
    sites: ClassVar[SitesOf] = {"precision": ("Gamma",)}
    parameters: ClassVar[tuple[str, ...]] = ("precision",)

    def after(self, statistics: Statistics) -> "GammaPrecisionBelief":
        """The belief after data."""
        return GammaPrecisionBelief(
            self.concentration + 0.5 * statistics[..., 0], self.rate + 0.5 * _square(statistics)
        )

    def mean(self) -> Cells:
        """Zero: it is known."""
        return xp.zeros_like(xp.asarray(self.rate))

    variance = mean  # zero too: the mean is known

    def noise(self) -> Cells:
        # An inverse gamma: E[1 / precision] = rate / (concentration - 1).
        """Expected 1 / precision; inf where concentration <= 1."""
        return over(self.rate, self.concentration - 1.0, np.inf)

    @property
    def pseudo_observations(self) -> Cells:
        """Infinitely many: the mean reward is known."""
        return xp.full_like(xp.asarray(self.rate), np.inf)

    def data_mean(self, statistics: Statistics) -> Cells:
        """Zero: no data are needed."""
        return self.mean()

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Normal(0, precision^-1/2)."""
        return dist.Normal(xp.zeros_like(drawn[0]), drawn[0] ** -0.5)

    def conditional_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """Zero."""
        return xp.zeros_like(drawn[0])

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """1 / precision."""
        return 1.0 / drawn[0]

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log density of the rewards behind `statistics`."""
        # log Gamma(a + n/2) / Gamma(a) + a log b - (a + n/2) log b' - n/2 log 2 pi, b' = b + sum r^2 / 2.
        count, growth = statistics[..., 0], 0.5 * _square(statistics)
        return (
            log_rising(self.concentration, 0.5 * count)
            - self.concentration * xp.log1p(growth / self.rate)
            - 0.5 * count * (LOG_2PI + xp.log(self.rate + growth))
        )

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """That of Normal(0, precision^-1/2)."""
        return normal_terms(reward, np.zeros(reward.shape), drawn[0] ** -0.5)

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """That of Normal(0, precision^-1/2)."""
        with np.errstate(divide="ignore"):
            return normal_quantile(0.0, drawn[0] ** -0.5, uniform)


def _square(statistics: Statistics) -> Cells:
    """Sum of the squared rewards."""
    # sum r^2 = ss + n mean^2.
    count, mean, ss = split(statistics)
    return ss + count * mean**2


@register
class NormalGammaBelief(RewardBelief):
    """Rewards Normal(mean, 1 / precision); precision ~ Gamma(concentration, rate),
    mean | precision ~ Normal(loc, 1 / (pseudo_count precision)). All in units of the reward (rate: squared)."""

    loc: Cells
    pseudo_count: Cells
    concentration: Cells
    rate: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Normal
    laws: ClassVar[Laws] = {dist.Normal: location_and_precision}
    sites: ClassVar[SitesOf] = {
        "loc": ("Normal", "NormalGamma"),
        "precision": ("Gamma", "NormalGamma"),
    }
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

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
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
            - 0.5 * count * (LOG_2PI + xp.log(posterior.rate))
            - 0.5 * xp.log1p(count / self.pseudo_count)
        )

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """That of Normal(mean, precision^-1/2)."""
        return normal_terms(reward, drawn[0], drawn[1] ** -0.5)

    def prior_terms(self, drawn: Values) -> Terms:
        """That of the precision, and of the mean given it."""
        mean, precision = drawn
        # The mean given the precision is Normal(loc, 1 / (pseudo_count precision)).
        scale = (np.asarray(self.pseudo_count) * precision) ** -0.5
        return *gamma_terms(precision, self.concentration, self.rate), *normal_terms(mean, self.loc, scale)

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """That of Normal(mean, precision^-1/2)."""
        with np.errstate(divide="ignore"):
            return normal_quantile(drawn[0], drawn[1] ** -0.5, uniform)


def normal_quantile(loc: Cells | float, scale: Cells, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The number below which a normal law lies with probability `uniform`."""
    # Ends of the law, and precisions that underflow, are infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        return loc + scale * ndtri(uniform)
