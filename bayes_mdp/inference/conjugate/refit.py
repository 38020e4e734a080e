"""`refit`: a posterior after a log, on the host: validated, counted in one call, exact in float64."""

import jax
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.mdp import Counts, Transitions
from bayes_mdp.numerics.by_numpy.small_jit import small_jit
from bayes_mdp.utils.typing import AnyArray

MIN_BUFFER = 64


def refit(posterior: ConjugatePosterior, data: Transitions | Counts) -> ConjugatePosterior:
    """`posterior` after `data`, its arrays numpy float64 (of counts: of the width that they have).

    Raises:
        ValueError, TypeError: data that the space or the prior cannot hold.
    """
    if not isinstance(data, Transitions):
        return jax.tree.map(np.asarray, posterior.update(data))
    posterior.check(data)
    padded, weight = padded_log(data)
    with jax.enable_x64(True):
        # Places in lists of successors are found on the host, by bisection.
        outcome = padded.outcome(posterior.space)
        # Copies: JAX may hold float32 versions of the arrays of `posterior` itself.
        after = _update(jax.tree.map(np.array, posterior), padded, outcome, weight)
    return jax.tree.map(np.asarray, after)


def padded_log(transitions: Transitions) -> tuple[Transitions, Float[np.ndarray, " M"]]:
    """A log [N] in a buffer whose size M is a power of two, and the weights of its rows: one, and zero for padding.

    Logs of many lengths then share a few compilations.
    """
    size = np.size(transitions.state)
    place = np.arange(max(MIN_BUFFER, 1 << (size - 1).bit_length()))
    padded = jax.tree.map(lambda column: np.ravel(column)[np.where(place < size, place, 0)], transitions)
    return padded, (place < size).astype(np.float64)


def _update_at(
    posterior: ConjugatePosterior,
    transitions: Transitions,
    outcome: Int[AnyArray, " M"],
    weight: Float[AnyArray, " M"],
) -> ConjugatePosterior:
    return posterior.update_at_outcomes(transitions, outcome, weight)


# Where it is compiled, the memory of the copies is used again.
_update = small_jit(_update_at, compiled=jax.jit(_update_at, donate_argnums=0))
