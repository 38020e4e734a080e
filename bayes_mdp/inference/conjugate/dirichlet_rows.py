"""`DirichletRows`: the belief about the transition probabilities, as plain arrays.

The rows of the law, one for each (step,) state and action, over O outcomes, select elements of M independent Dirichlet
*site rows*: rows that share parameters share a site row, a known support omits columns, known rows have none. After
them: the expected information of one more transition about them.

The variances of one Bellman backup, r + discount V(next state), under such rows and conjugate rewards come last: first
of one row (the factor of the uncertainty Bellman equation, the variance of p . values), then of the backup. `values` is
discount V of the outcomes, broadcastable to the rows [*H S A O]. With pbar the mean row, c0 its total concentration, m
and v mean and epistemic variance of the mean reward, noise the expected variance of a reward around its mean:

* transition: Var_pbar(m + values) / (c0 + 1), and where rewards belong to pairs Var_pbar(values) / (c0 + 1).
* Bellman: transition + E[p' Cov(reward) p]; exact for fixed `values`.
* predictive: Var_pbar(m + values) + pbar . (v + noise): that of one observed transition.

[UBE18] O'Donoghue, Osband, Munos and Mnih, *The Uncertainty Bellman Equation and Exploration*, ICML 2018; [BMRL19]
Markou and Rasmussen, 2019.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Real, Shaped
from scipy.special import betainc, betaincinv

from bayes_mdp.inference.conjugate.prior_rows import Concentrations, PriorRows, prior_rows
from bayes_mdp.inference.conjugate.rewards import Rewards
from bayes_mdp.inference.conjugate.site_table import (
    Sites,
    first_pairs_in_common,
    is_injective,
    unless_identity,
)
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.protocols import RowIntervals
from bayes_mdp.numerics.numpy_or_jax import add_at, has_jax_array, index_of_entry, pick, xp
from bayes_mdp.numerics.products import matmul
from bayes_mdp.random.dirichlet_draws import dirichlet, dirichlet_expectation, dirichlet_split
from bayes_mdp.random.gamma_draws import loggamma
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, IntScalar, LogDensity, RealLike, RealScalar
from bayes_mdp.utils.validation import at, check_concentration, check_name, check_shape, first_index

Outcome: TypeAlias = IntScalar | Int[AnyArray, "..."]
"""Index of an outcome, or of many."""


class DirichletRows(Module):
    """Independent Dirichlet site rows, and the tables by which the law selects from them (built by `dirichlet_rows`).

    Args:
        prior: [M K], prior concentrations; zero is a structural zero (or padding). In large spaces `RepeatedRows`.
        counts: [M K], observations of each column; [M L] where `successor` lists L columns.
        row: [*H S A], the site row of each row of the law, -1 for a known row; None: row-major, one each.
        column: [*H S A O], the column of each outcome in that site row, -1 for a structural zero; None: the same.
        known: [*H S A O], the known rows (read where `row` is -1); None: there is none.
        known_listed: possible outcomes of the rows and their probabilities, where every row is known and has few of
            them; None: not listed.
        successor: [M L], the columns that `counts` lists (a repeated column counts in its first place); None: all K.
        shape: (*H, S, A, O).
        unit_prior: every prior concentration is one.
        independent: no site row is used by two rows of the law.
        sites: (name, batch shape) of the sites whose rows are stacked, in order.
    """

    prior: Concentrations
    counts: Float[AnyArray, "M L"]
    row: Int[AnyArray, "*H S A"] | None
    column: Int[AnyArray, "*H S A O"] | None
    known: Float[AnyArray, "*H S A O"] | None
    successor: Int[AnyArray, "M L"] | None
    shape: tuple[int, ...] = eqx.field(static=True)
    unit_prior: bool = eqx.field(static=True)
    independent: bool = eqx.field(static=True)
    sites: Sites = eqx.field(static=True, default=())
    known_listed: tuple[Int[AnyArray, "*H S A P"], Float[AnyArray, "*H S A P"]] | None = None

    @property
    def prior_rows(self) -> PriorRows:
        """The prior concentrations, with what is asked of them."""
        return prior_rows(self.prior)

    @property
    def dense_counts(self) -> Float[AnyArray, "M K"]:
        """Counts of every column."""
        counts = xp.asarray(self.counts)
        if self.successor is None:
            return counts
        rows = np.arange(len(self.prior))[:, None]
        return add_at(np.zeros(self.prior.shape, counts.dtype), (rows, self.successor), counts)

    @property
    def site_concentration(self) -> Float[AnyArray, "M K"]:
        """Concentrations of the site rows after data."""
        return xp.asarray(self.prior) + self.dense_counts

    @property
    def concentration(self) -> Float[AnyArray, "*H S A O"]:
        """Concentrations of the rows of the law after data; zero for structural zeros and in known rows."""
        return self._select(self.site_concentration)

    @property
    def is_known(self) -> Bool[AnyArray, "*H S A"]:
        """Rows that are known numbers, not uncertain."""
        return xp.zeros(self.shape[:-1], bool) if self.row is None else xp.asarray(self.row) < 0

    def _select(self, rows: Float[AnyArray, "M K"]) -> Float[AnyArray, "*H S A O"]:
        """Rows of the law from site rows, zero where there is none."""
        if self.row is None and self.column is None:
            return rows.reshape(self.shape)
        row = xp.arange(math.prod(self.shape[:-1])).reshape(self.shape[:-1]) if self.row is None else self.row
        if self.column is None:
            return xp.where((row < 0)[..., None], 0.0, pick(rows, row))
        chosen = pick(rows, (row[..., None], self.column))
        return xp.where((row < 0)[..., None] | (self.column < 0), 0.0, chosen)

    def gather(self, rows: Float[AnyArray, "M K"]) -> Float[AnyArray, "*H S A O"]:
        """The rows of the law for the values `rows` of the site rows, known rows filled in."""
        rows = self._select(rows)
        return rows if self.known is None else xp.where(self.is_known[..., None], self.known, rows).astype(rows.dtype)

    def mean(self) -> Float[AnyArray, "*H S A O"]:
        """Expected probabilities."""
        # The sum apart from the rows: XLA would store the concentrations for both.
        return self.gather(self.site_concentration / self._site_total()[:, None])

    def inverse_total(self) -> Float[AnyArray, "*H S A"]:
        """1 / (sum of concentrations + 1), the factor of every Dirichlet covariance; zero where nothing is unknown."""
        # Var p_i = mean_i (1 - mean_i) / (c0 + 1): the factor 1 / (c0 + 1) is all that differs between rows.
        return 1.0 / (self.total() + 1.0)

    def total(self) -> Float[AnyArray, "*H S A"]:
        """Sum of the concentrations of each row after data; infinite where nothing is unknown. It builds no rows."""
        return self._of_sites(xp.where(self._unknown_sites(), self._site_total(), np.inf), np.inf)

    def prior_share(self) -> Float[AnyArray, "*H S A"]:
        """The prior's part of the sum of the concentrations; nan where nothing is unknown. It builds no rows."""
        share = xp.where(self._unknown_sites(), self._site_prior() / self._site_total(), np.nan)
        return self._of_sites(share, np.nan)

    def prior_total(self) -> Float[AnyArray, "*H S A"]:
        """Sum of the concentrations of each row before data; infinite where nothing is unknown. It builds no rows."""
        return self._of_sites(xp.where(self._unknown_sites(), self._site_prior(), np.inf), np.inf)

    def num_possible(self) -> Float[AnyArray, "*H S A"]:
        """Number of possible outcomes of each unknown row; one of the known ones. It builds no rows."""
        width = float(self.prior.shape[-1])
        site_width = xp.full(len(self.prior), width) if self.unit_prior else self.prior_rows.num_positive()
        return self._of_sites(site_width, 1.0)

    def _of_sites(self, each: Float[AnyArray, " M"], known: float) -> Float[AnyArray, "*H S A"]:
        """A number of every site row for each row of the law; `known` for known rows."""
        if self.row is None:
            return each.reshape(self.shape[:-1])
        return xp.where(self.is_known, known, pick(each, self.row))

    def _site_prior(self) -> Float[AnyArray, " M"]:
        """Sum of the concentrations of each site row before data."""
        # A prior of ones sums to its width: no pass over [M K].
        if self.unit_prior:
            return xp.full(len(self.prior), float(self.prior.shape[-1]))
        return self.prior_rows.totals()

    def _site_total(self) -> Float[AnyArray, " M"]:
        """Sum of the concentrations of each site row after data."""
        return self._site_prior() + xp.asarray(self.counts).sum(-1)

    def _unknown_sites(self) -> bool | Bool[AnyArray, " M"]:
        """Which site rows have more than one possible outcome."""
        return self.prior.shape[-1] > 1 if self.unit_prior else self.prior_rows.num_positive() > 1

    def intervals(self, probability: float, floor: float) -> RowIntervals:
        """Intervals of all rows of the law at once (`CanBoundRows`): Bonferroni over the entries of the site rows.

        An entry is Beta(c, c0 - c). Both of its tails get an equal part of 1 - probability; where the floor cuts off
        more than that, the others get less.

        Args:
            probability: that all entries lie in their intervals, at least.
            floor: the least lower end.

        Raises:
            ValueError: the floor cuts off more than 1 - probability.
        """
        concentration = np.asarray(self.site_concentration, np.float64)
        total = concentration.sum(-1, keepdims=True)
        unknown = (concentration > 0) & ((concentration > 0).sum(-1, keepdims=True) > 1)
        first, second = (
            concentration[unknown],
            np.broadcast_to(total, concentration.shape)[unknown] - concentration[unknown],
        )
        allowed, cut = 1.0 - probability, betainc(first, second, floor)
        tail, below_floor = allowed / max(2 * len(first), 1), np.zeros(len(first), bool)
        # What the floor cuts off is spent first; a smaller tail may be cut off elsewhere: until none is.
        while (cut > tail)[~below_floor].any():
            below_floor |= cut > tail
            tail = (allowed - cut[below_floor].sum()) / (2 * len(first) - below_floor.sum())
            if tail <= 0:
                raise ValueError(
                    f"floor is {floor:g}, and a transition probability of the posterior is smaller with probability "
                    f"{cut[below_floor].sum():.3g} (all added), expected a smaller floor (0: none) or probability"
                )
        low = np.divide(concentration, total, out=np.zeros_like(concentration), where=total > 0)
        high = low.copy()
        low[unknown] = np.where(below_floor, floor, np.maximum(betaincinv(first, second, tail), floor))
        high[unknown] = 1.0 - betaincinv(second, first, tail)
        return RowIntervals(self.gather(low), self.gather(high), len(first))

    def sample_sites(self, key: PRNGKeyArray) -> Float[Array, "M K"]:
        """One draw of the site rows."""
        prior = jnp.asarray(self.prior)
        if self.successor is None:
            return dirichlet(key, prior + self.counts)
        # Listed counts: the prior part and the few counted outcomes are drawn apart and merged, as gammas add up.
        counts, successor = jnp.asarray(self.counts), jnp.asarray(self.successor)
        return dirichlet_split(key, prior, counts, successor, unit_prior=self.unit_prior)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*H S A O"]:
        """One draw of the rows of the law."""
        return jnp.asarray(self.gather(self.sample_sites(key)))

    def with_prior(self, prior: Float[AnyArray, "M K"]) -> "DirichletRows":
        """The same counts under other prior concentrations."""
        return dataclasses.replace(self, prior=prior, unit_prior=False)

    def at_step(self, step: IntScalar) -> "DirichletRows":
        """The rows of one step: independent rows each with a site row of its own, shared ones beside all site rows."""
        if not self.independent:
            row, column, known, listed = jax.tree.map(
                lambda table: jnp.asarray(table)[step], (self.row, self.column, self.known, self.known_listed)
            )
            tables = {"row": row, "column": column, "known": known, "known_listed": listed}
            return dataclasses.replace(self, shape=self.shape[1:], **tables)
        # Independent rows are stored step by step: the site rows of one step are a block.
        shape, size = self.shape[1:], math.prod(self.shape[1:-1])
        chosen = None if self.row is None else jnp.ravel(jnp.asarray(self.row)[step])
        row = None
        if self.known is not None and chosen is not None:
            row = jnp.where(chosen < 0, -1, jnp.arange(size)).reshape(shape[:-1])

        def take(rows: Shaped[AnyArray, "M *rest"] | Concentrations) -> Shaped[Array, "N *rest"]:
            # A slice is read in place, a gather is not: twice as fast for dense counts.
            rows = jnp.asarray(rows)
            return rows[chosen] if chosen is not None else jax.lax.dynamic_slice_in_dim(rows, step * size, size)

        prior, counts = take(self.prior), take(self.counts)
        successor = None if self.successor is None else take(self.successor)
        column, known = (None if x is None else jnp.asarray(x)[step] for x in (self.column, self.known))
        listed = jax.tree.map(lambda x: jnp.asarray(x)[step], self.known_listed)
        return DirichletRows(prior, counts, row, column, known, successor, shape, self.unit_prior, True, (), listed)

    def sample_expectation(self, key: PRNGKeyArray, values: Float[AnyArray, "*#S O"]) -> Float[Array, "*H S A"]:
        """One draw of sum_o P(o | s, a) values(o); listed counts never build the rows.

        `values` are [O], or [S A O] where an outcome is another one in every row.
        """
        # Everything is known and sparse: a sum over the possible outcomes, nothing is drawn.
        if self.known_listed is not None:
            return self.expectation(values)
        if self.successor is None or self.row is not None or self.column is not None:
            return _dot(self.sample(key), values)
        prior, counts, successor = (jnp.asarray(x) for x in (self.prior, self.counts, self.successor))
        # sum_i g_i v_i / sum_i g_i from gammas g: the rows themselves are never stored.
        drawn = dirichlet_expectation(key, prior, counts, successor, jnp.asarray(values), unit_prior=self.unit_prior)
        return drawn.reshape(self.shape[:-1])

    def sample_next(
        self,
        key: PRNGKeyArray,
        values: Float[AnyArray, "*#S O"],
        step: IntScalar | None = None,
        inflation: RealScalar = 1.0,
        pseudo: tuple[RealScalar, RealScalar] | None = None,
    ) -> Float[Array, "S A"]:
        """`sample_expectation` at a step, of inflated rows with a pseudo outcome (see `CanSampleNext`)."""
        if step is not None:
            # Shared rows: every step draws the same site rows from the key, and takes its own.
            key = jax.random.fold_in(key, step) if self.independent else key
            return self.at_step(step).sample_next(key, values, None, inflation, pseudo)
        rows, plain = self, isinstance(inflation, (int, float)) and inflation == 1
        if pseudo is not None and self.known_listed is None:
            if plain and self.unit_prior and self.successor is not None and self.row is None and self.column is None:
                return self._sample_beside(key, values, *pseudo)
            last = jnp.broadcast_to(pseudo[1], (*values.shape[:-1], 1)).astype(values.dtype)
            rows, values = self._with_outcome(pseudo[0]), jnp.concatenate([values, last], -1)
        if not plain:
            prior, counts = (jnp.asarray(x) / inflation for x in (rows.prior, rows.counts))
            rows = dataclasses.replace(rows, prior=prior, counts=counts, unit_prior=False)
        return rows.sample_expectation(key, values)

    def _sample_beside(
        self, key: PRNGKeyArray, values: Float[AnyArray, "*#S O"], count: RealScalar, value: RealScalar
    ) -> Float[Array, "S A"]:
        """As with `_with_outcome`, for listed counts on a prior of ones: it builds no rows.

        A Dirichlet row with one more outcome is the row without and, independent of it, the share of the outcome: Beta.
        """
        key_rows, key_share = jax.random.split(key)
        drawn, site_total = self.sample_expectation(key_rows, values), self._site_total()
        # The share of the extra outcome is Beta(count, own), here sigmoid(log gamma - log gamma), safe for tiny counts.
        concentrations = [jnp.broadcast_to(jnp.asarray(x, drawn.dtype), site_total.shape) for x in (count, site_total)]
        extra, site_total = loggamma(key_share, jnp.stack(concentrations))
        share = jnp.where(self._unknown_sites(), jax.nn.sigmoid(extra - site_total), 0.0)
        return drawn + share.reshape(drawn.shape) * (value - drawn)

    def _with_outcome(self, count: RealScalar) -> "DirichletRows":
        """Every unknown row with one outcome more, the last, of prior concentration `count`."""

        def with_last(table: Shaped[AnyArray, "*lead K"], last: RealLike) -> Shaped[Array, "*lead K+1"]:
            table = jnp.asarray(table)
            return jnp.concatenate([table, jnp.broadcast_to(last, (*table.shape[:-1], 1)).astype(table.dtype)], -1)

        # Every table gets one more column; rows that are certain already keep probability zero there.
        prior = with_last(jnp.asarray(self.prior), jnp.where(self._unknown_sites(), count, 0.0)[..., None])
        counts = with_last(self.counts, 0.0) if self.successor is None else self.counts
        column = None if self.column is None else with_last(self.column, self.prior.shape[-1])
        known = None if self.known is None else with_last(self.known, 0.0)
        tables = {"prior": prior, "counts": counts, "column": column, "known": known}
        return dataclasses.replace(self, shape=(*self.shape[:-1], self.shape[-1] + 1), unit_prior=False, **tables)

    def expectation(self, values: Float[AnyArray, "*#S O"]) -> Float[Array, "*H S A"]:
        """sum_o E[P(o | s, a)] values(o); listed counts and listed known rows never build the rows."""
        if self.known_listed is not None:
            outcome, probability = (jnp.asarray(x) for x in self.known_listed)
            outcome_values = values[outcome] if values.ndim == 1 else jnp.take_along_axis(values, outcome, -1)
            return jnp.sum(probability * outcome_values, -1)
        if self.row is not None or self.column is not None or values.ndim > 1:
            return _dot(jnp.asarray(self.mean()), values)
        prior, counts = jnp.asarray(self.prior), jnp.asarray(self.counts)
        # (prior . values + counts . values) / total, the two parts apart, since counts may be listed.
        before = jnp.sum(values) if self.unit_prior else matmul(prior, values)
        seen = matmul(counts, values) if self.successor is None else jnp.sum(counts * values[self.successor], -1)
        return ((before + seen) / self._site_total()).reshape(self.shape[:-1])

    def shared_parameters(self, space: StateActionSpace) -> str | None:
        """The first two pairs that share an unknown row, and its site, in words; None: no two do. Host side."""
        if self.independent or self.row is None:
            return None
        return first_pairs_in_common("the row", self.row, self.sites, space)

    def visits(self) -> Float[AnyArray, "*H S A"]:
        """Observed transitions from every pair; right for independent, unknown rows only (shared rows pool them)."""
        total = xp.asarray(self.counts).sum(-1)
        return total.reshape(self.shape[:-1]) if self.row is None else pick(total, self.row)

    def place(self, cell: Index, outcome: Outcome) -> tuple[Outcome, Outcome]:
        """Indices into `counts` of the outcomes of cells; out of range where there is nothing to count."""
        row = index_of_entry(self.row, cell, self.shape[:-1], len(self.prior))
        column = outcome if self.column is None else pick(self.column, (*cell, outcome))
        size = self.counts.shape[-1]
        if self.successor is None:
            return row, xp.where(column < 0, size, column)
        # The position of the column in the list of its row; absent columns go out of range.
        listed = pick(self.successor, xp.minimum(row, len(self.prior) - 1))
        hit = listed == xp.asarray(column)[..., None]
        return row, xp.where(hit.any(-1), xp.argmax(hit, axis=-1), size)

    def update(self, cell: Index, outcome: Outcome, weight: ArrayLike) -> "DirichletRows":
        """The belief after `weight` transitions from `cell` to the index `outcome` (scalars or arrays of one shape)."""
        counts = add_at(self.counts, self.place(cell, outcome), weight)
        return dataclasses.replace(self, counts=counts)

    def log_known(self, cell: Index, outcome: Outcome) -> LogDensity:
        """Log-probability of outcomes under the known rows; zero elsewhere."""
        assert self.known is not None  # the caller has looked
        known = xp.where(pick(self.is_known, cell), pick(self.known, (*cell, outcome)), 1.0)
        return xp.log(known)

    def log_evidence(self) -> RealScalar:
        """Log-probability of the counted outcomes, as a sequence, under the prior; known rows are not included."""
        return self.prior_rows.log_evidence(self.dense_counts)

    def check(self, cell: Index, outcome: Int[np.ndarray, "*N"]) -> None:
        """Refuse transitions to an outcome that has probability zero under the prior (host side).

        Raises:
            ValueError: names the first one.
        """
        # By numpy: eager JAX would compile every operation.
        cell = tuple(np.asarray(i) for i in cell)
        if self.row is None:
            row = np.ravel_multi_index(np.broadcast_arrays(*cell), self.shape[:-1])
        else:
            row = np.asarray(self.row)[cell]
            row = np.where(row < 0, len(self.prior), row)
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

    def listed(self, successor: Int[AnyArray, "*H S A L"]) -> "DirichletRows":
        """The same belief with counts of the outcomes `successor` [*H S A L] and of observed ones only. Host side."""
        if self.row is not None and (np.asarray(self.row) < 0).all():
            return eqx.tree_at(lambda r: r.known_listed, self, self._list_known(), is_leaf=lambda x: x is None)
        counts = np.asarray(self.dense_counts)
        # For every site row: the columns that have counts, and those that its cells may reach.
        columns = [set(np.flatnonzero(seen)) for seen in counts]
        cells = np.indices(self.shape[:-1]).reshape(len(self.shape) - 1, -1)
        rows = np.asarray(index_of_entry(self.row, tuple(cells), self.shape[:-1], len(columns)))
        for row, cell, outcomes in zip(rows, cells.T, np.reshape(successor, (rows.size, -1)), strict=True):
            if row < len(columns):
                chosen = outcomes if self.column is None else np.asarray(self.column)[(*cell, outcomes)]
                columns[row].update(int(k) for k in chosen if k >= 0)
        lists = [sorted(numbers) or [0] for numbers in columns]
        # Ragged lists are padded by repeating their first column; a repeated column holds no count.
        width = max(map(len, lists))
        listed = np.array([numbers + numbers[:1] * (width - len(numbers)) for numbers in lists], np.int32)
        first = np.arange(width) < np.array([len(numbers) for numbers in lists])[:, None]
        listed_counts = np.where(first, np.take_along_axis(counts, listed, -1), 0.0)
        leaves = (listed_counts, listed)
        return eqx.tree_at(lambda r: (r.counts, r.successor), self, leaves, is_leaf=lambda x: x is None)

    def _list_known(self) -> tuple[Int[np.ndarray, "*H S A P"], Float[np.ndarray, "*H S A P"]] | None:
        """`known_listed`, where few outcomes are possible (host side)."""
        known = np.asarray(self.known)
        width = int((known > 0).sum(-1).max())
        if 4 * width > known.shape[-1]:
            return None
        # Possible outcomes first, in order, then padding of probability zero.
        outcome = np.argsort(known <= 0, axis=-1, kind="stable")[..., :width]
        return outcome.astype(np.int32), np.take_along_axis(known, outcome, -1)

    def unlisted(self) -> "DirichletRows":
        """The same belief with the counts of all columns."""
        return dataclasses.replace(self, counts=self.dense_counts, successor=None, known_listed=None)


