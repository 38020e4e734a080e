"""`supported_dirichlet`: independent Dirichlet transition rows, over the outcomes that are possible."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.space import check_dense_rows, check_space
from bayes_mdp.mdp.typing import AnyArray, ArrayLike
from bayes_mdp.mdp.validation import check_concentration, check_not_negative, check_type, is_concrete
from bayes_mdp.models.mdp_spec import broadcast_to_cells

ROW_BYTES = 64  # for each probability of a dense row: concentrations, counts, a posterior and its mean; measured
OUTCOME_DIM = "next_state"


def supported_dirichlet(
    concentration: ArrayLike, space: StateActionSpace, name: str = "transition"
) -> Float[Array, "*H S A O"]:
    """Rows P(. | (step,) s, a) ~ Dirichlet, independent, zero outside the known support. To be called in a program.

    With every outcome possible there is one site, `name`. Else there is one site `name_k` for each number k > 1 of
    possible outcomes, with one row per pair that has k of them; the rows are scattered into the deterministic site
    `name`. A pair with one possible outcome is known; an illegal pair without any stays where it is.

    Args:
        concentration: a number, or an array that broadcasts to [*H S A O]; a zero there is one more impossible outcome.
        space: its `support`, `horizon`, `ends` and `legal` are honoured.
        name: of the sites.

    Raises:
        ValueError: a concentration that is negative or not finite, a row without a positive one, another shape; dense
            rows that would not fit in memory.
    """
    check_space(space)
    check_dense_rows(space, ROW_BYTES)
    check_type("name", name, str, "a string")
    check_not_negative("concentration", concentration)
    full = broadcast_to_cells("concentration", concentration, space, by_outcome=True)
    possible = _possible(full, space)
    if possible.all() and space.n_outcomes > 1:
        with space.plates():
            return jnp.asarray(numpyro.sample(name, dist.Dirichlet(full), infer={"event_dims": [OUTCOME_DIM]}))
    rows = possible.reshape(-1, space.n_outcomes)
    flat, size = full.reshape(rows.shape), rows.sum(-1)
    table = jnp.where((size == 1)[:, None], rows, 0).astype(full.dtype)
    for k in sorted(set(size.tolist()) - {1}):
        row = np.flatnonzero(size == k)[:, None]
        column = np.nonzero(rows[row[:, 0]])[1].reshape(-1, k)
        hint = {"event_dims": [f"{name}_{k}_outcome"]}
        with numpyro.plate(f"{name}_{k}_row", len(row)):
            draw = numpyro.sample(f"{name}_{k}", dist.Dirichlet(flat[row, column]), infer=hint)
        table = table.at[row, column].set(draw)
    return jnp.asarray(numpyro.deterministic(name, table.reshape(full.shape)))


def _possible(concentration: Float[AnyArray, "*H S A O"], space: StateActionSpace) -> Bool[np.ndarray, "*H S A O"]:
    """Which outcomes a row can have, after the support of the space and the zeros of a concrete concentration."""
    possible = np.ones(concentration.shape, bool)
    if space.possible is not None:
        possible &= space.possible
    if is_concrete(concentration):
        allowed = np.where(possible, np.asarray(concentration), 0.0)
        legal = np.ones(space.shape, bool) if space.legal is None else np.broadcast_to(space.legal, space.shape)
        check_concentration("concentration", np.where(legal[..., None], allowed, 1.0))
        possible &= allowed > 0
    # An illegal pair without any outcome is a known row: it stays where it is (of listed successors: the first place).
    stay = space.stays if space.successors is None else np.arange(space.n_outcomes) == 0
    return possible | (~possible.any(-1, keepdims=True) & stay)
