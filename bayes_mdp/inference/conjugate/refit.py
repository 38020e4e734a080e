"""`refit`: a posterior after a log, on the host: validated, counted in one call, exact in float64."""

import jax
import numpy as np
from jaxtyping import Float

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.mdp import Counts, Transitions

MIN_BUFFER = 64


def refit(posterior: ConjugatePosterior, data: Transitions | Counts) -> ConjugatePosterior:
    """`posterior` after `data`, its arrays numpy float64 and its own.

    Raises:
        ValueError, TypeError: data that the space or the prior cannot hold.
    """
    posterior = jax.tree.map(np.array, posterior)
    return posterior.update(jax.tree.map(np.ravel, data) if isinstance(data, Transitions) else data)


def padded_log(transitions: Transitions) -> tuple[Transitions, Float[np.ndarray, " M"]]:
    """A log [N] in a buffer whose size M is a power of two, and the weights of its rows: one, and zero for padding.

    Logs of many lengths then share a few compilations.
    """
    size = np.size(transitions.state)
    place = np.arange(max(MIN_BUFFER, 1 << (size - 1).bit_length()))
    padded = jax.tree.map(lambda column: np.ravel(column)[np.where(place < size, place, 0)], transitions)
    return padded, (place < size).astype(np.float64)