def evidences_of_counts(rows: Sequence[DirichletRows]) -> Float[np.ndarray, " N"] | None:
    """`log_evidence` of rows that differ in their priors alone, worked out together; None: each by itself.

    Args:
        rows: of the components of a mixture. Host side.
    """
    counts = rows[0].counts
    if any(each.counts is not counts for each in rows):
        return None
    return rows[0].prior_rows.log_evidences(np.asarray(counts, np.float64), [each.prior_rows for each in rows])


def _dot(rows: Float[Array, "*H S A O"], values: Float[AnyArray, "*#S O"]) -> Float[Array, "*H S A"]:
    """sum_o rows(o) values(o)."""
    return matmul(rows, values) if values.ndim == 1 else (rows * values).sum(-1)


def dirichlet_rows(
    prior: ArrayLike,
    shape: tuple[int, ...],
    *,
    row: Int[AnyArray, "*H S A"] | None = None,
    column: Int[AnyArray, "*H S A O"] | None = None,
    known: ArrayLike | None = None,
    sites: Sites = (),
) -> DirichletRows:
    """Rows before any data (arguments: see `DirichletRows`). Host side; tables that change nothing are dropped.

    Raises:
        ValueError: a negative or NaN concentration, a table that points outside the site rows, shapes that disagree.
    """
    prior = np.asarray(prior, float)
    check_concentration("concentration", prior)
    (size, width), cells = prior.shape, tuple(shape[:-1])
    if row is None and size != math.prod(cells):
        raise ValueError(f"prior has {size} site rows, expected {math.prod(cells)}, one for each row of {tuple(shape)}")
    row = np.arange(math.prod(cells)).reshape(cells) if row is None else np.asarray(row)
    check_shape("row", row, cells, "(step,) state, action")
    row = unless_identity(row, size, "row")
    column = np.broadcast_to(np.arange(shape[-1]), shape) if column is None else np.asarray(column)
    check_shape("column", column, shape, "(step,) state, action, outcome")
    # Tables that change nothing are dropped: the common case then needs no gather.
    all_columns = width == shape[-1] and bool(np.all(column == np.arange(shape[-1])))
    column = None if all_columns else column.astype(np.int32)
    if column is not None and column.max(initial=-1) >= width:
        raise ValueError(f"column holds {column.max()}, expected -1 (none) or 0 to {width - 1}")
    known = None if row is None or not (row < 0).any() else np.asarray(known)
    if known is not None:
        check_shape("known", known, shape, "(step,) state, action, outcome")
    unit_prior = bool((prior == 1).all())
    counts = np.zeros(prior.shape, prior.dtype)
    return DirichletRows(prior, counts, row, column, known, None, tuple(shape), unit_prior, is_injective(row), sites)


