"""The posterior of hyperparameters without chains: nodes of a grid, or weighted draws, each with a closed form below.

Up to two continuous numbers are integrated over by the trapezoid rule, more by importance sampling; the values of
discrete hyperparameters are summed over beside them. Both start at the modes of the marginal density, which are looked
for from draws of the prior. In this order: the density that is integrated, in NumPy (`Marginal`); mean rewards that do
not exist under a hierarchy (`missing_means`); the integral (`integrate`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Bool, Float, Int
from scipy.special import logsumexp

from bayes_mdp.inference.collapsed.collapse import Classes, find_classes
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.detection.trace import joint_values
from bayes_mdp.inference.families.family import RewardBelief, log_rising
from bayes_mdp.inference.integrals.importance import (
    MOST_NUMBERS,
    Draws,
    Integration,
    effective_size,
    integrate_by_draws,
    integration_of,
)
from bayes_mdp.inference.integrals.quadrature import (
    Grid,
    Means,
    NotIntegrableError,
    Search,
    integrate_by_grid,
    search,
)
from bayes_mdp.inference.integrals.unconstrained_model import BLOCK, Values
from bayes_mdp.numerics.host_program import HostProgram
from bayes_mdp.numerics.numpy_or_jax import in_numpy
from bayes_mdp.random.resampling import systematic_on_host

# The log density of hyperparameters and data with the conjugate sites integrated out, in NumPy:
#
#   log p(u, data) = log p(h(u)) + log |dh / du| + log evidence of the conjugate sites given h,
#
# for points u on the unconstrained scale of NumPyro. The first two come from the user's program, traced once for blocks
# of points; the evidence is a sum over the different (concentration, count) pairs of the rows and over the cells of the
# rewards.

NUMBERS_IN_BLOCK = 2**15
"""Prior parameters that one call of the traced program makes."""
MANY = 4
"""Blocks in one where there are more points than that: draws."""
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
    def _place_program(self) -> HostProgram:
        def one(point: Float[Array, " D"], held: Values) -> tuple[Array, dict[str, Array], tuple[Array, ...]]:
            # The Jacobian is in log_prior: the density is that of u on the real line.
            log_prior, _, values = self.prior.place_one(point, held, None)
            # One number for each class of equal prior parameters, not one for each entry of the arrays.
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
        size = self.block if len(points) <= MANY * self.block else MANY * self.block
        return PlacedParameters(*self._place_program.in_blocks(size, points, held))

    @cached_property
    def _patterns(self) -> tuple[Int[np.ndarray, " M"], scipy.sparse.csr_array]:
        """The pattern of each row, and how often each class stands in each pattern [P G]."""
        # Rows of the same pattern of classes have one sum of prior parameters: a sparse product gives all sums.
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
        # Equal priors and equal counts have equal terms: each is computed once, and counted `times`.
        nonzero = np.nonzero(counts)
        entry, count, times = _alike(number[nonzero], counts[nonzero])
        # Rows by pattern: the sum of a row's prior parameters is the same for all rows of one pattern.
        total = counts.sum(-1)
        row, of_row, rows = _alike(pattern[total > 0], total[total > 0])
        return RowCounts(entry, count, times, row, of_row, rows)


class Given:
    """log p(u, data), and means of rows and rewards, at many points.

    Args:
        marginal: of the hierarchy.
        data_statistics: the statistics of all data; the prior parameters in them are not read.
    """

    def __init__(self, marginal: Marginal, data_statistics: ConjugatePosterior) -> None:
        self.marginal, self._rows = marginal, marginal.counted(data_statistics)
        # What sums of rewards do not hold, the factorials of Poisson rewards, is the same at every point.
        # An impossible log (minus infinity) stays impossible at every point.
        self.constant = float(np.nan_to_num(np.asarray(data_statistics.constant), posinf=np.inf, neginf=-np.inf))
        rewards = data_statistics.reward_cells
        self._cells = rewards if isinstance(rewards, RewardCells) else None
        self._constants: dict[str, tuple[bytes, np.ndarray]] = {}
        if self._cells is None:  # no hyperparameter enters the rewards
            self.constant += float(in_numpy(rewards.log_evidence))
            return
        self._data = np.asarray(self._cells.data, np.float64)
        # Cells without data have evidence one.
        self._seen = np.flatnonzero(self._data.reshape(len(self._data), -1).any(1))

    def log_density(self, points: Float[np.ndarray, "N D"], held: Values) -> Float[np.ndarray, " N"]:
        """log p(u, discrete values, data); minus infinity where that is no number."""
        placed = self.marginal.place(points, held)
        with np.errstate(all="ignore"):
            total = placed.log_prior + self.log_evidence(placed.parameters)
        return np.where(np.isnan(total), -np.inf, total)

    def log_evidence(self, parameters: tuple[Float[np.ndarray, "N G"], ...]) -> Float[np.ndarray, " N"]:
        """log p(data | hyperparameters), the conjugate sites integrated out."""
        rows = self._evidence_once("rows", self._of_rows, parameters[:1])
        if self._cells is None or not self._seen.size:
            return rows + self.constant
        return rows + self.constant + self._evidence_once("rewards", self._of_rewards, parameters[1:])

    def _evidence_once(
        self,
        part: str,
        evidence: Callable[[tuple[Float[np.ndarray, "N G"], ...]], Float[np.ndarray, " N"]],
        parameters: tuple[Float[np.ndarray, "N G"], ...],
    ) -> Float[np.ndarray, " N"]:
        """The evidence of a part of the program; where no hyperparameter enters it, it is computed once for all."""
        # All points alike (fixed hyperparameters): the term is a constant, kept by the bytes of the parameters.
        if not all((x == x[:1]).all() for x in parameters):
            return evidence(parameters)
        fingerprint = b"".join(x[0].tobytes() for x in parameters)
        if part not in self._constants or self._constants[part][0] != fingerprint:
            self._constants[part] = fingerprint, evidence(tuple(x[:1] for x in parameters))
        return np.broadcast_to(self._constants[part][1], len(parameters[0]))

    def _of_rows(self, parameters: tuple[Float[np.ndarray, "N G"], ...]) -> Float[np.ndarray, " N"]:
        rows, (prior,) = self._rows, parameters
        # Dirichlet-multinomial of a sequence: prod_k rising(prior_k, n_k) / rising(sum prior, sum n).
        # prior @ member^T gives the concentration sums of all patterns; then those of the rows that were visited.
        total = (prior @ self.marginal._patterns[1].T)[:, rows.pattern]
        rising = log_rising(prior[:, rows.entry], rows.count) @ rows.times
        return np.asarray(rising - log_rising(total, rows.total) @ rows.rows)

    def _of_rewards(self, parameters: tuple[Float[np.ndarray, "N G"], ...]) -> Float[np.ndarray, " N"]:
        data = self._data[self._seen]
        parts = [
            # The marginal density of each cell's rewards under its prior belief at each point, added up over cells.
            np.asarray(self._belief(parameters, block, self._seen).log_marginal(data)).sum(-1)
            for block in self._at_once(len(parameters[0]), len(self._seen))
        ]
        return np.concatenate(parts)

    @property
    def num_elements(self) -> int:
        """Elements of the rewards whose means are unknown."""
        return 0 if self._cells is None else len(self._data)

    def means(self, points: Float[np.ndarray, "N D"], held: Values) -> Float[np.ndarray, "N F"]:
        """Posterior means given the hyperparameters: of the different entries of rows, and of rewards."""
        parameters = self.marginal.place(points, held).parameters
        rows, prior = self._rows, parameters[0]
        total = prior @ self.marginal._patterns[1].T
        # A row's mean is (prior + count) / (total + count of the row): shrinkage of the different patterns and counts.
        # A row's shrinkage factor: total / (total + n).
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
                np.asarray(self._belief(parameters[1:], block, cells).after(self._data).mean())
                for block in self._at_once(number, len(cells))
            ]
        return np.concatenate(parts).reshape(number, -1)

    def _at_once(self, points: int, cells: int) -> list[slice]:
        size = max(1, NUMBERS_AT_ONCE // max(cells, 1))
        return [slice(i, i + size) for i in range(0, points, size)]

    def _belief(
        self, parameters: tuple[Float[np.ndarray, "N G"], ...], at: slice, cells: Int[np.ndarray, " M"]
    ) -> RewardBelief:
        """The prior belief of some cells at some points, by the parameters of rewards: its arrays [N M ...]."""
        assert self._cells is not None
        index = [np.asarray(i)[cells] for i in self.marginal.classes.number[1:]]
        leaves = [x[at][:, i] for x, i in zip(parameters, index, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(self._cells.prior), leaves)


def _alike(*columns: np.ndarray) -> tuple[Int[np.ndarray, " U"], Float[np.ndarray, " U"], Float[np.ndarray, " U"]]:
    """The different pairs of two columns, and how often each occurs."""
    distinct, times = np.unique(np.stack([x.astype(np.float64) for x in columns]), axis=1, return_counts=True)
    return distinct[0].astype(np.int64), distinct[1], times.astype(np.float64)


marginal_of = lru_cache(maxsize=64)(Marginal)
"""The marginal density of a hierarchy, compiled once for equal programs."""


# Mean rewards that do not exist: shown by how their integrands behave far out. The posterior mean of a reward is an
# integral of its mean m(h) given the hyperparameters h over their density p(h). Draws give a number for it whether it
# is finite or not. Along an axis of the unconstrained coordinates, at the distance t, the integrand must fall faster
# than 1 / t. It does not for 1 / rate where the density of the rate is positive at zero (t is the logarithm), nor for
# the location of a Cauchy distribution.

HEAVIEST = 8
"""Values from which one goes out, beside those that are outermost in one number."""
DISTANCES = 2.0 ** np.arange(3, 12)
"""In standard deviations: the last two are compared at which everything is a number."""
MOST_MEANS = 2**22
"""Means that are computed."""
SLOW = 0.05
"""Power of the distance by which the integrand, times the distance, falls at least."""


def missing_means(
    hierarchy: Hierarchy, data_statistics: ConjugatePosterior, values: Values, log_weights: Float[np.ndarray, " K"]
) -> Bool[np.ndarray, " M"]:
    """Of which elements of the rewards it is shown that the posterior mean does not exist. Host side.

    Args:
        hierarchy: proven.
        data_statistics: the statistics of all data.
        values: {hyperparameter: [K ...]}, of the posterior.
        log_weights: of these.
    """
    marginal, prior = Given(marginal_of(hierarchy), data_statistics), hierarchy.hyper_prior
    missing = np.zeros(marginal.num_elements, bool)
    if not prior.dimension or not marginal.num_elements:
        return missing
    values = {name: np.asarray(x) for name, x in values.items()}
    columns = [np.zeros((len(log_weights), 1)), *(values[name].reshape(len(log_weights), -1) for name in prior.held)]
    number = np.unique(np.concatenate(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    # Each joint value of the discrete hyperparameters has a density of its own.
    for joint in range(number.max() + 1):  # values of discrete hyperparameters
        of_joint = np.flatnonzero(number == joint)
        choices = {name: values[name][of_joint[0]] for name in prior.held}
        points = prior.unconstrained({name: x[of_joint] for name, x in values.items()}, choices)
        logs = log_weights[of_joint]
        weights = np.exp(logs - logs.max())
        # Weighted centre and spread: the unit in which one goes out along each axis.
        centre = np.average(points, axis=0, weights=weights)
        scale = np.sqrt(np.average((points - centre) ** 2, axis=0, weights=weights))
        # From the heaviest, and from the outermost of each number: a mean may exist for some values of others only.
        heaviest = np.argsort(-logs, kind="stable")[:HEAVIEST]
        order = dict.fromkeys([*heaviest.tolist(), *points.argmin(0).tolist(), *points.argmax(0).tolist()])
        missing |= falls_slowly(marginal, choices, points[list(order)], scale)
    return missing


def falls_slowly(
    given: Given, held: Values, points: Float[np.ndarray, "K D"], scale: Float[np.ndarray, " D"]
) -> Bool[np.ndarray, " M"]:
    """Of which elements the integrand of the mean falls too slowly along an axis, from any of the points.

    Args:
        given: the density.
        held: values of discrete hyperparameters.
        points: of high density, the most important first; of many only as many are taken as time allows.
        scale: a standard deviation of each number.
    """
    size = points.shape[1]
    points = points[: max(1, MOST_MEANS // max(2 * size * len(DISTANCES) * given.num_elements, 1))]
    # Out along every axis, both ways, at distances that double: [points, axes, distances, numbers].
    axes = np.concatenate([np.diag(scale), -np.diag(scale)])
    out = points[:, None, None] + axes[:, None] * DISTANCES[:, None]
    with np.errstate(all="ignore"):
        # log p(u, discrete values, data), and the mean of each element of the rewards given u; numbers or not.
        placed = given.marginal.place(out.reshape(-1, size), held)
        logs, means = placed.log_prior + given.log_evidence(placed.parameters), given.reward_means(placed.parameters)
        logs = logs.reshape(out.shape[:-1])[..., None] + np.log(DISTANCES)[:, None]
        heights = np.log(np.abs(means)).reshape(*out.shape[:-1], -1)
    finite = np.isfinite(logs) & np.isfinite(heights)
    # The last two distances at which density and mean are numbers give the power of the fall.
    order = np.where(finite, np.arange(len(DISTANCES))[:, None], -1)
    last = order.max(-2, keepdims=True)
    before = np.where(order < last, order, -1).max(-2, keepdims=True)

    def gain(x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        x = np.broadcast_to(x, finite.shape)
        return np.take_along_axis(x, last, -2) - np.take_along_axis(x, np.maximum(before, 0), -2)

    with np.errstate(all="ignore"):
        of_density, of_mean, of_distance = gain(logs), gain(heights), gain(np.log(DISTANCES)[:, None])
        # The integrand times the distance must fall: log p + log |mean| + log t, by more than SLOW log t.
        slow = (of_density < 0) & (of_mean > 0) & (of_density + of_mean > -SLOW * of_distance)
    return (slow & (before >= 0)).any((0, 1, 2))


QUADRATURE, IMPORTANCE = "quadrature", "importance"
MOST_AXES = 2
"""Continuous numbers that a grid has at most: from three on draws need fewer points."""
MOST_VALUES = 64
"""Joint values of discrete hyperparameters that are summed over."""
RULED_OUT = -40.0
"""Log mass by Laplace's method, less the largest, below which a discrete value is not looked at further."""


