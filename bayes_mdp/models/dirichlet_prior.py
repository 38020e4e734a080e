"""`supported_dirichlet`: independent Dirichlet transition rows, over the outcomes that are possible."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.space import check_dense_rows, check_space
from bayes_mdp.models.mdp_spec import broadcast_to_cells
from bayes_mdp.models.supported_dirichlet_distribution import SupportedDirichlet
from bayes_mdp.numerics.array_forms import compact
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import check_concentration, check_not_negative, check_type, is_concrete

ROW_BYTES = 64  # for each probability of a dense row: concentrations, counts, a posterior and its mean; measured
OUTCOME_DIM = "next_state"


def supported_dirichlet(
    concentration: ArrayLike, space: StateActionSpace, name: str = "transition"
) -> Float[Array, "*H S A O"]:
    """Rows P(. | (step,) s, a) ~ Dirichlet, independent, zero outside the known support. To be called in a program.

    One site, `name`: `numpyro.distributions.Dirichlet`, or `SupportedDirichlet` where some outcomes are impossible. If
    every row has one possible outcome the rows are known, and `name` is a deterministic site. An illegal pair without
    any stays where it is. It opens the plates of the space itself; where they are open already they are used.

    Args:
        concentration: a number, or an array that broadcasts to [*H S A O]; a zero there is one more impossible outcome.
            Of one outcome: it is multiplied by the `multiplicity` of the space.
        space: its `support`, `successors`, `horizon`, `ends` and `legal` are honoured.
        name: of the sites.

    Raises:
        ValueError: a concentration that is negative or not finite, a row without a positive one, another shape; dense
            rows that would not fit in memory; another plate is open on an axis of those of the space.
        TypeError: no space, a name that is no string, concentrations that are no numbers.

    Example:
        >>> import numpyro
        >>> space = bm.StateActionSpace(2, 1, support=[[[True, True]], [[False, True]]])
        >>> with numpyro.handlers.seed(rng_seed=0):
        ...     rows = bm.models.supported_dirichlet(1.0, space)
        >>> rows[1, 0].tolist()  # a row with one possible outcome is known
        [0.0, 1.0]
        >>> concentration = np.array([[5.0, 1.0], [1.0, 5.0]])[:, None, :]  # a row for each state, [S 1 O]
        >>> with numpyro.handlers.seed(rng_seed=0):
        ...     bm.models.supported_dirichlet(concentration, bm.StateActionSpace(2, 3)).shape
        (2, 3, 2)
    """
    check_type("name", name, str, "a string")
    full, possible = row_concentrations(concentration, space)
    if (possible.sum(-1) == 1).all():
        return jnp.asarray(numpyro.deterministic(name, jnp.asarray(possible, full.dtype)))
    law = dist.Dirichlet(_repeated(full)) if possible.all() else SupportedDirichlet(_positive(full, possible), possible)
    with space.plates():
        return jnp.asarray(numpyro.sample(name, law, infer={"event_dims": [OUTCOME_DIM]}))


def row_concentrations(
    concentration: ArrayLike, space: StateActionSpace
) -> tuple[Float[AnyArray, "*H S A O"], Bool[np.ndarray, "*H S A O"]]:
    """Those of all rows, with the `multiplicity` of the space, and which outcomes are possible.

    Args, errors: as of `supported_dirichlet`.
    """
    check_space(space)
    check_dense_rows(space, ROW_BYTES)
    check_not_negative("concentration", concentration)
    full = broadcast_to_cells("concentration", concentration, space, by_outcome=True)
    if space.multiplicity is not None:
        # Outcomes that are put together have the sum of their concentrations.
        full = full * space.multiplicity
    return full, _possible(full, space)


def _positive(
    concentration: Float[AnyArray, "*H S A O"], possible: Bool[np.ndarray, "*H S A O"]
) -> Float[AnyArray, "*H S A O"]:
    """One in place of zeros: an illegal pair that stays where it is has no concentration there."""
    if not is_concrete(concentration):
        return concentration
    small = compact(np.asarray(concentration))
    if (small > 0).all():
        return _repeated(concentration)
    return np.where(possible & (np.asarray(concentration) <= 0), 1.0, np.asarray(concentration))


def _repeated(concentration: Float[AnyArray, "*H S A O"]) -> Float[AnyArray, "*H S A O"]:
    """The same; what repeats along whole axes enters a traced program once, which then computes with it once."""
    if not is_concrete(concentration):
        return concentration
    return jnp.broadcast_to(compact(np.asarray(concentration)), concentration.shape)


def _possible(concentration: Float[AnyArray, "*H S A O"], space: StateActionSpace) -> Bool[np.ndarray, "*H S A O"]:
    """Which outcomes a row can have, after the support of the space and the zeros of a concrete concentration."""
    known = space.possible
    possible = np.ones(concentration.shape, bool) if known is None else np.broadcast_to(known, concentration.shape)
    if is_concrete(concentration):
        positive = compact(np.asarray(concentration)) > 0
        if not positive.all():
            possible = possible & positive
            legal = np.ones(space.shape, bool) if space.legal is None else np.broadcast_to(space.legal, space.shape)
            check_concentration("concentration", np.where(legal[..., None], possible, 1.0))
    # An illegal pair without any outcome is a known row: it stays where it is (of listed successors: the first place).
    empty = ~possible.any(-1, keepdims=True)
    if not empty.any():
        return possible
    stay = space.stays if space.successors is None else np.arange(space.n_outcomes) == 0
    return possible | (empty & stay)
