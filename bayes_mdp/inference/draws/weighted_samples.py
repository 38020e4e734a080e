"""A posterior that is given by draws: hypotheses, each with a weight."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.inference.conjugate.lazy_arrays import known_rewards, lazy_draws
from bayes_mdp.inference.pair_draws import PairDraws, draws_of_sample, whole_draws
from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.mdp.abilities import Sizes
from bayes_mdp.mdp.hypothesis import at_successors, check_mdp
from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.utils.typing import AnyArray, ArrayLike, RealScalar
from bayes_mdp.utils.validation import check_not_negative, check_shape, is_concrete

Pairs = Float[Array, "*H S A"]


class WeightedSamples(eqx.Module):
    """What every posterior that is given by weighted hypotheses can do.

    `mdps` is an MDP whose arrays have a leading axis N (or a sparse one, with the same lists of successors in all
    draws), `weights` are non-negative and sum to one.
    """

    mdps: eqx.AbstractVar[MDP | SparseMDP]
    weights: eqx.AbstractVar[Float[AnyArray, " N"]]

    @property
    def independent_rows(self) -> bool:
        """False: draws cannot show that rows are independent."""
        return False

    @property
    def shared_parameters(self) -> str:
        """Why rows do not count as independent."""
        return "draws do not show which rows are independent"

    @property
    def rewards_by_outcome(self) -> bool:
        """False: a draw holds the expected reward of a pair."""
        return False

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> MDP | SparseMDP:
        """Hypotheses drawn from the sample by weight, with replacement."""
        # Multinomial draws of the index; the hypotheses are gathered, not recomputed.
        index = jax.random.choice(key, len(self.weights), sample_shape, p=jnp.asarray(self.weights))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], self.mdps)

    def sizes(self) -> Sizes:
        """What all draws have in common (`CanDrawPairs`)."""
        mdps = self.mdps
        legal, initial = (None if x is None else np.asarray(x)[0] for x in (mdps.legal, mdps.initial))
        initial = None if initial is None else initial.astype(np.float64)
        return Sizes(mdps.reward.shape[1:], mdps.end_probs is not None, legal, initial)

    def pair_draws(self, key: PRNGKeyArray, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """A stream of draws of the needed pairs, with replacement, by NumPy (`CanDrawPairs`).

        Args:
            key: of the draws.
            needed: which pairs.
        """
        return draws_of_sample(key, whole_draws(self.mdps), np.asarray(self.weights), needed, self.sizes())

    def outcome_draws(self, key: PRNGKeyArray, name: str, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """`pair_draws`: a hypothesis holds rows and rewards, and is chosen by the key of the rows (`CanDrawOutcome`).

        Args:
            key: of the rows.
            name: of the outcome; not used.
            needed: which pairs.
        """
        del name
        return self.pair_draws(key, needed)

    def lazy_belief(self, key: PRNGKeyArray, num_draws: int, reward_bins: int) -> LazyBelief:
        """A draw by weight, then its rows (`CanSampleLazily`): nothing is drawn from `key`.

        A draw holds the expected reward of each pair and no law: simulations do not learn from rewards.
        """
        del key, num_draws, reward_bins
        mdps = self.mdps
        # The end of an episode is one more outcome, the last.
        ends = jnp.zeros(mdps.reward.shape) if mdps.end_probs is None else jnp.asarray(mdps.end_probs)
        rows = jnp.concatenate([jnp.asarray(mdps.row_probs), ends[..., None]], -1)
        successor = None
        # Lists of successors are common to all draws; S is the end.
        if isinstance(mdps, SparseMDP):
            listed = jnp.asarray(mdps.successor)[0]
            last = jnp.full((*listed.shape[:-1], 1), mdps.n_states)
            successor = jnp.concatenate([listed, last], -1).reshape(-1, *listed.shape[-3:-1], rows.shape[-1])
        return LazyBelief(
            jnp.asarray(self.weights), lazy_draws(rows, successor), known_rewards(jnp.asarray(mdps.reward), False)
        )

    def mean_mdp(self) -> MDP | SparseMDP:
        """Weighted mean of probabilities and rewards; masks and initial distribution are those of the first draw."""
        mdps = self.mdps
        ends = None if mdps.end_probs is None else self._mean(mdps.end_probs)
        legal, initial = (None if x is None else jnp.asarray(x)[0] for x in (mdps.legal, mdps.initial))
        rows = self._mean(mdps.row_probs)
        # Means of many draws in float32 add to one but for 1e-5 or so.
        total = rows.sum(-1) + (0.0 if ends is None else ends)
        total = jnp.where(total > 0, total, 1.0)
        ends = None if ends is None else ends / total
        rows, reward = rows / total[..., None], self._mean(mdps.reward)
        if isinstance(mdps, SparseMDP):
            listed = jnp.asarray(mdps.successor)[0]
            return SparseMDP(listed, rows, reward, end_probs=ends, legal=legal, initial=initial)
        return MDP(rows, reward, end_probs=ends, legal=legal, initial=initial)

    def reward_variance(self) -> Pairs:
        """Variance of the expected reward of one step over the draws."""
        return self._variance(self.mdps.reward)

    expected_reward_variance = reward_variance  # a draw holds the expected reward of a pair

    def transition_variance(self, values: Float[AnyArray, "*steps S"], discount: RealScalar) -> Pairs:
        """Variance of discount * sum_s' P(s' | s, a) values(s') over the draws; `values` as in `bellman_variance`."""
        return self._variance(discount * self._expected_next(values))

    def row_bound(self, values: Float[AnyArray, "*steps S"], discount: RealScalar) -> Pairs:
        """The largest |values| of the states that some draw can reach."""
        del discount
        return jnp.where(self._mean(self.mdps.row_probs) > 0, jnp.abs(self._next_values(values)), 0.0).max(-1)

    def bellman_variance(self, values: Float[AnyArray, "*steps S"], discount: RealScalar) -> Pairs:
        """Variance of reward + discount * sum_s' P(s' | s, a) values(s') over the draws; the value of an end is 0.

        `values` [S] or [H S]: `values[h]` is the value of the states that step h leads to.
        """
        # Covariances of reward and row are in it: both belong to one draw.
        return self._variance(self.mdps.reward + discount * self._expected_next(values))

    def _expected_next(self, values: Float[AnyArray, "*steps S"]) -> Float[Array, "N *H S A"]:
        return (self.mdps.row_probs * self._next_values(values)).sum(-1)

    def _next_values(self, values: Float[AnyArray, "*steps S"]) -> Float[Array, "..."]:
        """The values of the next states, to be broadcast against the rows of one draw."""
        values = jnp.asarray(values)
        if not isinstance(self.mdps, SparseMDP):
            # [S] against rows [S A S']: the values go to the last axis.
            return jnp.expand_dims(values, (-3, -2))
        return jnp.asarray(at_successors(values, jnp.asarray(self.mdps.successor)[0]))

    def variance_factor(self, form: str) -> Pairs:
        """The factor of the uncertainty Bellman equation from the draws: "ratio" sum Var P / E P, "printed" sum Var P.

        "ratio" is a bound of what a row adds for any |values| <= q_max; "printed" only for values in an interval of
        length q_max. Draws do not show independent rows, so neither is a bound of the variance of the value.

        Raises:
            ValueError: another form; the others are theorems about Dirichlet rows.
        """
        if form not in ("ratio", "printed"):
            raise ValueError(f'form is {form!r}, expected "ratio" or "printed": the others need Dirichlet rows')
        mdps = self.mdps
        rows = mdps.row_probs
        if mdps.end_probs is not None:
            rows = jnp.concatenate([rows, mdps.end_probs[..., None]], axis=-1)
        # For |v| <= q_max: Var(p . v) <= q_max^2 sum_o Var(p_o) / E[p_o], by Cauchy-Schwarz with weights E[p_o].
        variance, mean = self._variance(rows), self._mean(rows)
        # "printed" leaves the division out, as the equation is printed: sum of the variances alone.
        if form == "printed":
            return variance.sum(-1)
        return jnp.where(mean > 0, variance / jnp.where(mean > 0, mean, 1.0), 0.0).sum(-1)

    def _mean(self, values: Float[AnyArray, "N *rest"]) -> Float[Array, "*rest"]:
        values = jnp.asarray(values)  # about the first draw: what all draws agree on has no variance, also in float32
        return values[0] + tensordot(jnp.asarray(self.weights), values - values[0], axes=1)

    def _variance(self, values: Float[AnyArray, "N *rest"]) -> Float[Array, "*rest"]:
        return self._mean((values - self._mean(values)) ** 2)


class PosteriorSamples(WeightedSamples):
    """A weighted sample of hypotheses as a posterior (built by `posterior_samples`).

    Args:
        mdps: an MDP whose arrays have a leading axis N.
        weights: [N], non-negative, summing to one.
    """

    mdps: MDP | SparseMDP
    weights: Float[AnyArray, " N"]

    @property
    def num_listed(self) -> int:
        """N."""
        return len(self.weights)


class CountedSamples(PosteriorSamples):
    """`PosteriorSamples` that know how often every pair was visited.

    Args:
        visits: how often.
    """

    visits: Float[AnyArray, "*H S A"]

    def visit_counts(self) -> Pairs:
        """Number of observed transitions from every pair."""
        return jnp.asarray(self.visits)


def posterior_samples(
    mdps: MDP | SparseMDP, *, weights: ArrayLike | None = None, visits: ArrayLike | None = None
) -> PosteriorSamples:
    """A posterior from a list of MDPs, with weights.

    Args:
        mdps: an MDP (or SparseMDP) whose arrays have a leading axis N, as `sample(key, (N,))` returns it.
        weights: [N], non-negative; normalised here. None: all equal.
        visits: [*H S A], how often every pair was visited, where that is known.

    Raises:
        ValueError: shapes disagree, a weight is negative or not finite, all weights are zero.
        TypeError: no MDP, a weight or a count that is no number.
    """
    check_mdp(mdps, "mdps")
    size = jnp.shape(mdps.row_probs)
    # Three axes are rows of one MDP; so are four where the mask or the initial distribution has no axis of draws.
    single = len(size) == 3 or any(
        part is not None and jnp.ndim(part) == axes for part, axes in ((mdps.legal, 2), (mdps.initial, 1))
    )
    if single:
        raise ValueError(
            f"mdps has rows of shape {size}, those of one MDP, expected an axis of draws before: sample(key, (N,))"
        )
    # Draws with lists of their own have no common sparse mean: dense rows for all.
    # (Inside a trace it cannot be looked into whether they have.)
    if isinstance(mdps, SparseMDP):
        lists = mdps.successor
        if not is_concrete(lists) or (lists != lists[:1]).any():
            mdps = jax.vmap(SparseMDP.to_dense)(mdps)
    number, *pairs = mdps.reward.shape
    if weights is not None:
        check_not_negative("weights", weights)
    weights = jnp.full(number, 1.0 / number) if weights is None else jnp.asarray(weights, float)
    check_shape("weights", weights, (number,), "draw")
    if is_concrete(weights):
        array = np.asarray(weights)
        if array.sum() <= 0:
            raise ValueError("weights sum to 0, expected a positive sum")
    # Normalised once: every mean is then a dot product.
    weights = weights / weights.sum()
    if visits is None:
        return PosteriorSamples(mdps, weights)
    check_not_negative("visits", visits)
    check_shape("visits", jnp.asarray(visits), tuple(pairs), "(step,) state, action")
    return CountedSamples(mdps, weights, jnp.asarray(visits, float))
