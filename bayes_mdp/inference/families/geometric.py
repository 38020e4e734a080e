"""Geometric rewards, failures before a success: 0, 1, ...

`statistics` are [..., 3]: count, mean, sum of squared deviations.
"""

from typing import Any, ClassVar

import jax
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import xlog1py as jax_xlog1py
from jax.scipy.special import xlogy as jax_xlogy
from jaxtyping import Array, Float
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
    over,
    register,
    split,
)
from bayes_mdp.numerics.numpy_or_jax import xp


@register
class BetaGeometricBelief(RewardBelief):
    """Rewards Geometric(probs), failures before a success: 0, 1, ...; probs ~ Beta(concentration1, concentration0)."""

    concentration1: Cells
    concentration0: Cells
    law: ClassVar[type[dist.Distribution]] = dist.GeometricProbs
    laws: ClassVar[Laws] = {
        dist.GeometricProbs: lambda law: {"probs": law.probs},
        dist.GeometricLogits: lambda law: {"probs": jax.nn.sigmoid(law.logits)},
    }
    sites: ClassVar[SitesOf] = {"probs": ("Beta",)}
    parameters: ClassVar[tuple[str, ...]] = ("probs",)
    sum_suffices: ClassVar[bool] = True

    def after(self, statistics: Statistics) -> "BetaGeometricBelief":
        """The belief after data."""
        # n successes, and as many failures as the rewards add up to.
        count, mean, _ = split(statistics)
        return BetaGeometricBelief(self.concentration1 + count, self.concentration0 + count * mean)

    def mean(self) -> Cells:
        """E[1 / probs] - 1; nan where concentration1 <= 1."""
        # E[1 / p] - 1 = b / (a - 1) for Beta(a, b).
        return over(self.concentration0, self.concentration1 - 1.0, np.nan)

    def variance(self) -> Cells:
        """Var[1 / probs]; inf where concentration1 <= 2."""
        # E[1/p] = (t - 1) / (a - 1) and E[1/p^2] = (t - 1)(t - 2) / ((a - 1)(a - 2)), t = a + b; their difference is
        # b (t - 1) / ((a - 1)^2 (a - 2)).
        a, total = self.concentration1, self.concentration1 + self.concentration0
        first = over(self.concentration0 * (total - 1.0), (a - 1.0) ** 2, np.inf)
        return over(first, a - 2.0, np.inf)

    def noise(self) -> Cells:
        """E[(1 - probs) / probs^2]; inf where concentration1 <= 2."""
        # E[1/p^2] - E[1/p] = (t - 1) b / ((a - 1)(a - 2))
        a, total = self.concentration1, self.concentration1 + self.concentration0
        return over(self.concentration0 * (total - 1.0) / xp.where(a > 2.0, a - 1.0, 1.0), a - 2.0, np.inf)

    @property
    def pseudo_observations(self) -> Cells:
        """concentration1 - 1; none where there is no prior mean to weigh."""
        return xp.maximum(self.concentration1 - 1.0, 0.0)

    def conditional_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """(1 - probs) / probs."""
        return (1.0 - drawn[0]) / drawn[0]

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """(1 - probs) / probs^2."""
        return (1.0 - drawn[0]) / drawn[0] ** 2

    def log_constant(self, reward: Cells) -> Cells:
        """Zero; minus infinity for what is no count."""
        reward = xp.asarray(reward)
        return xp.where((reward >= 0) & (reward == xp.floor(reward)), 0.0, -np.inf)

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`."""
        count, mean, _ = split(statistics)
        # B(a + n, b + failures) / B(a, b) of a sequence.
        log_product = log_rising(self.concentration1, count) + log_rising(self.concentration0, count * mean)
        return log_product - log_rising(self.concentration1 + self.concentration0, count * (1.0 + mean))

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """That of `reward` failures and a success."""
        return np.log(drawn[0]), xlogy(reward, 1.0 - drawn[0])

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """P(r < k) = 1 - (1 - probs)^k."""
        with np.errstate(divide="ignore"):
            # The smallest k with 1 - (1 - p)^(k + 1) >= u.
            return np.floor(np.log1p(-uniform) / np.log1p(-drawn[0]))

    @staticmethod
    def log_density_of_sum(law: Any, count: np.ndarray, total: np.ndarray) -> Array:
        """That of `count` successes and `total` failures."""
        return jax_xlogy(count, law.probs) + jax_xlog1py(total, -law.probs)
