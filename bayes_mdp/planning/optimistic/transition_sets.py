"""Sets of plausible transition rows, and the value of the best row of each: what optimistic planners maximise over.

Values are shared by all pairs, so one sort of them serves every row of a sweep. With values v_1 >= ... >= v_O and C_k
the mass that the best row puts on the k best outcomes, its value is v_O + sum_{k < O} C_k (v_k - v_{k+1}). No row is
built: a scan over outcomes carries C_k of all pairs.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import ArrayLike, IntScalar
from bayes_mdp.utils.validation import ROW_SUM_TOLERANCE, check_shape, is_concrete, require

Pairs = Float[Array, "S A"]


def outcome_probs(mdp: MDP | SparseMDP) -> Float[Array, "*H S A O"]:
    """Dense rows over outcomes: the next states and, where `mdp` has ends, the end as the last one."""
    dense = mdp.to_dense() if isinstance(mdp, SparseMDP) else mdp
    if dense.end_probs is None:
        return dense.transition_probs
    return jnp.concatenate([dense.transition_probs, dense.end_probs[..., None]], -1)


def as_mask(x: ArrayLike | None) -> Bool[Array, "..."] | None:
    """A boolean array, or None."""
    return None if x is None else jnp.asarray(x, bool)


class L1Ball(eqx.Module):
    """The rows p with ||p - probs||_1 <= radius, on the possible outcomes (Jaksch, Ortner and Auer 2010, section 3.1).

    Args:
        probs: [*H S A O], the centres; O is S, or S + 1 with the end, of value 0, last. A row that sums to one only
            nearly has what is missing on the worst outcome.
        radius: [*H S A], zero or greater; from 2 on every row is in the set.
        support: Bool[*H S A O], the possible outcomes; None: all.

    Raises:
        ValueError: shapes that disagree, a negative radius, a centre with mass on an impossible outcome.
    """

    probs: Float[Array, "*H S A O"] = eqx.field(converter=jnp.asarray)
    radius: Float[Array, "*H S A"] = eqx.field(converter=jnp.asarray)
    support: Bool[Array, "*H S A O"] | None = eqx.field(default=None, converter=as_mask)

    def __check_init__(self) -> None:
        shape = self.probs.shape
        check_shape("radius", self.radius, shape[:-1], "as probs, without its last axis")
        if self.support is not None:
            check_shape("support", self.support, shape, "as probs")
        if is_concrete(self.radius):
            radius = np.asarray(self.radius)
            require(~(radius >= 0), "radius", radius, "a number, zero or greater")
        if self.support is not None and is_concrete(self.probs, self.support):
            probs = np.asarray(self.probs)
            require((probs > 0) & ~np.asarray(self.support), "probs", probs, "0, because support excludes it")

    @property
    def shape(self) -> tuple[int, ...]:
        """(*H, S, A, O)."""
        return self.probs.shape

    def at(self, step: IntScalar) -> "L1Ball":
        """The sets of one step (itself where they do not depend on the step)."""
        return self if self.radius.ndim == 2 else jax.tree.map(lambda x: x[step], self)

    def best_value(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """max of p . values over each set: half the radius to the best outcome, taken from the worst ones.

        For sets without a step axis.
        """
        return _best_expectation(values, self._trace, lambda reached: _moved(reached, self.radius / 2), 1.0)

    def best_rows(self, values: Float[Array, " V"]) -> Float[Array, "S A O"]:
        """The rows whose value is `best_value`; of several best outcomes the first gets the mass.

        For sets without a step axis. `values`: of the outcomes; those that are missing at the end have value 0.
        """
        _, order = _ranked(values, self.shape[-1])
        mass = _moved(jnp.cumsum(self._trace[..., order], -1), self.radius[..., None] / 2).at[..., -1].set(1.0)
        rows = jnp.diff(mass, axis=-1, prepend=jnp.zeros_like(mass[..., :1]))
        return rows[..., jnp.argsort(order)]

    @property
    def _trace(self) -> Float[Array, "*H S A O"]:
        """A positive trace of every possible outcome: `_moved` is 0 above the best of them, and nowhere else."""
        trace = jnp.maximum(self.probs, float(jnp.finfo(self.probs.dtype).tiny))
        return trace if self.support is None else jnp.where(self.support, trace, 0.0)


class Box(eqx.Module):
    """The rows p with lower <= p <= upper in every outcome (Dann and Brunskill 2015; Strehl and Littman 2005).

    Args:
        lower, upper: [*H S A O], O as in `L1Ball`. Impossible outcomes have upper 0.

    Raises:
        ValueError: shapes that disagree, lower > upper, a set without a row (sum lower > 1 or sum upper < 1).
    """

    lower: Float[Array, "*H S A O"] = eqx.field(converter=jnp.asarray)
    upper: Float[Array, "*H S A O"] = eqx.field(converter=jnp.asarray)

    def __check_init__(self) -> None:
        check_shape("upper", self.upper, self.lower.shape, "as lower")
        if not is_concrete(self.lower, self.upper):
            return
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        require(~((lower >= 0) & (lower <= upper)), "lower", lower, "a number from 0 to upper")
        spare = ROW_SUM_TOLERANCE.get(str(lower.dtype), 1e-6)
        require(lower.sum(-1) > 1 + spare, "sum of lower", lower.sum(-1), "at most 1")
        require(upper.sum(-1) < 1 - spare, "sum of upper", upper.sum(-1), "at least 1")

    def at(self, step: IntScalar) -> "Box":
        """The sets of one step (itself where they do not depend on the step)."""
        return self if self.lower.ndim == 3 else jax.tree.map(lambda x: x[step], self)

    @property
    def shape(self) -> tuple[int, ...]:
        """(*H, S, A, O)."""
        return self.lower.shape

    def best_value(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """max of p . values over each set: what the lower limits leave is poured from the best outcome down.

        For sets without a step axis.
        """
        # Every outcome has its lower limit; the rest fills the room up to the upper limits, best outcome first.
        rest = 1.0 - jnp.sum(self.lower, -1)
        poured = _best_expectation(values, self.upper - self.lower, lambda room: jnp.minimum(room, rest), rest)
        return matmul(self.lower[..., : values.shape[0]], values) + poured


def _moved(reached: Float[Array, "*n"], half: Float[Array, "*#n"]) -> Float[Array, "*n"]:
    """The mass of the best row of a ball on the k best outcomes, from that of the centre and half the radius."""
    return jnp.where(reached > 0, jnp.minimum(reached + half, 1.0), 0.0)


def _best_expectation(
    values: Float[Array, " S"], amount: Float[Array, "S A O"], mass: Callable[[Pairs], Pairs], total: float | Pairs
) -> Float[Array, "S A"]:
    """The expected value of `total` mass, of which mass(sum of the k first amounts) lies on the k best outcomes."""
    ranked, order = _ranked(values, amount.shape[-1])
    columns = jnp.moveaxis(amount, -1, 0)

    def add(
        carry: tuple[Pairs, Pairs], outcome: tuple[Int[Array, ""], Float[Array, ""]]
    ) -> tuple[tuple[Pairs, Pairs], None]:
        # Abel summation: C_k times the drop from the k-th value to the next.
        (reached, value), (column, drop) = carry, outcome
        reached = reached + columns[column]
        return (reached, value + drop * mass(reached)), None

    nothing = jnp.zeros_like(columns[0])
    outcomes = (order[:-1], ranked[:-1] - ranked[1:])
    return total * ranked[-1] + lax.scan(add, (nothing, nothing), outcomes, unroll=4)[0][1]


def _ranked(values: Float[Array, " S"], n_outcomes: int) -> tuple[Float[Array, " O"], Int[Array, " O"]]:
    """The values of all outcomes from the best down (0 for an end), and which they are."""
    padded = jnp.pad(values, (0, n_outcomes - values.shape[0]))
    order = jnp.argsort(-padded)
    return padded[order], order