# Expected information of one more transition, in nats. With c the concentrations of a row, c0 their sum, pbar = c / c0:
#
#     I = E_i KL(Dir(c + e_i) || Dir(c)) = H(pbar) - E[H(p)] = sum_i pbar_i g(c_i) - g(c0),  g(x) = psi(x + 1) - log x,
#
# the mutual information of outcome and row: the expected divergence of the belief after from the belief before, and the
# expected surprise less the part of it that is noise (E[H(p)] = psi(c0 + 1) - sum pbar_i psi(c_i + 1)). It is about
# (K - 1) / (2 c0) after many visits, K the number of possible outcomes. Storck, Hochreiter and Schmidhuber 1995; Sun,
# Gomez and Schmidhuber, *Planning to be surprised*, AGI 2011.

_SERIES_FROM = 20.0  # from here on five terms of the series are exact to 1e-13


def surplus(x: Float[AnyArray, "*n"]) -> Float[AnyArray, "*n"]:
    """g(x) = psi(x + 1) - log x for x > 0, accurate where it is the small difference of large numbers."""
    # Asymptotic series of psi(x + 1) - log x from 20 on; each branch of the `where` gets a safe argument.
    large = x > _SERIES_FROM
    small = xp.where(large, 1.0, x)
    inverse = 1.0 / xp.where(large, x, _SERIES_FROM)
    square = inverse**2
    series = inverse * (0.5 - inverse * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240))))
    return xp.where(large, series, xp.digamma(small + 1.0) - xp.log(small))


