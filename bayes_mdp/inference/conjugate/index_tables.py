"""Index tables from the rows of a law to the stacked leaves of a prior, and from transitions to both.

A leaf that two (step,) state-action pairs use ties them: what is seen of one tells about the other.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bayes_mdp.mdp import StateActionSpace

Sites = tuple[tuple[str, tuple[int, ...]], ...]


def flat_index(cell: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """Row-major index of `cell` (one integer array for each axis) in an array of `shape`."""
    index = jnp.asarray(cell[0])
    for i, size in zip(cell[1:], shape[1:], strict=True):
        index = index * size + i
    return index


def leaf_index(table: Int[Array, "*cells"] | None, cell: tuple[Any, ...], shape: tuple[int, ...], size: int) -> Any:
    """The leaf of `cell`, or `size` where there is none: an index out of range, which a dropping scatter ignores."""
    if table is None:
        return flat_index(cell, shape)
    leaf = jnp.asarray(table)[cell]
    return jnp.where(leaf < 0, size, leaf)


def unless_identity(table: Any, size: int, name: str) -> np.ndarray | None:
    """`table` as integers in [-1, size), or None where it numbers its own cells 0 .. size-1 in row-major order.

    Raises:
        ValueError: an entry is out of range.
    """
    table = np.asarray(table)
    if table.min(initial=0) < -1 or table.max(initial=-1) >= size:
        worst = table.max() if table.max() >= size else table.min()
        raise ValueError(f"{name} holds the leaf index {worst}, expected -1 (none) or 0 to {size - 1}")
    identity = table.size == size and np.array_equal(table.ravel(), np.arange(size))
    return None if identity else table.astype(np.int32)


def is_injective(table: np.ndarray | None) -> bool:
    """Whether no leaf is used by two entries of `table` (-1 is none)."""
    if table is None:
        return True
    used = table[table >= 0]
    return np.unique(used).size == used.size


def first_tie(what: str, table: Any, sites: Sites, space: StateActionSpace) -> str | None:
    """The first two pairs that use one leaf, and its site, in words; None: no two do. Host side.

    Args:
        what: what the leaf is of a pair ("the row").
        table: [*H S A] or [*H S A O], the leaf of each cell, -1 for none.
        sites: (name, batch shape) of the sites whose leaves are stacked, in order.
        space: names of states and actions.
    """
    by_pair = np.asarray(table).reshape(*space.shape, -1)
    owner: dict[int, tuple[int, ...]] = {}
    for pair in np.ndindex(*space.shape):
        for leaf in set(by_pair[pair].tolist()) - {-1}:
            if leaf in owner:
                site = _site(leaf, sites)
                return f"{what} of {_name(owner[leaf], space)} is that of {_name(pair, space)}{site}"
        owner.update(dict.fromkeys(by_pair[pair].tolist(), pair))
    return None


def _name(pair: tuple[int, ...], space: StateActionSpace) -> str:
    *step, state, action = pair
    at = f", step {step[0]}" if step else ""
    return f"state {space.state_names[state]!r}, action {space.action_names[action]!r}{at}"


def _site(leaf: int, sites: Sites) -> str:
    """The site that the `leaf`-th stacked leaf belongs to."""
    for name, shape in sites:
        size = int(np.prod(shape))
        if leaf < size:
            return f" (site {name!r})"
        leaf -= size
    return ""
