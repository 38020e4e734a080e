"""`SampledRewards`: the belief about the rewards as weighted draws of the sites behind them, reweighted by new data."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.rewards import (
    Cells,
    ComponentPrior,
    Drawer,
    Outcome,
    Rewards,
    SiteDraws,
    Weight,
    density_by_weight,
)
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.integrals.importance import Integration
from bayes_mdp.inference.pair_draws import draw_by_weight
from bayes_mdp.inference.sampled.algorithms import Drawn as SamplerOutput
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics, add_rewards, num_rewards, sums_of
from bayes_mdp.inference.sampled.recipe import Recipe
from bayes_mdp.mdp import Counts, StateActionSpace
from bayes_mdp.mdp.data.transitions import merge_moments
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.models.reward_laws import law_variance
from bayes_mdp.models.reward_support import RewardSupport, support_of_draws
from bayes_mdp.models.sufficient_statistics import RewardStatistics, RewardSums, Statistics
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.utils.typing import AnyArray, Index, IntScalar, RealScalar

REWARDS = 4
"""Folded into the key of the draws of rewards, which are independent of those of the rows."""


class SampledRewards(Rewards):
    """Draws of the sites behind the rewards, each with a weight.

    Args:
        sites: {site: [N ...]}, draws of the latent sites behind the rewards.
        table: the reward law of each draw: its arrays have a leading axis N.
        log_weights: [N], up to a constant.
        data_statistics: all data: statistics, or counts and single rewards where the law has no statistics.
        mcmc: the chains behind the draws; None: draws from the prior, thinned ones, or weighted ones.
        recipe: how to infer anew.
        integration: of weighted draws, how good they are; None: there are others.
    """

    sites: Mapping[str, AnyArray]
    table: RewardTable
    log_weights: Float[AnyArray, " N"]
    data_statistics: DataStatistics
    mcmc: Chains | None
    recipe: Recipe = eqx.field(static=True)
    integration: Integration | None = None
    in_closed_form: ClassVar[bool] = False
    # All cells come from one draw.
    independent: ClassVar[bool] = False  # type: ignore[override]
    distinct: ClassVar[bool] = False  # type: ignore[override]

    @property
    def by_outcome(self) -> bool:  # type: ignore[override]
        """Whether rewards depend on the outcome."""
        return self.table.by_outcome

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of the cells."""
        space = self.recipe.space
        return (*space.shape, space.n_outcomes) if self.by_outcome else space.shape

    @property
    def law(self) -> type[dist.Distribution] | None:  # type: ignore[override]
        """The family of the law of one reward."""
        return self.recipe.law

    @property
    def has_moments(self) -> bool:  # type: ignore[override]
        """Whether the law has sufficient statistics."""
        return self.recipe.statistics_law is not None

    @property
    def weights(self) -> Float[AnyArray, " N"]:
        """Probabilities of the draws."""
        return xp.softmax(self.log_weights)

    def _means(self) -> Float[Array, "N *cells"]:
        return jax.vmap(lambda each: each.mean)(self.table)

    def _average(self, values: Float[AnyArray, "N *rest"]) -> Float[Array, "*rest"]:
        values = jnp.asarray(values)  # about the first draw: what all draws agree on has no variance, also in float32
        return values[0] + tensordot(self.weights.astype(values.dtype), values - values[0], axes=1)

    def _variance(self, values: Float[AnyArray, "N *rest"]) -> Float[Array, "*rest"]:
        return self._average((values - self._average(values)) ** 2)

    def mean(self) -> Cells:
        """Mean reward, averaged over the draws."""
        return self._average(self._means())

    def variance(self) -> Cells:
        """Variance of the mean reward over the draws."""
        return self._variance(self._means())

    def noise(self) -> Cells:
        """Variance of one reward around its mean, averaged over the draws."""
        return self._average(jax.vmap(_noise)(self.table))

    def prior_share(self) -> None:
        """Not known: draws of the posterior do not say what the prior weighs in them."""

    def data_mean(self) -> None:
        """Not known."""

    def sample_sites(self, key: PRNGKeyArray) -> SiteDraws:
        """The number of a draw, by weight."""
        return (jax.random.categorical(key, jnp.asarray(self.log_weights)),)

    def table_of(self, drawn: SiteDraws) -> RewardTable:
        """The reward law of the draw with this number."""
        return jax.tree.map(lambda x: jnp.asarray(x)[drawn[0]], self.table)

    def drawer(self, key: PRNGKeyArray, place: Index, prior: ComponentPrior | None = None) -> Drawer:
        """A stream of draws of the mean rewards of some cells: all cells of a draw are from one draw of the sites."""
        choose = self._choice(key)
        with jax.enable_x64(True):
            mean = np.asarray(self._means(), np.float64)[(slice(None), *place)]
        return lambda num, _: mean[choose(num)]

    def picks(self, key: PRNGKeyArray, num: int) -> Int[np.ndarray, " N"]:
        """The numbers of the first draws of `drawer` under a key.

        Args:
            key: of the draws.
            num: how many.
        """
        return self._choice(key)(num)

    def _choice(self, key: PRNGKeyArray) -> Callable[[int], Int[np.ndarray, " N"]]:
        # A key of its own: rows use the same key for themselves.
        return draw_by_weight(jax.random.fold_in(key, REWARDS), np.asarray(self.weights))

    def gather_from_draw(self, drawn: SiteDraws) -> tuple[Cells, Cells]:
        """Mean and variance of one reward in every cell in the draw with this number."""
        table = self.table_of(drawn)
        return table.mean, _noise(table)

    def variance_of_average(self, probs: Float[AnyArray, "*H S A O"]) -> Float[Array, "*H S A"]:
        """Var[sum_o probs_o r_o] over the draws."""
        # Var over draws of the average, covariances of the outcomes included.
        return self._variance((probs * self._means()).sum(-1))

    def shared_parameters(self, space: StateActionSpace) -> str:
        """That all mean rewards come from one draw of the sites."""
        return f"the rewards of all pairs are draws of the sites {', '.join(map(repr, self.sites))} together"

    def _densities(self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight) -> Float[Array, "N *K"]:
        """Weight times log density of each reward under each draw; 0 where the weight is 0."""

        def one(table: RewardTable) -> Float[Array, "*K"]:
            law = table.at(cell, outcome)
            assert isinstance(law, dist.Distribution)  # known rewards are not sampled
            return jnp.asarray(density_by_weight(law, reward, weight))

        return jax.vmap(one)(self.table)

    def observe(
        self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight
    ) -> tuple["SampledRewards", Float[Array, ""]]:
        """Every draw weighed by its likelihood: log w_n += log p(rewards | draw n). Nothing is constant."""
        gain = self._densities(cell, outcome, reward, weight).reshape(len(self.log_weights), -1).sum(1)
        # Rewards are kept for a refit: as statistics where the law has some, else one by one.
        index = (*cell, outcome)
        data = add_rewards(self.data_statistics, index, reward, weight, self.recipe.statistics_law)
        return self._reweigh(gain, data), jnp.zeros(())

    def _reweigh(self, gain: Float[Array, " N"], data: DataStatistics) -> "SampledRewards":
        # Shifted by the maximum, against underflow.
        old = jnp.asarray(self.log_weights)
        new = old + gain.astype(old.dtype)
        top = jnp.max(new)
        # The record of the integral follows the weights, so that Pareto k and evidence stay true.
        integration = None if self.integration is None else self.integration.after(old, new)
        shifted = jnp.where(jnp.isfinite(top), new - top, new)
        return replace(self, log_weights=shifted, data_statistics=data, integration=integration)

    def observe_counts(self, counts: Counts, weight: RealScalar) -> tuple["SampledRewards", Float[Array, ""]]:
        """Likewise after moments of rewards in every cell; the law has sufficient statistics (see `has_moments`)."""
        number, mean, ss = (jnp.asarray(x) for x in counts.reward_moments)
        # count, mean, squared deviations, and no base measure: that is the same for all draws.
        value = jnp.stack(jnp.broadcast_arrays(number * weight, mean, ss * weight, 0.0), axis=-1)

        def one(table: RewardTable) -> Float[Array, ""]:
            assert table.law is not None
            return RewardStatistics(table.law).log_prob(value).sum()

        data = self.data_statistics
        assert isinstance(data, Statistics)
        # Moments are merged, not added.
        moments = merge_moments(data.counts.reward_moments, (number * weight, mean, ss * weight))
        after = Statistics(Counts(data.counts.transitions, *moments), data.log_base)
        return self._reweigh(jax.vmap(one)(self.table), after), jnp.zeros(())

    def log_predictive(self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight) -> Float[Array, "*N"]:
        """log sum_n w_n p(reward | draw n)^weight."""
        # A mixture over draws: logsumexp of log w_n + log p(reward | n).
        densities = self._densities(cell, outcome, reward, weight)
        log_weights = jax.nn.log_softmax(jnp.asarray(self.log_weights))
        spread = jnp.expand_dims(log_weights, tuple(range(1, densities.ndim)))
        return jnp.where(jnp.asarray(weight) != 0, jax.nn.logsumexp(densities + spread, axis=0), 0.0)

    def log_evidence(self) -> Float[Array, ""]:
        """nan: no closed form (`bayes_mdp.evidence` estimates it)."""
        return jnp.full((), jnp.nan)

    def support(self) -> RewardSupport:
        """What the law can give, whatever its parameters are."""
        return support_of_draws(self.table, self.recipe.law)

    def before_data(self) -> "SampledRewards":
        """Refused: the draws are of the posterior.

        Raises:
            ValueError: always.
        """
        raise ValueError("the rewards are draws of the posterior, expected infer without data for the prior")

    def merge(self, other: Rewards) -> "SampledRewards":
        """Refused: draws of two posteriors make none of both data.

        Raises:
            ValueError: always.
        """
        raise ValueError("the rewards are draws, expected infer on the data of both")

    def discount_data(self, factor: RealScalar) -> "SampledRewards":
        """Refused: draws after data are none after data that count less.

        Raises:
            ValueError: always.
        """
        raise ValueError("the rewards are draws, expected a posterior in closed form, or infer with weights")

    def at_step(self, step: IntScalar) -> "SampledRewards":
        """Refused: draws of all steps belong together.

        Raises:
            ValueError: always.
        """
        raise ValueError("the rewards of all steps are one draw, expected a plan that draws a whole MDP")

    def reward_sums(self) -> RewardSums | None:
        """Those of the data; rewards that are kept one by one are groups of one."""
        return sums_of(self.recipe.law, self.data_statistics)

    def num_rewards_observed(self) -> float:
        """Number of observed rewards."""
        return num_rewards(self.data_statistics)


def _noise(table: RewardTable) -> Cells:
    assert table.law is not None  # known rewards are not sampled
    return law_variance(table.law)


def draw_rewards(recipe: Recipe, key: PRNGKeyArray, data_statistics: DataStatistics) -> SampledRewards:
    """The belief given the data, by the method of the recipe. Traceable."""
    return sampled_rewards(recipe, recipe.draw(key, data_statistics), data_statistics)


def sampled_rewards(recipe: Recipe, drawn: SamplerOutput, data_statistics: DataStatistics) -> SampledRewards:
    """Equally weighted draws as a belief. Traceable."""
    table = recipe.tables(drawn.sites)[1]
    number = jax.tree.leaves(drawn.sites)[0].shape[0]
    equal = jnp.zeros(number)
    return SampledRewards(  # pyright: ignore[reportCallIssue] (it takes abstract variables for fields)
        drawn.sites, table, equal, data_statistics, drawn.mcmc, recipe
    )
