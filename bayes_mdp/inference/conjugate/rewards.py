"""`Rewards`: what the belief about the rewards must do, whatever serves it; `KnownRewards`: nothing is unknown."""

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Self, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float, Int, PRNGKeyArray, Real

from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.mdp import Counts, StateActionSpace
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.models.reward_laws import law_at, law_variance
from bayes_mdp.models.reward_support import RewardSupport, anything, make_support, support_of
from bayes_mdp.models.sufficient_statistics import RewardSums
from bayes_mdp.numerics.numpy_or_jax import pick, xp
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, IntScalar, LogDensity, RealScalar
from bayes_mdp.utils.validation import check_finite, require

Cells = Float[AnyArray, "*cells"]
Outcome = IntScalar | Int[AnyArray, "..."]
"""Index of an outcome, or of many."""
Weight = Float[AnyArray, "*N"]
SiteDraws = tuple[Real[AnyArray, "..."], ...]
"""One draw of the unknown parameters; of a belief by draws the number of one."""
Drawer: TypeAlias = Callable[[int, Int[np.ndarray, " N"] | None], Float[np.ndarray, "N cells"]]
"""(number, component of each draw) -> so many further draws of mean rewards, by NumPy."""

ComponentPrior: TypeAlias = Callable[[Int[np.ndarray, " N"], Int[np.ndarray, " M"]], RewardBelief]
"""(components, elements) -> the beliefs about these elements before data, arrays [N M]."""


