"""`outline`: an MDP of given sizes, to check policies and objectives against."""

import jax
import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.mdp import SparseMDP


def outline(
    shape: tuple[int, ...], legal: Bool[np.ndarray, "S A"] | None = None, initial: Float[np.ndarray, " S"] | None = None
) -> SparseMDP:
    """An MDP of these sizes, legal actions and initial distribution, with rows and rewards that mean nothing.

    A draw would do; this draws none.
    """
    size = jax.dtypes.canonicalize_dtype(float)
    stay = np.broadcast_to(np.arange(shape[-2], dtype=np.int32)[:, None, None], (*shape, 1))
    return SparseMDP(stay, np.ones(stay.shape, size), np.zeros(shape, size), legal=legal, initial=initial)
