"""Tables between the elements of a program's sites, the stacked arrays of a closed form, and the cells of the laws.

From the rows of a law to the stacked sites of a prior, and from transitions to both (two (step,) state-action pairs
that use one element of a site share a parameter: data of one inform about the other); and back, from draws of the
stacked rows and reward parameters to the values of the program's own sites (`SiteTable`).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.typing import AnyArray, ArrayLike

Sites = tuple[tuple[str, tuple[int, ...]], ...]
ArrayT = TypeVar("ArrayT", np.ndarray, Array)


def unless_identity(table: ArrayLike, size: int, name: str) -> Int[np.ndarray, "*cells"] | None:
    """`table` as integers in [-1, size), or None where it numbers its own cells 0 .. size-1 in row-major order.

    Raises:
        ValueError: an entry is out of range.
    """
    table = np.asarray(table)
    if table.min(initial=0) < -1 or table.max(initial=-1) >= size:
        worst = table.max() if table.max() >= size else table.min()
        raise ValueError(f"{name} holds the index {worst}, expected -1 (none) or 0 to {size - 1}")
    # The common case needs no table: every cell its own element, in order.
    identity = table.size == size and np.array_equal(table.ravel(), np.arange(size))
    return None if identity else table.astype(np.int32)


def is_injective(table: Int[np.ndarray, "*cells"] | None) -> bool:
    """Whether no element is used by two entries of `table` (-1 is none)."""
    if table is None:
        return True
    used = table[table >= 0]
    return np.unique(used).size == used.size


def first_pairs_in_common(
    what: str, table: Int[AnyArray, "*cells"], sites: Sites, space: StateActionSpace
) -> str | None:
    """The first two pairs that share one parameter, and its site, in words; None: no two do. Host side.

    Args:
        what: what the parameter is of a pair ("the row").
        table: [*H S A] or [*H S A O], the element of each cell, -1 for none.
        sites: (name, batch shape) of the stacked sites, in order.
        space: names of states and actions.
    """
    by_pair = np.asarray(table).reshape(*space.shape, -1)
    owner: dict[int, tuple[int, ...]] = {}
    # The first pair, in order, that meets an element of an earlier one.
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
    step_text = f", step {step[0]}" if step else ""
    return f"state {space.state_names[state]!r}, action {space.action_names[action]!r}{step_text}"


def _site(element: int, sites: Sites) -> str:
    """The site of the stacked element `element`."""
    # Elements of stacked sites are numbered one site after the other.
    for name, shape in sites:
        size = int(np.prod(shape))
        if element < size:
            return f" (site {name!r})"
        element -= size
    return ""


def split_sites(flat: ArrayT, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, ArrayT]:
    """{site: value} of one vector, in which each is a piece, in order (views of NumPy's).

    Args:
        flat: the vector.
        shapes: of the sites.
    """
    stops = np.cumsum([int(np.prod(shape)) for shape in shapes.values()]).tolist()
    pieces = zip(shapes.items(), [0, *stops], stops, strict=False)
    return {name: flat[start:stop].reshape(shape) for (name, shape), start, stop in pieces}


@dataclass(frozen=True, eq=False)
class SiteTable:
    """Which element of the program's conjugate sites lies where in a closed form. Compares by content.

    Args:
        shapes: (name, shape) of the conjugate sites: their elements in one vector, site after site, row-major.
        rows: [M K], the element behind each entry of the stacked Dirichlet rows; -1: none (padding, a complement).
            None: the first M K elements, in order.
        cells: for each parameter of the rewards (as their `sample_sites` returns them), the elements behind it.
        stretch: [L], factor by which the second parameter of the rewards is larger than its element; None: one.
        program: the prior program; None after `load`.
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    rows: Int[np.ndarray, "M K"] | None
    cells: tuple[Int[np.ndarray, "..."], ...]
    stretch: Float[np.ndarray, " L"] | None = None
    program: Prior | None = field(default=None, repr=False)

    def __hash__(self) -> int:
        return hash(self._digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SiteTable) and self._digest() == other._digest()

    def _digest(self) -> str:
        stored = self.__dict__.get("_digested")
        if stored is None:
            digest = hashlib.sha256(repr(self.shapes).encode())
            for array in (() if self.rows is None else self.rows, *self.cells):
                digest.update(repr(np.shape(array)).encode() + np.ascontiguousarray(array, np.int64).tobytes())
            # What a draw is stretched by belongs to the way back, and so to the identity.
            if self.stretch is not None:
                digest.update(np.ascontiguousarray(self.stretch, np.float64).tobytes())
            # Programs that differ (in a deterministic site, say) make different posteriors of the same tables.
            stored = digest.hexdigest() + ("" if self.program is None else str(hash(self.program)))
            object.__setattr__(self, "_digested", stored)
        return stored

    def values(
        self, rows: Float[AnyArray, "M K"], rewards: tuple[Real[AnyArray, "..."], ...]
    ) -> Mapping[str, Float[Array, "..."]]:
        """{site: value} for one draw of the stacked rows and of the parameters of the rewards. Traceable."""
        size = sum(int(np.prod(shape)) for _, shape in self.shapes)
        # Rewards are mapped back to the units of the program's site.
        if self.stretch is not None:
            rewards = (rewards[0], rewards[1] / self.stretch, *rewards[2:])
        # Entries without an element are sent out of range and dropped.
        flat = jnp.zeros(size, jnp.result_type(float))
        parts = list(zip(self.cells, rewards, strict=True))
        if self.rows is None:
            first = jnp.ravel(jnp.asarray(rows, flat.dtype))
            flat = flat.at[: first.size].set(first)
        else:
            parts.append((self.rows, rows))
        for elements, drawn in parts:
            place = np.where(np.asarray(elements) < 0, size, elements)
            flat = flat.at[place].set(jnp.asarray(drawn, flat.dtype).reshape(place.shape), mode="drop")
        return split_sites(flat, dict(self.shapes))


def site_rows(elements: Int[np.ndarray, "M K"], size: int) -> Int[np.ndarray, "M K"] | None:
    """`SiteTable.rows` of the elements behind stacked rows; those from `size` on are complements, and no elements."""
    in_order = elements.size <= size and np.array_equal(elements.ravel(), np.arange(elements.size))
    return None if in_order else np.where(elements < size, elements, -1)