class Integrated(NamedTuple):
    """A posterior of hyperparameters.

    Args:
        hyperparameters: {site: [K ...]}.
        parameters: for each prior parameter array, one number for each class [K G].
        log_weights: [K]; their exponentials add up to one.
        integration: how good it is.
    """

    hyperparameters: dict[str, np.ndarray]
    parameters: tuple[Float[np.ndarray, "K G"], ...]
    log_weights: Float[np.ndarray, " K"]
    integration: Integration

    @property
    def method(self) -> str:
        """ "quadrature", or "importance" where some of it is by draws."""
        return IMPORTANCE if np.isfinite(self.integration.pareto_k) else QUADRATURE


def method_of(hierarchy: Hierarchy) -> str | None:
    """ "quadrature" or "importance", by the number of hyperparameters; None: there are too many for either."""
    prior = hierarchy.hyper_prior
    if not prior.is_listed or prior.dimension > MOST_NUMBERS:
        return None
    values = [len(prior.choices[name]) ** math.prod(site.shape) for name, site in prior.held.items()]
    if math.prod(values) > MOST_VALUES:
        return None
    return QUADRATURE if prior.dimension <= MOST_AXES else IMPORTANCE


def integrate(
    hierarchy: Hierarchy,
    data_statistics: ConjugatePosterior,
    rng: np.random.Generator,
    *,
    method: str,
    near: Values | None = None,
    draws: int | None = None,
    strict: bool = True,
) -> Integrated:
    """The posterior of the hyperparameters given all data. Host side.

    Args:
        hierarchy: proven.
        data_statistics: the statistics of all data.
        rng: of the draws.
        method: "quadrature" (up to three continuous numbers) or "importance".
        near: values [n ...] of the hyperparameters about which the posterior is expected; None: nothing is known.
        draws: draws of equal weight in place of the nodes, or of the weighted draws; None: these.
        strict: False: where a grid does not converge importance sampling takes its place.

    Raises:
        NotIntegrableError: the integral cannot be stated to its tolerance; says why.
    """
    marginal = Given(marginal_of(hierarchy), data_statistics)
    parts: list[tuple[dict[str, np.ndarray], Search]] = []
    prior = hierarchy.hyper_prior
    for fixed in joint_values(prior.choices, {name: site.shape for name, site in prior.held.items()}):
        search = _look(marginal, hierarchy, fixed, near)
        if search is not None:
            parts.append((fixed, search))
    if not parts:
        raise NotIntegrableError("no draw of the prior has a finite density")
    # Discrete values of negligible mass are not integrated over.
    highest = max(search.log_mass for _, search in parts)
    parts = [(fixed, search) for fixed, search in parts if search.log_mass > highest + RULED_OUT]
    integrals = [_integral(marginal, fixed, search, rng, method, strict) for fixed, search in parts]
    return _join(marginal, [fixed for fixed, _ in parts], integrals, rng, draws)


