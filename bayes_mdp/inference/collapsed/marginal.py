"""`Marginal`: the log density of hyperparameters and data with the conjugate sites integrated out, in NumPy.

log p(u, data) = log p(h(u)) + log |dh / du| + log evidence of the conjugate sites given h, for points u on the
unconstrained scale of NumPyro. The first two come from the user's program, traced once for blocks of points; the
evidence is a sum over the different (concentration, count) pairs of the rows and over the cells of the rewards.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from bayes_mdp.inference.collapsed.compression import Classes, find_classes
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.families.family import RewardBelief, log_rising
from bayes_mdp.inference.integrals.unconstrained_model import BLOCK, Values
from bayes_mdp.numerics.host_program import HostProgram
from bayes_mdp.numerics.numpy_or_jax import in_numpy

NUMBERS_IN_BLOCK = 2**15
"""Prior parameters that one call of the traced program makes."""
NUMBERS_AT_ONCE = 2**21
"""Numbers of prior parameters, and of cells of rewards, that are held at once."""


class PlacedParameters(NamedTuple):
    """What a program says at points u.

    Args:
        log_prior: log p(h) + log |dh / du|.
        values: {hyperparameter: [N ...]}, h.
        parameters: for each prior parameter array one number for each class [N G].
    """

    log_prior: Float[np.ndarray, " N"]
    values: dict[str, np.ndarray]
    parameters: tuple[Float[np.ndarray, "N G"], ...]


@dataclass(frozen=True)
class RowCounts:
    """The counts of the rows, equal terms once.

    Args:
        entry, count, times: class of a concentration, count of its outcome, how many entries have both [U].
        pattern, total, rows: pattern of a row, its count, how many rows have both [V].
    """

    entry: Int[np.ndarray, " U"]
    count: Float[np.ndarray, " U"]
    times: Float[np.ndarray, " U"]
    pattern: Int[np.ndarray, " V"]
    total: Float[np.ndarray, " V"]
    rows: Float[np.ndarray, " V"]


class Marginal:
    """The marginal density of a hierarchy's continuous hyperparameters; discrete ones are held.

    Args:
        hierarchy: proven.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy, self.prior = hierarchy, hierarchy.hyper_prior
        self.classes: Classes = find_classes(hierarchy)
        self.block = min(BLOCK, max(1, NUMBERS_IN_BLOCK // sum(np.size(i) for i in self.classes.number)))

    @cached_property
    def _placed(self) -> HostProgram:
        def one(point: Float[Array, " D"], held: Values) -> tuple[Array, dict[str, Array], tuple[Array, ...]]:
            log_prior, _, values = self.prior.place_one(point, held, None)
            leaves = jax.tree.leaves(self.hierarchy.parameters(values))
            parts = zip(leaves, self.classes.first, strict=True)
            return log_prior, values, tuple(jnp.asarray(leaf).ravel()[first] for leaf, first in parts)

        return HostProgram(jax.vmap(one, in_axes=(0, None)))

    def place(self, points: Float[np.ndarray, "N D"], held: Values) -> PlacedParameters:
        """What the program says at points.

        Args:
            points: on the unconstrained scale.
            held: values of the discrete hyperparameters.
        """
        return PlacedParameters(*self._placed.in_blocks(self.block, points, held))

    @cached_property
    def _patterns(self) -> tuple[Int[np.ndarray, " M"], scipy.sparse.csr_array]:
        """The pattern of each row, and how often each class stands in each pattern [P G]."""
        number = np.asarray(self.classes.number[0])
        rows, pattern = np.unique(np.sort(number, axis=1), axis=0, return_inverse=True)
        indptr = np.arange(len(rows) + 1) * rows.shape[1]
        shape = len(rows), len(self.classes.first[0])
        member = scipy.sparse.csr_array((np.ones(rows.size), rows.ravel(), indptr), shape=shape)
        member.sum_duplicates()
        return pattern.reshape(-1), member

    def counted(self, data_statistics: ConjugatePosterior) -> RowCounts:
        """The counts of the rows, equal terms once.

        Args:
            data_statistics: all data.
        """
        counts = np.asarray(data_statistics.transition_probs.dense_counts, np.float64)
        number, (pattern, _) = np.asarray(self.classes.number[0]), self._patterns
        at = np.nonzero(counts)
        entry, count, times = _alike(number[at], counts[at])
        total = counts.sum(-1)
        row, of_row, rows = _alike(pattern[total > 0], total[total > 0])
        return RowCounts(entry, count, times, row, of_row, rows)

    def given(self, data_statistics: ConjugatePosterior) -> "Given":
        """The density given data.

        Args:
            data_statistics: all data.
        """
        return Given(self, data_statistics)


class Given:
    """log p(u, data), and means of rows and rewards, at many points.

    Args:
        marginal: of the hierarchy.
        data_statistics: the statistics of all data; the prior parameters in them are not read.
    """

    def __init__(self, marginal: Marginal, data_statistics: ConjugatePosterior) -> None:
        self.marginal, self._rows = marginal, marginal.counted(data_statistics)
        self.constant = float(np.asarray(data_statistics.constant))
        rewards = data_statistics.reward_cells
        self._cells = rewards if isinstance(rewards, RewardCells) else None
        if self._cells is None:  # no hyperparameter enters the rewards
            self.constant += float(in_numpy(rewards.log_evidence))
            return
        self._data = np.asarray(self._cells.data, np.float64)
        self._seen = np.flatnonzero(self._data.reshape(len(self._data), -1).any(1))

    def log_density(self, points: Float[np.ndarray, "N D"], held: Values) -> Float[np.ndarray, " N"]:
        """log p(u, discrete values, data); minus infinity where that is no number."""
        placed = self.marginal.place(points, held)
        with np.errstate(all="ignore"):
            total = placed.log_prior + self.log_evidence(placed.parameters)
        return np.where(np.isnan(total), -np.inf, total)

    def log_evidence(self, parameters: tuple[Float[np.ndarray, "N G"], ...]) -> Float[np.ndarray, " N"]:
        """log p(data | hyperparameters), the conjugate sites integrated out."""
        rows, prior = self._rows, parameters[0]
        # Dirichlet-multinomial of a sequence: prod_k rising(prior_k, n_k) / rising(sum prior, sum n).
        total = (prior @ self.marginal._patterns[1].T)[:, rows.pattern]
        evidence = log_rising(prior[:, rows.entry], rows.count) @ rows.times
        evidence = np.asarray(evidence - log_rising(total, rows.total) @ rows.rows + self.constant)
        if self._cells is None or not self._seen.size:
            return evidence
        data = self._data[self._seen]
        if all((x == x[:1]).all() for x in parameters[1:]):  # no hyperparameter enters the rewards
            return evidence + np.asarray(self._belief(parameters, slice(1), self._seen).log_marginal(data)).sum()
        parts = [
            np.asarray(self._belief(parameters, at, self._seen).log_marginal(data)).sum(-1)
            for at in self._at_once(len(prior), len(self._seen))
        ]
        return evidence + np.concatenate(parts)

    @property
    def num_elements(self) -> int:
        """Elements of the rewards whose means are unknown."""
        return 0 if self._cells is None else len(self._data)

    def log_density_and_means(
        self, points: Float[np.ndarray, "N D"], held: Values
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N M"]]:
        """log p(u, discrete values, data), and the mean of each element of the rewards given u; numbers or not."""
        placed = self.marginal.place(points, held)
        return placed.log_prior + self.log_evidence(placed.parameters), self.reward_means(placed.parameters)

    def means(self, points: Float[np.ndarray, "N D"], held: Values) -> Float[np.ndarray, "N F"]:
        """Posterior means given the hyperparameters: of the different entries of rows, and of rewards."""
        parameters = self.marginal.place(points, held).parameters
        rows, prior = self._rows, parameters[0]
        total = prior @ self.marginal._patterns[1].T
        # A row's mean is (prior + count) / (total + count of the row): shrinkage of the different patterns and counts.
        shrunk = total[:, rows.pattern] / (total[:, rows.pattern] + rows.total)
        first = self.marginal._patterns[1].indices[self.marginal._patterns[1].indptr[:-1]]
        shares = prior[:, first] / total
        with np.errstate(all="ignore"):
            values = np.concatenate([shrunk, shares, self.reward_means(parameters)], axis=1)
        return np.where(np.isfinite(values), values, 0.0)

    def reward_means(self, parameters: tuple[Float[np.ndarray, "N G"], ...]) -> Float[np.ndarray, "N M"]:
        """Posterior means of the elements of the rewards given the hyperparameters, numbers or not; M is 0 where all
        rewards are known.
        """
        number = len(parameters[0])
        if self._cells is None:
            return np.zeros((number, 0))
        cells = np.arange(len(self._data))
        with np.errstate(all="ignore"):
            parts = [
                np.asarray(self._belief(parameters, at, cells).after(self._data).mean())
                for at in self._at_once(number, len(cells))
            ]
        return np.concatenate(parts).reshape(number, -1)

    def _at_once(self, points: int, cells: int) -> list[slice]:
        size = max(1, NUMBERS_AT_ONCE // max(cells, 1))
        return [slice(i, i + size) for i in range(0, points, size)]

    def _belief(
        self, parameters: tuple[Float[np.ndarray, "N G"], ...], at: slice, cells: Int[np.ndarray, " M"]
    ) -> RewardBelief:
        """The prior belief of some cells at some points: its arrays [N M ...]."""
        assert self._cells is not None
        index = [np.asarray(i)[cells] for i in self.marginal.classes.number[1:]]
        leaves = [x[at][:, i] for x, i in zip(parameters[1:], index, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(self._cells.prior), leaves)


def _alike(*columns: np.ndarray) -> tuple[Int[np.ndarray, " U"], Float[np.ndarray, " U"], Float[np.ndarray, " U"]]:
    """The different pairs of two columns, and how often each occurs."""
    both, times = np.unique(np.stack([x.astype(np.float64) for x in columns]), axis=1, return_counts=True)
    return both[0].astype(np.int64), both[1], times.astype(np.float64)


@lru_cache(maxsize=64)
def marginal_of(hierarchy: Hierarchy) -> Marginal:
    """The marginal density of a hierarchy, compiled once for equal programs."""
    return Marginal(hierarchy)
