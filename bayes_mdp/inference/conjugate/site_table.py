"""`SiteTable`: from draws of the stacked rows and reward parameters back to the values of the program's own sites."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real

from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.typing import AnyArray


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
        found = self.__dict__.get("_digested")
        if found is None:
            digest = hashlib.sha256(repr(self.shapes).encode())
            for array in (() if self.rows is None else self.rows, *self.cells):
                digest.update(repr(np.shape(array)).encode() + np.ascontiguousarray(array, np.int64).tobytes())
            if self.stretch is not None:
                digest.update(np.ascontiguousarray(self.stretch, np.float64).tobytes())
            # Programs that differ (in a deterministic site, say) make different posteriors of the same tables.
            found = digest.hexdigest() + ("" if self.program is None else str(hash(self.program)))
            object.__setattr__(self, "_digested", found)
        return found

    def values(
        self, rows: Float[AnyArray, "M K"], rewards: tuple[Real[AnyArray, "..."], ...]
    ) -> Mapping[str, Float[Array, "..."]]:
        """{site: value} for one draw of the stacked rows and of the parameters of the rewards. Traceable."""
        size = sum(int(np.prod(shape)) for _, shape in self.shapes)
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
        values, start = {}, 0
        for name, shape in self.shapes:
            stop = start + int(np.prod(shape))
            values[name] = flat[start:stop].reshape(shape)
            start = stop
        return values


def site_rows(elements: Int[np.ndarray, "M K"], size: int) -> Int[np.ndarray, "M K"] | None:
    """`SiteTable.rows` of the elements behind stacked rows; those from `size` on are complements, and no elements."""
    in_order = elements.size <= size and np.array_equal(elements.ravel(), np.arange(elements.size))
    return None if in_order else np.where(elements < size, elements, -1)