def _look(given: Given, hierarchy: Hierarchy, held: Values, near: Values | None) -> Search | None:
    """The modes of the density at these discrete values; None: it is zero."""
    prior = hierarchy.hyper_prior
    points = prior.unconstrained(hierarchy.draws, held)
    expected = None if near is None else prior.unconstrained(near, held)
    return search(partial(given.log_density, held=held), points, expected)


def _integral(
    given: Given, held: Values, search: Search, rng: np.random.Generator, method: str, strict: bool
) -> Grid | Draws:
    density = partial(given.log_density, held=held)
    if not given.marginal.prior.dimension:
        # No continuous number: the integral is the density itself, one node of weight one.
        height = search.modes[0].log_density
        return Grid(np.zeros((1, 0)), np.zeros(1), height, 0.0, 1.0, np.zeros((1, 0)), search.modes[0])
    if method == QUADRATURE:
        try:
            return integrate_by_grid(density, search.modes, search.cover, _means_of(given, held, search))
        except NotIntegrableError:
            if strict:
                raise
    return integrate_by_draws(rng, density, search.modes)


def _means_of(given: Given, held: Values, search: Search) -> Means:
    """The means that a grid has to get right: those that exist."""
    starts = np.stack([mode.point for mode in search.modes])
    missing = falls_slowly(given, held, starts, np.linalg.norm(search.modes[0].root, axis=1))

    def means(points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N F"]:
        values = given.means(points, held)
        values[:, values.shape[1] - len(missing) :][:, missing] = 0.0
        return values

    return means


def _join(
    given: Given,
    helds: list[dict[str, np.ndarray]],
    found: list[Grid | Draws],
    rng: np.random.Generator,
    num: int | None,
) -> Integrated:
    """The parts of all discrete values as one posterior."""
    evidences = np.array([integral.log_evidence for integral in found])
    # p(data) = sum over discrete values; each part gets its share of the mass.
    total = float(np.logaddexp.reduce(evidences))
    shares = np.exp(evidences - total)
    # Errors of the parts are independent, weighted by their shares.
    error = float(np.sqrt(sum((share * integral.error) ** 2 for share, integral in zip(shares, found, strict=True))))
    k = max((integral.pareto_k for integral in found if isinstance(integral, Draws)), default=-np.inf)
    placed, logs = [], []
    for fixed, integral, share in zip(helds, found, shares, strict=True):
        points, log_weights = integral.points, integral.log_weights
        if num is not None and isinstance(integral, Grid) and given.marginal.prior.dimension:
            # Anywhere in the cells of the nodes, corrected by the density there: draws of a continuous posterior.
            points, log_offset, _ = integral.propose(rng, max(16, math.ceil(4 * num * share)))
            log_weights = given.log_density(points, fixed) + log_offset
            log_weights = log_weights - logsumexp(log_weights)
        placed.append(given.marginal.place(points, fixed))
        logs.append(log_weights + np.log(share))
    values = {
        name: np.concatenate([part.values[name] for part in placed])
        for name in given.marginal.hierarchy.hyperparameters
    }
    parameters = tuple(np.concatenate(integral) for integral in zip(*(part.parameters for part in placed), strict=True))
    log_weights = np.concatenate(logs)
    worth = effective_size(log_weights) if np.isfinite(k) else float(len(log_weights))
    record = integration_of(total, error, worth, k, given.marginal.prior.dimension)
    if num is not None:
        # Systematic resampling to equal weights, in random order: neighbours are not alike.
        chosen = rng.permutation(systematic_on_host(rng, np.exp(log_weights), num))
        values, log_weights = {name: x[chosen] for name, x in values.items()}, np.full(num, -np.log(num))
        parameters = tuple(x[chosen] for x in parameters)
    return Integrated(values, parameters, log_weights, record)
