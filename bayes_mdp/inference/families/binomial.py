"""Binomial rewards, successes among a known number of trials.

`statistics` are [..., 3]: count, mean, sum of squared deviations.
"""

from typing import Any, ClassVar

import jax
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import xlog1py as jax_xlog1py
from jax.scipy.special import xlogy as jax_xlogy
from jaxtyping import Array, Float
from scipy.special import betainc, gammaln, xlogy

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
    whole_quantile,
)
from bayes_mdp.models.reward_support import RewardSupport, make_support
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.utils.validation import check_not_negative, check_positive


@register
class BetaBinomialBelief(RewardBelief):
    """Rewards Binomial(total_count, probs), `total_count` known; probs ~ Beta(concentration1, concentration0)."""

    concentration1: Cells
    concentration0: Cells
    total_count: Cells
    law: ClassVar[type[dist.Distribution]] = dist.BinomialProbs
    laws: ClassVar[Laws] = {
        dist.BinomialProbs: lambda law: {"probs": law.probs, "total_count": law.total_count},
        dist.BinomialLogits: lambda law: {"probs": jax.nn.sigmoid(law.logits), "total_count": law.total_count},
    }
    sites: ClassVar[SitesOf] = {"probs": ("Beta",)}
    known: ClassVar[tuple[str, ...]] = ("total_count",)
    parameters: ClassVar[tuple[str, ...]] = ("probs",)
    sum_suffices: ClassVar[bool] = True
    has_constant: ClassVar[bool] = True

    def after(self, statistics: Statistics) -> "BetaBinomialBelief":
        """The belief after data."""
        successes, failures = self._split(statistics)
        return BetaBinomialBelief(self.concentration1 + successes, self.concentration0 + failures, self.total_count)

    def _split(self, statistics: Statistics) -> tuple[Cells, Cells]:
        # Sums from count and mean: successes count * mean, the rest of the trials are failures.
        count, mean, _ = split(statistics)
        # A reward above its `total_count` has density zero (`log_constant`); there are no fewer failures than none.
        return count * mean, xp.maximum(count * (self.total_count - mean), 0.0)

    def _moments(self) -> tuple[Cells, Cells]:
        """Mean and variance of probs."""
        total = self.concentration1 + self.concentration0
        mean = self.concentration1 / total
        # p (1 - p) / (total + 1), factor by factor against overflow.
        return mean, mean * (self.concentration0 / total) / (total + 1.0)

    def mean(self) -> Cells:
        """total_count E[probs]."""
        return self.total_count * self._moments()[0]

    def variance(self) -> Cells:
        """total_count^2 Var[probs]."""
        # A known factor: its square.
        return xp.asarray(self.total_count) ** 2 * self._moments()[1]

    def noise(self) -> Cells:
        """total_count E[probs (1 - probs)]."""
        # E[p (1 - p)] is (a + b) Var p for a beta law.
        return self.total_count * (self.concentration1 + self.concentration0) * self._moments()[1]

    @property
    def pseudo_observations(self) -> Cells:
        """concentration1 + concentration0, in rewards of `total_count` trials."""
        # A reward is `total_count` trials.
        return over(self.concentration1 + self.concentration0, self.total_count, np.inf)

    @property
    def flat_weight(self) -> Cells:
        """That of Beta(1, 1), in rewards of `total_count` trials."""
        return over(2.0, self.total_count, np.inf)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Binomial(total_count, probs)."""
        return dist.BinomialProbs(drawn[0], self.total_count)

    def conditional_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """total_count probs."""
        return self.total_count * drawn[0]

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """total_count probs (1 - probs)."""
        return self.total_count * drawn[0] * (1.0 - drawn[0])

    def log_constant(self, reward: Cells) -> Cells:
        """Log of the binomial coefficient; minus infinity for what is no count from 0 to `total_count`."""
        reward, total = xp.asarray(reward), xp.asarray(self.total_count)
        # A whole number of successes among the trials.
        possible = (reward >= 0) & (reward <= total) & (reward == xp.floor(reward))
        inside = xp.where(possible, reward, 0.0)
        choose = xp.gammaln(total + 1.0) - xp.gammaln(inside + 1.0) - xp.gammaln(total - inside + 1.0)
        return xp.where(possible, choose, -np.inf)

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`, less the binomial coefficients."""
        successes, failures = self._split(statistics)
        # Beta-binomial of a sequence: B(a + successes, b + failures) / B(a, b).
        log_product = log_rising(self.concentration1, successes) + log_rising(self.concentration0, failures)
        return log_product - log_rising(self.concentration1 + self.concentration0, successes + failures)

    def support(self) -> RewardSupport:
        """Counts up to `total_count`."""
        return make_support(0.0, np.asarray(self.total_count), whole=True, law="Binomial")

    def check(self, name: str) -> None:
        """Refuse parameters that are not positive, but for a `total_count` of zero: no trial, the reward is zero.

        Raises:
            ValueError: `name.parameter[index]`, what was there.
        """
        check_positive(f"{name}.concentration1", self.concentration1)
        check_positive(f"{name}.concentration0", self.concentration0)
        check_not_negative(f"{name}.total_count", self.total_count)

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """That of Binomial(total_count, probs)."""
        # log of the binomial coefficient as terms: their sizes tell the rounding.
        total, probs = np.asarray(self.total_count), drawn[0]
        choose = gammaln(total + 1.0), -gammaln(reward + 1.0), -gammaln(total - reward + 1.0)
        return *choose, xlogy(reward, probs), xlogy(total - reward, 1.0 - probs)

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """P(r <= k) = 1 - I_p(k + 1, n - k) for k < n."""
        total, probs = np.asarray(self.total_count), drawn[0]

        def below(k: np.ndarray) -> np.ndarray:
            # The regularised incomplete beta function; k >= n is certain.
            return np.where(k >= total, 1.0, 1.0 - betainc(k + 1.0, np.maximum(total - k, 1.0), probs))

        return whole_quantile(uniform, below)

    @staticmethod
    def log_density_of_sum(law: Any, count: np.ndarray, total: np.ndarray) -> Array:
        """That of all trials."""
        return jax_xlogy(total, law.probs) + jax_xlog1py(law.total_count * count - total, -law.probs)

    @staticmethod
    def draw_sum(rng: np.random.Generator, count: np.ndarray, law: Any) -> Float[np.ndarray, "..."]:
        """Binomial of all trials."""
        # Successes of all trials that the rewards were made of.
        number = np.round(count * np.asarray(law.total_count)).astype(np.int64)
        return rng.binomial(number, np.clip(np.asarray(law.probs, np.float64), 0.0, 1.0)).astype(float)
