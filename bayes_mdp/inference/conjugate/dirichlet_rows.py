"""`DirichletRows`: what is believed of the transition probabilities, as plain arrays.

The rows of the law, one for each (step,) state and action, over O outcomes, select elements of M independent Dirichlet
*leaf rows*: tied rows share a leaf row, a known support leaves columns out, known rows have none.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.index_tables import Sites, first_tie, is_injective, leaf_index, unless_identity
from bayes_mdp.inference.conjugate.reward_statistics import log_rising
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.validation import at, check_concentration, check_shape, first_index
from bayes_mdp.random import dirichlet, dirichlet_expectation, dirichlet_split, loggamma


class DirichletRows(eqx.Module):
    """Independent Dirichlet leaf rows, and the tables by which the law selects from them (built by `dirichlet_rows`).

    Args:
        prior: [M K], prior concentrations; zero is a structural zero (or padding).
        counts: [M K], how often each column was seen; [M L] where `successor` lists L columns.
        row: [*H S A], the leaf row of each row of the law, -1 for a known row; None: row-major, one each.
        column: [*H S A O], the column of each outcome in that leaf row, -1 for a structural zero; None: the same.
        known: [*H S A O], the known rows (read where `row` is -1); None: there is none.
        known_listed: possible outcomes of the rows and their probabilities, where every row is known and has few of
            them; None: not listed.
        successor: [M L], the columns that `counts` lists (a repeated column counts in its first place); None: all K.
        shape: (*H, S, A, O).
        unit_prior: every prior concentration is one.
        independent: no leaf row is used by two rows of the law.
        sites: (name, batch shape) of the sites whose rows are stacked, in order.
    """

    prior: Float[Array, "M K"]
    counts: Float[Array, "M L"]
    row: Int[Array, "*H S A"] | None
    column: Int[Array, "*H S A O"] | None
    known: Float[Array, "*H S A O"] | None
    successor: Int[Array, "M L"] | None
    shape: tuple[int, ...] = eqx.field(static=True)
    unit_prior: bool = eqx.field(static=True)
    independent: bool = eqx.field(static=True)
    sites: Sites = eqx.field(static=True, default=())
    known_listed: tuple[Int[Array, "*H S A L"], Float[Array, "*H S A L"]] | None = None

    @property
    def dense_counts(self) -> Float[Array, "M K"]:
        """Counts of every column."""
        counts = jnp.asarray(self.counts)
        if self.successor is None:
            return counts
        rows = jnp.arange(len(self.prior))[:, None]
        return jnp.zeros(self.prior.shape, counts.dtype).at[rows, self.successor].add(counts)

    @property
    def leaf_concentration(self) -> Float[Array, "M K"]:
        """Concentrations of the leaf rows after data."""
        return self.prior + self.dense_counts

    @property
    def concentration(self) -> Float[Array, "*H S A O"]:
        """Concentrations of the rows of the law after data; zero for structural zeros and in known rows."""
        return self._select(self.leaf_concentration)

    @property
    def is_known(self) -> Array:
        """Bool[*H S A], the rows that are known, not believed."""
        return jnp.zeros(self.shape[:-1], bool) if self.row is None else jnp.asarray(self.row) < 0

    def _select(self, leaves: Float[Array, "M K"]) -> Float[Array, "*H S A O"]:
        """Rows of the law from leaf rows, zero where there is no leaf."""
        if self.row is None and self.column is None:
            return leaves.reshape(self.shape)
        row = jnp.arange(math.prod(self.shape[:-1])).reshape(self.shape[:-1]) if self.row is None else self.row
        if self.column is None:
            return jnp.where((row < 0)[..., None], 0.0, leaves[row])
        return jnp.where((row < 0)[..., None] | (self.column < 0), 0.0, leaves[row[..., None], self.column])

    def gather(self, leaves: Float[Array, "M K"]) -> Float[Array, "*H S A O"]:
        """The rows of the law for the values `leaves` of the leaf rows, known rows filled in."""
        rows = self._select(leaves)
        return rows if self.known is None else jnp.where(self.is_known[..., None], self.known, rows).astype(rows.dtype)

    def mean(self) -> Float[Array, "*H S A O"]:
        """Expected probabilities."""
        leaves = self.leaf_concentration
        return self.gather(leaves / leaves.sum(-1, keepdims=True))

    def inverse_total(self) -> Float[Array, "*H S A"]:
        """1 / (sum of concentrations + 1), the factor of every Dirichlet covariance; zero where nothing is unknown."""
        return 1.0 / (self.total() + 1.0)

    def total(self) -> Float[Array, "*H S A"]:
        """Sum of the concentrations of each row after data; infinite where nothing is unknown. It builds no rows."""
        total = jnp.where(self._unknown_leaves(), self._leaf_total(), jnp.inf)
        if self.row is None:
            return total.reshape(self.shape[:-1])
        return jnp.where(self.is_known, jnp.inf, total[jnp.asarray(self.row)])

    def _leaf_total(self) -> Float[Array, " M"]:
        """Sum of the concentrations of each leaf row after data."""
        prior = self.prior.shape[-1] if self.unit_prior else jnp.asarray(self.prior).sum(-1)
        return prior + jnp.asarray(self.counts).sum(-1)

    def _unknown_leaves(self) -> Any:
        """Which leaf rows have more than one possible outcome."""
        return self.prior.shape[-1] > 1 if self.unit_prior else (jnp.asarray(self.prior) > 0).sum(-1) > 1

    def sample_leaves(self, key: PRNGKeyArray) -> Float[Array, "M K"]:
        """One draw of the leaf rows."""
        prior = jnp.asarray(self.prior)
        if self.successor is None:
            return dirichlet(key, prior + self.counts)
        counts, successor = jnp.asarray(self.counts), jnp.asarray(self.successor)
        return dirichlet_split(key, prior, counts, successor, unit_prior=self.unit_prior)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*H S A O"]:
        """One draw of the rows of the law."""
        return self.gather(self.sample_leaves(key))

    def with_prior(self, prior: Float[Array, "M K"]) -> "DirichletRows":
        """The same counts under other prior concentrations."""
        return dataclasses.replace(self, prior=prior, unit_prior=False)

    def at_step(self, step: Any) -> "DirichletRows":
        """The rows of one step: independent rows each with a leaf row of its own, tied ones beside all leaf rows."""
        if not self.independent:
            row, column, known, listed = jax.tree.map(
                lambda table: jnp.asarray(table)[step], (self.row, self.column, self.known, self.known_listed)
            )
            tables = {"row": row, "column": column, "known": known, "known_listed": listed}
            return dataclasses.replace(self, shape=self.shape[1:], **tables)
        shape, size = self.shape[1:], math.prod(self.shape[1:-1])
        chosen = None if self.row is None else jnp.ravel(jnp.asarray(self.row)[step])
        row = None
        if self.known is not None and chosen is not None:
            row = jnp.where(chosen < 0, -1, jnp.arange(size)).reshape(shape[:-1])

        def take(leaves: Any) -> Array:
            # A slice is read in place, a gather is not: twice as fast for dense counts.
            leaves = jnp.asarray(leaves)
            return leaves[chosen] if chosen is not None else jax.lax.dynamic_slice_in_dim(leaves, step * size, size)

        prior, counts = take(self.prior), take(self.counts)
        successor = None if self.successor is None else take(self.successor)
        column, known = (None if x is None else jnp.asarray(x)[step] for x in (self.column, self.known))
        listed = jax.tree.map(lambda x: jnp.asarray(x)[step], self.known_listed)
        return DirichletRows(prior, counts, row, column, known, successor, shape, self.unit_prior, True, (), listed)

    def sample_expectation(self, key: PRNGKeyArray, values: Float[Array, " O"]) -> Float[Array, "*H S A"]:
        """One draw of sum_o P(o | s, a) values(o); listed counts never build the rows."""
        if self.known_listed is not None:
            return self.expectation(values)
        if self.successor is None or self.row is not None or self.column is not None:
            return self.sample(key) @ values
        prior, counts, successor = (jnp.asarray(x) for x in (self.prior, self.counts, self.successor))
        drawn = dirichlet_expectation(key, prior, counts, successor, values, unit_prior=self.unit_prior)
        return drawn.reshape(self.shape[:-1])

    def sample_next(
        self, key: PRNGKeyArray, values: Float[Array, " O"], step: Any = None, inflation: Any = 1.0, pseudo: Any = None
    ) -> Float[Array, "S A"]:
        """`sample_expectation` at a step, of inflated rows with a pseudo outcome (see `CanSampleNext`)."""
        if step is not None:
            # Tied rows: every step draws the same leaf rows from the key, and takes its own.
            key = jax.random.fold_in(key, step) if self.independent else key
            return self.at_step(step).sample_next(key, values, None, inflation, pseudo)
        rows, plain = self, isinstance(inflation, (int, float)) and inflation == 1
        if pseudo is not None and self.known_listed is None:
            if plain and self.unit_prior and self.successor is not None and self.row is None and self.column is None:
                return self._sample_beside(key, values, *pseudo)
            rows, values = self._with_outcome(pseudo[0]), jnp.append(values, pseudo[1])
        return (rows if plain else rows._inflated(inflation)).sample_expectation(key, values)

    def _sample_beside(self, key: PRNGKeyArray, values: Float[Array, " O"], count: Any, worth: Any) -> Array:
        """As with `_with_outcome`, for listed counts on a prior of ones: it builds no rows.

        A Dirichlet row with one more outcome is the row without and, independent of it, the share of the outcome: Beta.
        """
        key_rows, key_share = jax.random.split(key)
        drawn, own = self.sample_expectation(key_rows, values), self._leaf_total()
        both = jnp.stack([jnp.broadcast_to(count, own.shape).astype(own.dtype), own])
        extra, own = loggamma(key_share, both.astype(drawn.dtype))
        share = jnp.where(self._unknown_leaves(), jax.nn.sigmoid(extra - own), 0.0)
        return drawn + share.reshape(drawn.shape) * (worth - drawn)

    def _with_outcome(self, count: Any) -> "DirichletRows":
        """Every unknown row with one outcome more, the last, of prior concentration `count`."""

        def with_last(table: Any, last: Any) -> Array:
            table = jnp.asarray(table)
            return jnp.concatenate([table, jnp.broadcast_to(last, (*table.shape[:-1], 1)).astype(table.dtype)], -1)

        prior = with_last(self.prior, jnp.where(self._unknown_leaves(), count, 0.0)[..., None])
        counts = with_last(self.counts, 0.0) if self.successor is None else self.counts
        column = None if self.column is None else with_last(self.column, self.prior.shape[-1])
        known = None if self.known is None else with_last(self.known, 0.0)
        tables = {"prior": prior, "counts": counts, "column": column, "known": known}
        return dataclasses.replace(self, shape=(*self.shape[:-1], self.shape[-1] + 1), unit_prior=False, **tables)

    def _inflated(self, inflation: Any) -> "DirichletRows":
        prior, counts = (jnp.asarray(x) / inflation for x in (self.prior, self.counts))
        return dataclasses.replace(self, prior=prior, counts=counts, unit_prior=False)

    def expectation(self, values: Float[Array, " O"]) -> Float[Array, "*H S A"]:
        """sum_o E[P(o | s, a)] values(o); listed counts and listed known rows never build the rows."""
        if self.known_listed is not None:
            outcome, probability = (jnp.asarray(x) for x in self.known_listed)
            return jnp.sum(probability * values[outcome], -1)
        if self.row is not None or self.column is not None:
            return self.mean() @ values
        prior, counts = jnp.asarray(self.prior), jnp.asarray(self.counts)
        before = jnp.sum(values) if self.unit_prior else prior @ values
        seen = counts @ values if self.successor is None else jnp.sum(counts * values[self.successor], -1)
        return ((before + seen) / self._leaf_total()).reshape(self.shape[:-1])

    def ties(self, space: StateActionSpace) -> str | None:
        """The first two pairs that share an unknown row, and its site, in words; None: no two do. Host side."""
        shared = not self.independent and self.row is not None
        return first_tie("the row", self.row, self.sites, space) if shared else None

    def visits(self) -> Float[Array, "*H S A"]:
        """Transitions seen from every pair; for independent, unknown rows only (others do not know whose they were)."""
        total = jnp.asarray(self.counts).sum(-1)
        return total.reshape(self.shape[:-1]) if self.row is None else total[self.row]

    def place(self, cell: tuple[Any, ...], outcome: Any) -> tuple[Any, Any]:
        """Indices into `counts` of the outcomes of cells; out of range where there is nothing to count."""
        row = leaf_index(self.row, cell, self.shape[:-1], len(self.prior))
        column = outcome if self.column is None else jnp.asarray(self.column)[(*cell, outcome)]
        size = self.counts.shape[-1]
        if self.successor is None:
            return row, jnp.where(column < 0, size, column)
        hit = jnp.asarray(self.successor).at[row].get(mode="clip") == jnp.asarray(column)[..., None]
        return row, jnp.where(hit.any(-1), jnp.argmax(hit, axis=-1), size)

    def update(self, cell: tuple[Any, ...], outcome: Any, weight: Any) -> "DirichletRows":
        """The belief after `weight` transitions from `cell` to the index `outcome` (scalars or arrays of one shape)."""
        counts = jnp.asarray(self.counts)
        place = self.place(cell, outcome)
        return eqx.tree_at(lambda rows: rows.counts, self, counts.at[place].add(weight, mode="drop"))

    def log_known(self, cell: tuple[Any, ...], outcome: Any) -> Float[Array, "*N"]:
        """Log-probability of outcomes under the known rows; zero elsewhere."""
        known = jnp.where(self.is_known[cell], jnp.asarray(self.known)[(*cell, outcome)], 1.0)
        return jnp.log(known)

    def log_evidence(self) -> Float[Array, ""]:
        """Log-probability of the counted outcomes, as a sequence, under the prior; known rows are not included."""
        counts = self.dense_counts
        prior = jnp.asarray(self.prior, counts.dtype)
        possible = prior > 0
        seen = log_rising(jnp.where(possible, prior, 1.0), jnp.where(possible, counts, 0.0)).sum()
        return seen - log_rising(prior.sum(-1), counts.sum(-1)).sum()

    def check(self, cell: tuple[Any, ...], outcome: np.ndarray) -> None:
        """Refuse transitions to an outcome that has probability zero under the prior (host side).

        Raises:
            ValueError: names the first one.
        """
        row = np.asarray(leaf_index(self.row, cell, self.shape[:-1], len(self.prior)))
        column = outcome if self.column is None else np.asarray(self.column)[(*cell, outcome)]
        possible = np.asarray(self.prior)[np.minimum(row, len(self.prior) - 1), np.maximum(column, 0)] > 0
        possible &= (row < len(self.prior)) & (column >= 0)
        if self.known is not None:
            possible |= np.asarray(self.is_known)[cell] & (np.asarray(self.known)[(*cell, outcome)] > 0)
        index = first_index(~possible)
        if index is not None:
            s, a = (int(np.asarray(i)[index]) for i in cell[-2:])
            raise ValueError(
                f"{at('transitions.next_state', index)} leads to outcome {int(outcome[index])}, expected an outcome "
                f"of positive probability under the prior in state {s}, action {a}"
            )

    def listed(self, successor: Any) -> "DirichletRows":
        """The same belief, its counts kept for the outcomes `successor` [*H S A L] and those seen only (host side)."""
        if self.row is not None and (np.asarray(self.row) < 0).all():
            return eqx.tree_at(lambda r: r.known_listed, self, self._list_known(), is_leaf=lambda x: x is None)
        counts = np.asarray(self.dense_counts)
        columns = [set(np.flatnonzero(seen)) for seen in counts]
        cells = np.indices(self.shape[:-1]).reshape(len(self.shape) - 1, -1)
        rows = np.asarray(leaf_index(self.row, tuple(cells), self.shape[:-1], len(columns)))
        for row, cell, outcomes in zip(rows, cells.T, np.reshape(successor, (rows.size, -1)), strict=True):
            if row < len(columns):
                chosen = outcomes if self.column is None else np.asarray(self.column)[(*cell, outcomes)]
                columns[row].update(int(k) for k in chosen if k >= 0)
        lists = [sorted(each) or [0] for each in columns]
        width = max(map(len, lists))
        listed = np.array([each + each[:1] * (width - len(each)) for each in lists], np.int32)
        first = np.arange(width) < np.array([len(each) for each in lists])[:, None]
        kept = np.where(first, np.take_along_axis(counts, listed, -1), 0.0)
        return eqx.tree_at(lambda r: (r.counts, r.successor), self, (kept, listed), is_leaf=lambda x: x is None)

    def _list_known(self) -> Any:
        """`known_listed`, where few outcomes are possible (host side)."""
        known = np.asarray(self.known)
        width = int((known > 0).sum(-1).max())
        if 4 * width > known.shape[-1]:
            return None
        outcome = np.argsort(known <= 0, axis=-1, kind="stable")[..., :width]
        return outcome.astype(np.int32), np.take_along_axis(known, outcome, -1)

    def unlisted(self) -> "DirichletRows":
        """The same belief with the counts of all columns."""
        return dataclasses.replace(self, counts=self.dense_counts, successor=None, known_listed=None)


def dirichlet_rows(
    prior: Any, shape: tuple[int, ...], *, row: Any = None, column: Any = None, known: Any = None, sites: Sites = ()
) -> DirichletRows:
    """Rows before any data (arguments: see `DirichletRows`). Host side; tables that change nothing are dropped.

    Raises:
        ValueError: a negative or NaN concentration, a table that points outside the leaf rows, shapes that disagree.
    """
    prior = np.asarray(prior, float)
    check_concentration("concentration", prior)
    (size, width), cells = prior.shape, tuple(shape[:-1])
    if row is None and size != math.prod(cells):
        raise ValueError(f"prior has {size} leaf rows, expected {math.prod(cells)}, one for each row of {tuple(shape)}")
    row = np.arange(math.prod(cells)).reshape(cells) if row is None else np.asarray(row)
    check_shape("row", row, cells, "(step,) state, action")
    row = unless_identity(row, size, "row")
    column = np.broadcast_to(np.arange(shape[-1]), shape) if column is None else np.asarray(column)
    check_shape("column", column, shape, "(step,) state, action, outcome")
    same = width == shape[-1] and bool(np.all(column == np.arange(shape[-1])))
    column = None if same else column.astype(np.int32)
    if column is not None and column.max(initial=-1) >= width:
        raise ValueError(f"column holds {column.max()}, expected -1 (none) or 0 to {width - 1}")
    known = None if row is None or not (row < 0).any() else np.asarray(known)
    if known is not None:
        check_shape("known", known, shape, "(step,) state, action, outcome")
    unit_prior = bool((prior == 1).all())
    counts = np.zeros_like(prior)
    return DirichletRows(prior, counts, row, column, known, None, tuple(shape), unit_prior, is_injective(row), sites)
