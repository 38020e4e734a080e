"""Families of rewards whose mean is a function of the unknown: exponential, binomial, geometric, categorical.

`statistics` are [..., 3]: count, mean, sum of squared deviations; of categorical rewards a count for each value. What a
family is: `reward_belief`.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.reward_belief import (
    Cells,
    HostDrawn,
    RewardBelief,
    RewardStreams,
    Statistics,
    draw_beta,
)
from bayes_mdp.inference.conjugate.reward_statistics import log_rising, split
from bayes_mdp.models.reward_support import RewardSupport, make_support
from bayes_mdp.numerics.numpy_or_jax import add_at, xp
from bayes_mdp.random import dirichlet, gamma
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar
from bayes_mdp.utils.validation import check_not_negative, check_positive


class GammaExponentialBelief(RewardBelief):
    """Rewards Exponential(rate of the law); that rate ~ Gamma(concentration, rate), `rate` in units of reward."""

    concentration: Cells
    rate: Cells
    law: ClassVar[type[dist.Distribution]] = dist.Exponential
    parameters: ClassVar[tuple[str, ...]] = ("rate",)

    def after(self, statistics: Statistics) -> "GammaExponentialBelief":
        """The belief after data."""
        count, mean, _ = split(statistics)
        return GammaExponentialBelief(self.concentration + count, self.rate + count * mean)

    def mean(self) -> Cells:
        """E[1 / rate], that of an inverse gamma; nan where concentration <= 1."""
        return _over(self.rate, self.concentration - 1.0, np.nan)

    def variance(self) -> Cells:
        """Var[1 / rate]; inf where concentration <= 2."""
        mean = _over(self.rate, self.concentration - 1.0, np.inf)
        return _over(mean**2, self.concentration - 2.0, np.inf)

    def noise(self) -> Cells:
        """E[1 / rate^2]; inf where concentration <= 2."""
        mean = _over(self.rate, self.concentration - 1.0, np.inf)
        return _over(mean * self.rate, self.concentration - 2.0, np.inf)

    @property
    def pseudo_observations(self) -> Cells:
        """concentration - 1; none where there is no prior mean to weigh."""
        return xp.maximum(self.concentration - 1.0, 0.0)

    def sample(self, key: PRNGKeyArray) -> tuple[Cells]:
        """One draw of (rate,)."""
        return (gamma(key, jnp.asarray(self.concentration)) / self.rate,)

    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of (rate,), by NumPy."""
        return (np.exp(streams.gamma.log_gammas(num, np.asarray(self.concentration))) / self.rate,)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Exponential(rate)."""
        return dist.Exponential(drawn[0])

    def drawn_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """1 / rate."""
        return 1.0 / drawn[0]

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
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
        return log_rising(self.concentration, count) - shrink


class BetaBinomialBelief(RewardBelief):
    """Rewards Binomial(total_count, probs), `total_count` known; probs ~ Beta(concentration1, concentration0)."""

    concentration1: Cells
    concentration0: Cells
    total_count: Cells
    law: ClassVar[type[dist.Distribution]] = dist.BinomialProbs
    parameters: ClassVar[tuple[str, ...]] = ("probs",)
    has_constant: ClassVar[bool] = True

    def after(self, statistics: Statistics) -> "BetaBinomialBelief":
        """The belief after data."""
        successes, failures = self._split(statistics)
        return BetaBinomialBelief(self.concentration1 + successes, self.concentration0 + failures, self.total_count)

    def _split(self, statistics: Statistics) -> tuple[Cells, Cells]:
        count, mean, _ = split(statistics)
        # A reward above its `total_count` has density zero (`log_constant`); there are no fewer failures than none.
        return count * mean, xp.maximum(count * (self.total_count - mean), 0.0)

    def _moments(self) -> tuple[Cells, Cells]:
        """Mean and variance of probs."""
        total = self.concentration1 + self.concentration0
        mean = self.concentration1 / total
        return mean, mean * (self.concentration0 / total) / (total + 1.0)

    def mean(self) -> Cells:
        """total_count E[probs]."""
        return self.total_count * self._moments()[0]

    def variance(self) -> Cells:
        """total_count^2 Var[probs]."""
        return xp.asarray(self.total_count) ** 2 * self._moments()[1]

    def noise(self) -> Cells:
        """total_count E[probs (1 - probs)]."""
        return self.total_count * (self.concentration1 + self.concentration0) * self._moments()[1]

    @property
    def pseudo_observations(self) -> Cells:
        """concentration1 + concentration0, in rewards of `total_count` trials."""
        return _over(self.concentration1 + self.concentration0, self.total_count, np.inf)

    @property
    def flat_weight(self) -> Cells:
        """That of Beta(1, 1), in rewards of `total_count` trials."""
        return _over(2.0, self.total_count, np.inf)

    def sample(self, key: PRNGKeyArray) -> tuple[Cells]:
        """One draw of (probs,)."""
        return (_beta(key, self.concentration1, self.concentration0),)

    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of (probs,), by NumPy."""
        return (draw_beta(streams, num, self.concentration1, self.concentration0),)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Binomial(total_count, probs)."""
        return dist.BinomialProbs(drawn[0], self.total_count)

    def drawn_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """total_count probs."""
        return self.total_count * drawn[0]

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """total_count probs (1 - probs)."""
        return self.total_count * drawn[0] * (1.0 - drawn[0])

    def log_constant(self, reward: Cells) -> Cells:
        """Log of the binomial coefficient; minus infinity for what is no count from 0 to `total_count`."""
        reward, total = xp.asarray(reward), xp.asarray(self.total_count)
        possible = (reward >= 0) & (reward <= total) & (reward == xp.floor(reward))
        inside = xp.where(possible, reward, 0.0)
        choose = xp.gammaln(total + 1.0) - xp.gammaln(inside + 1.0) - xp.gammaln(total - inside + 1.0)
        return xp.where(possible, choose, -np.inf)

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`, less the binomial coefficients."""
        successes, failures = self._split(statistics)
        both = log_rising(self.concentration1, successes) + log_rising(self.concentration0, failures)
        return both - log_rising(self.concentration1 + self.concentration0, successes + failures)

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


