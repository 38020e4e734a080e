"""K-learning where the belief is a mixture: operator (6) in every component, joined by their exponential utilities.

Of a mixture with weights w_k, E exp(Q*/tau) = sum_k w_k E_k exp(Q*/tau). Within a component rows are independent, and
the induction of [KL21] gives K_k >= tau log E_k exp(Q*/tau). So K = tau log sum_k w_k exp(K_k / tau) is at least
tau log E exp(Q*/tau), and tau logsumexp(K / tau) bounds the expected optimal value as in (13), under the same
assumptions. Theorem 1, the bound on the regret, does not follow: K solves no equation (6) of its own, because data of
one row inform about the others through the component. For a mixture K-learning is a heuristic with optimistic values.
It costs K times as much.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.agents.k_learning.k_model import KModel, k_model, soften
from bayes_mdp.mdp import CanCount, CanMean, HasVariances
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.utils.typing import RealLike, RealScalar

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
        most = jnp.max(jnp.where(legal, mean.reward, -jnp.inf), (0, -2, -1))
        least = jnp.min(jnp.where(legal, mean.reward, jnp.inf), (0, -2, -1))
        steps = mean.horizon if mean.reward.ndim == 3 else 1
        length = steps * jnp.sum(most - least)
        return jnp.max(jax.vmap(lambda part: part.scale())(self.parts)) + length**2 / 8.0

    def weighed(self, tau: RealScalar, k: Float[Array, "K *rest"]) -> Float[Array, "K *rest"]:
        """k + tau log w, in units of the reward: what a softmax over components and actions together is taken of.

        Args:
            tau: temperature, greater than 0.
            k: of each component.
        """
        return k + tau * self.log_weights.reshape(-1, *[1] * (k.ndim - 1))

    def joined(self, tau: RealScalar, k: Float[Array, "K *rest"]) -> Float[Array, "*rest"]:
        """tau log sum_k w_k exp(k_k / tau), in units of the reward; -inf where the action is illegal.

        Args:
            tau: temperature, greater than 0.
            k: of each component.
        """
        x = jnp.moveaxis(self.weighed(tau, k), 0, -1)
        possible = jnp.isfinite(x[..., 0])
        return jnp.where(possible, soften(jnp.where(possible[..., None], x, 0.0), tau)[0], -jnp.inf)

    def k_values(self, tau: RealScalar) -> Float[Array, "H S A"]:
        """K of every step at temperature `tau`."""
        return self.joined(tau, jax.vmap(lambda part: part.k_values(tau))(self.parts))


KOperator = KModel | KMixture
"""The optimistic operator of a belief."""


def k_operator(
    posterior: CanMean,
    *,
    bonus: str,
    span: RealLike | None,
    noise: RealScalar,
    horizon: int | None = None,
    who: str = "K-learning",
) -> KOperator:
    """`k_model` of a belief, or of every component of a mixture. Traceable.

    Args:
        posterior: a belief, or a mixture of such.
        bonus, span, noise, horizon, who: as of `k_model`.

    Raises:
        ValueError, TypeError: as `k_model`.
    """
    if not can_split(posterior):
        return k_model(posterior, bonus=bonus, span=span, noise=noise, horizon=horizon, who=who)
    parts = jax.vmap(lambda part: k_model(part, bonus=bonus, span=span, noise=noise, horizon=horizon, who=who))(
        posterior.components
    )
    log_weights = jnp.log(jnp.asarray(posterior.weights, parts.dtype))
    return KMixture(parts, jnp.maximum(log_weights, LEAST_LOG_WEIGHT))


def require_k_abilities(posterior: object, who: str) -> None:
    """Refuse a belief without mean, counts, or variances (of a mixture: of its components).

    Args:
        posterior: the belief.
        who: whom the message names.

    Raises:
        TypeError: an ability is missing.
    """
    require_ability(posterior, CanMean, who)
    require_ability(posterior, CanCount, who)
    require_ability(posterior.components if can_split(posterior) else posterior, HasVariances, who)
