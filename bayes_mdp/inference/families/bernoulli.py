"""Rewards that are 0 or 1, of unknown probability.

`statistics` are [..., 3]: count, mean, sum of squared deviations.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float
from scipy.special import xlogy

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
)
from bayes_mdp.utils.typing import AnyArray


@register
class BetaBelief(RewardBelief):
    """Rewards Bernoulli(probs); probs ~ Beta(concentration1, concentration0)."""

    concentration1: Cells
    concentration0: Cells
    law: ClassVar[type[dist.Distribution]] = dist.BernoulliProbs
    laws: ClassVar[Laws] = {
        dist.BernoulliProbs: lambda law: {"probs": law.probs},
        dist.BernoulliLogits: lambda law: {"probs": jax.nn.sigmoid(law.logits)},
    }
    sites: ClassVar[SitesOf] = {"probs": ("Beta",)}
    parameters: ClassVar[tuple[str, ...]] = ("probs",)

    def after(self, statistics: Statistics) -> "BetaBelief":
        """The belief after data."""
        count, mean, _ = split(statistics)
        # Ones to the first concentration, zeros to the second.
        return BetaBelief(self.concentration1 + count * mean, self.concentration0 + count * (1.0 - mean))

    def mean(self) -> Cells:
        """Expected mean reward."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    def variance(self) -> Cells:
        """Variance of the mean reward."""
        total = self.concentration1 + self.concentration0
        # p (1 - p) / (total + 1), factor by factor: the product of two large concentrations would overflow in float32.
        return (self.concentration1 / total) * (self.concentration0 / total) / (total + 1.0)

    @property
    def pseudo_observations(self) -> Cells:
        """concentration1 + concentration0."""
        return self.concentration1 + self.concentration0

    @property
    def flat_weight(self) -> float:
        """That of Beta(1, 1)."""
        return 2.0

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """probs (1 - probs)."""
        return drawn[0] * (1.0 - drawn[0])

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`."""
        count, mean, _ = split(statistics)
        log_ones = log_rising(self.concentration1, count * mean)
        log_zeros = log_rising(self.concentration0, count * (1.0 - mean))
        # Beta-Bernoulli of a sequence: B(a + ones, b + zeros) / B(a, b).
        return log_ones + log_zeros - log_rising(self.concentration1 + self.concentration0, count)

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """log p of a one, log(1 - p) of a zero."""
        # 0 log 0 = 0: a probability of zero is no fault where it is not needed.
        return xlogy(reward, drawn[0]), xlogy(1.0 - reward, 1.0 - drawn[0])

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """One below probs."""
        # With probability probs a uniform number lies below it.
        return (uniform < drawn[0]).astype(np.float64)

    def urn(self) -> Float[AnyArray, "*cells K"]:
        """Zeros and ones."""
        # Zeros first: the label of an urn is its value.
        return jnp.stack([jnp.asarray(self.concentration0), jnp.asarray(self.concentration1)], -1)

    @staticmethod
    def draw_sum(rng: np.random.Generator, count: np.ndarray, law: Any) -> Float[np.ndarray, "..."]:
        """Binomial."""
        # The sum of n of them.
        probs = np.clip(np.asarray(law.mean, np.float64), 0.0, 1.0)
        return rng.binomial(np.round(count).astype(np.int64), probs).astype(float)
