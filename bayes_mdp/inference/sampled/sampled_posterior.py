"""`SampledPosterior`: weighted draws of a whole program, reweighted by new data."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.lazy_arrays import known_rewards, label_rewards, lazy_draws, lazy_successors
from bayes_mdp.inference.draws.chains import Chains, Scalars, of_array
from bayes_mdp.inference.draws.weighted_samples import WeightedSamples
from bayes_mdp.inference.fitted import Fitted, Law, LawDraws
from bayes_mdp.inference.sampled.algorithms import Drawn, few_draws_left
from bayes_mdp.inference.sampled.conditioned_program import (
    DataStatistics,
    RewardRows,
    Rows,
    add_data,
    num_rewards,
    outcome_counts,
    overflow,
    sums_of,
    with_capacity,
)
from bayes_mdp.inference.sampled.recipe import Recipe
from bayes_mdp.inference.summary import PairMoments, program_data
from bayes_mdp.mdp import MDP, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import check_transitions, check_weighted, without_masked_rows
from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.models.mdp_spec import MDPSpec, RewardTable, check_mean, to_mdp
from bayes_mdp.models.reward_laws import law_variance
from bayes_mdp.models.reward_support import RewardSupport, support_of_draws
from bayes_mdp.models.sufficient_statistics import RewardSums
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.random.resampling import systematic
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar
from bayes_mdp.utils.validation import check_count, first_index, is_concrete

SHARE = 0.5


class SampledPosterior(WeightedSamples, Fitted):
    """Draws of all latent sites, each with a weight (built by `infer`).

    New data multiply the weight of a draw by their likelihood under it, whatever the reward law: exact for the draws
    that it has. When few of them carry the weight, `refit` draws anew given all data. `bayes_mdp.evidence` estimates
    its log evidence, from chains.

    Args:
        sites: {site: [N ...]}, draws of every latent site.
        transition_probs: [N *H S A O], the rows of each draw.
        rewards: the reward law of each draw: its arrays have a leading axis N.
        log_weights: [N], up to a constant.
        data_statistics: all data: statistics, or counts and single rewards where the law has no statistics.
        mcmc: the chains behind the draws; None: other algorithms, draws from the prior, thinned ones.
        losses: of the optimiser; None likewise.
        recipe: how to infer anew.
        share: the effective sample size, as a share of N, below which `needs_refit` is true.
    """

    sites: Mapping[str, AnyArray]
    transition_probs: Float[AnyArray, "N *H S A O"]
    rewards: RewardTable
    log_weights: Float[AnyArray, " N"]  # type: ignore[override]
    data_statistics: DataStatistics
    mcmc: Chains | None
    losses: Float[AnyArray, " K"] | None
    recipe: Recipe = eqx.field(static=True)
    share: float = eqx.field(static=True, default=SHARE)

    @property
    def method(self) -> str:
        """How it was inferred: "nuts", "svi" or "laplace"."""
        return self.recipe.name

    @property
    def space(self) -> StateActionSpace:
        """Sizes, names, masks."""
        return self.recipe.space

    @property
    def reward_law(self) -> type[dist.Distribution] | None:
        """The type of the law of one reward; None: rewards are known numbers."""
        return None if self.rewards.law is None else type(self.rewards.law)

    @property
    def rewards_by_outcome(self) -> bool:
        """Whether the cells of the reward law have the outcome as last axis."""
        return self.rewards.by_outcome

    @property
    def known_reward(self) -> Float[np.ndarray, "*cells"] | None:
        """Mean rewards, where they are known; None: they are not."""
        if self.rewards.law is not None:
            return None
        # Known if all draws agree.
        rewards_by_draw = np.asarray(self.rewards.known)
        return None if (rewards_by_draw != rewards_by_draw[:1]).any() else rewards_by_draw[0]

    @property
    def site_draws(self) -> Mapping[str, AnyArray]:
        """The draws of all latent sites."""
        return self.sites

    @property
    def drawn_by(self) -> Recipe:
        """How the draws were made."""
        return self.recipe

    @property
    def reward_data(self) -> DataStatistics:
        """What is kept of the data."""
        return self.data_statistics

    def law_at(self, key: PRNGKeyArray, k: IntScalar) -> Law:
        """Rows and reward laws of draw `k`. Traceable.

        Args:
            key: not used.
            k: number of the draw.
        """
        del key
        # Draw k has its tables ready: no further randomness.
        return Law(*jax.tree.map(lambda x: jnp.asarray(x)[k], (self.transition_probs, self.rewards)))

    def draw_laws(self, key: PRNGKeyArray, index: Int[np.ndarray, " N"]) -> LawDraws:
        """The laws of the draws in `index`.

        Args:
            key: not used.
            index: numbers of draws.
        """
        del key
        return LawDraws.of_tables(*jax.tree.map(lambda x: np.asarray(x)[index], (self.transition_probs, self.rewards)))

    @property
    def num_draws(self) -> int:
        """N."""
        return self.log_weights.shape[0]

    @property
    def weights(self) -> Float[Array, " N"]:  # type: ignore[override]
        """Probabilities of the draws."""
        return jax.nn.softmax(jnp.asarray(self.log_weights))

    @property
    def mdps(self) -> MDP | SparseMDP:  # type: ignore[override]
        """The hypothesis of every draw, with a leading axis N on every array.

        Raises:
            ValueError: a reward law without a mean (see `bayes_mdp.models.mdp_spec.check_mean`).
        """
        check_mean(self.rewards, self.space, draws=True)
        return jax.vmap(self._mdp)(self.transition_probs, self.rewards)

    def _mdp(self, rows: Float[AnyArray, "*H S A O"], rewards: RewardTable) -> MDP | SparseMDP:
        # E[r | s, a] = sum_o p(o) r(o) where rewards depend on the outcome.
        reward = (rows * rewards.mean).sum(-1) if rewards.by_outcome else rewards.mean
        return to_mdp(MDPSpec(rows, reward), self.space)

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> MDP | SparseMDP:
        """Hypotheses drawn from the draws by weight, with replacement.

        Raises:
            ValueError: as `mdps`.
        """
        check_mean(self.rewards, self.space, draws=True)
        # One index for rows and rewards: a draw is a whole hypothesis.
        index = jax.random.categorical(key, jnp.asarray(self.log_weights), shape=sample_shape)
        make = self._mdp
        for _ in sample_shape:
            make = jax.vmap(make)
        return make(*jax.tree.map(lambda x: jnp.asarray(x)[index], (self.transition_probs, self.rewards)))

    def lazy_belief(self, key: PRNGKeyArray, num_draws: int, reward_bins: int) -> LazyBelief:
        """A draw by weight, then its rows and rewards (`CanSampleLazily`): nothing is drawn from `key`.

        Raises:
            ValueError: a reward law without a mean, which a legal pair has.
        """
        del key, num_draws
        check_mean(self.rewards, self.space, draws=True)
        # The draws of a sampled posterior are points: its rows are known once the draw is.
        rows = lazy_draws(jnp.asarray(self.transition_probs), lazy_successors(self.space))
        mean = jax.vmap(lambda table: table.mean)(self.rewards)
        if self.rewards.law is None:
            paid = known_rewards(mean, self.rewards.by_outcome)
        else:
            noise = jax.vmap(law_variance)(self.rewards.law)
            paid = label_rewards(type(self.rewards.law), mean, noise, self.rewards.by_outcome, reward_bins)
        return LazyBelief(self.weights, rows, paid)

    def visit_counts(self) -> Float[Array, "*H S A"]:
        """Number of observed transitions from every pair."""
        return jnp.asarray(outcome_counts(self.data_statistics)).sum(-1)

    def effective_sample_size(self) -> Float[Array, ""]:
        """1 / sum of the squared weights, from 1 to N: how many draws carry the belief.

        What the chains' own autocorrelation costs comes on top: `mcmc.ess()`.
        """
        return 1.0 / jnp.sum(self.weights**2)

    def needs_refit(self) -> Bool[Array, ""]:
        """Whether the effective sample size of the weights is below `share` of the draws. Traceable."""
        # Not "<": true for weights that are nan too.
        return ~(self.effective_sample_size() >= self.share * self.num_draws)

    def refit(self, key: PRNGKeyArray) -> "SampledPosterior":
        """The same belief inferred anew given all data: same shapes and dtypes, equal weights.

        Traceable, and slow. It keeps the chains or losses of its run where this belief has some.

        Raises:
            ValueError: the buffer of rewards has overflowed (see `reserve`); inside a trace the weights are nan.
        """
        # Inside a trace the arrays have no values: the traceable path, which cannot raise.
        if not is_concrete(key, self.log_weights, self.data_statistics):
            return self._refit(key)
        with _precision(self):
            return jax.tree.map(np.asarray, jax.tree.map(np.array, self)._refit(key))

    def _refit(self, key: PRNGKeyArray) -> "SampledPosterior":
        key_run, key_thin = jax.random.split(key)
        # On the host one compiled program serves equal recipes; in a trace it is part of the caller's.
        run = after_on_host if is_concrete(key, self.data_statistics) else posterior_after
        refitted = run(self.recipe, key_run, self.data_statistics)
        if isinstance(self.data_statistics, Rows):
            # A trace cannot raise: there weights of nan are the sign.
            lost = self.data_statistics.used > self.data_statistics.capacity
            if is_concrete(lost) and lost:
                raise ValueError(overflow(self.data_statistics, self.recipe.law))
            refitted = replace(refitted, log_weights=jnp.where(lost, jnp.nan, refitted.log_weights))
        refitted = replace(refitted, share=self.share)
        # Draws that were thinned before are thinned again, so that the arrays of a compiled loop keep their shapes.
        if (self.mcmc is None and self.losses is None) or refitted.num_draws != self.num_draws:
            refitted = refitted.thinned(key_thin, self.num_draws)
        if jax.tree.structure(refitted) != jax.tree.structure(self):
            raise ValueError("the chains of this belief are not those of its method, expected what infer returned")
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), refitted, self)

    def thinned(self, key: PRNGKeyArray, num: int) -> "SampledPosterior":
        """`num` of the draws, by weight (systematically), of equal weight and without diagnostics. Traceable.

        Raises:
            ValueError: `num` is below 1. TypeError: no integer.
        """
        check_count("num", num)
        # Systematic resampling: unbiased, with less noise than multinomial.
        index = systematic(key, self.weights, num)
        tables = (self.sites, self.transition_probs, self.rewards)
        sites, rows, rewards = jax.tree.map(lambda x: jnp.asarray(x)[index], tables)
        log_weights = jnp.zeros(num, jnp.asarray(self.log_weights).dtype)
        return replace(
            self,
            sites=sites,
            transition_probs=rows,
            rewards=rewards,
            log_weights=log_weights,
            mcmc=None,
            losses=None,
        )

    def reserve(self, num_transitions: int) -> "SampledPosterior":
        """The same belief with a buffer for so many more transitions; needed where a compiled loop updates it.

        Only reward laws without sufficient statistics keep their rewards one by one. Host side: shapes change.

        Args:
            num_transitions: so many.

        Raises:
            ValueError: a negative number. TypeError: no integer.
        """
        check_count("num_transitions", num_transitions, 0)
        return replace(self, data_statistics=with_capacity(self.data_statistics, num_transitions))

    def update(self, transitions: Transitions, weight: ArrayLike = 1.0) -> "SampledPosterior":
        """The belief after one transition or a block: every draw weighed by its likelihood.

        Args:
            transitions: data; a reward of None, or not observed, carries no information about rewards.
            weight: scalar or [N]; zero masks a transition of a fixed buffer, another number raises its likelihood to
                that power.

        Raises:
            ValueError, TypeError: data that the space or the prior cannot hold (not inside a trace).
        """
        check_weighted(transitions, weight)
        weight = jnp.broadcast_to(jnp.asarray(weight, float), jnp.shape(transitions.state))
        if not is_concrete(transitions, weight, self.log_weights):
            return self._learn(transitions, weight)
        # A buffer large enough first: rewards that find no place would be lost in silence.
        roomy = self.reserve(int(np.size(weight)))
        roomy.check(transitions, weight)
        with _precision(self):
            after = _learn(*jax.tree.map(np.array, (roomy, transitions, weight)))
            return jax.tree.map(np.asarray, after)

    def _learn(self, transitions: Transitions, weight: Float[AnyArray, "*K"]) -> "SampledPosterior":
        # Importance weights: log w_n += log p(data | draw n). Shifted by the maximum, against underflow.
        # [N K] log likelihoods of K transitions under N draws, summed over the transitions.
        gain = self._log_likelihoods(transitions, weight).reshape(self.num_draws, -1).sum(1)
        old = jnp.asarray(self.log_weights)
        new = old + gain.astype(old.dtype)
        top = jnp.max(new)
        law, by_outcome = self.recipe.statistics_law, self.rewards.by_outcome
        data_statistics = add_data(self.data_statistics, transitions, weight, self.space, law, by_outcome=by_outcome)
        return replace(self, log_weights=jnp.where(jnp.isfinite(top), new - top, new), data_statistics=data_statistics)

    def _log_likelihoods(self, transitions: Transitions, weight: Float[AnyArray, "*K"]) -> Float[Array, "N *K"]:
        """Weight times log density of each transition under each draw; 0 where the weight is 0."""
        cell, outcome = transitions.cell(self.space), transitions.outcome(self.space)
        row_weight = transitions.row_weight(weight)

        def one(rows: Float[Array, "*H S A O"], rewards: RewardTable) -> Float[Array, "*K"]:
            # log p(outcome | row of the draw); weight zero masks a transition, whatever it holds.
            density = jnp.where(row_weight != 0, row_weight * jnp.log(rows[(*cell, outcome)]), 0.0)
            if transitions.reward is None or rewards.law is None:
                return density
            observed, reward = transitions.observed_rewards(jnp.asarray(weight), by_outcome=rewards.by_outcome)
            return density + RewardRows(rewards.at(cell, outcome), observed).log_prob(reward)

        # Mapped over draws: all transitions under one draw are one gather.
        return jax.vmap(one)(jax.tree.map(jnp.asarray, self.transition_probs), self.rewards)

    def check(self, transitions: Transitions, weight: ArrayLike = 1.0) -> None:
        """Refuse transitions that the space or every draw rules out, but for those of weight zero. Host side.

        Raises:
            ValueError, TypeError: one sentence that names the first one (see `check_transitions`), a likelihood of zero
                under every draw, a full buffer of rewards.
        """
        check_transitions(transitions, self.space, weight)
        counted_rows = without_masked_rows(transitions, weight)
        if counted_rows is None:
            return
        if counted_rows.reward is not None:
            weights = np.ones(np.shape(counted_rows.state))
            # Rewards that were not seen, or have no outcome that they depend on, are held against nothing.
            seen = counted_rows.observed_rewards(weights, by_outcome=self.rewards.by_outcome)[0] != 0
            outcome = np.minimum(counted_rows.outcome(self.space), self.space.n_outcomes - 1)
            support = self.reward_support().at(counted_rows.cell(self.space), outcome)
            support.check("transitions.reward", np.asarray(counted_rows.reward, float), seen)
        # Impossible data: density zero under every draw, which no reweighting could express.
        densities = _densities(self, counted_rows, jnp.ones(jnp.shape(counted_rows.state)))
        index = first_index(~np.isfinite(np.asarray(densities).max(0)))
        if index is not None:
            raise ValueError(
                f"transitions{list(index) if index else ''} has likelihood zero under each of the {self.num_draws} "
                "draws, expected an outcome and a reward that the prior can give"
            )
        # A buffer that would overflow is refused before anything is lost.
        if isinstance(self.data_statistics, Rows) and transitions.reward is not None:
            size = int(np.sum(np.broadcast_to(np.asarray(weight) != 0, np.shape(transitions.state))))
            if int(self.data_statistics.used) + size > self.data_statistics.capacity:
                raise ValueError(overflow(self.data_statistics, self.recipe.law))

    def reward_support(self) -> RewardSupport:
        """Which rewards the law of every cell can give, whatever is unknown. Host side."""
        return support_of_draws(self.rewards, self.recipe.law)

    def pair_moments(self) -> PairMoments:
        """What `table` shows of every pair: moments of the draws. Traceable."""
        weights, rewards = self.weights, self.rewards
        # Weighted moments over the draws, for probabilities and expected rewards alike.
        means = jax.vmap(lambda each: each.mean)(rewards)

        def moments(values: Float[AnyArray, "N *cells"]) -> tuple[Float[Array, "*cells"], Float[Array, "*cells"]]:
            mean = tensordot(weights, values, axes=1)
            return mean, tensordot(weights, (values - mean) ** 2, axes=1)

        probs, probs_variance = moments(self.transition_probs)
        reward, reward_variance = moments((self.transition_probs * means).sum(-1) if rewards.by_outcome else means)
        # What the prior weighs cannot be seen in draws.
        share = jnp.full(self.space.shape, jnp.nan)
        return PairMoments(probs, probs_variance, reward, reward_variance, share, self.visit_counts())

    def reward_sums(self) -> RewardSums | None:
        """The law of one reward, and sums of all of them (see `wide_law`); None: they are not kept. Host side."""
        return sums_of(self.recipe.law, self.data_statistics)

    def num_rewards_observed(self) -> float | None:
        """Number of observed rewards; None where all rewards are known."""
        return None if self.rewards.law is None else num_rewards(self.data_statistics)

    def derived_tables(self) -> dict[str, Scalars]:
        """`transition_probs` and `reward_mean` in each draw of its chains.

        Empty where the draws are not those of its chains. Host side.
        """
        if self.mcmc is None or not self.mcmc.are_those_of(self.sites, self.num_draws):
            return {}
        split = (self.mcmc.num_chains, self.mcmc.num_samples)
        rewards = np.asarray(jax.vmap(lambda each: each.mean)(self.rewards))
        rows = np.asarray(self.transition_probs)
        return {"transition_probs": of_array(rows, split), "reward_mean": of_array(rewards, split)}

    def method_lines(self) -> dict[str, str]:
        """How it was inferred, and how many draws carry the weight, for `print`."""
        chains = self.mcmc
        approximate = ", an approximation" if self.method in ("svi", "laplace") else ""
        drawn = f"{self.num_draws} draws{approximate}" if chains is None else chains.described()
        size = float(self.effective_sample_size())
        return {
            "method": f"{self.method} ({drawn})",
            "weights": f"effective sample size {size:.4g} of {self.num_draws}",
            **program_data(self.recipe.observed),
        }

    def problems(self) -> list[str]:
        """Problems to know of before this is used, one sentence each; empty: none found. Host side."""
        sentences = Drawn(self.sites, self.mcmc, self.losses).problems(self.derived_tables())
        sentences += few_draws_left(float(self.effective_sample_size()), self.num_draws)
        if isinstance(self.data_statistics, Rows) and int(self.data_statistics.used) > self.data_statistics.capacity:
            sentences.append(overflow(self.data_statistics, self.recipe.law))
        return sentences


def posterior_after(recipe: Recipe, key: PRNGKeyArray, data_statistics: DataStatistics) -> SampledPosterior:
    """The posterior after `data_statistics`, by the method of `recipe`. Traceable."""
    return from_draws(recipe, recipe.draw(key, data_statistics), data_statistics)


def _precision(posterior: SampledPosterior) -> AbstractContextManager[None]:
    """The precision in which a posterior was inferred (`infer` works in float64). What enters is copied: JAX may hold
    32-bit versions of the arrays themselves.
    """
    in_float64 = np.asarray(posterior.log_weights).dtype == np.float64
    return jax.enable_x64(True) if in_float64 else nullcontext()


after_on_host = jax.jit(posterior_after, static_argnums=0)
"""`posterior_after`, compiled once for equal recipes and shapes of data. Host side."""


def from_draws(recipe: Recipe, drawn: Drawn, data_statistics: DataStatistics) -> SampledPosterior:
    """Equally weighted draws as a posterior. Traceable."""
    rows, rewards = recipe.tables(drawn.sites)
    equal = jnp.zeros(rows.shape[0])
    return SampledPosterior(  # pyright: ignore[reportCallIssue] (it takes abstract variables for fields)
        drawn.sites, rows, rewards, equal, data_statistics, drawn.mcmc, drawn.losses, recipe
    )


# Compiled once for the shapes of the data.
_learn = jax.jit(SampledPosterior._learn)
_densities = jax.jit(SampledPosterior._log_likelihoods)
