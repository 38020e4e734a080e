"""Categorical rewards 0, 1, ..., K - 1. `statistics` are [..., K]: the count of each value."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Int

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
)
from bayes_mdp.models.reward_support import RewardSupport, make_support
from bayes_mdp.numerics.numpy_or_jax import add_at, xp
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar


@register
class DirichletCategoricalBelief(RewardBelief):
    """Rewards 0, 1, ..., K - 1 with probabilities probs; probs ~ Dirichlet(concentration), an array [*cells K]."""

    concentration: Cells
    law: ClassVar[type[dist.Distribution]] = dist.CategoricalProbs
    laws: ClassVar[Laws] = {
        dist.CategoricalProbs: lambda law: {"probs": law.probs},
        # Their softmax, where they are the logarithms of a whole Dirichlet row (`detect_rewards` asks for no less).
        dist.CategoricalLogits: lambda law: {"probs": jnp.exp(law.logits)},
    }
    sites: ClassVar[SitesOf] = {"probs": ("Dirichlet",)}
    parameters: ClassVar[tuple[str, ...]] = ("probs",)
    takes_counts: ClassVar[bool] = False

    def after(self, statistics: Statistics) -> "DirichletCategoricalBelief":
        """The belief after data."""
        # One count is one unit of concentration.
        return DirichletCategoricalBelief(self.concentration + statistics)

    @property
    def _values(self) -> Cells:
        return xp.arange(np.shape(self.concentration)[-1], dtype=xp.asarray(self.concentration).dtype)

    def _moments(self, probs: Cells) -> tuple[Cells, Cells]:
        """Mean and variance of a reward."""
        mean = (probs * self._values).sum(-1)
        # The values are 0 to K - 1: mean and variance under the probabilities.
        return mean, (probs * (self._values - mean[..., None]) ** 2).sum(-1)

    def _expected(self) -> tuple[Cells, Cells, Cells]:
        """Mean and variance of a reward under the mean probabilities, and the total concentration."""
        total = xp.asarray(self.concentration).sum(-1)
        # Under the mean probabilities pbar = c / c0.
        return *self._moments(self.concentration / total[..., None]), total

    def mean(self) -> Cells:
        """Expected mean reward."""
        return self._expected()[0]

    def variance(self) -> Cells:
        """Variance of the mean reward: Var_pbar(values) / (c0 + 1)."""
        _, variance, total = self._expected()
        return variance / (total + 1.0)

    def noise(self) -> Cells:
        """Expected variance of one reward: Var_pbar(values) c0 / (c0 + 1)."""
        _, variance, total = self._expected()
        # The law of total variance: what is left of Var_pbar(x).
        return variance * total / (total + 1.0)

    @property
    def pseudo_observations(self) -> Cells:
        """The sum of the concentrations."""
        return xp.asarray(self.concentration).sum(-1)

    def data_mean(self, statistics: Statistics) -> Cells:
        """Mean of the values by their counts."""
        total = statistics.sum(-1, keepdims=True)
        seen = total > 0
        return xp.where(seen[..., 0], self._moments(statistics / xp.where(seen, total, 1.0))[0], np.nan)

    @property
    def flat_weight(self) -> float:
        """That of Dirichlet(1, ..., 1)."""
        # One for each value.
        return float(np.shape(self.concentration)[-1])

    def conditional_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """sum of values times probs."""
        return self._moments(drawn[0])[0]

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """Variance of the values under probs."""
        return self._moments(drawn[0])[1]

    def log_constant(self, reward: Cells) -> Cells:
        """Zero; minus infinity for what is none of the values."""
        reward = xp.asarray(reward)
        # Anything but a whole number from 0 to K - 1 is impossible.
        possible = (reward >= 0) & (reward < np.shape(self.concentration)[-1]) & (reward == xp.floor(reward))
        return xp.where(possible, 0.0, -np.inf)

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`, as a sequence."""
        concentration = xp.asarray(self.concentration)
        # Dirichlet-multinomial of a sequence: rising factorials of each count over that of the total.
        seen = log_rising(concentration, statistics).sum(-1)
        return seen - log_rising(concentration.sum(-1), statistics.sum(-1))

    def num_observed(self, statistics: Statistics) -> Cells:
        """The sum of the counts."""
        return statistics.sum(-1)

    def empty(self) -> Float[np.ndarray, "... K"]:
        """No value was seen."""
        return np.zeros(np.shape(self.concentration))

    def statistics(self, weight: Float[AnyArray, "*N"], reward: Float[AnyArray, "*N"]) -> Statistics:
        """`weight` at the value of each reward."""
        # One-hot, times the weight: the update is an addition.
        values = xp.arange(np.shape(self.concentration)[-1])
        return xp.where(xp.asarray(reward)[..., None] == values, xp.asarray(weight)[..., None], 0.0)

    def absorb(self, table: Statistics, index: IntScalar | Int[AnyArray, "*N"], data: Statistics) -> Statistics:
        """`table` [M K] with `data` [*N K] added at `index`."""
        return add_at(table, index, data)

    def merge(self, one: Statistics, other: Statistics) -> Statistics:
        """The counts of both samples together."""
        return xp.asarray(one) + other

    def discount_data(self, statistics: Statistics, factor: RealScalar) -> Statistics:
        """The counts of the same rewards, each counted `factor` times."""
        return statistics * factor

    def support(self) -> RewardSupport:
        """0, 1, ..., K - 1."""
        return make_support(0.0, np.shape(self.concentration)[-1] - 1.0, whole=True, law="Categorical")

    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """log probs of the value."""
        # The probability of the value that each reward is.
        return (np.log(np.take_along_axis(drawn[0], reward.astype(int)[..., None], -1)[..., 0]),)

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """By sums of the probabilities."""
        return pick_category(drawn[0], uniform).astype(np.float64)

    def urn(self) -> Float[AnyArray, "*cells K"]:
        """The concentrations."""
        return jnp.asarray(self.concentration)


def pick_category(probs: Float[np.ndarray, "*N K"], uniform: Float[np.ndarray, "*N"]) -> Int[np.ndarray, "*N"]:
    """A category of each row by a uniform number; none of probability zero."""
    cumulative = probs.cumsum(-1)
    # The number of categories whose cumulative probability is at most u; one of probability zero is never the last.
    number = (cumulative <= (uniform * cumulative[..., -1])[..., None]).sum(-1)
    last = probs.shape[-1] - 1 - (probs[..., ::-1] > 0).argmax(-1)
    return np.minimum(number, last)