def _times_log(concentration: Float[AnyArray, "*n"]) -> Float[AnyArray, "*n"]:
    """c g(c), zero where c is."""
    possible = concentration > 0
    return xp.where(possible, concentration * surplus(xp.where(possible, concentration, 1.0)), 0.0)


def expected_information(rows: DirichletRows) -> Float[AnyArray, "*H S A"]:
    """Expected information of one more transition from a pair about its row, in nats; zero for known rows.

    Rows that share parameters: about the site row that they share. Listed counts under a prior of ones build no rows.
    """
    prior, counts = xp.asarray(rows.prior), xp.asarray(rows.counts)
    if rows.successor is None:
        # sum_i c_i g(c_i), to be divided by c0.
        total = _times_log(prior + counts).sum(-1)
    else:
        listed = xp.take_along_axis(prior, xp.asarray(rows.successor), -1)
        # Only listed columns have counts: start from the prior alone and exchange their terms.
        before = rows.prior.shape[-1] * _times_log(xp.ones(())) if rows.unit_prior else _times_log(prior).sum(-1)
        total = before + (_times_log(listed + counts) - _times_log(listed)).sum(-1)
    # I = sum_i pbar_i g(c_i) - g(c0); rounding can make it slightly negative.
    size = prior.sum(-1) + counts.sum(-1)
    unknown = (prior > 0).sum(-1) > 1
    rows_of_sites = xp.where(unknown, xp.maximum(total / size - surplus(size), 0.0), 0.0)
    if rows.row is None:
        return rows_of_sites.reshape(rows.shape[:-1])
    return xp.where(rows.is_known, 0.0, pick(rows_of_sites, rows.row))


