"""Families of normal rewards of known mean, and of log-normal rewards.

`statistics` are [..., 3]: count, mean, sum of squared deviations; of log-normal rewards those of their logarithms. What
a family is: `reward_belief`.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.inference.conjugate.families import NormalBelief, NormalGammaBelief
from bayes_mdp.inference.conjugate.reward_belief import (
    Cells,
    HostDrawn,
    RewardBelief,
    RewardStreams,
    Statistics,
)
from bayes_mdp.inference.conjugate.reward_statistics import log_rising, split, statistics
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.random import gamma
from bayes_mdp.utils.typing import AnyArray

_LOG_2PI = float(np.log(2.0 * np.pi))


class GammaPrecisionBelief(RewardBelief):
    """Rewards Normal(0, 1 / precision); precision ~ Gamma(concentration, rate). Rate: in squared units of the reward.

    A known mean other than zero is an offset of the cell (`RewardCells.offset`).
    """

    concentration: Cells
    rate: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Normal
    parameters: ClassVar[tuple[str, ...]] = ("precision",)

    def after(self, statistics: Statistics) -> "GammaPrecisionBelief":
        """The belief after data."""
        return GammaPrecisionBelief(
            self.concentration + 0.5 * statistics[..., 0], self.rate + 0.5 * _square(statistics)
        )

    def mean(self) -> Cells:
        """Zero: it is known."""
        return xp.zeros_like(xp.asarray(self.rate))

    def variance(self) -> Cells:
        """Zero: the mean reward is known."""
        return xp.zeros_like(xp.asarray(self.rate))

    def noise(self) -> Cells:
        """Expected 1 / precision; inf where concentration <= 1."""
        excess = self.concentration - 1.0
        return xp.where(excess > 0, self.rate / xp.where(excess > 0, excess, 1.0), np.inf)

    @property
    def pseudo_observations(self) -> Cells:
        """Infinitely many: the mean reward is known."""
        return xp.full_like(xp.asarray(self.rate), np.inf)

    def data_mean(self, statistics: Statistics) -> Cells:
        """Zero: no data are needed."""
        return self.mean()

    def sample(self, key: PRNGKeyArray) -> tuple[Cells]:
        """One draw of (precision,)."""
        return (gamma(key, jnp.asarray(self.concentration)) / self.rate,)

    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of (precision,), by NumPy."""
        return (np.exp(streams.gamma.log_gammas(num, np.asarray(self.concentration))) / self.rate,)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Normal(0, precision^-1/2)."""
        return dist.Normal(xp.zeros_like(drawn[0]), drawn[0] ** -0.5)

    def drawn_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """Zero."""
        return xp.zeros_like(drawn[0])

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """1 / precision."""
        return 1.0 / drawn[0]

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log density of the rewards behind `statistics`."""
        # log Gamma(a + n/2) / Gamma(a) + a log b - (a + n/2) log b' - n/2 log 2 pi, b' = b + sum r^2 / 2.
        count, growth = statistics[..., 0], 0.5 * _square(statistics)
        return (
            log_rising(self.concentration, 0.5 * count)
            - self.concentration * xp.log1p(growth / self.rate)
            - 0.5 * count * (_LOG_2PI + xp.log(self.rate + growth))
        )


def _square(statistics: Statistics) -> Cells:
    """Sum of the squared rewards."""
    count, mean, ss = split(statistics)
    return ss + count * mean**2