class Rewards(Module):
    """The belief about the law of one reward in every cell: [*H S A], or [*H S A O] where it depends on the outcome.

    It is independent of the belief about the rows. Every variance is epistemic, of mean rewards.
    """

    by_outcome: eqx.AbstractVar[bool]
    independent: eqx.AbstractVar[bool]
    """Whether no parameter is used by two pairs."""
    distinct: eqx.AbstractVar[bool]
    """Whether no parameter is used by two cells."""
    shape: eqx.AbstractVar[tuple[int, ...]]
    law: ClassVar[type[dist.Distribution] | None]
    """The family of the law of one reward; None: rewards are numbers."""
    learns: ClassVar[bool] = True
    """Whether data change this belief."""
    in_closed_form: ClassVar[bool] = True
    """Whether it is a closed form, with a prior of its own; False: draws of the posterior."""
    has_constant: ClassVar[bool] = False
    """Whether `observe` adds to the constant of the evidence."""
    has_moments: ClassVar[bool] = True
    """Whether `Counts`, which hold moments of the rewards, are data for this belief."""

    @property
    def known_law(self) -> dist.Distribution | None:
        """The law of one reward where nothing of it is unknown; None: such rewards are numbers, or there are none."""
        return None

    @abc.abstractmethod
    def mean(self) -> Cells:
        """Expected mean reward; nan where it does not exist."""

    @abc.abstractmethod
    def variance(self) -> Cells:
        """Variance of the mean reward; inf where it does not exist."""

    @abc.abstractmethod
    def noise(self) -> Cells:
        """Expected variance of one reward around its mean."""

    def prior_weight(self) -> Cells:
        """Number of rewards that the prior's mean weighs; nan where it is not known."""
        if not self.in_closed_form:
            # Draws have no prior that could be weighed.
            return xp.full(self.shape, np.nan)
        # The mean after n rewards is (w m + n average) / (w + n), and w the noise over the variance of the mean.
        before = self.before_data()
        # Infinite variance: the prior has no weight that is known.
        noise, variance = xp.asarray(before.noise()), xp.asarray(before.variance())
        return xp.where(xp.isfinite(variance), noise / variance, np.nan)

    @abc.abstractmethod
    def prior_share(self) -> Cells | None:
        """The prior's part in the mean reward of each cell, from 0 to 1: pseudo-observations over these and the data.

        nan where the mean is known, 1 where no reward was seen. None: it is not known (rewards are draws).
        """

    @abc.abstractmethod
    def data_mean(self) -> Cells | None:
        """Expected mean reward as the prior weighs less and less; where none was seen, the mean of all rewards.

        Where nothing at all was seen that of the prior. None: it is not known (rewards are draws).
        """

    def flat_weight(self) -> Cells:
        """Number of rewards that a prior without a preference weighs: one for each possible value, if few; else one."""
        return xp.ones(self.shape)

    @abc.abstractmethod
    def sample_sites(self, key: PRNGKeyArray) -> SiteDraws:
        """One draw of the unknown parameters; `table_of` and `gather_from_draw` say what follows."""

    @abc.abstractmethod
    def table_of(self, drawn: SiteDraws) -> RewardTable:
        """The law of one reward in every cell for such a draw."""

    @abc.abstractmethod
    def gather_from_draw(self, drawn: SiteDraws) -> tuple[Cells, Cells]:
        """Mean and variance of one reward in every cell for such a draw."""

    def sample(self, key: PRNGKeyArray) -> Cells:
        """One draw of the mean rewards."""
        return self.gather_from_draw(self.sample_sites(key))[0]

    @abc.abstractmethod
    def drawer(self, key: PRNGKeyArray, place: Index, prior: ComponentPrior | None = None) -> Drawer:
        """A stream of draws of the mean rewards of some cells, by NumPy; a cell has the same whichever others have.

        Args:
            key: of the draws.
            place: index of the cells.
            prior: of the components of a mixture; None: one prior.
        """

    @abc.abstractmethod
    def variance_of_average(self, probs: Float[AnyArray, "*H S A O"]) -> Float[AnyArray, "*H S A"]:
        """Var[sum_o probs_o r_o] of each pair, where rewards depend on the outcome."""

    @abc.abstractmethod
    def shared_parameters(self, space: StateActionSpace) -> str | None:
        """The first two pairs that share a parameter, and its site, in words; None: no two do. Host side."""

    def place(self, cell: Index, outcome: Outcome) -> Index:
        """Index of the cells of the law."""
        return (*cell, outcome) if self.by_outcome else tuple(cell)

    @abc.abstractmethod
    def observe(self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight) -> tuple[Self, RealScalar]:
        """The belief after rewards of (step,) state, action `cell`, and what they add to the constant of the evidence.

        Args:
            cell: one integer array for each axis.
            outcome: of each transition.
            reward: of each transition.
            weight: its likelihood is raised to that power; zero: it is not looked at.
        """

    @abc.abstractmethod
    def observe_counts(self, counts: Counts, weight: RealScalar) -> tuple[Self, RealScalar]:
        """Likewise after the moments of rewards in every cell of the law."""

    @abc.abstractmethod
    def log_predictive(self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight) -> LogDensity:
        """log E[density^weight] of each reward by itself; zero where the weight is zero."""

    @abc.abstractmethod
    def log_evidence(self) -> RealScalar:
        """Log density of the observed rewards, as a sequence, less what `observe` added to the constant."""

    @abc.abstractmethod
    def support(self) -> RewardSupport:
        """Which rewards the law of every cell can give, for some values of what is unknown. Host side."""

    def check_rewards(
        self,
        name: str,
        cell: Index,
        outcome: Int[np.ndarray, "*N"],
        reward: Float[np.ndarray, "*N"],
        seen: Bool[np.ndarray, "*N"],
    ) -> None:
        """Refuse rewards that their cells cannot give, or of density zero under a known law. Host side.

        Args:
            name: of the rewards in the message.
            cell, outcome: of each reward.
            reward: numbers.
            seen: whether they are looked at.

        Raises:
            ValueError: names the first one that was seen.
        """
        # At the cell, and at the outcome where rewards depend on it.
        self.support().at(cell, outcome).check(name, reward, seen)
        if self.known_law is not None:
            # Weight one where a reward was seen; zero elsewhere.
            log_density = np.asarray(self.log_predictive(cell, outcome, reward, seen.astype(float)))
            require(log_density == -np.inf, name, reward, "a reward that the law of its state and action can give")

    @abc.abstractmethod
    def before_data(self) -> Self:
        """The belief before any data."""

    @abc.abstractmethod
    def merge(self, other: "Rewards") -> Self:
        """The belief after the data of both, which are disjoint, under one prior."""

    @abc.abstractmethod
    def discount_data(self, factor: RealScalar) -> Self:
        """The belief after the same data, each reward counted `factor` times."""

    @abc.abstractmethod
    def at_step(self, step: IntScalar) -> "Rewards":
        """The belief about the rewards of one step of the horizon."""

    def reward_sums(self) -> RewardSums | None:
        """The law of one reward; count, mean and squared deviations of groups that hold all rewards.

        None: they are not kept. Host side.
        """
        return None

    def num_rewards_observed(self) -> float | None:
        """Number of observed rewards; None where nothing is learnt from them."""
        return None

    def problems(self) -> list[str]:
        """Problems to know of before it is used, one sentence each; empty: none found. Host side."""
        return []