def divergence(rows: Float[AnyArray, "*H S A O"], mean: Float[AnyArray, "*H S A O"]) -> Float[AnyArray, "*H S A"]:
    """KL(row || mean) in nats: averaged over components, the information of an outcome about which of them holds."""
    possible = rows > 0
    ratio = xp.where(possible, rows, 1.0) / xp.where(possible, mean, 1.0)
    return xp.where(possible, rows * xp.log(ratio), 0.0).sum(-1)


FACTOR_FORMS = ("ratio", "dirichlet", "twice", "printed", "count")

Pairs = Float[AnyArray, "*H S A"]
Rows = Float[AnyArray, "*H S A O"]
Values = Float[AnyArray, "..."]


def dirichlet_factor(
    form: str, concentration: Float[AnyArray, "*pairs O"], visits: Real[AnyArray, "*pairs"]
) -> Float[AnyArray, "*pairs"]:
    """The factor of an unknown Dirichlet row in the local uncertainty; zero where the row is known.

    With c0 the sum and K the number of positive concentrations, pbar = c / c0:
    "ratio" (K - 1) / (c0 + 1), "dirichlet" 1 / (c0 + 1), "printed" (1 - sum pbar^2) / (c0 + 1) ([UBE18], a bound for
    values in an interval of the assumed length only), "twice" the double of it, "count" 1 / visits, and where nothing
    was observed the "ratio" of the prior. Which of them bounds what: see `ConjugatePosterior.variance_factor`.

    Raises:
        ValueError: another form.
    """
    check_name("form", form, FACTOR_FORMS)
    # Zero concentration is a structural zero; with one possible outcome there is nothing unknown.
    possible = (concentration > 0).sum(-1)
    total = concentration.sum(-1)
    # Rows of one possible outcome are known.
    unknown = possible > 1
    inverse = xp.where(unknown, 1.0 / (total + 1.0), 0.0)
    if form == "dirichlet":
        return xp.asarray(inverse)
    ratio = (possible - 1.0) * inverse
    if form == "ratio":
        return xp.asarray(ratio)
    # Before any visit the ratio of the prior stands in for 1 / visits.
    if form == "count":
        return xp.where(unknown, xp.where(visits > 0, 1.0 / xp.maximum(visits, 1e-30), ratio), 0.0)
    mean = concentration / xp.where(total > 0, total, 1.0)[..., None]
    return xp.asarray((2.0 if form == "twice" else 1.0) * (1.0 - (mean**2).sum(-1)) * inverse)


