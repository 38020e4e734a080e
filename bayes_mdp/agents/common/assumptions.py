"""The premises of the variance equations: independent rows, or a mixture of such; no unknown pair met twice."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bayes_mdp.mdp import MDP, CanMean, HasVariances, NamesSharedParameters, SparseMDP, Validity
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.mdp.validation import is_concrete
from bayes_mdp.mdp.validity import Kind
from bayes_mdp.planning.structure import find_cycle


def require_rows(posterior: Any, who: str) -> None:
    """Refuse a belief for which the equations are wrong: rows tied otherwise than by a mixture, or no variances.

    Raises:
        ValueError: rows are tied; the sentence names which, and what to use instead.
        TypeError: an ability is missing.
    """
    rows = posterior.components if can_split(posterior) else posterior
    require_ability(rows, CanMean, who)
    require_ability(rows, HasVariances, who)
    if not rows.independent_rows:
        ties = posterior.shared_parameters if isinstance(posterior, NamesSharedParameters) else None
        raise ValueError(
            f"posterior has rows that are not independent ({ties or 'it does not say which'}), expected independent "
            f"rows, or a mixture of posteriors with such, for {who}: draws serve any belief (exact.by_draws)"
        )


def unknown_pairs(posterior: HasVariances) -> Bool[Array, "*H S A"]:
    """Which pairs have an unknown row or an unknown mean reward."""
    return (posterior.variance_factor("ratio") > 0) | (posterior.expected_reward_variance() > 0)


def met_again(mdp: MDP | SparseMDP, probs: Float[Array, "*H S A"], unknown: Bool[Array, "*H S A"]) -> str | None:
    """Why an unknown pair may be met twice by the policy `probs`; None: it is proven that none is. Host side.

    Args:
        mdp: the mean MDP, whose positive probabilities are what is possible.
        probs: action probabilities, [*H S A].
        unknown: as `unknown_pairs`.
    """
    if mdp.horizon is not None:
        return None
    if not is_concrete(mdp, probs, unknown):
        return "inside a trace the structure is not looked into"
    used = np.asarray(probs)
    used = used.max(0) if used.ndim == 3 else used
    cycle = find_cycle(mdp, used, np.asarray(unknown))
    if cycle is None:
        return None
    path = " -> ".join(map(str, (*cycle, cycle[0])))
    return f"cyclic: the unknown rows of states {path} can be met again"


def validity(kind: Kind, reason: str, again: str | None) -> Validity:
    """`kind` because of `reason` where no unknown pair is met again, else a heuristic."""
    return Validity(kind, reason) if again is None else Validity("heuristic", again)


def total_variance(
    weights: Float[Array, " K"], means: Float[Array, "K *rest"], variances: Float[Array, "K *rest"]
) -> tuple[Float[Array, "*rest"], Float[Array, "*rest"]]:
    """Mean and variance of a mixture from those of its components; where a mean is -inf the variance is zero."""
    finite = jnp.isfinite(means)
    safe = jnp.where(finite, means, 0.0)
    mean = jnp.tensordot(weights, safe, axes=1)
    variance = jnp.tensordot(weights, variances + (safe - mean) ** 2, axes=1)
    return jnp.where(finite[0], mean, -jnp.inf), jnp.where(finite[0], variance, 0.0)