class KnownRewards(Rewards):
    """Rewards that are known numbers, or have a known law: nothing is learnt.

    Args:
        known: [*H S A], or [*H S A O] where the reward depends on the outcome (`by_outcome`): mean rewards.
        by_outcome: whether the last axis is the outcome.
        known_law: the law of one reward, without unknown parameters, in every cell; None: rewards are the numbers.
    """

    known: Cells
    by_outcome: bool = eqx.field(static=True, default=False)
    known_law: dist.Distribution | None = None  # type: ignore[override]
    learns: ClassVar[bool] = False
    # Known rewards share no parameter.
    independent: ClassVar[bool] = True  # type: ignore[override]
    distinct: ClassVar[bool] = True  # type: ignore[override]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of the cells."""
        return np.shape(self.known)

    @property
    def has_constant(self) -> bool:  # type: ignore[override]
        """Whether there is a law, which has a density."""
        return self.known_law is not None

    @property
    def law(self) -> type[dist.Distribution] | None:  # type: ignore[override]
        """The family of the known law; None: rewards are numbers."""
        return None if self.known_law is None else type(self.known_law)

    def shared_parameters(self, space: StateActionSpace) -> None:
        """None: known rewards share no parameter."""

    def mean(self) -> Cells:
        """The mean rewards."""
        return xp.asarray(self.known)

    def variance(self) -> Cells:
        """Zero."""
        return xp.zeros_like(self.mean())

    def prior_share(self) -> Cells:
        """nan: nothing is unknown."""
        return xp.full_like(self.mean(), np.nan)

    data_mean = mean  # known rewards need no data

    def noise(self) -> Cells:
        """Variance of one reward: zero but for that of a known law."""
        return xp.zeros_like(self.mean()) if self.known_law is None else law_variance(self.known_law)

    def sample_sites(self, key: PRNGKeyArray) -> SiteDraws:
        """Nothing; `key` is not used."""
        return ()

    def table_of(self, drawn: SiteDraws) -> RewardTable:
        """The rewards, or their known law."""
        # Numbers, or a law: one of the two.
        known = self.mean() if self.known_law is None else None
        return RewardTable(self.known_law, None if known is None else jnp.asarray(known), self.by_outcome)

    def gather_from_draw(self, drawn: SiteDraws) -> tuple[Cells, Cells]:
        """The mean rewards and their noise."""
        return self.mean(), self.noise()

    def drawer(self, key: PRNGKeyArray, place: Index, prior: ComponentPrior | None = None) -> Drawer:
        """The mean rewards; `key` is not used."""
        # Known numbers are the same in every draw: one row, repeated as a view.
        mean = np.asarray(self.known, np.float64)[place]
        return lambda num, _: np.broadcast_to(mean, (num, len(mean)))

    def variance_of_average(self, probs: Float[AnyArray, "*H S A O"]) -> Float[AnyArray, "*H S A"]:
        """Zero."""
        return xp.zeros(probs.shape[:-1])

    def observe(
        self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight
    ) -> tuple["KnownRewards", RealScalar]:
        """The same belief; a known law has a density, which belongs to the evidence."""
        # A constant of the evidence: no data change a known law.
        return self, self.log_predictive(cell, outcome, reward, weight).sum()

    def observe_counts(self, counts: Counts, weight: RealScalar) -> tuple["KnownRewards", RealScalar]:
        """The same belief. The density of rewards under a known law does not follow from their moments: nan."""
        # A known law has a density for each reward; moments do not hold it.
        seen = xp.any(xp.asarray(counts.reward_count) > 0)
        return self, xp.where(seen & (self.known_law is not None), np.nan, 0.0)

    def log_predictive(self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight) -> LogDensity:
        """weight times log density under the known law; zero where rewards are numbers."""
        if self.known_law is None:
            return xp.zeros(np.shape(weight))
        # A law by outcome is read at the outcome of each transition.
        law = law_at(self.known_law, self.place(cell, outcome))
        return density_by_weight(law, reward, weight)

    def log_evidence(self) -> RealScalar:
        """Zero: all of it is constant."""
        return xp.zeros(())

    def support(self) -> RewardSupport:
        """The known numbers, or what the known law can give."""
        if self.known_law is None:
            return make_support(np.asarray(self.known), np.asarray(self.known), by_outcome=self.by_outcome)
        # A law without a known support may give anything.
        return support_of(self.known_law, by_outcome=self.by_outcome) or anything(type(self.known_law).__name__)

    def before_data(self) -> "KnownRewards":
        """The same."""
        return self

    def merge(self, other: Rewards) -> "KnownRewards":
        """The same."""
        return self

    def discount_data(self, factor: RealScalar) -> "KnownRewards":
        """The same."""
        return self

    def at_step(self, step: IntScalar) -> "KnownRewards":
        """The rewards of one step."""
        known = pick(self.mean(), step)
        law = None if self.known_law is None else law_at(self.known_law, (step, *np.indices(known.shape)))
        # The law at a step: its index fixed, all others left.
        return replace(self, known=known, known_law=law)


def density_by_weight(law: dist.Distribution, reward: Weight, weight: Weight) -> LogDensity:
    """weight * log density, and 0 where the weight is 0; minus infinity outside the support."""
    assert law.support is not None  # the law of a number
    # A value outside the support is replaced before log_prob is asked: its nan would spread through `where` in
    # derivatives.
    value = xp.asarray(reward, int if law.is_discrete else float)
    # Weight zero masks a reward, even an impossible one; weight times minus infinity would be nan.
    taken, possible = xp.asarray(weight) != 0, law.support(xp.asarray(reward, float))
    inside = xp.where(taken & possible, value, law.support.feasible_like(value))
    return xp.where(taken, weight * xp.where(possible, law.log_prob(inside), -np.inf), 0.0)


def known_rewards(mean: ArrayLike, *, by_outcome: bool = False, law: dist.Distribution | None = None) -> KnownRewards:
    """Known rewards [*H S A], or [*H S A O] with `by_outcome`.

    Raises:
        ValueError: a reward is not finite.
    """
    mean = np.asarray(mean, float)
    check_finite("reward", mean)
    # pyright takes abstract variables for fields.
    return KnownRewards(known=mean, by_outcome=by_outcome, known_law=law)  # pyright: ignore[reportCallIssue]
