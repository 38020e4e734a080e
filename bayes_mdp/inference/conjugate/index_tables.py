"""Index tables from the rows of a law to the stacked sites of a prior, and from transitions to both.

Two (step,) state-action pairs that use one element of a site share a parameter: data of one inform about the other.
"""

import numpy as np
from jaxtyping import Int

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.numerics.numpy_or_jax import pick, xp
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index

Sites = tuple[tuple[str, tuple[int, ...]], ...]


def flat_index(cell: Index, shape: tuple[int, ...]) -> Int[AnyArray, "..."]:
    """Row-major index of `cell` (one integer array for each axis) in an array of `shape`."""
    index = xp.asarray(cell[0])
    for i, size in zip(cell[1:], shape[1:], strict=True):
        index = index * size + i
    return xp.asarray(index)


def site_index(
    table: Int[AnyArray, "*cells"] | None, cell: Index, shape: tuple[int, ...], size: int
) -> Int[AnyArray, "..."]:
    """The site element of `cell`; `size` where there is none, an index out of range that a dropping scatter ignores."""
    if table is None:
        return flat_index(cell, shape)
    element = pick(table, cell)
    return xp.where(element < 0, size, element)


def unless_identity(table: ArrayLike, size: int, name: str) -> Int[np.ndarray, "*cells"] | None:
    """`table` as integers in [-1, size), or None where it numbers its own cells 0 .. size-1 in row-major order.

    Raises:
        ValueError: an entry is out of range.
    """
    table = np.asarray(table)
    if table.min(initial=0) < -1 or table.max(initial=-1) >= size:
        worst = table.max() if table.max() >= size else table.min()
        raise ValueError(f"{name} holds the index {worst}, expected -1 (none) or 0 to {size - 1}")
    identity = table.size == size and np.array_equal(table.ravel(), np.arange(size))
    return None if identity else table.astype(np.int32)


def is_injective(table: Int[np.ndarray, "*cells"] | None) -> bool:
    """Whether no element is used by two entries of `table` (-1 is none)."""
    if table is None:
        return True
    used = table[table >= 0]
    return np.unique(used).size == used.size


def first_shared(what: str, table: Int[AnyArray, "*cells"], sites: Sites, space: StateActionSpace) -> str | None:
    """The first two pairs that share one parameter, and its site, in words; None: no two do. Host side.

    Args:
        what: what the parameter is of a pair ("the row").
        table: [*H S A] or [*H S A O], the element of each cell, -1 for none.
        sites: (name, batch shape) of the stacked sites, in order.
        space: names of states and actions.
    """
    by_pair = np.asarray(table).reshape(*space.shape, -1)
    owner: dict[int, tuple[int, ...]] = {}
    for pair in np.ndindex(*space.shape):
        # Elements that an earlier pair used are shared; a pair may repeat its own.
        for element in set(by_pair[pair].tolist()) - {-1}:
            if element in owner:
                site = _site(element, sites)
                return f"{what} of {_name(owner[element], space)} is that of {_name(pair, space)}{site}"
        owner.update(dict.fromkeys(by_pair[pair].tolist(), pair))
    return None


def _name(pair: tuple[int, ...], space: StateActionSpace) -> str:
    *step, state, action = pair
    at = f", step {step[0]}" if step else ""
    return f"state {space.state_names[state]!r}, action {space.action_names[action]!r}{at}"


def _site(element: int, sites: Sites) -> str:
    """The site of the stacked element `element`."""
    for name, shape in sites:
        size = int(np.prod(shape))
        if element < size:
            return f" (site {name!r})"
        element -= size
    return ""