def row_variance(
    probs: Float[AnyArray, "*pairs O"], inverse_total: RealLike, values: Float[AnyArray, "..."]
) -> Float[AnyArray, "..."]:
    """Var[p . values] over a Dirichlet row p with mean `probs`: Var_probs(values) / (c0 + 1).

    `values` may have an axis of steps in front that `probs` has not: one step after the other, because all at once
    would hold rows of every step.
    """
    probs, inverse_total, values = (xp.asarray(x) for x in (probs, inverse_total, values))
    if values.ndim > probs.ndim:
        if not has_jax_array(probs, inverse_total, values):
            return np.stack([row_variance(probs, inverse_total, step) for step in values])
        return lax.map(lambda step: row_variance(probs, inverse_total, step), values)
    if values.size == values.shape[-1] and probs.ndim > 2:
        # As a matrix, as which products with vectors take it: XLA would store the mean once for each shape.
        flat = row_variance(probs.reshape(-1, probs.shape[-1]), 1.0, values.reshape(-1))
        return inverse_total * flat.reshape(probs.shape[:-1])
    # Centred first: E[v^2] - E[v]^2 cancels where values are large.
    centred = values - (probs * values).sum(-1, keepdims=True)
    return xp.asarray(inverse_total * (probs * centred**2).sum(-1))


