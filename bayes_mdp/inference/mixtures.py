"""Weighted mixtures of conjugate posteriors: component by component, then total variance.

`MixturePosterior` is what all of them can do (so can those whose components are draws of hyperparameters); `Mixture`
has a component for each value of a discrete hyperparameter, or posteriors that were given. Data move the weights by
the predictive densities of the components, which stand below: the marginal of one more observation, c / sum(c) for the
outcome; Student-t, normal, Bernoulli or negative binomial for the reward (Murphy 2007, *Conjugate Bayesian analysis of
the Gaussian distribution*).
"""

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.closed_form_draws import draw_components
from bayes_mdp.inference.conjugate.conjugate_posterior import (
    Components,
    ConjugatePosterior,
    Digests,
    after_sources,
    conjugate_pair_draws,
)
from bayes_mdp.inference.conjugate.dirichlet_rows import divergence, evidences_of_counts
from bayes_mdp.inference.conjugate.lazy_arrays import (
    known_rewards,
    label_rewards,
    lazy_rewards,
    lazy_rows,
    reward_draws,
    urn_of,
)
from bayes_mdp.inference.conjugate.prior_rows import RepeatedRows
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.inference.conjugate.site_table import SiteTable
from bayes_mdp.inference.families.family import RewardBelief, log_rising
from bayes_mdp.inference.fitted import Fitted, Law, LawDraws, draw_batch
from bayes_mdp.inference.pair_draws import PairDraws, draw_by_weight, key_of_outcome, pair_draws_of_samples, varies
from bayes_mdp.inference.summary import Observed, PairMoments, program_data
from bayes_mdp.mdp import MDP, Counts, FoldedLog, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import check_transitions, check_weighted
from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.mdp.protocols import PriorWeight
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.reward_support import RewardSupport, union
from bayes_mdp.models.sufficient_statistics import RewardSums
from bayes_mdp.numerics.array_forms import stack_trees
from bayes_mdp.numerics.numpy_or_jax import as_numpy, concrete_in_numpy, in_numpy, pick, xp
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, IntScalar, RealScalar
from bayes_mdp.utils.validation import as_real, check_bool, check_shape, check_type, is_concrete, require

Pairs = Float[AnyArray, "*H S A"]
Tree = TypeVar("Tree")
NUMBERS_AT_ONCE = 2**23  # probabilities of components that are held at once


