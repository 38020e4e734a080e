"""A conjugate family of rewards: the law of one reward, the sites that are its prior, and all that follows from both.

A family is a `RewardBelief`, one file, registered once (`register`); `infer`, the check of a proof, storage,
calibration and decisions look it up. Beliefs are elementwise on arrays [*cells], or [*cells K] where the unknown
parameter is a vector. Every variance is epistemic: of the *mean* reward. Every log marginal is the log density of the
rewards as a sequence, less the `log_constant` of each of them, which does not depend on what is unknown.

Sources of the families: DeGroot (1970), *Optimal Statistical Decisions*, chapter 9; Murphy (2007), *Conjugate Bayesian
analysis of the Gaussian distribution*, section 3; Bernardo and Smith (1994), *Bayesian Theory*, appendix A.
"""

import abc
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, PRNGKeyArray, Real
from scipy.special import gammaln, xlog1py, xlogy

from bayes_mdp.mdp.data.transitions import merge_moments, pool_moments
from bayes_mdp.models.reward_laws import law_variance
from bayes_mdp.models.reward_support import RewardSupport, support_of
from bayes_mdp.models.sufficient_statistics import log_base_measure
from bayes_mdp.numerics.numpy_or_jax import add_at, has_jax_array, pick, xp
from bayes_mdp.random.dirichlet_draws import dirichlet
from bayes_mdp.random.gamma_draws import gamma
from bayes_mdp.random.host_generator import ElementStreams
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar, RealLike, RealScalar
from bayes_mdp.utils.validation import check_finite, check_positive

Cells = Real[AnyArray, "..."] | np.floating
"""Numbers of cells that broadcast; whole ones where `inference.detection` numbers the parameters."""

Statistics = Float[AnyArray, "... D"]
"""What a family keeps of its rewards: count, mean and sum of squared deviations; or a count for each value."""

HostDrawn = tuple[Float[np.ndarray, "num *cells"], ...]
"""Many draws of the `parameters` of a belief, by NumPy."""

Values: TypeAlias = tuple[Float[np.ndarray, "..."], ...]
"""Values of the `parameters`, for NumPy."""

Terms: TypeAlias = tuple[ArrayLike, ...]
"""Numbers that add up to a log density. Their sizes say what its rounding is."""

Parameters: TypeAlias = dict[str, Float[AnyArray, "..."]]
"""The parameters of a law, by name."""

Laws: TypeAlias = Mapping[type[dist.Distribution], Callable[[Any], Parameters]]
"""Type of law -> (law) -> its parameters."""

SitesOf: TypeAlias = Mapping[str, tuple[str, ...]]
"""Parameter of a law -> the families of its sites."""


