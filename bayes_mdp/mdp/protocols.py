"""The interfaces between packages: abilities of a posterior, policies. (The contract of an agent is in `agent`.)"""

from typing import NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.mdp.data.folded_log import FoldedLog
from bayes_mdp.mdp.data.transitions import Log, Transitions
from bayes_mdp.mdp.hypothesis import MDP, SparseMDP
from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.mdp.space import StateActionSpace
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar, PolicyLabels, RealScalar

WHOLE = 100.0  # from here on weights are printed as whole numbers


class PriorWeight(NamedTuple):
    """What the prior of every pair weighs, before any data.

    Args:
        transitions: the weight in observations: the concentration of the row, summed over its outcomes; of unknown
            rewards the expected variance of one of them over the variance of their mean, the number of rewards that
            the prior's mean weighs. Of both the one that says less; nan: not known; inf: nothing is unknown.
        is_empty: whether it says as good as nothing: it weighs at most one observation for each possible outcome (of a
            reward: value; one where any number is possible), or its weight is not known. The priors that are taken
            where nothing is known weigh no more: flat (one for each outcome), Jeffreys' (half), Perks' (one in all).
    """

    transitions: Float[AnyArray, "*H S A"]
    is_empty: Bool[AnyArray, "*H S A"]


def describe_weight(weight: Float[np.ndarray, " pairs"]) -> str:
    """What priors weigh, in words: "3 transitions", "2 to 1,734 transitions"; empty where one is not known."""
    if not len(weight) or not np.isfinite(weight).all():
        return ""
    low, high = _number(float(weight.min())), _number(float(weight.max()))
    several = low if low == high else f"{low} to {high}"
    return f"{several} transition{'' if several == '1' else 's'}"


def _number(weight: float) -> str:
    return f"{weight:,.0f}" if weight >= WHOLE else f"{weight:.3g}"


@runtime_checkable
class CanSample(Protocol):
    """Draws hypotheses."""

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> MDP | SparseMDP:
        """One draw, or a batch with leading axes `sample_shape` on every array.

        Args:
            key: of the draws.
            sample_shape: leading axes of the batch; (): one draw.
        """
        ...


@runtime_checkable
class CanMean(Protocol):
    """Has a mean."""

    def mean_mdp(self) -> MDP | SparseMDP:
        """The posterior mean of transition probabilities and rewards."""
        ...


@runtime_checkable
class CanCount(Protocol):
    """Counts its data."""

    def visit_counts(self) -> Float[AnyArray, "*H S A"]:
        """Number of observed transitions from every pair."""
        ...


@runtime_checkable
class CanWeighPrior(Protocol):
    """Says how much of it stems from the prior."""

    def prior_share(self) -> Float[AnyArray, "*H S A"]:
        """The prior's part in the belief about each pair, from 0 to 1: that of the concentration of its row.

        1 where the reward is unknown and the pair was never tried; nan where nothing about the pair is unknown. What
        a row has from data of other pairs (`CanBorrow`) is not the prior's.
        """
        ...


@runtime_checkable
class CanWeighRewards(Protocol):
    """Says how much of its mean rewards stems from their prior."""

    def reward_share(self) -> Float[AnyArray, "*H S A"] | None:
        """The prior's part in the mean reward of each pair, from 0 to 1: pseudo-observations over these and the data.

        Where rewards depend on the outcome, the mean over outcomes, by their probabilities; 1 where no reward was seen;
        nan where the mean is known. None: it is not known, as where rewards are draws.
        """
        ...

    def data_reward(self) -> Float[AnyArray, "*H S A"] | None:
        """The mean reward of each pair by data alone, that is, as the prior of the rewards weighs less and less.

        Where no reward was seen: the mean of all that were. None: it is not known.
        """
        ...


@runtime_checkable
class CanCountPrior(Protocol):
    """Says how many observations its prior is worth."""

    def prior_weight(self) -> PriorWeight:
        """The weight of the prior of each pair."""
        ...


@runtime_checkable
class CanBorrow(Protocol):
    """Says how much of each row stems from data of other pairs."""

    def borrowed_share(self) -> Float[AnyArray, "*H S A"]:
        """The largest share of each row's mean that can stem from data of other pairs; nan where the row is known."""
        ...


@runtime_checkable
class CanUpdate(Protocol):
    """Learns from data inside a compiled loop."""

    def update(self, transitions: Transitions, weight: ArrayLike = 1.0) -> Self:
        """The posterior after one transition or a block; `weight` (scalar or [N]) masks a fixed buffer.

        Args:
            transitions: one (scalars) or N of them.
            weight: one number or [N]; where it is zero, a transition is not looked at.
        """
        ...