class MixturePosterior(Fitted):
    """A mixture of conjugate posteriors over one space, with weights.

    Its rows are not independent, but those of each component may be: what theorems say of independent rows holds
    component by component, and the law of total variance joins them.
    """

    components: eqx.AbstractVar[ConjugatePosterior]
    log_weights: eqx.AbstractVar[Float[AnyArray, " K"]]  # type: ignore[override]
    space: eqx.AbstractVar[StateActionSpace]  # type: ignore[override]
    hyperparameters: eqx.AbstractVar[dict[str, AnyArray]]

    @property
    def site_draws(self) -> Mapping[str, AnyArray]:
        """The values of the hyperparameters: of a discrete one all, of others draws or nodes."""
        return self.hyperparameters

    @abc.abstractmethod
    def component(self, k: IntScalar) -> ConjugatePosterior:
        """Component `k`, an integer or a traced one."""

    def law_at(self, key: PRNGKeyArray, k: IntScalar) -> Law:
        """One draw of rows and reward laws of component `k`. Traceable.

        Args:
            key: of both.
            k: number of the component.
        """
        return self.component(k).law_at(key, 0)

    def draw_laws(self, key: PRNGKeyArray, index: Int[np.ndarray, " N"]) -> LawDraws:
        """One draw of the law of each component in `index`, by NumPy.

        Args:
            key: of all draws.
            index: components.
        """
        return draw_components(key, self, index)

    @property
    def reference(self) -> ConjugatePosterior:
        """The first component, which shares data, laws and tables with the others."""
        return self.component(0)

    @property
    @concrete_in_numpy
    def weights(self) -> Float[AnyArray, " K"]:
        """Probabilities of the components."""
        return xp.softmax(self.log_weights)

    @concrete_in_numpy
    def effective_sample_size(self) -> RealScalar:
        """1 / sum of the squared weights, from 1 to K: how many components carry the mixture."""
        return 1.0 / xp.sum(self.weights**2)

    @property
    def independent_rows(self) -> bool:
        """False: data of one row inform about which component holds, and thereby about the other rows."""
        return False

    @property
    def shared_parameters(self) -> str | None:
        """What rows of one component share, in words; None: nothing, theorems hold component by component."""
        first = self.component(0)
        return None if first.independent_rows else first.shared_parameters

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> MDP | SparseMDP:
        """Draw hypotheses: one, or a batch with leading axes `sample_shape` on every array."""
        return draw_batch(self._draw, key, sample_shape)

    def _draw(self, key: PRNGKeyArray) -> MDP | SparseMDP:
        key_component, key_mdp = jax.random.split(key)
        k = jax.random.categorical(key_component, jnp.asarray(self.log_weights))
        return self.component(k).sample(key_mdp)

    def pair_draws(self, key: PRNGKeyArray, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """A stream of draws of the needed pairs, by NumPy (`CanDrawPairs`): a component by weight, then its pairs.

        Args:
            key: of the draws.
            needed: which pairs.
        """
        # Components share the counts, tables and known numbers of the first: only the priors of the others are
        # needed.
        return conjugate_pair_draws(key, self.component(0), needed, self.component_priors(key))

    def picks(self, key: PRNGKeyArray, num: int) -> Int[np.ndarray, " N"] | None:
        """The component of each of the first draws of `pair_draws` under a key.

        Args:
            key: of the draws.
            num: how many.
        """
        return self.component_priors(key).choose(num)

    def outcome_draws(self, key: PRNGKeyArray, name: str, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """The rows of `pair_draws` under this key, with rewards of random numbers of their own (`CanDrawOutcome`).

        Args:
            key: of the rows.
            name: of the outcome, which seeds the rewards.
            needed: which pairs.
        """
        reward_key = key_of_outcome(key, name)
        # Where the rows say nothing of the component, that of the outcome is another one than that of the reward.
        apart = None if self.rows_vary else self.component_priors(reward_key)
        return conjugate_pair_draws(
            key,
            self.component(0),
            needed,
            self.component_priors(key),
            reward_key=reward_key,
            reward_components=apart,
        )

    @property
    @abc.abstractmethod
    def rows_vary(self) -> bool:
        """Whether the priors of the rows differ from component to component. Host side."""

    @abc.abstractmethod
    def component_priors(self, key: PRNGKeyArray) -> Components:
        """The priors of all components, and a stream of draws of these. Host side.

        Args:
            key: of the draws.
        """

    def mean_mdp(self) -> MDP | SparseMDP:
        """Posterior mean of the transition probabilities and of the expected rewards.

        Raises:
            ValueError: that of a reward does not exist in a component (normal-gamma concentration <= 1/2); inside a
                trace it is nan.
        """
        # Probabilities and rewards are averaged; which states are listed is the same in all components.
        rows, reward = self.average(lambda component: component.mean_rows())
        if is_concrete(self, rows, reward):
            rows, reward = as_numpy((rows, reward))
            if np.isnan(reward).any():
                for k in range(self.num_components):
                    # The error of the first component without a mean names its pair.
                    self.component(k).mean_mdp()
                reward = np.nan_to_num(reward)  # of illegal pairs, and of outcomes that cannot be
        # Means over many components in float32 add to one but for 1e-5 or so.
        total = rows.sum(-1, keepdims=True)
        return self.space.mdp(rows / xp.where(total > 0, total, 1.0), reward)

    def lazy_belief(self, key: PRNGKeyArray, num_draws: int, reward_bins: int) -> LazyBelief:
        """A component first, then its rows as urns: exact. Rewards without an urn by draws (`CanSampleLazily`).

        Of these each component has as many as make `num_draws` in all, and at least one.
        """
        components, weights = self.components, self.weights
        first = self.component(0)
        rewards = first.reward_cells
        # The tables of pairs are those of the first component, so that they need not be stacked.
        urns = jax.vmap(lambda c: lazy_rows(c.transition_probs, c.space)._replace(row=None, outcome=None))(components)
        if isinstance(rewards, KnownRewards):
            means = jax.vmap(lambda c: jnp.asarray(c.reward_cells.mean()))(components)
            paid = known_rewards(means, rewards.by_outcome)
        elif urn_of(rewards) is not None:
            made = jax.vmap(lambda c: lazy_rewards(c.reward_cells, key, 1, 1))(components)
            template = jax.tree.map(lambda x: x[0], made)
            paid = template._replace(cumulative=made.cumulative[:, 0], value=made.value[:, 0])
        else:
            each_draws = -(-num_draws // self.num_components)
            keys = jax.random.split(key, self.num_components)
            # Rewards without an urn: a few draws of their parameters from each component stand in for them.
            drawn = jax.vmap(lambda c, one: reward_draws(c.reward_cells, one, each_draws))(components, keys)
            # Draw by draw, so that entry c belongs to component c modulo K.
            mean, noise = (jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]) for x in drawn)
            weights = jnp.tile(weights, each_draws) / each_draws
            paid = label_rewards(rewards.law, mean, noise, rewards.by_outcome, reward_bins)
        # What is selected by which pair is the same in all components. A column that is impossible in one of them may
        # be possible in another: an urn where any has several.
        shared = lazy_rows(first.transition_probs, first.space)
        rows = shared._replace(cumulative=urns.cumulative[:, 0], learns=urns.learns.any(0))
        return LazyBelief(weights, rows, paid)

    def visit_counts(self) -> Pairs:
        """Number of observed transitions from every pair."""
        return self.component(0).visit_counts()

    def prior_share(self) -> Pairs:
        """The mean over the components of the prior's part in the belief about each pair (`CanWeighPrior`)."""
        return self.average(lambda component: component.prior_share())

    def reward_share(self) -> Pairs | None:
        """The mean over the components of the prior's part in the mean reward of each pair (`CanWeighRewards`)."""
        return self.average(lambda component: component.reward_share())

    def data_reward(self) -> Pairs | None:
        """The mean reward of each pair by data alone, which components share; their rows averaged."""
        return self.average(lambda component: component.data_reward())

    def reward_variance(self) -> Pairs:
        """Epistemic variance of the expected reward of one step.

        Raises:
            ValueError: it does not exist in a component (normal-gamma concentration <= 1).
        """
        return self.bellman_variance(np.zeros(self.space.n_states), 0.0)

    def bellman_variance(self, values: Float[AnyArray, "*steps S"], discount: RealScalar) -> Pairs:
        """Variance over the posterior of sum_o P(o | s, a) (r(s, a, o) + discount values(o)), by total variance.

        Args and errors: as `ConjugatePosterior.bellman_variance`.
        """
        self._refuse_infinite()

        def expected(component: ConjugatePosterior) -> Pairs:
            rows, reward = component.mean_rows()
            return reward + discount * (rows * component.space.outcome_values(values)).sum(-1)

        # Law of total variance: E_k[Var(x | k)] + Var_k(E[x | k]), where x is the Bellman backup.
        values = xp.asarray(values, float)
        mean = self.average(expected)
        return self.average(lambda c: c.bellman_variance(values, discount) + (expected(c) - mean) ** 2)

    def expected_information(self) -> Pairs:
        """Expected information of one more transition, in nats: about its row, and about which component holds.

        The mutual information of the outcome and the component together with its rows: sum_k w_k (I_k + KL(pbar_k ||
        pbar)), more than the weighted I_k. It informs about other rows only through the component. Rewards are not
        included.
        """
        mean = self.average(lambda component: component.transition_probs.mean())

        def one(component: ConjugatePosterior) -> Pairs:
            return component.expected_information() + divergence(component.transition_probs.mean(), mean)

        return self.average(one)

    def _refuse_infinite(self) -> None:
        """Raise the error of the first component in which a variance of a mean reward does not exist. Host side."""
        # An infinite variance in one component makes that of the mixture infinite.
        if is_concrete(self):
            infinite = self._each(lambda component: xp.isinf(component.reward_cells.variance()).any())
            for k in np.flatnonzero(infinite):
                self.component(int(k)).expected_reward_variance()

    @property
    def num_components(self) -> int:
        """K."""
        return self.log_weights.shape[0]

    def _each(self, function: Callable[[ConjugatePosterior], Tree]) -> Tree:
        """A function of every component, its answers stacked."""
        return jax.vmap(function)(self.components)

    def _mean_by_weight(self, values: Float[Array, "K *rest"]) -> Float[Array, "*rest"]:
        """About the heaviest component: what all agree on (a known reward) is exact, however many there are.

        A node far out, where a mean is 1e12, would take all digits from the others.
        """
        # centre + sum_k w_k (x_k - centre): the weights add to one, so that the centre drops out exactly.
        weights = jnp.asarray(self.weights).astype(values.dtype)
        heaviest = values[jnp.argmax(weights)]
        centre = jnp.where(jnp.isfinite(heaviest), heaviest, 0.0)
        return centre + tensordot(weights, values - centre, axes=1)

    def average(self, function: Callable[[ConjugatePosterior], Tree]) -> Tree:
        """The weighted mean over the components of a function with arrays as answer."""
        # All components at once where they fit into memory, else one after the other.
        size = self.num_components * math.prod((*self.space.shape, self.space.n_outcomes))
        if size <= NUMBERS_AT_ONCE:
            answers = jax.tree.map(jnp.asarray, self._each(function))  # known numbers are numpy's
            return jax.tree.map(self._mean_by_weight, answers)

        # A scan: one component at a time, as long as the list may be.
        def add(total: Tree, k: Int[Array, ""]) -> tuple[Tree, None]:
            answer = function(self.component(k))
            return jax.tree.map(lambda t, x: t + jnp.asarray(self.weights)[k].astype(x.dtype) * x, total, answer), None

        shapes = jax.eval_shape(lambda: function(self.component(0)))
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return lax.scan(add, zero, jnp.arange(self.num_components))[0]

    def pair_moments(self) -> PairMoments:
        """What `table` shows of every pair, by the laws of total expectation and variance. Traceable."""

        def first(component: ConjugatePosterior) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray | None]:
            moments = component.pair_moments()
            return moments.probs, moments.reward, moments.prior_share, moments.reward_share

        probs, reward, share, paid = self.average(first)

        def second(component: ConjugatePosterior) -> tuple[AnyArray, AnyArray]:
            moments = component.pair_moments()
            # E[variance] + variance of the mean, component by component
            return moments.probs_variance + (moments.probs - probs) ** 2, moments.reward_variance + (
                moments.reward - reward
            ) ** 2

        probs_variance, reward_variance = self.average(second)
        return PairMoments(probs, probs_variance, reward, reward_variance, share, self.visit_counts(), paid)

    def reward_sums(self) -> RewardSums | None:
        """The law of one reward, and sums of all of them (see `wide_law`); None: they are not kept. Host side."""
        return self.component(0).reward_sums()

    def check(self, transitions: Transitions, weight: ArrayLike = 1.0) -> None:
        """Refuse transitions that no component can hold, as `ConjugatePosterior.check`. Host side.

        Data that are impossible in one component alone rule that component out, and are accepted.
        """
        refusals: list[Exception] = []
        # It is refused only if every possible component refuses it: then the first refusal is raised.
        for k in np.flatnonzero(np.isfinite(self.log_weights)):
            try:
                return self.component(int(k)).check(transitions, weight)
            except (ValueError, TypeError) as error:
                refusals.append(error)
        raise refusals[0]


