"""The model in which K-learning plans: the mean MDP of a belief and, for every pair of every step, tau times its bonus.

Source: [KL21] O'Donoghue, *Variational Bayesian Reinforcement Learning with Regret Bounds*, NeurIPS 2021, equation (6).

Where the belief is a mixture, operator (6) works in every component and exponential utilities join them. With weights
w_k, E exp(Q*/tau) = sum_k w_k E_k exp(Q*/tau). Within a component rows are independent, and the induction of [KL21]
gives K_k >= tau log E_k exp(Q*/tau). So K = tau log sum_k w_k exp(K_k / tau) is at least tau log E exp(Q*/tau), and
tau logsumexp(K / tau) bounds the expected optimal value as in (13), under the same assumptions. Theorem 1, the bound on
the regret, does not follow: K solves no equation (6) of its own, because data of one row inform about the others
through the component. For a mixture K-learning is a heuristic with optimistic values. It costs K times as much.
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from bayes_mdp.agents.common.mean_model import MeanModel, mean_model
from bayes_mdp.agents.common.variance_equation import require_variances
from bayes_mdp.mdp import CanCount, CanMean, Episodic, HasVariances
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.planning.solution import where_legal
from bayes_mdp.utils.typing import IntScalar, RealLike, RealScalar
from bayes_mdp.utils.validation import check_name, check_not_negative

BONUSES = ("paper", "posterior")


@runtime_checkable
class KBelief(CanMean, CanCount, HasVariances, Protocol):
    """What a bonus is computed from: mean MDP, visit counts, variances."""


class Bonus(eqx.Module):
    """How tau times the bonus of a pair is computed: (noise^2 + span_l^2) / (2 max(n, 1)).

    Args:
        kind: "paper"; or "posterior": the posterior variance of the mean reward in place of noise^2 / max(n, 1).
        span: bound on the difference of values of the next step; None: the steps that are left.
        noise: sigma, the rewards are sigma-sub-Gaussian around their mean.

    Raises:
        ValueError: another kind, a negative `span` or `noise`. TypeError: no number.
    """

    kind: str = eqx.field(default="paper", static=True)
    span: RealLike | None = None
    noise: RealScalar = 1.0

    def __check_init__(self) -> None:
        check_name("bonus", self.kind, BONUSES)
        check_not_negative("noise", self.noise)
        if self.span is not None:
            check_not_negative("span", self.span)

    def check_belief(self, posterior: object, who: str) -> None:
        """Refuse a belief without mean, counts, or variances (of a mixture: of its components).

        Args:
            posterior: the belief.
            who: whom the message names.

        Raises:
            TypeError: an ability is missing. ValueError: a variance that "posterior" needs does not exist.
        """
        require_ability(posterior, CanMean, who)
        require_ability(posterior, CanCount, who)
        require_ability(posterior.components if can_split(posterior) else posterior, HasVariances, who)
        if self.kind == "posterior":
            require_variances(posterior)


class KModel(eqx.Module):
    """The optimistic Bellman operator (6) at every temperature: q = reward + numerator / tau + E next.

    Args:
        mean: the mean MDP, layer by layer.
        numerator: [H S A], tau times the bonus, zero or greater; zero where the action is illegal.
    """

    mean: MeanModel
    numerator: Float[Array, "H S A"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """H, S, A."""
        n_states, n_actions = self.mean.reward.shape[-2:]
        return self.mean.horizon, n_states, n_actions

    @property
    def dtype(self) -> jnp.dtype:
        """Of all numbers."""
        return self.numerator.dtype

    def scale(self) -> Float[Array, ""]:
        """What tau^2 times the entropies of an episode is of the order of; zero where no bonus is left."""
        # The largest numerator of every step: an upper bound of what an episode adds.
        return jnp.sum(jnp.max(self.numerator, axis=(-2, -1)))

    def k_values(self, tau: RealScalar) -> Float[Array, "H S A"]:
        """K of every step at temperature `tau`, by (6)."""

        # (6): K = E r + bonus + E P tau logsumexp(K' / tau), the bonus numerator / tau.
        def backup(layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
            reward = self.mean.at(self.mean.reward, layer) + self.numerator[layer] / tau
            return reward + self.mean.expected_next(values, layer)

        return self.mean.backward(backup, lambda k: soften(k, tau)[0])


def least_temperature(dtype: DTypeLike) -> float:
    """In place of 0: small enough that the softmax of values is their maximum, large enough that nothing overflows.

    Args:
        dtype: of the values.
    """
    return float(jnp.finfo(dtype).tiny) ** 0.5


def soften(
    k: Float[Array, "*states A"], tau: RealScalar
) -> tuple[Float[Array, "*states"], Float[Array, "*states A"], Float[Array, "*states"]]:
    """tau logsumexp(k / tau) over actions, the probabilities that attain it in (8), and their entropy.

    Args:
        k: values of actions; -inf where illegal.
        tau: temperature, greater than 0.
    """
    # Relative to the maximum: no overflow at low temperatures; an illegal action (-inf) gets weight 0, and 0 log 0 = 0.
    best = jnp.max(k, -1, keepdims=True)
    x = (k - best) / tau
    weight = jnp.exp(x)
    total = jnp.sum(weight, -1, keepdims=True)
    probs, log_total = weight / total, jnp.log(total[..., 0])
    entropy = log_total - jnp.sum(jnp.where(weight > 0, probs * x, 0.0), -1)
    return best[..., 0] + tau * log_total, probs, entropy


def k_model(posterior: CanMean, bonus: Bonus, *, horizon: int | None = None, who: str = "K-learning") -> KModel:
    """The operator of a belief. Traceable.

    Args:
        posterior: the belief.
        bonus: how it is computed.
        horizon: H, needed where rows do not depend on the step.
        who: whom the message names.

    Raises:
        ValueError: no horizon or one that does not fit. TypeError: an ability is missing.
    """
    for ability in (CanMean, CanCount, HasVariances):
        require_ability(posterior, ability, who)
    assert isinstance(posterior, KBelief)
    visits = jnp.asarray(posterior.visit_counts())
    steps = visits.shape[0] if visits.ndim == 3 else None
    if horizon is None and steps is None:
        raise ValueError("horizon is None, expected a number of steps: the posterior has one row for all steps")
    if steps is not None and horizon not in (None, steps):
        raise ValueError(f"horizon is {horizon}, expected {steps}, that of the posterior")
    # As many steps as the belief has rows for, or as the caller says.
    mean = mean_model(posterior, Episodic(horizon or steps), who)
    return KModel(mean, _numerator(posterior, mean, bonus))


def _numerator(posterior: KBelief, mean: MeanModel, bonus: Bonus) -> Float[Array, "H S A"]:
    """tau times the bonus of (6): (noise^2 + span_l^2) / (2 max(n, 1)), or with the reward's posterior variance."""
    dtype, (n_states, n_actions) = mean.reward.dtype, mean.reward.shape[-2:]
    visits = jnp.maximum(jnp.asarray(posterior.visit_counts(), dtype), 1.0)
    reward = jnp.asarray(bonus.noise, dtype) ** 2 / visits if bonus.kind == "paper" else posterior.reward_variance()
    # A known row has no transition term; only whether the variance factor is zero is used. "dirichlet" builds no rows,
    # which saves memory with many layers; posteriors by samples have "ratio" alone.
    form = "dirichlet" if mean.source is posterior else "ratio"
    unknown = jnp.where(jnp.asarray(posterior.variance_factor(form)) > 0, 1.0 / visits, 0.0)
    # Span of the values after step l: at most the rewards of the L - l steps that remain.
    remaining = jnp.arange(mean.horizon - 1, -1, -1) if bonus.span is None else jnp.full(mean.horizon, bonus.span)
    square = (remaining.astype(dtype) ** 2)[:, None, None]
    numerator = jnp.broadcast_to(0.5 * (reward + square * unknown), (mean.horizon, n_states, n_actions)).astype(dtype)
    return where_legal(numerator, mean.legal, 0.0)


