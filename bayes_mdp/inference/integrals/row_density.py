"""The posterior density of the coefficients of `logit_rows` or `stick_rows`, on the cells that a log visited.

A cell is a (context, state, action) with data, x its row of the design, y its counts. With eta = x . B

    softmax   - log p(y) = n log(1 + sum_k exp eta_k) - y . eta        n: transitions of the cell
    sticks    - log p(y) = sum_j n_j log(1 + exp eta_j) - y . eta      n_j: those that reach stick j

and a normal prior. eta is linear in B, so that the gradient is X' (n p - y) and the Hessian, exactly, X' W X with W the
small matrix of each cell: n (diag p - p p') of a softmax, n_j p_j (1 - p_j) of sticks. All sums go block by block of
cells: a million rows need their design once, and nothing of the size [draws, rows].
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import expit

from bayes_mdp.models.regressions import RowLaw
from bayes_mdp.numerics.products import einsum, matmul
from bayes_mdp.utils.memory import check_memory

CELLS, NUMBERS = 2048, 2**20
"""Cells whose predictors are worked out at once, and predictors of all points there (8 MB: a cache holds them)."""
STEEP = 2**14
"""Cells at once in gradients and Hessians."""
TAME = 300.0
"""Size of predictors below which no sum of their exponentials overflows."""
MANY = 2**16
"""Cells from which on a density is dear: fewer proposals are made for each draw."""


class VisitedCells(NamedTuple):
    """The data of a regression: M cells.

    Args:
        context: [M], of each.
        columns: [M p], the design.
        number: softmax: [M 1], transitions of each cell; sticks: [M K], those that reach each stick.
        taken: [M K], those that end there.
        used: [M K], whether the predictor is that of a possible outcome.
    """

    context: Int[np.ndarray, " M"]
    columns: Float[np.ndarray, "M p"]
    number: Float[np.ndarray, "M n"]
    taken: Float[np.ndarray, "M K"]
    used: Bool[np.ndarray, "M K"]


def visited_cells(law: RowLaw, counts: Float[np.ndarray, "C S A O"] | None) -> VisitedCells:
    """The cells of a softmax or of sticks with data.

    Args:
        law: the record of the law.
        counts: of each (context, state, action, outcome); None: there are no data.

    Raises:
        ValueError: their design would take more than half of the memory that is free.
    """
    none = np.zeros(0, int)
    # Only cells that were visited enter.
    context, state, action = (none, none, none) if counts is None else np.nonzero(counts.any(-1))
    cells = (context, state, action)
    size, width = len(cells[0]), len(law.design.names)
    check_memory(f"a design of {size} cells and {width} columns", 24.0 * size * width, "fewer columns take less")
    # The design row by row, standardised as the law was.
    columns = law.design.rows(cells)
    if law.standardised:
        columns = law.design.standardise(columns)
    assert law.possible is not None
    outcomes = law.possible.shape[-1]
    y = np.zeros((0, outcomes)) if counts is None else counts[cells]
    possible = law.possible[cells[1:]]
    if law.reference is None:
        order = list(law.order)
        y, possible = y[:, order], possible[:, order]
        # A stick that is impossible, or the last possible one, is no choice.
        # Sums from the end: how many outcomes are left from here on.
        later = np.cumsum(possible[:, ::-1], 1)[:, ::-1] > 1
        used = (possible & later)[:, :-1]
        # Transitions that reach stick j: those that took it or a later one.
        reached = np.cumsum(y[:, ::-1], 1)[:, ::-1][:, :-1]
        return VisitedCells(cells[0], columns, reached * used, y[:, :-1] * used, used)
    is_reference = np.arange(outcomes) == law.reference[:, None]
    # Columns of the coefficients: outcomes that are free somewhere.
    kept = np.flatnonzero((law.possible & ~is_reference[:, None, :]).any((0, 1)))
    used = (possible & ~is_reference[cells[1]])[:, kept]
    return VisitedCells(cells[0], columns, y.sum(1, keepdims=True), y[:, kept] * used, used)


class RowDensity:
    """Minus the log posterior of coefficients [p K], row by row in one vector.

    Args:
        cells: the data.
        mean, sd: [p K], of the normal prior; sd infinite: flat.
    """

    def __init__(self, cells: VisitedCells, mean: Float[np.ndarray, "p K"], sd: Float[np.ndarray, "p K"]) -> None:
        self.mean, self.sd, self.size = mean, sd, len(cells.number)
        proper = sd[np.isfinite(sd)]
        # The normalising constant of the prior, of proper coefficients alone.
        self._log_constant = float(np.log(proper).sum() + 0.5 * proper.size * np.log(2 * np.pi))
        # One number of a cell serves a softmax; of one predictor alone both are the same.
        self._softmax = cells.number.shape[1] < mean.shape[1]
        # sum_m y x': all that the linear term needs of the data.
        self._linear = cells.columns.T @ cells.taken
        # Filled up with cells without data: few shapes, so few compiled programs.
        block = CELLS if self.size > CELLS else 1 << max(3, (self.size - 1).bit_length())
        missing = -self.size % block if self.size else block
        self._columns, self._number, self._used = (
            np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)])
            for x in (cells.columns, cells.number, cells.used)
        )
        self._block = block
        # A bound of every predictor: |eta| <= sum |x| |b|.
        self._largest = np.abs(self._columns).max(0)
        # Cells without data have a weight of zero, whatever their predictors.
        self._all_used = bool(cells.used.all())

    def minus_log(self, points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """Minus the log density at many points.

        Args:
            points: coefficients.
        """
        shape = self.mean.shape
        b = points.reshape(len(points), *shape)
        # sd infinite: the deviation is zero.
        deviation = (b - self.mean) / self.sd
        prior = 0.5 * (deviation**2).sum((1, 2)) + self._log_constant
        # Predictors of one block fit into a cache.
        at_once = max(1, NUMBERS // (self._block * shape[1]))
        at_once = min(at_once, 1 << (len(points) - 1).bit_length())
        sums = np.zeros(-(-len(points) // at_once) * at_once)
        filled = np.resize(b, (len(sums), *shape))
        with jax.enable_x64(True):
            for first in range(0, len(sums), at_once):
                # [p, K * points]: one product for all of them.
                part = filled[first : first + at_once].transpose(1, 2, 0).reshape(shape[0], -1)
                tame = self._all_used and bool((self._largest @ np.abs(part)).max() < TAME)
                for start in range(0, len(self._columns), self._block):
                    block = slice(start, start + self._block)
                    cell_block = self._columns[block], self._number[block], self._used[block], part
                    normalisers = _normalisers(*cell_block, softmax=self._softmax, tame=tame)
                    sums[first : first + at_once] += np.asarray(normalisers)
        return sums[: len(points)] - np.einsum("npk,pk->n", b, self._linear) + prior

    def slopes(self, point: Float[np.ndarray, " D"]) -> tuple[float, Float[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
        """Minus the log density, its gradient and its Hessian.

        Args:
            point: coefficients.
        """
        shape = self.mean.shape
        b = point.reshape(shape)
        # The prior is quadratic: its gradient and Hessian are known.
        deviation = (b - self.mean) / self.sd
        height = 0.5 * (deviation**2).sum() + self._log_constant - (b * self._linear).sum()
        gradient = deviation / self.sd - self._linear
        hessian = np.zeros((*shape, *shape))
        width, outcomes = shape
        for start in range(0, len(self._columns), STEEP):
            block = slice(start, start + STEEP)
            columns, number, used = self._columns[block], self._number[block], self._used[block]
            sums, chance = _chances(columns @ b, used, self._softmax)
            height += float((number * sums).sum())
            gradient += columns.T @ (number * chance)
            for k in range(outcomes):
                # Of sticks the Hessian is block diagonal; of a softmax it is symmetric.
                for second in range(k, outcomes if self._softmax else k + 1):
                    # n p (1 - p) on the diagonal, - n p_k p_l beside it.
                    weight = number[:, k if number.shape[1] > 1 else 0] * chance[:, k]
                    weight = weight * ((1.0 - chance[:, k]) if second == k else -chance[:, second])
                    part = columns.T @ (weight[:, None] * columns)
                    hessian[:, k, :, second] += part
                    if second != k:
                        hessian[:, second, :, k] += part
        flat = hessian.reshape(width * outcomes, -1)
        # The precision of the prior, on the diagonal.
        flat[np.diag_indices(len(flat))] += self.sd.ravel() ** -2.0
        return float(height), gradient.ravel(), flat


def _chances(
    eta: Float[np.ndarray, "M K"], used: Bool[np.ndarray, "M K"], softmax: bool
) -> tuple[Float[np.ndarray, "M n"], Float[np.ndarray, "M K"]]:
    """Log normalisers and probabilities of some cells."""
    if not softmax:
        return np.where(used, np.logaddexp(0.0, eta), 0.0), np.where(used, expit(eta), 0.0)
    masked = np.where(used, eta, -np.inf)
    # The reference has predictor zero: the largest is at least that.
    top = np.maximum(masked.max(1, keepdims=True), 0.0)
    odds = np.exp(masked - top)
    total = np.exp(-top) + odds.sum(1, keepdims=True)
    return np.log(total) + top, odds / total


@partial(jax.jit, static_argnames=("softmax", "tame"))
def _normalisers(
    columns: Float[Array, "M p"],
    number: Float[Array, "M n"],
    used: Bool[Array, "M K"],
    points: Float[Array, "p KN"],
    *,
    softmax: bool,
    tame: bool,
) -> Float[Array, " N"]:
    """Sum over cells of n log(1 + sum exp eta) at N points; tame: no exponential overflows, and nothing is masked."""
    eta = matmul(columns, points).reshape(len(columns), used.shape[1], -1)
    if not softmax:
        return einsum("mk,mkn->n", number * used, jax.nn.softplus(eta))
    if tame:
        return (number * jnp.log(1.0 + jnp.exp(eta).sum(1))).sum(0)
    eta = jnp.where(used[..., None], eta, -jnp.inf)
    # The reference has a predictor of zero; the largest is taken out, so that no exponential overflows.
    top = jnp.maximum(eta.max(1), 0.0)
    logs = jnp.log(jnp.exp(-top) + jnp.exp(eta - top[:, None]).sum(1)) + top
    return (number * logs).sum(0)