class HyperparameterMixture(MixturePosterior):
    """One component for each value of the hyperparameters, a node of a grid or a draw; all share the data."""

    data_statistics: eqx.AbstractVar[ConjugatePosterior]

    @property
    def space(self) -> StateActionSpace:  # type: ignore[override]
        """Sizes, names, masks."""
        return self.data_statistics.space

    @property
    def rewards_by_outcome(self) -> bool:
        """Whether rewards depend on the outcome, not on state and action alone."""
        return self.data_statistics.rewards_by_outcome

    @property
    def components(self) -> ConjugatePosterior:  # type: ignore[override]
        """One posterior whose arrays have a leading axis K (K times all concentrations: `thinned` makes K smaller)."""
        return jax.vmap(self.component)(jnp.arange(self.num_components))

    def visit_counts(self) -> Pairs:
        """Number of observed transitions from every pair."""
        return self.data_statistics.visit_counts()

    def check(self, transitions: Transitions, weight: ArrayLike = 1.0) -> None:
        """Refuse transitions that the prior cannot hold, as `ConjugatePosterior.check`. Host side."""
        self.data_statistics.check(transitions, weight)

    def reward_support(self) -> RewardSupport:
        """Which rewards the law of every cell can give, whatever is unknown. Host side."""
        return self.data_statistics.reward_support()