LEAST_LOG_WEIGHT = -1e20
"""In place of the logarithm of 0: finite, so that no difference is nan."""


class KMixture(eqx.Module):
    """The operators of the components of a mixture.

    Args:
        parts: one `KModel` whose arrays have a leading axis K.
        log_weights: [K], of the components; finite.
    """

    parts: KModel
    log_weights: Float[Array, " K"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """H, S, A."""
        n_states, n_actions = self.parts.mean.reward.shape[-2:]
        return self.parts.mean.horizon, n_states, n_actions

    @property
    def dtype(self) -> jnp.dtype:
        """Of all numbers."""
        return self.parts.dtype

    def scale(self) -> Float[Array, ""]:
        """What tau^2 times the entropies of an episode is of the order of; zero where nothing is unknown.

        The bonuses of a component, and what the components differ by: a return in an interval of length R is
        R/2-sub-Gaussian, which adds R^2 / 8.
        """
        mean = self.parts.mean
        legal = True if mean.legal is None else mean.legal[..., None, :, :] if mean.reward.ndim == 4 else mean.legal
        # Hoeffding: the log-moment of a return of range R is at most R^2 / 8, which bounds what the mixture adds.
        highest = jnp.max(jnp.where(legal, mean.reward, -jnp.inf), (0, -2, -1))
        lowest = jnp.min(jnp.where(legal, mean.reward, jnp.inf), (0, -2, -1))
        # Rewards that all steps share count once for every step.
        steps = mean.horizon if mean.reward.ndim == 3 else 1
        length = steps * jnp.sum(highest - lowest)
        # The component that needs most, and the range of the means.
        return jnp.max(jax.vmap(lambda part: part.scale())(self.parts)) + length**2 / 8.0

    def add_log_weights(self, tau: RealScalar, k: Float[Array, "K *rest"]) -> Float[Array, "K *rest"]:
        """k + tau log w, in units of the reward: what a softmax over components and actions together is taken of.

        Args:
            tau: temperature, greater than 0.
            k: of each component.
        """
        return k + tau * self.log_weights.reshape(-1, *[1] * (k.ndim - 1))

    def mix_components(self, tau: RealScalar, k: Float[Array, "K *rest"]) -> Float[Array, "*rest"]:
        """tau log sum_k w_k exp(k_k / tau), in units of the reward; -inf where the action is illegal.

        Args:
            tau: temperature, greater than 0.
            k: of each component.
        """
        # E exp(Q / tau) = sum_k w_k E_k exp(Q / tau): a softmax over components. Illegal in one is illegal in all.
        x = jnp.moveaxis(self.add_log_weights(tau, k), 0, -1)
        possible = jnp.isfinite(x[..., 0])
        return jnp.where(possible, soften(jnp.where(possible[..., None], x, 0.0), tau)[0], -jnp.inf)

    def k_values(self, tau: RealScalar) -> Float[Array, "H S A"]:
        """K of every step at temperature `tau`."""
        # Each component by its own rows, joined by exponential utility.
        return self.mix_components(tau, jax.vmap(lambda part: part.k_values(tau))(self.parts))


KOperator = KModel | KMixture
"""The optimistic operator of a belief."""


def k_operator(posterior: CanMean, bonus: Bonus, *, horizon: int | None = None, who: str = "K-learning") -> KOperator:
    """`k_model` of a belief, or of every component of a mixture. Traceable.

    Args:
        posterior: a belief, or a mixture of such.
        bonus, horizon, who: as of `k_model`.

    Raises:
        ValueError, TypeError: as `k_model`.
    """
    if not can_split(posterior):
        return k_model(posterior, bonus, horizon=horizon, who=who)
    parts = jax.vmap(lambda part: k_model(part, bonus, horizon=horizon, who=who))(posterior.components)
    # A component of weight zero gets a finite, very negative logarithm.
    log_weights = jnp.log(jnp.asarray(posterior.weights, parts.dtype))
    return KMixture(parts, jnp.maximum(log_weights, LEAST_LOG_WEIGHT))