@runtime_checkable
class HasVariances(Protocol):
    """Has variances in closed form."""

    @property
    def independent_rows(self) -> bool:
        """Whether the rows of different pairs are independent: an assumption of the uncertainty theorems."""
        ...

    @property
    def rewards_by_outcome(self) -> bool:
        """Whether rewards depend on (s, a, s'), not on (s, a) alone: the forms of the equations differ."""
        ...

    def reward_variance(self) -> Float[AnyArray, "*H S A"]:
        """Epistemic variance of the mean reward."""
        ...

    def expected_reward_variance(self) -> Float[AnyArray, "*H S A"]:
        """Epistemic variance of the mean reward given the outcome, averaged over outcomes."""
        ...

    def bellman_variance(self, values: Float[Array, "*H S"], discount: RealScalar) -> Float[AnyArray, "*H S A"]:
        """Variance over the posterior of sum_s' P(s'|s,a) (r(s,a,s') + discount values(s')), covariances included.

        Args:
            values: of the next states, in units of the return.
            discount: the factor of `values`.
        """
        ...

    def transition_variance(self, values: Float[Array, "*H S"], discount: RealScalar) -> Float[AnyArray, "*H S A"]:
        """The part of `bellman_variance` that unknown rows alone cause: every mean reward at its expectation.

        Args:
            values, discount: as of `bellman_variance`.
        """
        ...

    def variance_factor(self, form: str) -> Float[AnyArray, "*H S A"]:
        """The factor of the uncertainty Bellman equation: "ratio", "dirichlet", "twice", "printed" or "count".

        Args:
            form: one of these names.
        """
        ...

    def row_bound(self, values: Float[Array, "*H S"], discount: RealScalar) -> Float[AnyArray, "*H S A"]:
        """The largest |x(s')| that a row multiplies: x = values, or r + discount values (`rewards_by_outcome`).

        Args:
            values, discount: as of `bellman_variance`.
        """
        ...


class RowIntervals(NamedTuple):
    """Intervals of transition probabilities.

    Args:
        lower, upper: [*H S A O], probabilities, their ends; zero where an outcome is impossible, equal where known.
        entries: how many probabilities are unknown.
    """

    lower: Float[AnyArray, "*H S A O"]
    upper: Float[AnyArray, "*H S A O"]
    entries: int


@runtime_checkable
class CanBoundRows(Protocol):
    """Has intervals of its rows in closed form."""

    def row_intervals(self, probability: float, floor: float) -> RowIntervals:
        """Intervals that hold all rows at once with at least this posterior probability. Host side.

        Args:
            probability: between 0 and 1.
            floor: the least lower end of a probability that is unknown; what it cuts off is counted.
        """
        ...


@runtime_checkable
class CanPredict(Protocol):
    """Has the variance of the next transition, the noise of rewards included."""

    def predictive_variance(self, values: Float[Array, "*H S"], discount: RealScalar) -> Float[AnyArray, "*H S A"]:
        """Variance of one observed reward + discount values(next state) under the posterior predictive.

        Args:
            values: of the next states, in units of the return.
            discount: the factor of `values`.
        """
        ...


@runtime_checkable
class CanInform(Protocol):
    """Has the expected information of an observation."""

    def expected_information(self) -> Float[AnyArray, "*H S A"]:
        """Mutual information of the outcome of one more transition from a pair and what is unknown, in nats."""
        ...


@runtime_checkable
class CanSplit(Protocol):
    """A mixture of posteriors, each of them with independent rows."""

    @property
    def components(self) -> "Posterior":
        """One posterior whose arrays have a leading axis K: `jax.vmap` a function over it."""
        ...

    @property
    def weights(self) -> Float[AnyArray, " K"]:
        """Probabilities of the components."""
        ...


@runtime_checkable
class NamesSharedParameters(Protocol):
    """Names the rows that are not independent."""

    @property
    def shared_parameters(self) -> str | None:
        """Which rows or cells share parameters, as a part of a sentence; None: none do (not checked inside a trace)."""
        ...


@runtime_checkable
class CanRefit(Protocol):
    """A belief by weighted draws, whose effective sample size falls with new data: it can be inferred anew from all."""

    def needs_refit(self) -> Bool[Array, ""]:
        """Whether the effective sample size of its weights has fallen below its own threshold. Traceable."""
        ...

    def refit(self, key: PRNGKeyArray) -> Self:
        """The same belief, inferred anew: same structure, shapes and dtypes, equal weights. Traceable, and slow.

        Args:
            key: of the sampler.
        """
        ...


@runtime_checkable
class CanRefitOnHost(Protocol):
    """A belief that says how its `refit` is made."""

    @property
    def refits_on_host(self) -> bool:
        """Whether it runs in NumPy, and cannot be traced."""
        ...


@runtime_checkable
class CanThin(Protocol):
    """A belief by weighted draws whose number can be reduced."""

    def thinned(self, key: PRNGKeyArray, num: int) -> Self:
        """The same belief by `num` draws of equal weight. Traceable.

        Args:
            key: of the choice of draws.
            num: how many are left.
        """
        ...