def expected_square(
    probs: Float[AnyArray, "*pairs O"],
    inverse_total: RealLike,
    variance: Float[AnyArray, "*pairs O"],
    average: Float[AnyArray, "*pairs"] | np.floating,
) -> Float[AnyArray, "*pairs"]:
    """E[sum_ij p_i p_j Cov(m_i, m_j)] over a Dirichlet row p, for mean rewards m.

    Args:
        probs: the mean row.
        inverse_total: 1 / (c0 + 1).
        variance: of each mean reward.
        average: Var[sum_o probs_o m_o].
    """
    probs, inverse_total = xp.asarray(probs), xp.asarray(inverse_total)
    # An outcome of probability zero contributes nothing, even where its variance is infinite.
    variance = xp.where(probs > 0, variance, 0.0)
    # E[p_i p_j] = (c0 pbar_i pbar_j + 1{i=j} pbar_i) / (c0 + 1): the outcomes each alone, and their average.
    alone = inverse_total * (probs * variance).sum(-1)
    return xp.asarray(alone + (1.0 - inverse_total) * average)


def _targets(rewards: Rewards, values: Values) -> Float[AnyArray, "..."]:
    """What a row multiplies: values, and the mean reward where it depends on the outcome."""
    return xp.asarray(rewards.mean()) + values if rewards.by_outcome else values


