"""Concentrations of site rows before data, and what is asked of them, whichever way they are held.

As a table; or, in large spaces, as `RepeatedRows`: the rows that differ. A prior that is alike for all actions, or for
all pairs, repeats its rows; the components of a mixture over a list of concentrations are such rows times a number
each. For 715 states and 25 actions one table has 13 million numbers; `RepeatedRows` have at most 716 x 716, whatever
the number of components. NumPy and JAX read them as the table that they stand for (`np.asarray`, `jnp.asarray`).

`prior_rows` gives both the same methods. Those of a stack are about the components of a mixture.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.inference.families.family import log_rising
from bayes_mdp.inference.pair_draws import varies
from bayes_mdp.numerics.numpy_or_jax import pick, xp
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.typing import AnyArray, RealScalar

MANY = 2**14
"""Concentrations from which on those without data are left out, where they add nothing."""
LEAST_WEIGHT = 1e-18  # of a component, as a share of the largest: a uniform number of 53 bits never chooses less


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

    def totals(self) -> Float[AnyArray, " M"]:
        """Sum of each row."""
        return pick(self.scale * xp.asarray(self.rows).sum(-1), self.row)

    def num_positive(self) -> Float[AnyArray, " M"]:
        """How many numbers of each row are positive, of numbers that are nowhere negative."""
        return pick(xp.sign(xp.asarray(self.rows)).sum(-1), self.row)

    def at(self, row: Int[np.ndarray, "*N"], column: Int[np.ndarray, "*N"]) -> Float[np.ndarray, "*N"]:
        """Some numbers of the table. Host side."""
        return np.asarray(self.scale * np.asarray(self.rows)[np.asarray(self.row)[row], column])

    def log_evidence(self, counts: Float[AnyArray, "M K"]) -> RealScalar:
        """As `RowTable.log_evidence`."""
        if not isinstance(counts, np.ndarray):
            return RowTable(jnp.asarray(self)).log_evidence(counts)
        return self.log_evidences(counts, [self])[0]

    def log_evidences(self, counts: Float[np.ndarray, "M K"], rows: "Sequence[PriorRows]") -> Float[np.ndarray, " N"]:
        """As `RowTable.log_evidences`: what was seen is looked for once."""
        # An outcome without data has the factor one, and so has a row without.
        seen, number = np.nonzero(counts), counts.sum(-1)
        observed = counts[seen]
        evidences = []
        for each in rows:
            of_seen = each.at(*seen)
            possible = of_seen > 0
            evidences.append(log_rising(of_seen[possible], observed[possible]).sum())
            evidences[-1] -= log_rising(each.totals(), number).sum()
        return np.array(evidences)

    # Of a stack. Host side.

    def component(self, k: int) -> "RepeatedRows":
        """Component `k`."""
        return RepeatedRows(*(np.asarray(x)[k] for x in (self.scale, self.rows, self.row)))

    def components_at(self, k: Int[np.ndarray, " N"], element: Int[np.ndarray, " U"]) -> Float[np.ndarray, "N U"]:
        """As `RowTable.components_at`."""
        place = np.divmod(element, self.shape[-1])
        return np.stack([self.component(int(i)).at(*place) for i in k])

    def differ(self) -> bool:
        """As `RowTable.differ`."""
        return varies(np.asarray(self.scale)) or varies(np.asarray(self.row))

    def signs(self) -> Int[np.ndarray, "C M"]:
        """Which numbers of each row are positive; equal ones have one number."""
        _, kind = np.unique(np.asarray(self.rows[0]) > 0, axis=0, return_inverse=True)
        return kind.reshape(-1)[np.asarray(self.row)]

    def likely(self, weights: Float[np.ndarray, " C"]) -> Int[np.ndarray, " L"] | None:
        """As `RowTable.likely`: they are many, of which a draw is of few; others have no share of 1e-18."""
        return np.flatnonzero(weights > LEAST_WEIGHT * weights.max())


Concentrations: TypeAlias = Float[AnyArray, "*C M K"] | RepeatedRows
"""The prior of site rows, as it is stored; of the components of a mixture, stacked."""


@dataclass(frozen=True, eq=False)
class RowTable:
    """Concentrations [M K] as they are. Stacked over components they have an axis in front.

    Args:
        table: the numbers.
    """

    table: Float[AnyArray, "*C M K"]

    def totals(self) -> Float[AnyArray, " M"]:
        """Sum of each row."""
        return xp.asarray(self.table).sum(-1)

    def num_positive(self) -> Float[AnyArray, " M"]:
        """How many numbers of each row are positive, of numbers that are nowhere negative."""
        # The sum of their signs: on a CPU XLA would store a comparison of the size of the rows before it adds.
        return xp.sign(xp.asarray(self.table)).sum(-1)

    def at(self, row: Int[np.ndarray, "*N"], column: Int[np.ndarray, "*N"]) -> Float[np.ndarray, "*N"]:
        """Some numbers of the table. Host side."""
        return np.asarray(self.table)[row, column].astype(np.float64, copy=False)

    def log_evidence(self, counts: Float[AnyArray, "M K"]) -> RealScalar:
        """Log-probability of the counted outcomes, as a sequence.

        Args:
            counts: of all site rows.
        """
        prior = xp.asarray(self.table, counts.dtype)
        possible = prior > 0
        # Dirichlet-multinomial of a sequence: prod_k rising(prior_k, n_k) / rising(sum prior, sum n).
        total = log_rising(prior.sum(-1), counts.sum(-1)).sum()
        if isinstance(counts, np.ndarray) and counts.size >= MANY:
            # An outcome without data has the factor one: most have it.
            seen = possible & (counts > 0)
            return log_rising(prior[seen], counts[seen]).sum() - total
        return log_rising(xp.where(possible, prior, 1.0), xp.where(possible, counts, 0.0)).sum() - total

    def log_evidences(
        self, counts: Float[np.ndarray, "M K"], rows: "Sequence[PriorRows]"
    ) -> Float[np.ndarray, " N"] | None:
        """`log_evidence` of one table of counts under the rows of each component; None: each is asked by itself.

        Args:
            counts: of all site rows.
            rows: of the components, all of this kind.
        """
        del counts, rows
        return None

    # Of a stack. Host side.

    def components_at(self, k: Int[np.ndarray, " N"], element: Int[np.ndarray, " U"]) -> Float[np.ndarray, "N U"]:
        """Some numbers of some components.

        Args:
            k: components.
            element: places in a component's rows, laid flat.
        """
        flat = np.asarray(self.table).reshape(len(self.table), -1)
        return flat[k[:, None], element].astype(np.float64, copy=False)

    def differ(self) -> bool:
        """Whether the rows differ from component to component."""
        return varies(np.asarray(self.table))

    def signs(self) -> Bool[np.ndarray, "C M K"]:
        """Which numbers are positive."""
        return np.asarray(self.table) > 0

    def likely(self, weights: Float[np.ndarray, " C"]) -> Int[np.ndarray, " L"] | None:
        """The components that a draw may be of; None: any.

        Args:
            weights: of the components.
        """
        del weights
        return None


PriorRows: TypeAlias = RepeatedRows | RowTable


def prior_rows(prior: Concentrations) -> PriorRows:
    """The rows, with methods.

    Args:
        prior: as it is stored.
    """
    return prior if isinstance(prior, RepeatedRows) else RowTable(prior)
