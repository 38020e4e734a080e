"""`refit`: a posterior after a log, on the host: validated, counted in one compiled call, exact in float64."""

from typing import Any

import jax
import numpy as np

from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.mdp import Transitions

MIN_BUFFER = 64


def refit(posterior: ConjugatePosterior, transitions: Transitions) -> ConjugatePosterior:
    """`posterior` after `transitions`, its arrays numpy float64.

    The transitions are padded to a power of two with weight zero: logs of many lengths share a few compilations.

    Raises:
        ValueError, TypeError: data that the space or the prior cannot hold.
    """
    posterior.check(transitions)
    size = np.size(transitions.state)
    place = np.arange(max(MIN_BUFFER, 1 << (size - 1).bit_length()))
    padded = jax.tree.map(lambda column: np.ravel(column)[np.where(place < size, place, 0)], transitions)
    with jax.enable_x64(True):
        # Copies: see `_belief` in `infer`; JAX may hold float32 versions of the arrays of `posterior` itself.
        after = _update(jax.tree.map(np.array, posterior), padded, (place < size).astype(np.float64))
    return jax.tree.map(np.asarray, after)


@jax.jit
def _update(posterior: ConjugatePosterior, transitions: Transitions, weight: Any) -> ConjugatePosterior:
    return posterior.update(transitions, weight)
