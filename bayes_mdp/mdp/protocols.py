# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""The interfaces between packages, in one file: read it first.

Five roles make every answer of this package. S states, A actions, H steps of an episode where rows depend on the step
(written *H: the axis may be missing); O outcomes of a pair: the next state, or the end of the episode as the last one.

| role | what it is | its members |
|---|---|---|
| `Objective` | what is maximised: `Discounted`, `Episodic`, `AverageReward`, `FirstExit` | records, no methods |
| `RewardLaw` | how an environment pays | `sample(key, cell, outcome)` -> Float[] |
| `Policy` | a rule of behaviour | `act(key, state, step)` -> Int[], `log_prob(state, action, step)` -> Float[] |
| `Posterior` | a belief about an MDP, as `infer` returns it | `sample` -> MDPs, `mean_mdp`, `visit_counts`, `update` |
| `Agent` | a belief goes in, a policy comes out | `replan`, `init` -> state, `plan` -> (policy, state) |

An MDP has `transition_probs` [*H S A O], the probabilities of the outcomes, and `reward` [*H S A], or [*H S A O] where
it depends on the outcome. A function asks a posterior or an agent for an ability (`CanSample`, `HasVariances`,
`Learner`, ...), never for its class: whatever has the members will do. All of these protocols can be asked by
`isinstance`.
"""

from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.mdp.agent import DecisionPoint, Problem
from bayes_mdp.mdp.data.folded_log import FoldedLog
from bayes_mdp.mdp.data.transitions import Log, Transitions
from bayes_mdp.mdp.hypothesis import MDP, SparseMDP
from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.mdp.space import StateActionSpace
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, IntScalar, PolicyLabels, RealScalar, Scalar

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
class HasBellmanVariance(Protocol):
    """Has the variances of one step."""

    @property
    def independent_rows(self) -> bool:
        """Whether the rows of different pairs are independent: an assumption of the uncertainty theorems."""
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


@runtime_checkable
class HasVariances(HasBellmanVariance, Protocol):
    """Has variances in closed form, and what the uncertainty Bellman equations need of them."""

    @property
    def rewards_by_outcome(self) -> bool:
        """Whether rewards depend on (s, a, s'), not on (s, a) alone: the forms of the equations differ."""
        ...

    def expected_reward_variance(self) -> Float[AnyArray, "*H S A"]:
        """Epistemic variance of the mean reward given the outcome, averaged over outcomes."""
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
one for each step, where the objective is `Episodic`. `StateActionSpace.policy` reads it. A Series or a DataFrame of
pandas, a DataArray of xarray are read by their labels, if they have some. Or a log: what it did (see
`behaviour_policy`)."""


@runtime_checkable
class Posterior(CanSample, CanMean, CanCount, CanUpdate, NamesSharedParameters, HasBellmanVariance, Protocol):
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

    def check(self, transitions: Transitions, weight: ArrayLike = 1.0) -> None:
        """Refuse data that it cannot learn from. Host side.

        Args:
            transitions: the data.
            weight: one number or [N]; transitions of weight zero are not looked at.

        Raises:
            ValueError, TypeError: one sentence.
        """
        ...


@runtime_checkable
class RewardLaw(Protocol):
    """The law of one reward of an environment."""

    def sample(self, key: PRNGKeyArray, cell: Index, outcome: IntScalar) -> Float[Array, ""]:
        """One reward of a transition.

        Args:
            key: of the draw.
            cell: (step,) state, action: indices.
            outcome: index of the next state; S for an end.
        """
        ...


P_contra = TypeVar("P_contra", contravariant=True)


@runtime_checkable
class Agent(Protocol[P_contra]):
    """A belief goes in, a policy comes out: what `bm.run`, `bm.Actor` and `bm.compare` take.

    An agent is an `eqx.Module` that holds hyperparameters and nothing else. Three members are required:

    * `replan`, an attribute: when to plan. None (before every episode under `Episodic`, every 20 steps otherwise), a
      number k (every k steps), "episode", "doubling" (when the visits of a pair have doubled), a function of the
      `ReplanContext`, or a rule of `bayes_mdp.agents` such as `Geometric(1.5)`. The first step is always planned.
    * `init(key, problem)`: the agent's own state before any plan, any tree of arrays; None for an agent without one.
    * `plan(key, problem, state, belief)`: (policy, next state), whenever `replan` says so.

    Between two plans the policy acts and the belief learns: `belief.update` is called by the loop, not by the agent.
    `problem` is a `Problem`: `problem.space` has the sizes S and A, H where rows depend on the step, and the legal
    actions; `problem.objective` says what is maximised; `problem.initial` is Float[S] or None. `belief` is a posterior
    (see `Posterior`): an agent asks for abilities (`CanSample`, `CanMean`, ...), never for a class, and `P_contra` is
    the type of those that `plan` needs. A policy is anything with `act` and `log_prob` (see `Policy`);
    `bayes_mdp.agents` has ready ones: `Greedy(q)`, `Boltzmann(q, temperature)`, `EpsilonGreedy(q, epsilon)`, with q
    Float[S, A], or Float[H, S, A] where it depends on the step.

    `init`, `plan` and the policy are traced by JAX, for all seeds at once: arrays in, arrays out, no Python branch on a
    number. The next state has the structure, shapes and dtypes of the one before, the policy those of the last plan.
    Strings, functions and sizes among the hyperparameters are static: `eqx.field(static=True)`.

    Optional members, each a protocol of this file or (`Checks...`) of `bayes_mdp.agents.common.learner`:

    * `observe(problem, state, transition, weight)` (`Learner`): the agent learns by itself, in its own state. It needs
      no prior, and its `plan` gets None as belief.
    * `plan_from(key, problem, state, belief, at)` (`PlansFromState`): the agent plans for one state at a time.
    * `account(problem, state, transition, weight)` (`KeepsAccount`): it sees the transitions beside its belief.
    * `check_belief(belief)` (`ChecksBelief`): refuse a belief before the run, with one sentence.
    * `check_learnt(state)` (`ChecksLearnt`), `check_optimism(max_reward)` (`ChecksOptimism`): warnings.

    A complete agent, greedy for the mean of a few draws (a test runs it)::

        import equinox as eqx
        import jax
        from bayes_mdp.agents import Greedy
        from bayes_mdp.planning import solve


        class MeanOfDraws(eqx.Module):
            num_draws: int = eqx.field(default=5, static=True)
            replan: int = eqx.field(default=10, static=True)

            def init(self, key, problem):
                return None

            def plan(self, key, problem, state, belief):
                q = jax.vmap(lambda mdp: solve(mdp, problem.objective).q)(belief.sample(key, (self.num_draws,)))
                return Greedy(q.mean(axis=0), problem.space.legal), state
    """

    # It is a `ReplanLike` or None. `Any`, because pyright takes a field with a converter for a descriptor of its own,
    # which is of no other type.
    @property
    def replan(self) -> Any:
        """When to plan: a `ReplanLike` or None, see the class. An attribute is enough."""
        ...

    def init(self, key: PRNGKeyArray, problem: Problem, /) -> PyTree:
        """The agent's own state before any plan.

        Args:
            key: of the agent's start.
            problem: what is known of the MDP before any data.

        Raises:
            ValueError, TypeError: an objective or a space that the agent cannot plan for, in one sentence.
        """
        ...

    def plan(self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: P_contra, /) -> tuple[Policy, PyTree]:
        """A policy and the next state.

        Args:
            key: of this plan, for agents that draw.
            problem: what is known of the MDP before any data.
            state: the agent's own, from `init`, the last plan or (of a `Learner`) the last transition.
            belief: the posterior given all data so far, with the abilities that the agent needs; None for a `Learner`.

        Raises:
            TypeError: an ability is missing (`bayes_mdp.mdp.abilities.require_ability` says which).
        """
        ...


@runtime_checkable
class PlansFromState(Agent[P_contra], Protocol[P_contra]):
    """An agent that plans for the state it is in, not for all: one that searches. It plans before every step."""

    def plan_from(
        self, key: PRNGKeyArray, problem: Problem, state: PyTree, belief: P_contra, at: DecisionPoint, /
    ) -> tuple[Policy, PyTree]:
        """A policy for this state and step alone, and the next state of the agent; called in place of `plan`.

        Args:
            key, problem, state, belief: as of `plan`.
            at: where the action is needed.
        """
        ...


@runtime_checkable
class KeepsAccount(Protocol):
    """An agent with a belief that sees every transition as well, and keeps what it needs of it in its own state."""

    def account(self, problem: Problem, state: PyTree, transition: Transitions, weight: Scalar = 1.0, /) -> PyTree:
        """The state after one transition.

        Args:
            problem, state, transition, weight: as of `Learner.observe`.
        """
        ...


@runtime_checkable
class Learner(Agent[None], Protocol):
    """An agent that learns by itself: what it learns is in its own state; it needs no prior and no posterior."""

    def observe(self, problem: Problem, state: PyTree, transition: Transitions, weight: Scalar = 1.0, /) -> PyTree:
        """The state after one transition, with the structure, shapes and dtypes of the one before.

        Args:
            problem: what is known of the MDP before any data.
            state: the agent's own, from `init`, the last plan or the last transition.
            transition: one: `state`, `action` and `next_state` are Int[""], `reward` is Float[""], `terminated`
                Bool[""] (None where no transition can end), `step` Int[""] under `Episodic` (else None).
            weight: 1; where it is 0 the state is unchanged.
        """
        ...