def average_over_rows(rows: DirichletRows, rewards: Rewards, cells: Float[AnyArray, "*cells"]) -> Pairs:
    """pbar . cells where rewards depend on the outcome; an outcome of probability zero counts nothing, even inf."""
    probs, cells = rows.mean(), xp.asarray(cells)
    return xp.where(probs > 0, probs * cells, 0.0).sum(-1) if rewards.by_outcome else cells


def transition_variance(rows: DirichletRows, rewards: Rewards, values: Values) -> Pairs:
    """Variance that unknown rows cause, every mean reward at its expectation."""
    return row_variance(rows.mean(), rows.inverse_total(), _targets(rewards, values))


def bellman_variance(
    rows: DirichletRows, rewards: Rewards, values: Values, variance: Float[AnyArray, "*cells"]
) -> Pairs:
    """Variance of sum_o P(o | s, a) (r(s, a, o) + values(o)); `variance` is that of the mean rewards."""
    unknown_rows = transition_variance(rows, rewards, values)
    if not rewards.by_outcome:
        return unknown_rows + variance
    probs = rows.mean()
    return unknown_rows + expected_square(probs, rows.inverse_total(), variance, rewards.variance_of_average(probs))


def predictive_variance(
    rows: DirichletRows, rewards: Rewards, values: Values, variance: Float[AnyArray, "*cells"]
) -> Pairs:
    """Variance of one observed reward + values(outcome) under the posterior predictive."""
    probs = rows.mean()
    # With the factor 1 in place of 1 / (c0 + 1) it is the variance of one draw, not of the mean.
    # The variance of one reward: of its mean, and around it.
    one_step = row_variance(probs, xp.ones(()), _targets(rewards, values))
    return one_step + average_over_rows(rows, rewards, variance + rewards.noise())


def row_bound(rows: DirichletRows, rewards: Rewards, values: Values) -> Pairs:
    """The largest |x(o)| of the possible outcomes, x what the row multiplies."""
    return xp.where(rows.mean() > 0, xp.abs(_targets(rewards, values)), 0.0).max(-1)
