"""`RepeatedRows`: concentrations of many site rows of which few differ, without the table of all of them.

A prior that is alike for all actions, or for all pairs, repeats its rows; the components of a mixture over a list of
concentrations are such rows times a number each. For 715 states and 25 actions one table has 13 million numbers; here
it has at most 716 x 716, whatever the number of components.

NumPy and JAX read it as the array that it stands for (`np.asarray`, `jnp.asarray`).
"""

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from bayes_mdp.numerics.numpy_or_jax import pick, xp
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.typing import AnyArray


class RepeatedRows(Module):
    """Concentrations [M K]: row m is `scale * rows[row[m]]`. Stacked over components, each leaf has an axis in front.

    Args:
        scale: a number.
        rows: [R K], the rows that differ.
        row: [M], which of them each site row is.
    """

    scale: Float[AnyArray, "*C"] | np.floating
    rows: Float[AnyArray, "*C R K"]
    row: Int[AnyArray, "*C M"]

    @property
    def shape(self) -> tuple[int, ...]:
        """(M, K), of a stack (C, M, K)."""
        return (*np.shape(self.row), np.shape(self.rows)[-1])

    @property
    def ndim(self) -> int:
        """2, of a stack 3."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """Of the numbers."""
        return np.dtype(self.rows.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """The whole table."""
        del copy  # it is made anew each time
        if self.ndim > 2:
            return np.stack([np.asarray(self.component(k), dtype) for k in range(len(self))])
        return np.asarray((self.scale * np.asarray(self.rows))[self.row], dtype)

    def __jax_array__(self) -> Array:
        """The whole table, traced."""
        if self.ndim > 2:
            scaled = jnp.asarray(self.scale)[:, None, None] * jnp.asarray(self.rows)
            return jnp.take_along_axis(scaled, jnp.asarray(self.row)[..., None], 1)
        return (jnp.asarray(self.scale) * jnp.asarray(self.rows))[self.row]

    def component(self, k: int) -> "RepeatedRows":
        """Component `k` of a stack."""
        return RepeatedRows(*(np.asarray(x)[k] for x in (self.scale, self.rows, self.row)))

    def totals(self) -> Float[AnyArray, " M"]:
        """Sum of each row."""
        return pick(self.scale * xp.asarray(self.rows).sum(-1), self.row)

    def num_positive(self) -> Float[AnyArray, " M"]:
        """How many numbers of each row are positive, of numbers that are nowhere negative."""
        return pick(xp.sign(xp.asarray(self.rows)).sum(-1), self.row)

    def at(self, row: Int[np.ndarray, "*N"], column: Int[np.ndarray, "*N"]) -> Float[np.ndarray, "*N"]:
        """Some numbers of the table. Host side."""
        return np.asarray(self.scale * np.asarray(self.rows)[np.asarray(self.row)[row], column])

    def signs(self) -> Int[np.ndarray, "C M"]:
        """Of a stack: which numbers of each row are positive; equal ones have one number. Host side."""
        _, kind = np.unique(np.asarray(self.rows[0]) > 0, axis=0, return_inverse=True)
        return kind.reshape(-1)[np.asarray(self.row)]
