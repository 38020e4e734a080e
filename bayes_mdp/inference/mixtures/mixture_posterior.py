"""What every weighted mixture of conjugate posteriors can do: component by component, then total variance."""

import abc
import math
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.conjugate_draws import Components, conjugate_pair_draws
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.information import divergence
from bayes_mdp.inference.conjugate.lazy_arrays import (
    drawn_rewards,
    known_rewards,
    labelled_rewards,
    lazy_rewards,
    lazy_rows,
    urn_of,
)
from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.inference.conjugate.site_table import SiteTable
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.pair_draws import PairDraws
from bayes_mdp.inference.summary import PairMoments
from bayes_mdp.mdp import MDP, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.mdp.sizes import Sizes
from bayes_mdp.models.sufficient_statistics import RewardSums
from bayes_mdp.numerics.numpy_or_jax import as_numpy, concrete_in_numpy, xp
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar, RealScalar
from bayes_mdp.utils.validation import is_concrete

Pairs = Float[AnyArray, "*H S A"]
Tree = TypeVar("Tree")
NUMBERS_AT_ONCE = 2**23  # probabilities of components that are held at once


class MixturePosterior(Fitted):
    """A mixture of conjugate posteriors over one space, with weights.

    Its rows are not independent, but those of each component may be: what theorems say of independent rows holds
    component by component, and the law of total variance joins them.
    """

    components: eqx.AbstractVar[ConjugatePosterior]
    log_weights: eqx.AbstractVar[Float[AnyArray, " K"]]
    space: eqx.AbstractVar[StateActionSpace]

    @abc.abstractmethod
    def component(self, k: IntScalar) -> ConjugatePosterior:
        """Component `k`, an integer or a traced one."""

    @property
    def reference(self) -> ConjugatePosterior:  # type: ignore[override]
        """The first component, which shares data, laws and tables with the others."""
        return self.component(0)

    @property
    def site_tables(self) -> tuple[SiteTable, ...]:
        """Where the elements of the program's sites lie in the arrays; (): not known."""
        return self.reference.site_tables

    @property
    @concrete_in_numpy
    def weights(self) -> Float[AnyArray, " K"]:
        """Probabilities of the components."""
        return xp.softmax(self.log_weights)

    @property
    def is_batch(self) -> bool:
        """Whether the arrays have extra leading axes (under `vmap`)."""
        return np.ndim(self.log_weights) > 1

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
        draw = self._draw
        for _ in sample_shape:
            draw = jax.vmap(draw)
        return draw(jax.random.split(key, sample_shape) if sample_shape else key)

    def _draw(self, key: PRNGKeyArray) -> MDP | SparseMDP:
        key_component, key_mdp = jax.random.split(key)
        return self.draw_component(key_component).sample(key_mdp)

    def sizes(self) -> Sizes:
        """What all draws have in common (`CanDrawPairs`)."""
        return Sizes.of(self.space)

    def pair_draws(self, key: PRNGKeyArray, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """A stream of draws of the needed pairs, by NumPy (`CanDrawPairs`): a component by weight, then its pairs.

        Args:
            key: of the draws.
            needed: which pairs.
        """
        return conjugate_pair_draws(key, self.component(0), needed, self.component_priors(key))

    @abc.abstractmethod
    def component_priors(self, key: PRNGKeyArray) -> Components:
        """The priors of all components, and a stream of draws of these. Host side.

        Args:
            key: of the draws.
        """

    def draw_component(self, key: PRNGKeyArray) -> ConjugatePosterior:
        """A component, by weight."""
        return self.component(jax.random.categorical(key, jnp.asarray(self.log_weights)))

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
        each = jax.vmap(lambda c: lazy_rows(c.transition_probs, c.space)._replace(row=None, outcome=None))(components)
        if isinstance(rewards, KnownRewards):
            means = jax.vmap(lambda c: jnp.asarray(c.reward_cells.mean()))(components)
            paid = known_rewards(means, rewards.by_outcome)
        elif urn_of(rewards) is not None:
            made = jax.vmap(lambda c: lazy_rewards(c.reward_cells, key, 1, 1))(components)
            same = jax.tree.map(lambda x: x[0], made)
            paid = same._replace(cumulative=made.cumulative[:, 0], value=made.value[:, 0])
        else:
            each_draws = -(-num_draws // self.num_components)
            keys = jax.random.split(key, self.num_components)
            drawn = jax.vmap(lambda c, one: drawn_rewards(c.reward_cells, one, each_draws))(components, keys)
            # Draw by draw, so that entry c belongs to component c modulo K.
            mean, noise = (jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]) for x in drawn)
            weights = jnp.tile(weights, each_draws) / each_draws
            paid = labelled_rewards(rewards.law, mean, noise, rewards.by_outcome, reward_bins)
        # What is selected by which pair is the same in all components. A column that is impossible in one of them may
        # be possible in another: an urn where any has several.
        shared = lazy_rows(first.transition_probs, first.space)
        rows = shared._replace(cumulative=each.cumulative[:, 0], learns=each.learns.any(0))
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

    def _weighted_mean(self, values: Float[Array, "K *rest"]) -> Float[Array, "*rest"]:
        """About the heaviest component: what all agree on (a known reward) is exact, however many there are.

        A node far out, where a mean is 1e12, would take all digits from the others.
        """
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
            return jax.tree.map(self._weighted_mean, answers)

        def add(total: Tree, k: Int[Array, ""]) -> tuple[Tree, None]:
            answer = function(self.component(k))
            return jax.tree.map(lambda t, x: t + jnp.asarray(self.weights)[k].astype(x.dtype) * x, total, answer), None

        shapes = jax.eval_shape(lambda: function(self.component(0)))
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return lax.scan(add, zero, jnp.arange(self.num_components))[0]

    def pair_moments(self) -> PairMoments:
        """What `table` shows of every pair, by the laws of total expectation and variance. Traceable."""

        def first(component: ConjugatePosterior) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray | None]:
            one = component.pair_moments()
            return one.probs, one.reward, one.prior_share, one.reward_share

        probs, reward, share, paid = self.average(first)

        def second(component: ConjugatePosterior) -> tuple[AnyArray, AnyArray]:
            one = component.pair_moments()
            # E[variance] + variance of the mean, component by component
            return one.probs_variance + (one.probs - probs) ** 2, one.reward_variance + (one.reward - reward) ** 2

        probs_variance, reward_variance = self.average(second)
        return PairMoments(probs, probs_variance, reward, reward_variance, share, self.visit_counts(), paid)

    def reward_sums(self) -> RewardSums | None:
        """The law of one reward, and sums of all of them (see `wide_law`); None: they are not kept. Host side."""
        return self.component(0).reward_sums()

    def rewards_seen(self) -> float | None:
        """Number of observed rewards; None where all rewards are known."""
        return self.component(0).rewards_seen()

    def check(self, transitions: Transitions, weight: ArrayLike = 1.0) -> None:
        """Refuse transitions that no component can hold, as `ConjugatePosterior.check`. Host side.

        Data that are impossible in one component alone rule that component out, and are accepted.
        """
        refusals: list[Exception] = []
        for k in np.flatnonzero(np.isfinite(self.log_weights)):
            try:
                return self.component(int(k)).check(transitions, weight)
            except (ValueError, TypeError) as error:
                refusals.append(error)
        raise refusals[0]