class Mixture(MixturePosterior):
    """A mixture of posteriors of one kind (built by `mixture` and `infer`); see `MixturePosterior` for what it can do.

    Args:
        components: a `ConjugatePosterior` whose arrays have a leading axis K.
        log_weights: [K], of the components, up to a constant.
        space: sizes, names, masks.
        log_prior: [K], log probabilities of the components before any data; None: not known.
        hyperparameters: {site: [K ...]}, the values of the discrete latent sites that make the components.
        program: the prior program; None after `load`, and of `mixture`.
        site_tables: for each component, where the sites of the program lie in its arrays; (): not known.
        observed: (name, number of values) of the sites that the program observes itself.
        sources: SHA-256 of the content of the logs that it has learnt from; None: of none that has one.
    """

    components: ConjugatePosterior
    log_weights: Float[AnyArray, " K"]
    space: StateActionSpace
    log_prior: Float[AnyArray, " K"] | None = None
    hyperparameters: dict[str, AnyArray] = eqx.field(default_factory=dict)
    program: Prior | None = eqx.field(static=True, default=None)  # type: ignore[override]
    site_tables: tuple[SiteTable, ...] = eqx.field(static=True, default=())  # type: ignore[override]
    observed: Observed | None = eqx.field(static=True, default=())
    sources: Digests | None = None

    @property
    def method(self) -> str:
        """How it was inferred."""
        return "mixture"

    @property
    def log_evidence(self) -> float | Float[Array, ""]:
        """log p(next states, rewards | states, actions) of all data, the components summed out: exact.

        Raises:
            ValueError: the probabilities of the components before any data are not known.
        """
        if self.log_prior is None:
            raise ValueError("the mixture has no log_prior, expected one from infer to state its evidence")
        if is_concrete(self):
            evidences = [float(self.component(k).log_evidence) for k in range(self.num_components)]
            # p(data) = sum_k p(k) p(data | k); components that the data have excluded add nothing.
            terms = np.asarray(self.log_prior, float) + np.where(self._possible, evidences, -np.inf)
            return float(np.logaddexp.reduce(terms)) if not np.isnan(terms).any() else np.nan
        evidences = jax.vmap(lambda component: component.log_evidence)(self.components)
        return jax.nn.logsumexp(self.log_prior + jnp.where(self._possible, evidences, -jnp.inf))

    @property
    def _possible(self) -> Bool[AnyArray, " K"]:
        """Components that the data have not ruled out."""
        return self.log_weights > -jnp.inf if not is_concrete(self) else np.asarray(self.log_weights) > -np.inf

    @property
    def in_closed_form(self) -> bool:
        """True."""
        return True

    def before_data(self) -> "Mixture":
        """The priors of the components, with their prior weights."""
        host = as_numpy(self)
        components = [host.component(k) for k in range(self.num_components)]
        # Where rows alone differ, all share their counts of zero.
        first, alike = components[0].before_data(), host._differ_in_rows_alone
        before = [with_rows(first, each.transition_probs.prior) if alike else each.before_data() for each in components]
        if host.log_prior is not None:
            return host._with_components(before, np.asarray(host.log_prior, np.float64))
        # Bayes' rule backwards: prior weight = posterior weight / evidence. What the data have ruled out stays so.
        evidences = np.array([float(component.log_evidence) for component in components])
        log_weights = np.asarray(host.log_weights, np.float64)
        return host._with_components(before, np.where(host._possible, log_weights - evidences, -np.inf))

    @property
    def known_log_evidence(self) -> float | None:
        """The log evidence; None: the weights of the components before any data are not known."""
        return None if self.log_prior is None else float(self.log_evidence)

    def why_no_prior(self) -> str | None:
        """Why its prior cannot be drawn from, in words; None: it can."""
        if self.log_prior is not None:
            return None
        possible = np.flatnonzero(np.isfinite(np.asarray(self.log_weights))).tolist()
        # Weights before the data are the posterior ones over the evidences: each evidence must be known for that.
        known = np.isfinite([float(self.component(k).log_evidence) for k in possible]).all()
        return None if known else "the evidence of a component is not known, nor the weights before the data"

    def method_lines(self) -> dict[str, str]:
        """How it was inferred, and how many components carry the weight, for `print`."""
        sites = (
            f", exact, over the values of {', '.join(map(repr, self.hyperparameters))}" if self.hyperparameters else ""
        )
        size, evidence = float(self.effective_sample_size()), self.known_log_evidence
        known = (
            {}
            if evidence is None or np.isnan(evidence)
            else {"log evidence": f"{evidence:.6g} = log p(next states, rewards | states, actions)"}
        )
        return {
            "method": f"mixture of {self.num_components} posteriors in closed form{sites}",
            "weights": f"effective sample size {size:.4g} of {self.num_components}",
            **known,
            **program_data(self.observed),
        }

    def reward_support(self) -> RewardSupport:
        """Which rewards the law of every cell can give in some component. Host side."""
        possible = np.flatnonzero(self._possible).tolist()
        return union([self.component(k).reward_support() for k in possible])

    @concrete_in_numpy
    def prior_weight(self) -> PriorWeight:
        """What the prior of each pair weighs in the component in which it weighs least (`CanCountPrior`)."""
        weights = self._each(lambda component: component.prior_weight())
        return PriorWeight(weights.transitions.min(0), xp.any(weights.is_empty, 0))

    def pair_draws(self, key: PRNGKeyArray, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """A stream of draws of the needed pairs (`CanDrawPairs`): a component by weight, then its pairs.

        Components that differ in more than their priors are drawn whole.

        Args:
            key: of the draws.
            needed: which pairs.
        """
        return (
            super().pair_draws(key, needed) if self._share_all_but_priors else pair_draws_of_samples(key, self, needed)
        )

    def picks(self, key: PRNGKeyArray, num: int) -> Int[np.ndarray, " N"] | None:
        """As above; None: components that differ in more than their priors are drawn whole."""
        return super().picks(key, num) if self._share_all_but_priors else None

    def outcome_draws(self, key: PRNGKeyArray, name: str, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """The rows of `pair_draws` under this key, with rewards of random numbers of their own (`CanDrawOutcome`).

        Args:
            key: of the rows.
            name: of the outcome, which seeds the rewards.
            needed: which pairs.

        Raises:
            ValueError: components that differ in more than their priors, which are drawn whole.
        """
        if not self._share_all_but_priors:
            raise ValueError(
                f"outcome {name!r}: the components of the posterior that learnt it differ in more than their priors "
                "and are drawn whole, expected one prior of rows and rewards, or known numbers (Outcome) "
                + see("how-to/budgets")
            )
        return super().outcome_draws(key, name, needed)

    @property
    def rows_vary(self) -> bool:
        """Whether the priors of the rows differ from component to component. Host side."""
        return self.components.transition_probs.prior_rows.differ()

    @property
    def _share_all_but_priors(self) -> bool:
        """Whether components have the same data, tables and known numbers."""
        rows, rewards = self.components.transition_probs, self.components.reward_cells
        # Leaves by identity: all arrays but the priors of rows and rewards have to be equal over the components.
        priors = {id(x) for x in jax.tree.leaves((rows.prior, getattr(rewards, "prior", None)))}
        shared = [np.asarray(x) for x in jax.tree.leaves((rows, rewards)) if id(x) not in priors]
        return not any(map(varies, shared))

    def component_priors(self, key: PRNGKeyArray) -> Components:
        """The priors of all components, and a stream of draws of these. Host side.

        Args:
            key: of the draws.
        """
        rows, rewards = self.components.transition_probs.prior_rows, self.components.reward_cells

        def reward_prior(k: Int[np.ndarray, " N"], element: Int[np.ndarray, " M"]) -> RewardBelief:
            assert isinstance(rewards, RewardCells)
            return jax.tree.map(lambda x: np.asarray(x, np.float64)[k[:, None], element], rewards.prior)

        varied = reward_prior if isinstance(rewards, RewardCells) else None
        weights = np.asarray(self.weights)
        drawn = draw_by_weight(key, weights)
        return Components(drawn, rows.components_at, varied, self.num_components, rows.likely(weights))

    # Components are few, and each is in closed form: one after the other in NumPy.

    bellman_variance = concrete_in_numpy(MixturePosterior.bellman_variance)
    expected_information = concrete_in_numpy(MixturePosterior.expected_information)
    pair_moments = concrete_in_numpy(MixturePosterior.pair_moments)

    def _each(self, function: Callable[[ConjugatePosterior], Tree]) -> Tree:
        if not is_concrete(self):
            return super()._each(function)
        answers = [in_numpy(function, self.component(k)) for k in range(self.num_components)]
        return jax.tree.map(lambda *each: np.stack(each), *answers)

    @concrete_in_numpy
    def average(self, function: Callable[[ConjugatePosterior], Tree]) -> Tree:
        """The weighted mean over the components of a function with arrays as answer.

        Args:
            function: of a component.
        """
        if not is_concrete(self):
            return super().average(function)
        # What weighs less than rounding is left out: of a list of concentrations that is most of it.
        # Weights below machine epsilon of the largest change no digit of the mean.
        weights = self.weights
        first_of, *rest = np.flatnonzero(weights > np.finfo(weights.dtype).eps * weights.max()).tolist()
        first = function(self.component(first_of))
        # About the first component: what all agree on (a known reward) is exact, however many there are.
        centre = jax.tree.map(lambda x: np.where(np.isfinite(x), x, 0.0), first)
        total = jax.tree.map(lambda x, c: c + weights[first_of] * (x - c), first, centre)
        for k in rest:
            answer = function(self.component(k))
            total = jax.tree.map(lambda t, x, c, k=k: t + weights[k] * (x - c), total, answer, centre)
        return total

    def component(self, k: IntScalar) -> ConjugatePosterior:
        """Component `k`."""
        return jax.tree.map(lambda x: pick(x, k), self.components)

    def update(
        self,
        transitions: Transitions | Counts | FoldedLog,
        weight: ArrayLike = 1.0,
        *,
        discount_data: RealScalar | None = None,
        allow_duplicates: bool = False,
    ) -> "Mixture":
        """The mixture after one transition, a block, or statistics: components by conjugacy, weights by Bayes' rule.

        Args:
            transitions: data, as `ConjugatePosterior.update` takes them; inside a trace transitions alone, and a block
                of these one after the other.
            weight: scalar or [N]; zero masks a transition of a fixed buffer, another number raises its likelihood to
                that power.
            discount_data: factor by which earlier data count from now on, see the method of that name; None: fully.
            allow_duplicates: whether a folded log that was learnt from already is counted again.

        Raises:
            ValueError, TypeError: data that the space or the prior cannot hold (not inside a trace), a log that was
                learnt from already.
        """
        if discount_data is not None:
            return self.discount_data(discount_data).update(transitions, weight, allow_duplicates=allow_duplicates)
        if self.outcomes is not None:
            learnt = self._outcomes_after(transitions, weight, allow_duplicates=allow_duplicates)
            alone = replace(self, outcomes=None).update(transitions, weight, allow_duplicates=allow_duplicates)
            return replace(alone, outcomes=learnt)
        if isinstance(transitions, FoldedLog):
            check_bool("allow_duplicates", allow_duplicates)
            sources = after_sources(self.sources, transitions.sources, allow_duplicates=allow_duplicates)
            counts = transitions.counts(self.space, by_outcome=self.reference.rewards_by_outcome)
            return replace(self.update(counts, weight), sources=sources)
        check_weighted(transitions, weight)
        if is_concrete(self, transitions, weight):
            return self._learn(transitions, weight)
        if isinstance(transitions, Counts):
            raise TypeError("transitions are Counts, expected Transitions inside a compiled function")
        if jnp.ndim(transitions.state) == 0:
            return self._observe(transitions, weight)
        # One transition after the other: the predictive of each is conditional on those before.
        weights = jnp.broadcast_to(jnp.asarray(weight, float), jnp.shape(transitions.state))
        start, block = jax.tree.map(jnp.asarray, (self, transitions))
        return lax.scan(lambda belief, x: (belief._observe(*x), None), start, (block, weights))[0]

    def _learn(self, data: Transitions | Counts, weight: ArrayLike) -> "Mixture":
        """`update` on the host: w_k' = w_k p(data | value k), in logs. A value that excludes the data gets weight 0."""
        alike, possible = self._differ_in_rows_alone, np.array(self._possible)
        after = [self.component(k) for k in range(self.num_components)]
        refusals: list[ValueError] = []
        learnt: ConjugatePosterior | None = None
        # Those of weight zero learn too: the statistics of the mixture are those of each component.
        for k, before in enumerate(tuple(after)):
            try:
                # Where only concentrations differ, all components have the statistics of the first that has learnt.
                if learnt is None or not alike:
                    learnt = after[k] = before.update(data, weight)
                else:
                    after[k] = with_rows(learnt, before.transition_probs.prior)
            except ValueError as error:
                if possible[k]:
                    refusals.append(error)
                possible[k] = False
        if not possible.any():
            raise refusals[0]
        # With known prior weights, start from these and the whole evidence; else from the weights so far and its
        # growth.
        before_data = self.log_prior is not None
        start = np.asarray(self.log_prior if before_data else self.log_weights, np.float64)
        gain = _evidences(after) - (0.0 if before_data else _evidences([self.component(k) for k in range(len(after))]))
        return self._with_components(after, np.where(possible, start + gain, -np.inf))

    def _with_components(
        self, components: Sequence[ConjugatePosterior], log_weights: Float[np.ndarray, " K"]
    ) -> "Mixture":
        """With these components and weights, which need not add to one."""
        normalised = log_weights - np.logaddexp.reduce(log_weights)
        return replace(self, components=stack_trees(components), log_weights=normalised)

    @property
    def _differ_in_rows_alone(self) -> bool:
        """Whether components differ in the concentrations of their rows alone, of which the same are positive."""
        # Concentrations as signs: two components differ in their rows alone if all other leaves agree.
        signs = self.components.transition_probs.prior_rows.signs()
        return not any(map(varies, map(np.asarray, jax.tree.leaves(with_rows(self.components, signs)))))

    def discount_data(self, factor: RealScalar) -> "Mixture":
        """The mixture for which each transition so far counts as `factor` transitions, and so do its weights.

        Args:
            factor: as of `ConjugatePosterior.discount_data`.

        Raises:
            ValueError, TypeError: as there; the weights before any data are not known.
        """
        if self.log_prior is None:
            raise ValueError("the mixture has no log_prior, expected one from infer to discount what it has learnt")
        components = [self.component(k).discount_data(factor) for k in range(self.num_components)]
        # w_k is proportional to p(k) p(data | k)^factor: the discounted evidences give the weights anew.
        log_weights = np.asarray(self.log_prior, np.float64) + _evidences(components)
        log_weights = np.where(self._possible, log_weights, -np.inf)
        after = self._with_components(components, log_weights)
        if self.outcomes is None:
            return after
        return replace(after, outcomes={name: outcome.discount_data(factor) for name, outcome in self.outcomes.items()})

    def with_sources(self, sources: Digests) -> "Mixture":
        """The same belief, which remembers the logs that it has learnt from.

        Args:
            sources: digests of the logs.
        """
        return replace(self, sources=sources)

    def _observe(self, transition: Transitions, weight: ArrayLike) -> "Mixture":
        def one(component: ConjugatePosterior) -> tuple[ConjugatePosterior, Float[Array, ""]]:
            return component.update(transition, weight), log_gain(component, transition, weight)

        # Bayes' rule for the component: w_k' = w_k p(transition | data, k); each component learns by conjugacy.
        components, gain = jax.vmap(one)(jax.tree.map(jnp.asarray, self.components))
        log_weights = self.log_weights + gain
        return replace(self, components=components, log_weights=log_weights - jnp.max(log_weights))


def _evidences(components: Sequence[ConjugatePosterior]) -> Float[np.ndarray, " K"]:
    """Log evidences, up to a number that all components share where sums of rewards do not hold it.

    Raises:
        ValueError: what the sums do not hold differs between the components.
    """
    of_rows = evidences_of_counts([component.transition_probs for component in components])
    if of_rows is not None:
        # They differ in the priors of their rows alone.
        evidences = of_rows + (float(components[0].log_evidence) - of_rows[0])
    else:
        evidences = np.array([float(component.log_evidence) for component in components])
    if not np.isnan(evidences).any():
        return evidences
    # The factorials of Poisson rewards are the same for all components, unless these read the rewards differently.
    fixed = [jax.tree.leaves(_fixed_numbers(component)) for component in components]
    if not all(np.array_equal(x, y) for each in fixed[1:] for x, y in zip(each, fixed[0], strict=True)):
        law = components[0].reward_cells.law
        raise ValueError(
            f"data are sums of rewards, and the components of the mixture differ in numbers of the "
            f"{'known' if law is None else law.__name__} law that need every reward, expected Transitions"
        )
    return np.array([float(component.relative_log_evidence) for component in components])


def _fixed_numbers(component: ConjugatePosterior) -> list[object]:
    """What the part of an evidence that holds no unknowns depends on, beside the data."""
    rows, rewards = component.transition_probs, component.reward_cells
    if not isinstance(rewards, RewardCells):
        return [rows.known, rewards]
    known = [getattr(rewards.prior, name) for name in rewards.prior.known]
    return [rows.known, rewards.known_law, rewards.coefficient, rewards.offset, known]


def with_rows(posterior: ConjugatePosterior, prior: AnyArray | RepeatedRows) -> ConjugatePosterior:
    """The same posterior with other concentrations of its rows before data.

    Args:
        posterior: as it is.
        prior: [M K], as that of its `DirichletRows`.
    """
    return eqx.tree_at(lambda p: p.transition_probs.prior, posterior, prior)


def mixture(posteriors: Sequence[ConjugatePosterior], *, weights: ArrayLike | None = None) -> Mixture:
    """A mixture of posteriors over one space. Host side.

    Args:
        posteriors: of one kind, one for each value of the discrete hyperparameter.
        weights: [K], positive; normalised here. None: by `log_evidence` (Bayes' rule, values equally likely at first).

    Raises:
        ValueError: no posterior, posteriors that differ in space, structure or shapes, weights that are not positive, a
            log evidence that is not finite.
        TypeError: no list of posteriors in closed form, a weight that is no number.
    """
    if not isinstance(posteriors, Sequence):
        kind = type(posteriors).__name__
        raise TypeError(f"posteriors is a {kind}, expected a list of posteriors, one for each component")
    for i, posterior in enumerate(posteriors):
        check_type(f"posteriors[{i}]", posterior, ConjugatePosterior, "a ConjugatePosterior")
    if not posteriors:
        raise ValueError("posteriors is empty, expected at least one posterior")
    # Tables of sites may differ between the components, and so may their programs.
    tables = tuple(replace(p.sites, program=None) for p in posteriors if p.sites is not None)
    posteriors = [replace(posterior, sites=None) for posterior in posteriors]
    first = posteriors[0]
    _require_alike(posteriors)
    if weights is None:
        log_weights = np.array([posterior.log_evidence for posterior in posteriors])
        require(
            ~np.isfinite(log_weights), "log_evidence", log_weights, "a finite number for each posterior, or weights"
        )
    else:
        array = as_real("weights", weights, "a finite number greater than 0")
        check_shape("weights", array, (len(posteriors),), "posterior")
        require(~(np.isfinite(array) & (array > 0)), "weights", array, "a finite number greater than 0")
        log_weights = np.log(array)
    # w_k is proportional to p(k) p(data | k). As logarithms: evidences differ by hundreds of nats.
    components = stack_trees(posteriors)
    log_weights = log_weights - np.logaddexp.reduce(log_weights)
    known = tables if len(tables) == len(posteriors) else ()
    return Mixture(components, log_weights, first.space, site_tables=known)


def _require_alike(posteriors: Sequence[ConjugatePosterior]) -> None:
    # One tree structure and one shape for each leaf: only then can the arrays be stacked.
    outlines = [
        (jax.tree.structure(posterior), [np.shape(leaf) for leaf in jax.tree.leaves(posterior)])
        for posterior in posteriors
    ]
    for index, outline in enumerate(outlines):
        if outline != outlines[0]:
            raise ValueError(
                f"posteriors[{index}] differs from posteriors[0] in its space, laws or shapes, "
                "expected posteriors of one kind (the same program with other numbers)"
            )


def log_predictive_outcome(posterior: ConjugatePosterior, transitions: Transitions) -> Float[Array, "*N"]:
    """Log-probability of the next state (or end) of each transition, each by itself; -inf where it is impossible.

    Zero where it was not observed what followed.

    Raises:
        ValueError, TypeError: transitions that the space cannot hold (not inside a trace).
    """
    place = _place(posterior, transitions)
    # The predictive of a Dirichlet row is its mean, c_o / c0.
    return jnp.asarray(transitions.row_weight(jnp.log(pick(posterior.transition_probs.mean(), place))))


def log_predictive_reward(posterior: ConjugatePosterior, transitions: Transitions) -> Float[Array, "*N"]:
    """Log density of the reward of each transition, each by itself; zero where it is known, missing or not observed.

    Raises:
        ValueError, TypeError: transitions that the space cannot hold (not inside a trace).
    """
    *cell, outcome = _place(posterior, transitions)
    if transitions.reward is None:
        return jnp.zeros(jnp.shape(transitions.state))
    # Weight one where a reward was seen, zero where it was not or has no outcome to depend on.
    weight = jnp.ones(jnp.shape(transitions.state))
    seen = transitions.observed_rewards(weight, by_outcome=posterior.rewards_by_outcome)[0] != 0
    reward = jnp.asarray(transitions.reward, float)
    if is_concrete(reward):
        reward_cell = tuple(cell), np.asarray(outcome)
        posterior.reward_cells.check_rewards("transitions.reward", *reward_cell, np.asarray(reward), np.asarray(seen))
    return jnp.asarray(posterior.reward_cells.log_predictive(tuple(cell), outcome, reward, seen.astype(float)))


def log_predictive(posterior: ConjugatePosterior, transitions: Transitions) -> Float[Array, "*N"]:
    """Log density of outcome and reward of each transition, each by itself given the data of `posterior` alone.

    Args:
        transitions: N, each predicted by itself.

    Raises:
        ValueError, TypeError: transitions that the space cannot hold (not inside a trace).
    """
    return log_predictive_outcome(posterior, transitions) + log_predictive_reward(posterior, transitions)


def log_gain(posterior: ConjugatePosterior, transition: Transitions, weight: ArrayLike) -> Float[Array, ""]:
    """By how much `posterior.update(transition, weight)` of one transition raises the log evidence. Checks nothing.

    It is log E[likelihood^weight]: `log_predictive` for weight 1, zero for weight 0 (whatever the transition holds).
    """
    rows, rewards = posterior.transition_probs, posterior.reward_cells
    cell, outcome = transition.cell(posterior.space), transition.outcome(posterior.space)
    weight = jnp.asarray(weight, float)
    row_weight = transition.row_weight(weight)
    # log E[p_o^w] = rising(c_o, w) / rising(c0, w); known rows (no concentration) are exact powers.
    concentration = jnp.asarray(pick(rows.concentration, cell))
    # A concentration of zero is an outcome of probability zero, or a known row.
    seen, total = concentration[outcome], concentration.sum(-1)
    rising = log_rising(jnp.where(seen > 0, seen, 1.0), row_weight) - log_rising(
        jnp.where(total > 0, total, 1.0), row_weight
    )
    gain = jnp.where(seen > 0, rising, row_weight * jnp.log(pick(rows.mean(), (*cell, outcome))))
    gain = jnp.where(row_weight != 0, gain, 0.0)
    if transition.reward is None:
        return gain
    weight, reward = transition.observed_rewards(weight, by_outcome=posterior.rewards_by_outcome)
    # Outcome and reward are independent given the cell: their log densities add up.
    return gain + rewards.log_predictive(cell, outcome, reward, weight)


def _place(posterior: ConjugatePosterior, transitions: Transitions) -> Index:
    check_type("posterior", posterior, ConjugatePosterior, "a ConjugatePosterior")
    check_type("transitions", transitions, Transitions, "Transitions")
    if is_concrete(transitions):
        check_transitions(transitions, posterior.space)
    outcome = transitions.outcome(posterior.space)
    return (*transitions.cell(posterior.space), outcome)
