"""What the draws of a belief have in common, without drawing one."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.mdp import MDP, CanSample, SparseMDP
from bayes_mdp.numerics.by_numpy.small_jit import small_jit


def outline(
    shape: tuple[int, ...], legal: Bool[np.ndarray, "S A"] | None = None, initial: Float[np.ndarray, " S"] | None = None
) -> SparseMDP:
    """An MDP of these sizes, legal actions and initial distribution, with rows and rewards that mean nothing.

    A draw would do; this draws none.
    """
    size = jax.dtypes.canonicalize_dtype(float)
    stay = np.broadcast_to(np.arange(shape[-2], dtype=np.int32)[:, None, None], (*shape, 1))
    return SparseMDP(stay, np.ones(stay.shape, size), np.zeros(shape, size), legal=legal, initial=initial)


def draw_shapes(key: PRNGKeyArray, posterior: CanSample) -> MDP | SparseMDP:
    """A draw whose arrays are shapes alone (`jax.ShapeDtypeStruct`)."""
    # A sampler takes half a second to trace: through jit that is done once for all posteriors alike.
    return eqx.filter_eval_shape(_draw, key, posterior)


@eqx.filter_jit
def _draw(key: PRNGKeyArray, posterior: CanSample) -> MDP | SparseMDP:
    return posterior.sample(key)


@small_jit
def _stated(key: PRNGKeyArray, posterior: CanSample) -> tuple[Array | None, Array | None]:
    # The trace of `draw_shapes`, of which nothing random is needed.
    mdp = _draw(key, posterior)
    return mdp.legal, mdp.initial