@runtime_checkable
class CanSampleBackup(Protocol):
    """Draws a hypothesis layer by layer while it is planned with (independent steps)."""

    def sample_backup(self, key: PRNGKeyArray, values: Float[Array, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        """One layer of a fresh draw applied to `values`: sum_s' P(s'|s,a) (r + values(s')).

        Args:
            key: of the draw of this layer.
            values: of the next states.
            layer: step of the episode, from 0.
        """
        ...


@runtime_checkable
class CanSampleLazily(Protocol):
    """Hands out the arrays from which a simulation draws the rows and rewards that it meets, and no others."""

    def lazy_belief(self, key: PRNGKeyArray, num_draws: int, reward_bins: int) -> LazyBelief:
        """The belief as plain arrays. Traceable.

        Args:
            key: of the draws of rewards whose belief has no finite urn.
            num_draws: how many of them.
            reward_bins: into how many bins such a reward is sorted when a simulation learns from it; 1: it does not.
        """
        ...


@runtime_checkable
class CanSampleNext(Protocol):
    """Draws rows layer by layer while they are planned with, wider or with an optimistic outcome on request."""

    def sample_next(
        self,
        key: PRNGKeyArray,
        values: Float[Array, " S"],
        layer: IntScalar,
        inflation: RealScalar = 1.0,
        pseudo: tuple[RealScalar, RealScalar] | None = None,
    ) -> Float[Array, "S A"]:
        """One draw of sum_s' P(s'|s,a) values(s') at step `layer`; rewards do not enter, the value of an end is zero.

        One key stands for one draw of the rows of all steps, whatever `values`: rows that are shared (by steps, or
        otherwise) are the same under it; all other rows are drawn independently.

        Args:
            key: of the draw of all steps.
            values: of the next states.
            layer: step of the episode, from 0.
            inflation: greater than 0; every concentration, prior and counts, is divided by it.
            pseudo: (count, value): unknown rows have one more outcome, of this concentration (divided as well) and
                this value. Known rows have none.
        """
        ...


@runtime_checkable
class CanExpectNext(Protocol):
    """Applies its mean rows to values layer by layer (independent steps), cheaper than by `mean_mdp`."""

    def expected_next(self, values: Float[Array, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        """sum_s' E[P(s' | s, a)] values(s') at step `layer`; the value of an end is zero.

        Args:
            values: of the next states.
            layer: step of the episode, from 0.
        """
        ...


@runtime_checkable
class Policy(Protocol):
    """A rule of behaviour, and a likelihood of behaviour."""

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar) -> Int[Array, ""]:
        """An action for a state.

        Args:
            key: of the choice.
            state: index of the state.
            step: of the episode, from 0; rules that do not depend on it ignore it.
        """
        ...

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar) -> Float[Array, ""]:
        """Log-probability of an action in a state; -inf where it is never taken.

        Args:
            state, step: as of `act`.
            action: index of the action.
        """
        ...


PolicyLike: TypeAlias = Policy | ArrayLike
"""What names a policy: Int[*H S] (an action for every state), Float[*H S A] (probabilities), or a `Policy`."""

PolicyOrLabels: TypeAlias = PolicyLike | PolicyLabels | Log | FoldedLog
"""The same, or by the labels of a space: state -> action, or state -> {action: probability}; a list of such mappings,
one for each step, where the objective is `Episodic`. `StateActionSpace.policy` reads it. Or a log: what it did (see
`behaviour_policy`)."""


@runtime_checkable
class Posterior(CanSample, CanMean, CanCount, CanUpdate, NamesSharedParameters, Protocol):
    """What `infer` returns: a belief about an MDP after data, whatever the way it was inferred.

    Every posterior has these members; some can do more (`HasVariances`, `CanInform`, `CanSplit`, `CanRefit`, ...):
    see `isinstance`. `str` of it is a summary for a person.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> isinstance(posterior, bm.mdp.Posterior), isinstance(posterior, bm.mdp.HasVariances)
        (True, True)
    """

    @property
    def space(self) -> StateActionSpace:
        """Sizes, names, masks."""
        ...

    @property
    def method(self) -> str:
        """How it was inferred, in one word: "conjugate", "nuts", ..."""
        ...

    @property
    def independent_rows(self) -> bool:
        """Whether the rows of different pairs are independent."""
        ...

    def reward_variance(self) -> Float[AnyArray, "*H S A"]:
        """Epistemic variance of the mean reward."""
        ...

    def bellman_variance(self, values: Float[Array, "*H S"], discount: RealScalar) -> Float[AnyArray, "*H S A"]:
        """Variance over the posterior of sum_s' P(s'|s,a) (r(s,a,s') + discount values(s')), covariances included.

        Args:
            values: of the next states, in units of the return.
            discount: the factor of `values`.
        """
        ...

    def check(self, transitions: Transitions, weight: ArrayLike = 1.0) -> None:
        """Refuse data that it cannot learn from. Host side.

        Args:
            transitions: the data.
            weight: one number or [N]; transitions of weight zero are not looked at.

        Raises:
            ValueError, TypeError: one sentence.
        """
        ...

    def __str__(self) -> str:
        """A summary: how it was inferred, from what, and how certain it is."""
        ...