class RewardBelief(Module):
    """The belief about the law of one reward: what a family states, and what follows for all of them.

    A family has as fields what its prior needs: the parameters of its sites, by their NumPyro names (of a normal site
    `loc` and `scale`; of a joint normal-gamma site those of `NormalGamma`), then the parameters in `known`.
    """

    law: ClassVar[type[dist.Distribution]]
    """The law of one reward, as draws have it."""
    laws: ClassVar[Laws]
    """Types of laws that a program may return -> their parameters, each one element of a site, or known."""
    sites: ClassVar[SitesOf]
    """Unknown parameter of `laws` -> the families of sites that are conjugate for it."""
    known: ClassVar[tuple[str, ...]] = ()
    """Parameters of `laws` that must be known numbers, one for all cells of an element; fields of the same name."""
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

    def noise(self) -> Cells:
        """Expected variance of one reward around its mean; inf where it does not exist."""
        # The mean of so many rewards would vary as much as the belief's: noise / pseudo_observations = variance.
        return self.pseudo_observations * self.variance()

    def law_of(self, drawn: tuple[Cells, ...]) -> dist.Distribution:
        """The law of one reward for parameters as `sample` draws them: `law` of these, if no others are needed."""
        law: Callable[..., dist.Distribution] = self.law
        return law(*drawn)

    @abc.abstractmethod
    def log_density(self, reward: Float[np.ndarray, "*N"], drawn: Values) -> Terms:
        """The log density of rewards for parameters as `sample` draws them, as terms to be added. In NumPy.

        Every proof compares it with what NumPyro computes for the program, so it is written without NumPyro.
        """

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

    def conditional_mean(self, drawn: tuple[Cells, ...]) -> Cells:
        """The mean reward for parameters as `sample` draws them."""
        return drawn[0]

    def conditional_noise(self, drawn: tuple[Cells, ...]) -> Cells:
        """Variance of one reward around its mean, likewise."""
        return law_variance(self.law_of(drawn))

    def log_constant(self, reward: Cells) -> Cells:
        """Part of the log density of a reward that no unknown parameter enters (see `log_base_measure`)."""
        return log_base_measure(self.law, xp.asarray(reward))

    # Of the prior. One unknown parameter has one site, whose law stands in `CONJUGATE_SITES`; a family of several
    # overrides these three.

    def _site(self) -> tuple["ConjugateSite", list[Cells]]:
        """The law of the one site, and its parameters."""
        ((family, *_),) = self.sites.values()
        site = CONJUGATE_SITES[family]
        return site, [getattr(self, name) for name in site.fields]

    def sample(self, key: PRNGKeyArray) -> tuple[Cells, ...]:
        """One draw of the `parameters`."""
        site, fields = self._site()
        return (site.sample(key, *fields),)

    def draw(self, streams: "RewardStreams", num: int) -> HostDrawn:
        """`num` draws of the `parameters` of elements [M], or [num M], by NumPy."""
        site, fields = self._site()
        return (site.draw(streams, num, *fields),)

    def prior_terms(self, drawn: Values) -> Terms:
        """`log_prior` as terms to be added."""
        site, fields = self._site()
        return site.terms(drawn[0], *fields)

    def log_prior(self, drawn: Values) -> Float[np.ndarray, "..."]:
        """Log density of this belief at parameters as `sample` draws them; of a vector summed over it. In NumPy."""
        return sum_terms(self.prior_terms(drawn))

    def quantile(self, drawn: Values, uniform: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The reward below which the law lies with probability `uniform`, above 0 and below 1. In NumPy."""
        return np.asarray(self.law_of(drawn).icdf(uniform))

    def urn(self) -> Float[AnyArray, "*cells K"] | None:
        """The concentrations of rewards 0, 1, ..., K - 1 that are drawn as from an urn; None: rewards are not."""
        return None

    # Of several rewards of one law whose parameters are known (calibration).

    sum_suffices: ClassVar[bool] = False
    """Whether number and sum of rewards are all that their density needs (`log_density_of_sum`)."""

    @staticmethod
    def log_density_of_sum(law: Any, count: np.ndarray, total: np.ndarray) -> Array:
        """Log density of `count` rewards of this sum, less the log base measures; where `sum_suffices`."""
        raise NotImplementedError

    @staticmethod
    def draw_sum(rng: np.random.Generator, count: np.ndarray, law: Any) -> Float[np.ndarray, "..."] | None:
        """The sum of `count` fresh rewards; None: it has no known law."""
        return None

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

    def merge(self, one: Statistics, other: Statistics) -> Statistics:
        """The statistics of both samples together."""
        return merge_statistics(one, other)

    def discount_data(self, statistics: Statistics, factor: RealScalar) -> Statistics:
        """The statistics of the same rewards, each counted `factor` times."""
        # Count and squared deviations scale with the factor; the mean of the same rewards does not change.
        return statistics * np.array([1.0, 0.0, 1.0]) * factor + statistics * np.array([0.0, 1.0, 0.0])

    def support(self) -> RewardSupport:
        """The rewards that the law can give, whatever is unknown. Host side."""
        support = _support_of_family(self.law)
        assert support is not None  # a family whose support depends on a known parameter overrides this
        return support

    def check(self, name: str) -> None:
        """Refuse parameters that are no belief of this family; all are finite, all but `free_fields` positive.

        Raises:
            ValueError: `name.parameter[index]`, what was there.
        """
        for parameter, values in vars(self).items():
            (check_finite if parameter in self.free_fields else check_positive)(f"{name}.{parameter}", values)

    @classmethod
    def is_own(cls) -> bool:
        """Whether it is a family of this package, which its tests have checked."""
        return cls.__module__.startswith("bayes_mdp.")

    @classmethod
    def is_vector(cls) -> bool:
        """Whether the unknown parameter of a cell is a vector, the last axis of the arrays."""
        return any("Dirichlet" in families for families in cls.sites.values())


# The registry

Family = TypeVar("Family", bound=type[RewardBelief])

FAMILIES: list[type[RewardBelief]] = []
"""All families, in the order of their registration."""


def register(family: Family) -> Family:
    """Make a family known to `infer` and to everything that a posterior does. A decorator of its class.

    A class of the same name and module that was registered before is replaced (a notebook that is run again).

    Raises:
        ValueError: another family has this name, the same prior of the same law, or another law of the same name.
    """
    # A class defined again in a notebook takes the place of the one before.
    other_families = [f for f in FAMILIES if (f.__name__, f.__module__) != (family.__name__, family.__module__)]
    for other_family in other_families:
        if other_family.__name__ == family.__name__:
            raise ValueError(f"a family {family.__name__} is there ({other_family.__module__}), expected another name")
        # Programs know their law by its name.
        # By name too: proofs and stored files know laws by their names.
        for law in family.laws:
            if any(law.__name__ == other_law.__name__ and law is not other_law for other_law in other_family.laws):
                raise ValueError(f"there are two laws called {law.__name__}, expected another name")
        same_sites = set(other_family.sites) == set(family.sites) and all(
            set(other_family.sites[name]) & set(families) for name, families in family.sites.items()
        )
        if same_sites and set(other_family.laws) & set(family.laws):
            raise ValueError(
                f"{family.__name__} has the law {next(iter(family.laws)).__name__} with {', '.join(family.sites)} "
                f"unknown, which {other_family.__name__} has, expected one family for each"
            )
    FAMILIES[:] = [*other_families, family]
    _NUMBER[family] = next(_NUMBERS)
    return family


_NUMBER: dict[type[RewardBelief], int] = {}
_NUMBERS = itertools.count()


def registrations(law: str | None = None) -> str:
    """Which families of other modules a law has, or all laws: proofs made with others, or by others, do not hold."""
    # Families of this package are tested with it; others enter the key under which a proof is remembered.
    added = (f for f in (FAMILIES if law is None else families_of(law)) if not f.is_own())
    return " ".join(f"{family.__name__} {_NUMBER[family]}" for family in added)


def check_conjugacy(
    belief: RewardBelief,
    reward: Float[np.ndarray, " T"],
    element: Int[np.ndarray, " T"],
    drawn: tuple[Float[np.ndarray, "M ..."], ...],
) -> None:
    """Refuse a family whose parts do not fit: Bayes' rule p(x) p(r | x) = p(r) p(x | r), at any parameters x.

    Args:
        belief: about M elements, in float64.
        reward: rewards that the laws of their elements can give.
        element: of each reward.
        drawn: parameters of the elements.

    Raises:
        ValueError: the sides differ by more than rounding.
    """
    # p(x) p(r | x) on one side, p(r) p(x | r) on the other, in logarithms: any parameters x must give the same.
    cell_belief, *values = jax.tree.map(lambda x: np.asarray(x)[element], (belief, *drawn))
    # Statistics and posterior by the family's own methods: these are what is on trial.
    data = np.asarray(belief.absorb(belief.empty(), element, cell_belief.statistics(np.ones(reward.shape), reward)))
    joint = (*belief.prior_terms(drawn), *cell_belief.log_density(reward, tuple(values)))
    split_up = (*belief.after(data).prior_terms(drawn), belief.log_marginal(data), cell_belief.log_constant(reward))
    # Rounding is that of the largest terms: the tolerance grows with the sum of their sizes.
    joint_sum, split_sum = (sum(float(np.asarray(term).sum()) for term in terms) for terms in (joint, split_up))
    size = sum(float(np.abs(term).sum()) for term in (*joint, *split_up))
    if not abs(joint_sum - split_sum) <= 1e-9 * (1.0 + size):
        raise ValueError(
            f"{type(belief).__name__}: prior times likelihood is {joint_sum:.12g} in logarithms, marginal times "
            f"posterior {split_sum:.12g}: log_density, log_constant, log_marginal, statistics or after is wrong, or no "
            "conjugacy"
        )


def reward_laws() -> Laws:
    """Types of reward laws that have a family, and their parameters."""
    return {law: parameters for family in FAMILIES for law, parameters in family.laws.items()}


def families_of(law: str | type | None) -> tuple[type[RewardBelief], ...]:
    """The families that have a type of law, by the type or its name."""
    return tuple(f for f in FAMILIES if any(law in (kind, kind.__name__) for kind in f.laws))


# Statistics that are moments, stacked in one array [..., 3]: count, mean, sum of squared deviations. One array, because
# a step inside a compiled loop then costs one gather and one scatter; deviations, because a sum of squares cancels in
# float32.


_support_of_family = cache(support_of)
"""It is asked for at every update."""


def statistics(count: RealLike, mean: RealLike, ss: RealLike) -> Float[AnyArray, "*cells 3"]:
    """Stack count, mean and sum of squared deviations, which broadcast."""
    return xp.stack(xp.broadcast_arrays(count, mean, ss), axis=-1)


def split(
    data: Float[AnyArray, "*cells 3"],
) -> tuple[Float[AnyArray, "*cells"], Float[AnyArray, "*cells"], Float[AnyArray, "*cells"]]:
    """Count, mean, sum of squared deviations."""
    return data[..., 0], data[..., 1], data[..., 2]


def merge_statistics(
    one: Float[AnyArray, "*cells 3"], other: Float[AnyArray, "*cells 3"]
) -> Float[AnyArray, "*cells 3"]:
    """The statistics of both samples together."""
    return statistics(*merge_moments(split(one), split(other)))


def pool(index: Int[AnyArray, "*N"], data: Float[AnyArray, "*N 3"], size: int) -> Float[AnyArray, "_ 3"]:
    """[size 3]: `data` [*N 3] merged by `index` in 0 .. size - 1; those of the index `size` are dropped."""
    zero, inside = np.zeros(size, data.dtype), xp.minimum(index, size - 1)
    # Index `size` is out of range and dropped: masked rewards are sent there.
    return statistics(*pool_moments(split(data), partial(add_at, zero, index), partial(pick, index=inside)))


def absorb(
    table: Float[AnyArray, "M 3"], index: IntScalar | Int[AnyArray, "..."], data: Float[AnyArray, "*N 3"]
) -> Float[AnyArray, "M 3"]:
    """`table` [M 3] with `data` merged in at `index`: one cell in place for a scalar index, pooled for a block."""
    # NumPy has no scatter of merged moments: pooled first, merged with the whole table then.
    on_host = not has_jax_array(table, index, data)
    if on_host or np.ndim(index):
        table = table if on_host else jnp.asarray(table)
        return merge_statistics(table, pool(xp.ravel(index), data.reshape(-1, 3).astype(table.dtype), table.shape[0]))
    cells = jnp.asarray(table)
    merged = merge_statistics(cells.at[index].get(mode="clip"), data.astype(cells.dtype))
    return cells.at[index].set(merged, mode="drop")


# What several families compute with


def over(numerator: Cells | float, excess: Cells, otherwise: float) -> Cells:
    """numerator / excess where the excess is positive: a moment that exists there alone."""
    # Two `where`: no division by zero in either branch, for derivatives.
    exists = xp.asarray(excess) > 0
    return xp.where(exists, numerator / xp.where(exists, excess, 1.0), otherwise)


_STIRLING = tuple(b / d for b, d in ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156)))


def log_rising(a: RealLike, n: RealLike) -> Float[AnyArray, "..."] | np.floating:
    """log Gamma(a + n) - log Gamma(a) for a > 0, n >= 0, without the cancellation of the literal difference.

    From a = 16 on the difference of two Stirling series (rounding error only); below, the literal one, where nothing
    cancels. (`jax.scipy.special.betaln` is off by 1e-6 in float64.)
    """
    # Both branches of a `where` are evaluated (and differentiated): each gets arguments that are safe for it.
    large = xp.asarray(a) >= 16.0
    large_a = xp.where(large, a, 16.0)
    stirling = (
        (large_a - 0.5) * xp.log1p(n / large_a) + n * xp.log(large_a + n) - n + _series(large_a + n) - _series(large_a)
    )
    small_a = xp.where(large, 1.0, a)
    return xp.where(large, stirling, xp.gammaln(small_a + n) - xp.gammaln(small_a))


def _series(z: Float[AnyArray, "..."] | np.floating) -> Float[AnyArray, "..."] | np.floating:
    """log Gamma(z) less its leading terms, for z >= 16."""
    # Horner's rule in 1 / z^2 over the Stirling coefficients.
    square = z**-2.0
    total = xp.zeros_like(z)
    for coefficient in reversed(_STIRLING):
        total = total * square + coefficient
    return total / z


def sum_terms(terms: Terms) -> Float[np.ndarray, "..."]:
    """The log density that terms add up to."""
    total = np.zeros(())
    for term in terms:
        total = total + np.asarray(term, np.float64)
    return total


GAMMAS, NORMALS = 2, 3
"""Purposes of the random numbers of rewards (see `ElementStreams`)."""


@dataclass(frozen=True, eq=False)
class RewardStreams:
    """The random numbers of the elements of a belief: each kind from generators of its own, made where it is used.

    Args:
        key: of the draws.
        elements: the numbers of the elements.
    """

    key: PRNGKeyArray
    elements: Int[np.ndarray, " M"]

    @cached_property
    def gamma(self) -> ElementStreams:
        """For gamma variables."""
        return ElementStreams(self.key, GAMMAS, self.elements)

    @cached_property
    def normal(self) -> ElementStreams:
        """For normal numbers."""
        return ElementStreams(self.key, NORMALS, self.elements)


def whole_quantile(
    uniform: Float[np.ndarray, "..."], below: Callable[[np.ndarray], np.ndarray]
) -> Float[np.ndarray, "..."]:
    """The smallest of 0, 1, 2, ... at which a distribution function is at least `uniform`, by bisection."""
    low, high = np.full(uniform.shape, -1.0), np.zeros(uniform.shape)
    # Double the upper end until it is high enough, then halve the interval: at least P, by exact comparisons.
    while (short := below(high) < uniform).any():
        low, high = np.where(short, high, low), np.where(short, 2.0 * high + 1.0, high)
    while True:
        middle = np.floor(low + (high - low) / 2)
        if not ((low < middle) & (middle < high)).any():
            return high
        short = below(np.maximum(middle, 0.0)) < uniform
        low, high = np.where(short, middle, low), np.where(short, high, np.maximum(middle, 0.0))


# Conjugate sites: their densities, by NumPy and scipy, and draws of them, by JAX and by NumPy


def normal_terms(x: Cells, loc: Cells, scale: Cells) -> Terms:
    """Log density of a normal law."""
    # The size of a difference of large numbers is theirs.
    rounding = 1e-16 * (x**2 + loc**2) / scale**2
    # The fourth pair cancels in the sum, and tells the sum of sizes how large its rounding is.
    return -0.5 * ((x - loc) / scale) ** 2, -np.log(scale) - 0.5 * np.log(2.0 * np.pi), rounding, -rounding


def gamma_terms(x: Cells, concentration: Cells, rate: Cells) -> Terms:
    """Log density of a gamma law."""
    return concentration * np.log(rate), -gammaln(concentration), xlogy(concentration - 1.0, x), -rate * x


def beta_terms(x: Cells, one: Cells, zero: Cells) -> Terms:
    """Log density of a beta law."""
    return xlogy(one - 1.0, x), xlog1py(zero - 1.0, -x), gammaln(one + zero), -gammaln(one), -gammaln(zero)


def dirichlet_terms(x: Cells, concentration: Cells) -> Terms:
    """Log density of rows [..., K], each term summed over the row."""
    return (
        xlogy(concentration - 1.0, x).sum(-1),
        gammaln(concentration.sum(-1)),
        -gammaln(concentration).sum(-1),
    )


def sample_normal(key: PRNGKeyArray, loc: Cells, scale: Cells) -> Cells:
    """Normal numbers, by JAX."""
    loc = jnp.asarray(loc)
    return loc + scale * jax.random.normal(key, loc.shape, loc.dtype)


def draw_normal(streams: RewardStreams, num: int, loc: Cells, scale: Cells) -> Float[np.ndarray, "num M"]:
    """The same by NumPy, `num` of each."""
    return np.asarray(loc) + np.asarray(scale) * streams.normal.normals(num)


def sample_gamma(key: PRNGKeyArray, concentration: Cells, rate: Cells) -> Cells:
    """Gamma variables, by JAX."""
    # Gamma(a, 1) / b.
    return gamma(key, jnp.asarray(concentration)) / rate


def draw_gamma(streams: RewardStreams, num: int, concentration: Cells, rate: Cells) -> Float[np.ndarray, "num M"]:
    """The same by NumPy, `num` of each."""
    return np.exp(streams.gamma.log_gammas(num, np.asarray(concentration))) / rate


def sample_beta(key: PRNGKeyArray, one: Cells, zero: Cells) -> Cells:
    """Beta variables, by JAX: each the first entry of a Dirichlet row of two."""
    return dirichlet(key, jnp.stack(jnp.broadcast_arrays(one, zero), axis=-1))[..., 0]


def draw_beta(streams: RewardStreams, num: int, one: Cells, zero: Cells) -> Float[np.ndarray, "num M"]:
    """The same by NumPy, `num` of each."""
    both = np.broadcast_arrays(np.asarray(one, np.float64), np.asarray(zero, np.float64))
    return draw_dirichlet(streams, num, np.stack(both, -1))[..., 0]


def sample_dirichlet(key: PRNGKeyArray, concentration: Cells) -> Cells:
    """Dirichlet rows [..., K], by JAX."""
    return dirichlet(key, jnp.asarray(concentration))


def draw_dirichlet(streams: RewardStreams, num: int, concentration: Cells) -> Float[np.ndarray, "num M K"]:
    """The same by NumPy, `num` of each."""
    # Rows of K gammas each, flattened: `dirichlets` normalises row by row.
    concentration = np.asarray(concentration)
    *lead, size, values = concentration.shape
    flat, small = concentration.reshape(*lead, -1), np.ones(size, bool)
    rows = streams.gamma.dirichlets(num, flat, np.arange(0, size * values + 1, values), small)
    return rows.reshape(num, size, values)


class ConjugateSite(NamedTuple):
    """A family of sites that is conjugate for a parameter of some law.

    Args:
        fields: of a belief, that are the parameters of the site.
        terms: (value, parameters) -> its log density as terms.
        sample: (key, parameters) -> a draw, by JAX.
        draw: (streams, number, parameters) -> so many draws, by NumPy.
    """

    fields: tuple[str, ...]
    terms: Callable[..., Terms]
    sample: Callable[..., Cells]
    draw: Callable[..., Float[np.ndarray, "num *cells"]]


CONJUGATE_SITES: dict[str, ConjugateSite] = {
    "Beta": ConjugateSite(("concentration1", "concentration0"), beta_terms, sample_beta, draw_beta),
    "Gamma": ConjugateSite(("concentration", "rate"), gamma_terms, sample_gamma, draw_gamma),
    "Normal": ConjugateSite(("loc", "scale"), normal_terms, sample_normal, draw_normal),
    "Dirichlet": ConjugateSite(("concentration",), dirichlet_terms, sample_dirichlet, draw_dirichlet),
}
"""By the name of the family of sites."""
