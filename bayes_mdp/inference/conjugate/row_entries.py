"""`RowEntries`: the possible outcomes of the pairs that are needed, one after the other, to draw these and no others.

A draw of all rows costs a gamma variable for each of S A K entries. A policy takes few of the actions, many actions are
illegal, and lists of successors are padded to the longest: what is needed may be a hundredth of it.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.random import loggamma
from bayes_mdp.utils.typing import AnyArray

NEARLY_FULL = 0.5  # share of the outcomes of the needed rows that are possible


class RowEntries(eqx.Module):
    """Q pairs and their E possible outcomes, in the order of the pairs (built by `row_entries`).

    Args:
        state, action: [Q], the pairs.
        pair: [E], the pair of each entry; not decreasing.
        next_state: [E], where it leads; S is the end of the episode.
        element: [E], its number in the stacked site rows.
        concentration: [E], after data; zero in known rows.
        known: [E], probabilities of known rows, zero in others; None: no row is known.
        width: the number of outcomes of every pair, where all are listed (impossible ones with concentration zero);
            None: only possible ones are.
    """

    state: Int[AnyArray, " Q"]
    action: Int[AnyArray, " Q"]
    pair: Int[AnyArray, " E"]
    next_state: Int[AnyArray, " E"]
    element: Int[AnyArray, " E"]
    concentration: Float[AnyArray, " E"]
    known: Float[AnyArray, " E"] | None
    width: int | None = eqx.field(default=None, static=True)

    @property
    def possible(self) -> Bool[np.ndarray, " E"]:
        """Which entries are possible outcomes. Host side."""
        some = np.asarray(self.concentration) > 0
        return some if self.known is None else some | (np.asarray(self.known) > 0)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " E"]:
        """One draw of the probabilities: those of `DirichletRows.sample` with this key, but for rounding."""
        # Each entry has the random numbers of its element: pairs that share a site row share them too.
        log_weights = loggamma(key, jnp.asarray(self.concentration), jnp.asarray(self.element))
        # A row of gamma draws over its sum, from log weights less their largest: all of a row may underflow.
        peak = self._of_pairs(log_weights, jax.ops.segment_max, jnp.max)
        weights = jnp.exp(log_weights - self.to_entries(jnp.where(jnp.isfinite(peak), peak, 0.0)))
        return self._filled(weights)

    def mean(self) -> Float[Array, " E"]:
        """Expected probabilities."""
        return self._filled(jnp.asarray(self.concentration))

    def _filled(self, weights: Float[Array, " E"]) -> Float[Array, " E"]:
        """Probabilities from weights, and those that are known."""
        total = self.sum_by_pair(weights)
        probs = weights / self.to_entries(jnp.where(total > 0, total, 1.0))
        return probs if self.known is None else probs + self.known

    def sum_by_pair(self, values: Float[Array, " E"]) -> Float[Array, " Q"]:
        """The sums of the entries of each pair."""
        return self._of_pairs(values, jax.ops.segment_sum, jnp.sum)

    def _of_pairs(
        self, values: Float[Array, " E"], by_segment: Callable[..., Array], by_axis: Callable[..., Array]
    ) -> Float[Array, " Q"]:
        # Equal rows are a matrix: a reduction along an axis is many times faster than one over segments.
        if self.width is not None:
            return by_axis(values.reshape(-1, self.width), axis=-1)
        return by_segment(values, jnp.asarray(self.pair), len(self.state), indices_are_sorted=True)

    def to_entries(self, values: Float[Array, " Q"]) -> Float[Array, " E"]:
        """A number of each pair, for each of its entries."""
        return values[jnp.asarray(self.pair)] if self.width is None else jnp.repeat(values, self.width)


def row_entries(rows: DirichletRows, space: StateActionSpace, needed: Bool[np.ndarray, "S A"]) -> RowEntries | None:
    """The entries of the needed pairs. Host side; None where there are rows for every step, or counts are listed.

    Args:
        rows: the belief about the rows.
        space: its space.
        needed: the pairs.
    """
    if space.horizon is not None or rows.successor is not None or not needed.any():
        return None
    state, action = np.nonzero(needed)
    # Where the entries of the needed rows lie in the stacked site rows: [Q O], -1 where there is none.
    width, size = rows.prior.shape[1], rows.shape[-1]
    row = state * space.n_actions + action if rows.row is None else np.asarray(rows.row)[state, action]
    if rows.column is None:
        column = np.broadcast_to(np.arange(size), (len(row), size))
    else:
        column = np.asarray(rows.column)[state, action]
    inside = (row >= 0)[:, None] & (column >= 0)
    element = np.where(inside, np.maximum(row, 0)[:, None] * width + np.maximum(column, 0), 0)
    concentration = (np.asarray(rows.prior) + np.asarray(rows.counts)).reshape(-1)[element] * inside
    known = None if rows.known is None else np.where((row < 0)[:, None], np.asarray(rows.known)[state, action], 0.0)
    possible = concentration > 0 if known is None else (concentration > 0) | (known > 0)
    # Nearly full rows are taken as a matrix, with impossible outcomes of probability zero in it.
    full = space.successors is None and possible.mean() > NEARLY_FULL
    pair, outcome = np.nonzero(possible | full)
    possible = possible | full
    return RowEntries(
        state=state.astype(np.int32),
        action=action.astype(np.int32),
        pair=pair.astype(np.int32),
        next_state=_reached(space, state, action, pair, outcome).astype(np.int32),
        element=element[possible],
        concentration=concentration[possible],
        known=None if known is None else known[possible],
        width=size if full else None,
    )


def _reached(
    space: StateActionSpace,
    state: Int[np.ndarray, " Q"],
    action: Int[np.ndarray, " Q"],
    pair: Int[np.ndarray, " E"],
    outcome: Int[np.ndarray, " E"],
) -> Int[np.ndarray, " E"]:
    """The next state of each entry, S for the end."""
    if space.successors is None:
        return outcome
    listed = np.asarray(space.successors)[state[pair], action[pair], outcome]
    # An illegal pair without a successor stays where it is.
    return np.where(listed < 0, state[pair], listed)