class BetaGeometricBelief(RewardBelief):
    """Rewards Geometric(probs), failures before a success: 0, 1, ...; probs ~ Beta(concentration1, concentration0)."""

    concentration1: Cells
    concentration0: Cells
    law: ClassVar[type[dist.Distribution]] = dist.GeometricProbs
    parameters: ClassVar[tuple[str, ...]] = ("probs",)

    def after(self, statistics: Statistics) -> "BetaGeometricBelief":
        """The belief after data."""
        count, mean, _ = split(statistics)
        return BetaGeometricBelief(self.concentration1 + count, self.concentration0 + count * mean)

    def mean(self) -> Cells:
        """E[1 / probs] - 1; nan where concentration1 <= 1."""
        return _over(self.concentration0, self.concentration1 - 1.0, np.nan)

    def variance(self) -> Cells:
        """Var[1 / probs]; inf where concentration1 <= 2."""
        # E[1/p] = (t - 1) / (a - 1) and E[1/p^2] = (t - 1)(t - 2) / ((a - 1)(a - 2)), t = a + b; their difference is
        # b (t - 1) / ((a - 1)^2 (a - 2)).
        a, total = self.concentration1, self.concentration1 + self.concentration0
        first = _over(self.concentration0 * (total - 1.0), (a - 1.0) ** 2, np.inf)
        return _over(first, a - 2.0, np.inf)

    def noise(self) -> Cells:
        """E[(1 - probs) / probs^2]; inf where concentration1 <= 2."""
        # E[1/p^2] - E[1/p] = (t - 1) b / ((a - 1)(a - 2))
        a, total = self.concentration1, self.concentration1 + self.concentration0
        return _over(self.concentration0 * (total - 1.0) / xp.where(a > 2.0, a - 1.0, 1.0), a - 2.0, np.inf)

    @property
    def pseudo_observations(self) -> Cells:
        """concentration1 - 1; none where there is no prior mean to weigh."""
        return xp.maximum(self.concentration1 - 1.0, 0.0)

    def sample(self, key: PRNGKeyArray) -> tuple[Cells]:
        """One draw of (probs,)."""
        return (_beta(key, self.concentration1, self.concentration0),)

    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of (probs,), by NumPy."""
        return (draw_beta(streams, num, self.concentration1, self.concentration0),)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Geometric(probs)."""
        return dist.GeometricProbs(drawn[0])

    def drawn_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """(1 - probs) / probs."""
        return (1.0 - drawn[0]) / drawn[0]

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """(1 - probs) / probs^2."""
        return (1.0 - drawn[0]) / drawn[0] ** 2

    def log_constant(self, reward: Cells) -> Cells:
        """Zero; minus infinity for what is no count."""
        reward = xp.asarray(reward)
        return xp.where((reward >= 0) & (reward == xp.floor(reward)), 0.0, -np.inf)

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`."""
        count, mean, _ = split(statistics)
        both = log_rising(self.concentration1, count) + log_rising(self.concentration0, count * mean)
        return both - log_rising(self.concentration1 + self.concentration0, count * (1.0 + mean))


class DirichletCategoricalBelief(RewardBelief):
    """Rewards 0, 1, ..., K - 1 with probabilities probs; probs ~ Dirichlet(concentration), an array [*cells K]."""

    concentration: Cells
    law: ClassVar[type[dist.Distribution]] = dist.CategoricalProbs
    parameters: ClassVar[tuple[str, ...]] = ("probs",)
    takes_counts: ClassVar[bool] = False

    def after(self, statistics: Statistics) -> "DirichletCategoricalBelief":
        """The belief after data."""
        return DirichletCategoricalBelief(self.concentration + statistics)

    @property
    def _values(self) -> Cells:
        return xp.arange(np.shape(self.concentration)[-1], dtype=xp.asarray(self.concentration).dtype)

    def _moments(self, probs: Cells) -> tuple[Cells, Cells]:
        """Mean and variance of a reward."""
        mean = (probs * self._values).sum(-1)
        return mean, (probs * (self._values - mean[..., None]) ** 2).sum(-1)

    def _expected(self) -> tuple[Cells, Cells, Cells]:
        """Mean and variance of a reward under the mean probabilities, and the total concentration."""
        total = xp.asarray(self.concentration).sum(-1)
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
        return float(np.shape(self.concentration)[-1])

    def sample(self, key: PRNGKeyArray) -> tuple[Cells]:
        """One draw of (probs,), [*cells K]."""
        return (dirichlet(key, jnp.asarray(self.concentration)),)

    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of (probs,), by NumPy."""
        concentration = np.asarray(self.concentration)
        *lead, size, values = concentration.shape
        flat, small = concentration.reshape(*lead, -1), np.ones(size, bool)
        rows = streams.gamma.dirichlets(num, flat, np.arange(0, size * values + 1, values), small)
        return (rows.reshape(num, size, values),)

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """Categorical(probs)."""
        return dist.CategoricalProbs(drawn[0])

    def drawn_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """sum of values times probs."""
        return self._moments(drawn[0])[0]

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """Variance of the values under probs."""
        return self._moments(drawn[0])[1]

    def log_constant(self, reward: Cells) -> Cells:
        """Zero; minus infinity for what is none of the values."""
        reward = xp.asarray(reward)
        possible = (reward >= 0) & (reward < np.shape(self.concentration)[-1]) & (reward == xp.floor(reward))
        return xp.where(possible, 0.0, -np.inf)

    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log probability of the rewards behind `statistics`, as a sequence."""
        concentration = xp.asarray(self.concentration)
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
        values = xp.arange(np.shape(self.concentration)[-1])
        return xp.where(xp.asarray(reward)[..., None] == values, xp.asarray(weight)[..., None], 0.0)

    def absorb(self, table: Statistics, index: IntScalar | Int[AnyArray, "*N"], data: Statistics) -> Statistics:
        """`table` [M K] with `data` [*N K] added at `index`."""
        return add_at(table, index, data)

    def merged(self, one: Statistics, other: Statistics) -> Statistics:
        """The counts of both samples together."""
        return xp.asarray(one) + other

    def discounted(self, statistics: Statistics, factor: RealScalar) -> Statistics:
        """The counts of the same rewards, each counted `factor` times."""
        return statistics * factor

    def support(self) -> RewardSupport:
        """0, 1, ..., K - 1."""
        return make_support(0.0, np.shape(self.concentration)[-1] - 1.0, whole=True, law="Categorical")


def _beta(key: PRNGKeyArray, one: Cells, zero: Cells) -> Cells:
    """A Beta draw is the first entry of a Dirichlet draw over two outcomes."""
    return dirichlet(key, jnp.stack(jnp.broadcast_arrays(one, zero), axis=-1))[..., 0]


def _over(numerator: Cells | float, excess: Cells, otherwise: float) -> Cells:
    """numerator / excess where the excess is positive: a moment that exists there alone."""
    exists = xp.asarray(excess) > 0
    return xp.where(exists, numerator / xp.where(exists, excess, 1.0), otherwise)
