"""The assumptions of the variance equations: independent rows, or a mixture of such; no unknown pair visited twice."""

from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bayes_mdp.mdp import MDP, CanMean, HasVariances, NamesSharedParameters, SparseMDP, Validity
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.mdp.validity import Kind
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.planning.linear.structure import find_cycle
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import is_concrete


@runtime_checkable
class RowPosterior(CanMean, HasVariances, Protocol):
    """A posterior with a mean MDP and closed-form variances: what a variance equation is solved for."""


def require_rows(posterior: object, who: str) -> None:
    """Refuse a belief for which the equations are wrong: dependent rows other than by a mixture, or no variances.

    Args:
        posterior: the belief.
        who: whom the message names.

    Raises:
        ValueError: rows share parameters; the message names which, and what to use instead.
        TypeError: an ability is missing.
    """
    rows = posterior.components if can_split(posterior) else posterior
    require_ability(rows, CanMean, who)
    require_ability(rows, HasVariances, who)
    assert isinstance(rows, HasVariances)
    if not rows.independent_rows:
        ties = posterior.shared_parameters if isinstance(posterior, NamesSharedParameters) else None
        raise ValueError(
            f"posterior has rows that are not independent ({ties or 'which ones is not known'}), expected independent "
            f"rows, or a mixture of posteriors with such, for {who}: sampled MDPs work for any belief (exact.by_draws) "
            + see("explanation/validity-of-variances")
        )


def unknown_pairs(posterior: HasVariances) -> Bool[Array, "*H S A"]:
    """Which pairs have an unknown row or an unknown mean reward.

    Args:
        posterior: the belief.
    """
    return jnp.asarray(posterior.variance_factor("ratio") > 0) | (posterior.expected_reward_variance() > 0)


def met_again(mdp: MDP | SparseMDP, probs: Float[AnyArray, "*H S A"], unknown: Bool[AnyArray, "*G S A"]) -> str | None:
    """Why the policy `probs` may visit an unknown pair twice; None: it is proven that it does not. Host side.

    Args:
        mdp: the mean MDP, whose positive probabilities are what is possible.
        probs: action probabilities, [*H S A].
        unknown: as `unknown_pairs`; its step axis need not be that of `probs`.
    """
    if mdp.horizon is not None:  # rows of their own at every step: a pair of a step is visited at most once
        return None
    if not is_concrete(mdp, probs, unknown):
        return "inside a trace the structure cannot be inspected"
    used = np.asarray(probs)
    used = used.max(0) if used.ndim == 3 else used  # stationary rows: an action that any step takes
    # A pair is visited twice only on a cycle of the chain: of possible transitions under the actions taken.
    cycle = find_cycle(mdp, used, np.asarray(unknown))
    if cycle is None:
        return None
    path = " -> ".join(map(str, (*cycle, cycle[0])))
    return f"cyclic: the unknown rows of states {path} can be visited again"


def validity(kind: Kind, reason: str, again: str | None) -> Validity:
    """`kind` because of `reason` where no unknown pair is visited again, else a heuristic.

    Args:
        kind: what the variance is where no unknown pair is visited again.
        reason: of that.
        again: why a pair may be visited again (see `met_again`); None: none is.
    """
    return Validity(kind, reason) if again is None else Validity("heuristic", again)


def total_variance(
    weights: Float[AnyArray, " K"], means: Float[AnyArray, "K *rest"], variances: Float[AnyArray, "K *rest"]
) -> tuple[Float[Array, "*rest"], Float[Array, "*rest"]]:
    """Mean and variance of a mixture from those of its components; where a mean is -inf the variance is zero.

    Var[x] = E_k[Var[x | k]] + Var_k[E[x | k]].

    Args:
        weights: probabilities of the components.
        means, variances: of each component, in any unit and its square.
    """
    # An illegal action has mean -inf in every component: -inf - -inf would be nan.
    finite = jnp.isfinite(means)
    safe = jnp.where(finite, means, 0.0)
    mean = tensordot(weights, safe, axes=1)
    variance = tensordot(weights, variances + (safe - mean) ** 2, axes=1)
    return jnp.where(finite[0], mean, -jnp.inf), jnp.where(finite[0], variance, 0.0)
