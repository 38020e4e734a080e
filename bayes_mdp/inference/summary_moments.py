"""What the table of `bayes_mdp.inference.summary` needs of any posterior, pair by pair. Host-side, float64."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.inference.componentwise import Componentwise
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.rewards import KnownRewards
from bayes_mdp.inference.sampled.posterior import SampledPosterior
from bayes_mdp.inference.sampled.seen import Rows

Pairs = Float[Array, "*H S A"]


class PairMoments(NamedTuple):
    """Means and variances under the posterior; a mean that does not exist is nan, a variance inf (or nan).

    Args:
        probs: mean of the transition probabilities.
        probs_variance: of each of them.
        reward: mean of the expected reward.
        reward_variance: of the expected reward.
        prior_share: the prior's part of the concentration of the row (its mean over components); nan where it has none.
        visits: transitions seen.
    """

    probs: Float[Array, "*H S A O"]
    probs_variance: Float[Array, "*H S A O"]
    reward: Pairs
    reward_variance: Pairs
    prior_share: Pairs
    visits: Pairs


def pair_moments(posterior: Any) -> PairMoments:
    """Moments of a `ConjugatePosterior`, a mixture or a `SampledPosterior`."""
    with jax.enable_x64(True):
        if isinstance(posterior, SampledPosterior):
            moments: Any = jax.jit(_of_draws)(jax.tree.map(np.array, posterior))
        elif isinstance(posterior, Componentwise):
            moments = jax.jit(_of_components)(jax.tree.map(np.array, posterior))
        else:
            moments = jax.jit(_of_one)(posterior)
    arrays: Any = [np.asarray(x, float) for x in moments]
    return PairMoments(*arrays)


def rewards_seen(posterior: Any) -> float | None:
    """Number of rewards that the posterior learnt from; None where all rewards are known."""
    if isinstance(posterior, SampledPosterior):
        seen = posterior.seen
        number = (np.asarray(seen.weight) != 0) if isinstance(seen, Rows) else np.asarray(seen.counts.reward_count)
        return None if posterior.rewards.law is None else float(number.sum())
    rewards = (posterior.component(0) if isinstance(posterior, Componentwise) else posterior).reward_cells
    return None if isinstance(rewards, KnownRewards) else float(np.asarray(rewards.data)[..., 0].sum())


def _of_one(posterior: ConjugatePosterior) -> PairMoments:
    """Traced: there a variance that does not exist is inf, not refused."""
    rows = posterior.transition_probs
    prior = eqx.tree_at(lambda r: r.counts, rows, jnp.zeros_like(rows.counts)).concentration.sum(-1)
    after, probs = rows.concentration.sum(-1), rows.mean()
    share = jnp.where(after > 0, prior / jnp.where(after > 0, after, 1.0), jnp.nan)
    variance = probs * (1 - probs) * rows.inverse_total()[..., None]
    reward = posterior.mean_mdp().reward
    return PairMoments(probs, variance, reward, posterior.reward_variance(), share, posterior.visit_counts())


def _of_components(posterior: Componentwise) -> PairMoments:
    """By the laws of total expectation and variance."""

    def first(component: ConjugatePosterior) -> tuple[Array, Array, Array]:
        one = _of_one(component)
        return one.probs, one.reward, one.prior_share

    probs, reward, share = posterior.average(first)

    def second(component: ConjugatePosterior) -> tuple[Array, Array]:
        one = _of_one(component)
        return one.probs_variance + (one.probs - probs) ** 2, one.reward_variance + (one.reward - reward) ** 2

    probs_variance, reward_variance = posterior.average(second)
    return PairMoments(probs, probs_variance, reward, reward_variance, share, posterior.visit_counts())


def _of_draws(posterior: SampledPosterior) -> PairMoments:
    weights, rows, rewards = posterior.weights, posterior.transition_probs, posterior.rewards
    mean = jax.vmap(lambda each: each.mean)(rewards)

    def moments(values: Array) -> tuple[Array, Array]:
        mean = jnp.tensordot(weights, values, axes=1)
        return mean, jnp.tensordot(weights, (values - mean) ** 2, axes=1)

    (probs, probs_variance), (reward, reward_variance) = (
        moments(rows),
        moments((rows * mean).sum(-1) if rewards.by_outcome else mean),
    )
    share = jnp.full(posterior.space.shape, jnp.nan)
    return PairMoments(probs, probs_variance, reward, reward_variance, share, posterior.visit_counts())
