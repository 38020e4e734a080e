"""`RewardBelief`: what a conjugate belief about the law of one reward must do, whatever its family.

Beliefs are elementwise on arrays [*cells], or [*cells K] where the unknown parameter is a vector. Every variance is
epistemic: of the *mean* reward. Every log marginal is the log density of the rewards as a sequence, less the
`log_constant` of each of them, which does not depend on what is unknown.

Sources of the families: DeGroot (1970), *Optimal Statistical Decisions*, chapter 9; Murphy (2007), *Conjugate Bayesian
analysis of the Gaussian distribution*, section 3; Bernardo and Smith (1994), *Bayesian Theory*, appendix A.
"""

import abc
from functools import cached_property
from typing import ClassVar

import equinox as eqx
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Int, PRNGKeyArray, Real

from bayes_mdp.inference.conjugate.reward_statistics import absorb, merge_statistics, statistics
from bayes_mdp.models.reward_laws import law_variance
from bayes_mdp.models.reward_support import RewardSupport, support_of
from bayes_mdp.models.sufficient_statistics import log_base_measure
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.random.host_generator import ElementStreams
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar
from bayes_mdp.utils.validation import check_finite, check_positive

Cells = Real[AnyArray, "..."] | np.floating
"""Numbers of cells that broadcast; whole ones where `inference.detection` numbers the parameters."""

GAMMAS, NORMALS = 2, 3
"""Purposes of the random numbers of rewards (see `ElementStreams`)."""

Statistics = Float[AnyArray, "... D"]
"""What a family keeps of its rewards: count, mean and sum of squared deviations; or a count for each value."""


HostDrawn = tuple[Float[np.ndarray, "num *cells"], ...]
"""Many draws of the `parameters` of a belief, by NumPy."""


class RewardStreams:
    """The random numbers of the elements of a belief: each kind from generators of its own, made where it is used.

    Args:
        key: of the draws.
        elements: the numbers of the elements.
    """

    def __init__(self, key: PRNGKeyArray, elements: Int[np.ndarray, " M"]) -> None:
        self._key, self._elements = key, elements

    @cached_property
    def gamma(self) -> ElementStreams:
        """For gamma variables."""
        return ElementStreams(self._key, GAMMAS, self._elements)

    @cached_property
    def normal(self) -> ElementStreams:
        """For normal numbers."""
        return ElementStreams(self._key, NORMALS, self._elements)


def draw_beta(streams: RewardStreams, num: int, one: Cells, zero: Cells) -> Float[np.ndarray, "num M"]:
    """Beta variables: each the first entry of a Dirichlet row of two."""
    both = np.stack(np.broadcast_arrays(np.asarray(one, np.float64), np.asarray(zero, np.float64)), -1)
    size = both.shape[-2]
    rows = streams.gamma.dirichlets(
        num, both.reshape(*both.shape[:-2], -1), np.arange(0, 2 * size + 1, 2), np.ones(size, bool)
    )
    return rows[:, ::2]


class RewardBelief(eqx.Module):
    """What all families share: the law of a reward, the names of its unknown parameters, what a reward must be."""

    law: ClassVar[type[dist.Distribution]]
    parameters: ClassVar[tuple[str, ...]]
    """Names of what `sample` draws."""
    has_constant: ClassVar[bool] = False
    """Whether `log_constant` is not zero."""
    takes_counts: ClassVar[bool] = True
    """Whether count, mean and squared deviations of the rewards are sufficient: `Counts` are data."""
    free_fields: ClassVar[tuple[str, ...]] = ("loc",)
    """Fields that may be any finite number; all others are positive."""

    @abc.abstractmethod
    def after(self, statistics: Statistics) -> "RewardBelief":
        """The belief after data."""

    @abc.abstractmethod
    def mean(self) -> Cells:
        """Expected mean reward; nan where it does not exist."""

    @abc.abstractmethod
    def variance(self) -> Cells:
        """Epistemic variance of the mean reward; inf where it does not exist."""

    @abc.abstractmethod
    def noise(self) -> Cells:
        """Expected variance of one reward around its mean; inf where it does not exist."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray) -> tuple[Cells, ...]:
        """One draw of the `parameters`."""

    @abc.abstractmethod
    def draw(self, streams: RewardStreams, num: int) -> HostDrawn:
        """`num` draws of the `parameters` of elements [M], or [num M], by NumPy."""

    @abc.abstractmethod
    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """The law of one reward for parameters as `sample` draws them."""

    @abc.abstractmethod
    def log_marginal(self, statistics: Statistics) -> Cells:
        """Log density of the rewards behind `statistics`, as a sequence, less their `log_constant`."""

    @property
    @abc.abstractmethod
    def pseudo_observations(self) -> Cells:
        """The number of rewards that this belief's mean weighs; n rewards more make it n larger."""

    def data_mean(self, statistics: Statistics) -> Cells:
        """The mean reward by data alone: what `mean` tends to as the prior weighs less and less; nan without data."""
        return xp.where(self.num_observed(statistics) > 0, statistics[..., 1], np.nan)

    @property
    def flat_weight(self) -> Cells | float:
        """The weight, in rewards, of a prior that prefers no value: one for each possible value of a reward, if few."""
        return 1.0

    def drawn_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """The mean reward for parameters as `sample` draws them."""
        return drawn[0]

    def drawn_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """Variance of one reward around its mean, likewise."""
        return law_variance(self.law_of(drawn))

    def log_constant(self, reward: Cells) -> Cells:
        """Part of the log density of a reward that no unknown parameter enters (see `log_base_measure`)."""
        return log_base_measure(self.law, xp.asarray(reward))

    # Statistics: those of most families are moments; one that keeps others overrides these five.

    def num_observed(self, statistics: Statistics) -> Cells:
        """Number of the rewards behind `statistics`."""
        return statistics[..., 0]

    def empty(self) -> Float[np.ndarray, "... D"]:
        """The statistics of no rewards, for every cell."""
        return np.zeros((*np.shape(getattr(self, next(iter(vars(self))))), 3))

    def statistics(self, weight: Float[AnyArray, "*N"], reward: Float[AnyArray, "*N"]) -> Statistics:
        """The statistics of single rewards, each counted `weight` times: [*N D]."""
        return statistics(weight, reward, xp.zeros_like(reward))

    def absorb(self, table: Statistics, index: IntScalar | Int[AnyArray, "*N"], data: Statistics) -> Statistics:
        """`table` [M D] with the statistics `data` [*N D] merged in at `index`; those of the index M are dropped."""
        return absorb(xp.asarray(table), index, xp.asarray(data))

    def merged(self, one: Statistics, other: Statistics) -> Statistics:
        """The statistics of both samples together."""
        return merge_statistics(one, other)

    def discounted(self, statistics: Statistics, factor: RealScalar) -> Statistics:
        """The statistics of the same rewards, each counted `factor` times."""
        return statistics * np.array([1.0, 0.0, 1.0]) * factor + statistics * np.array([0.0, 1.0, 0.0])

    def support(self) -> RewardSupport:
        """The rewards that the law can give, whatever is unknown. Host side."""
        support = support_of(self.law)
        assert support is not None  # a family whose support depends on a known parameter overrides this
        return support

    def check(self, name: str) -> None:
        """Refuse parameters that are no belief of this family; all are finite, all but `free_fields` positive.

        Raises:
            ValueError: `name.parameter[index]`, what was there.
        """
        for parameter, values in vars(self).items():
            (check_finite if parameter in self.free_fields else check_positive)(f"{name}.{parameter}", values)