class LogNormalBelief(NormalBelief):
    """Rewards LogNormal(mu, noise_scale), noise known; mu ~ Normal(loc, scale^2). Units of the logarithm."""

    law: ClassVar[type[dist.Distribution]] = dist.LogNormal
    parameters: ClassVar[tuple[str, ...]] = ("log_mean",)
    has_constant: ClassVar[bool] = True
    takes_counts: ClassVar[bool] = False

    def after(self, statistics: Statistics) -> "LogNormalBelief":
        """The belief after data."""
        after = NormalBelief.after(self, statistics)
        return LogNormalBelief(after.loc, after.scale, after.noise_scale)

    def statistics(self, weight: Float[AnyArray, "*N"], reward: Float[AnyArray, "*N"]) -> Statistics:
        """Those of the logarithms."""
        return _log_statistics(weight, reward)

    def mean(self) -> Cells:
        """E exp(mu + noise_scale^2 / 2)."""
        return xp.exp(self.loc + 0.5 * (self.scale**2 + xp.asarray(self.noise_scale) ** 2))

    def variance(self) -> Cells:
        """Var exp(mu + noise_scale^2 / 2)."""
        return self.mean() ** 2 * xp.expm1(self.scale**2)

    def noise(self) -> Cells:
        """E (exp(noise_scale^2) - 1) exp(2 mu + noise_scale^2)."""
        return self.mean() ** 2 * xp.exp(self.scale**2) * xp.expm1(xp.asarray(self.noise_scale) ** 2)

    def data_mean(self, statistics: Statistics) -> Cells:
        """E exp(mu + noise_scale^2 / 2) for mu ~ Normal(mean of the logarithms, noise_scale^2 / count)."""
        count, mean, _ = split(statistics)
        seen = count > 0
        spread = xp.asarray(self.noise_scale) ** 2 * (1.0 + 1.0 / xp.where(seen, count, 1.0))
        return xp.where(seen, xp.exp(mean + 0.5 * spread), np.nan)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """LogNormal(mu, noise_scale)."""
        return dist.LogNormal(drawn[0], self.noise_scale)

    def drawn_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """exp(mu + noise_scale^2 / 2)."""
        return xp.exp(drawn[0] + 0.5 * xp.asarray(self.noise_scale) ** 2)

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """(exp(noise_scale^2) - 1) exp(2 mu + noise_scale^2)."""
        return self.drawn_mean(drawn) ** 2 * xp.expm1(xp.asarray(self.noise_scale) ** 2)

    def log_constant(self, reward: Cells) -> Cells:
        """- log r: the density of r is that of log r, over r."""
        return _log_jacobian(reward)


class LogNormalGammaBelief(NormalGammaBelief):
    """Rewards LogNormal(mu, precision^-1/2), mu and precision normal-gamma. Units of the logarithm.

    The mean reward exp(mu + 1 / (2 precision)) has no expectation: precisions near zero are too likely. Draws have one.
    """

    law: ClassVar[type[dist.Distribution]] = dist.LogNormal
    parameters: ClassVar[tuple[str, ...]] = ("log_mean", "precision")
    has_constant: ClassVar[bool] = True
    takes_counts: ClassVar[bool] = False

    def after(self, statistics: Statistics) -> "LogNormalGammaBelief":
        """The belief after data."""
        after = NormalGammaBelief.after(self, statistics)
        return LogNormalGammaBelief(after.loc, after.pseudo_count, after.concentration, after.rate)

    def statistics(self, weight: Float[AnyArray, "*N"], reward: Float[AnyArray, "*N"]) -> Statistics:
        """Those of the logarithms."""
        return _log_statistics(weight, reward)

    def mean(self) -> Cells:
        """nan: it does not exist."""
        return xp.full_like(xp.asarray(self.loc), np.nan)

    def variance(self) -> Cells:
        """inf: it does not exist."""
        return xp.full_like(xp.asarray(self.loc), np.inf)

    def noise(self) -> Cells:
        """inf: it does not exist."""
        return xp.full_like(xp.asarray(self.loc), np.inf)

    def data_mean(self, statistics: Statistics) -> Cells:
        """nan: it does not exist."""
        return self.mean()

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """LogNormal(mu, precision^-1/2)."""
        return dist.LogNormal(drawn[0], drawn[1] ** -0.5)

    def drawn_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """exp(mu + 1 / (2 precision))."""
        return xp.exp(drawn[0] + 0.5 / drawn[1])

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """(exp(1 / precision) - 1) exp(2 mu + 1 / precision)."""
        return self.drawn_mean(drawn) ** 2 * xp.expm1(1.0 / drawn[1])

    def log_constant(self, reward: Cells) -> Cells:
        """- log r: the density of r is that of log r, over r."""
        return _log_jacobian(reward)


def _log_statistics(weight: Float[AnyArray, "*N"], reward: Float[AnyArray, "*N"]) -> Statistics:
    # A masked reward may be anything: its logarithm must not poison what it is merged with.
    logs = xp.log(xp.where(weight != 0, reward, 1.0))
    return statistics(weight, logs, xp.zeros_like(logs))


def _log_jacobian(reward: Cells) -> Cells:
    positive = xp.asarray(reward) > 0
    return xp.where(positive, -xp.log(xp.where(positive, reward, 1.0)), -np.inf)
