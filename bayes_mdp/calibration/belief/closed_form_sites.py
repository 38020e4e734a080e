"""The values of the program's sites behind draws of a closed form: which are known, and what they are."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.calibration.belief.posterior_views import FittedPosterior
from bayes_mdp.inference.conjugate.site_table import SiteTable
from bayes_mdp.utils.typing import AnyArray

Parameters = tuple[Float[AnyArray, "B ..."], ...]


def known_sites(posterior: FittedPosterior) -> dict[str, tuple[int, ...]]:
    """The shapes of the latent sites whose values are known in every draw, by name."""
    held = {name: np.shape(x)[1:] for name, x in posterior.site_draws.items()}
    return {**held, **_conjugate_sites(posterior)}


def site_values(
    posterior: FittedPosterior,
    index: Int[np.ndarray, " N"],
    rows: Float[np.ndarray, "N M K"],
    parameters: Parameters,
    block: int,
) -> dict[str, Float[np.ndarray, "N ..."]]:
    """The values of the conjugate sites for N draws of stacked rows and reward parameters. In JAX's 64-bit mode.

    Args:
        posterior: in closed form, given the component.
        index: the component of each draw.
        rows, parameters: the draws.
        block: number of draws that are worked on at once.
    """
    tables = posterior.site_tables
    made = {name: np.zeros((len(rows), *shape)) for name, shape in _conjugate_sites(posterior).items()}
    if not made:
        return {}
    for table in dict.fromkeys(tables):
        # Components with the same table are worked on together.
        own = np.flatnonzero([each == table for each in tables])
        places = np.flatnonzero(np.isin(index, own)) if len(tables) > 1 else np.arange(len(rows))
        for start in range(0, len(places), block):
            # The last block is filled up, by repeating draws: one compiled program.
            at = np.resize(places[start : start + block], min(block, len(rows)))
            values = _block(table, np.array(rows[at]), tuple(np.array(x[at]) for x in parameters))
            for name, filled in made.items():
                filled[at] = values[name]
    return made


@partial(jax.jit, static_argnums=0)
def _block(table: SiteTable, rows: Float[AnyArray, "B M K"], parameters: Parameters) -> Mapping[str, Array]:
    return jax.vmap(table.values)(rows, parameters)


def _conjugate_sites(posterior: FittedPosterior) -> dict[str, tuple[int, ...]]:
    """The shapes of the conjugate sites all of whose elements are parameters of every component."""
    tables = posterior.site_tables
    if not tables:
        return {}
    closed: Any = posterior.reference  # which is in closed form, as it has tables
    width = int(np.prod(np.shape(closed.transition_probs.prior)))
    covered = [_covered(table, width) for table in dict.fromkeys(tables)]
    return {name: shape for name, shape in tables[0].shapes if all(name in each for each in covered)}


def _covered(table: SiteTable, width: int) -> frozenset[str]:
    """The sites all of whose elements lie in the arrays of a closed form, whose stacked rows have `width` entries."""
    sizes = {name: int(np.prod(shape)) for name, shape in table.shapes}
    seen = np.zeros(sum(sizes.values()), bool)
    for elements in (np.arange(width) if table.rows is None else table.rows, *table.cells):
        seen[np.ravel(elements)[np.ravel(elements) >= 0]] = True
    ends = np.cumsum(list(sizes.values()), dtype=int)
    return frozenset(
        name for (name, size), end in zip(sizes.items(), ends, strict=True) if seen[end - size : end].all()
    )
