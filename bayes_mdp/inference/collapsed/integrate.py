"""The posterior of hyperparameters without chains: nodes of a grid, or weighted draws, each with a closed form below.

Up to two continuous numbers are integrated over by the trapezoid rule, more by importance sampling; the values of
discrete hyperparameters are summed over beside them. Both start at the modes of the marginal density, which are looked
for from draws of the prior.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from bayes_mdp.inference.collapsed.hierarchy import Hierarchy
from bayes_mdp.inference.collapsed.marginal import Given, marginal_of
from bayes_mdp.inference.collapsed.missing_means import falls_slowly
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.detection.trace import joint_values
from bayes_mdp.inference.integrals.importance import MOST_NUMBERS, Draws, effective_size, integrate_by_draws
from bayes_mdp.inference.integrals.integration import Integration, integration_of
from bayes_mdp.inference.integrals.modes import LogDensity, Search, search
from bayes_mdp.inference.integrals.quadrature import Grid, Means, NotIntegrableError, integrate_by_grid
from bayes_mdp.inference.integrals.unconstrained_model import Values
from bayes_mdp.random.resampling import systematic_on_host

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
    given = marginal_of(hierarchy).given(data_statistics)
    parts: list[tuple[dict[str, np.ndarray], Search]] = []
    prior = hierarchy.hyper_prior
    for held in joint_values(prior.choices, {name: site.shape for name, site in prior.held.items()}):
        search = _look(given, hierarchy, held, near)
        if search is not None:
            parts.append((held, search))
    if not parts:
        raise NotIntegrableError("no draw of the prior has a finite density")
    highest = max(search.log_mass for _, search in parts)
    parts = [(held, search) for held, search in parts if search.log_mass > highest + RULED_OUT]
    found = [_integral(given, held, search, rng, method, strict) for held, search in parts]
    return _joined(given, [held for held, _ in parts], found, rng, draws)


def _look(given: Given, hierarchy: Hierarchy, held: Values, near: Values | None) -> Search | None:
    """The modes of the density at these discrete values; None: it is zero."""
    prior = hierarchy.hyper_prior
    points = prior.unconstrained(hierarchy.draws, held)
    expected = None if near is None else prior.unconstrained(near, held)
    return search(_of(given, held), points, expected)


def _of(given: Given, held: Values) -> LogDensity:
    return lambda points: given.log_density(points, held)


def _integral(
    given: Given, held: Values, search: Search, rng: np.random.Generator, method: str, strict: bool
) -> Grid | Draws:
    density = _of(given, held)
    if not given.marginal.prior.dimension:
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


def _joined(
    given: Given,
    helds: list[dict[str, np.ndarray]],
    found: list[Grid | Draws],
    rng: np.random.Generator,
    num: int | None,
) -> Integrated:
    """The parts of all discrete values as one posterior."""
    evidences = np.array([each.log_evidence for each in found])
    total = float(np.logaddexp.reduce(evidences))
    shares = np.exp(evidences - total)
    error = float(np.sqrt(sum((share * each.error) ** 2 for share, each in zip(shares, found, strict=True))))
    k = max((each.pareto_k for each in found if isinstance(each, Draws)), default=-np.inf)
    placed, logs = [], []
    for held, each, share in zip(helds, found, shares, strict=True):
        points, log_weights = each.points, each.log_weights
        if num is not None and isinstance(each, Grid) and given.marginal.prior.dimension:
            # Anywhere in the cells of the nodes, corrected by the density there: draws of a continuous posterior.
            points, log_offset, _ = each.propose(rng, max(16, math.ceil(4 * num * share)))
            log_weights = _of(given, held)(points) + log_offset
            log_weights = log_weights - logsumexp(log_weights)
        placed.append(given.marginal.place(points, held))
        logs.append(log_weights + np.log(share))
    values = {
        name: np.concatenate([part.values[name] for part in placed])
        for name in given.marginal.hierarchy.hyperparameters
    }
    parameters = tuple(np.concatenate(each) for each in zip(*(part.parameters for part in placed), strict=True))
    log_weights = np.concatenate(logs)
    worth = effective_size(log_weights) if np.isfinite(k) else float(len(log_weights))
    record = integration_of(total, error, worth, k, given.marginal.prior.dimension)
    if num is not None:
        chosen = rng.permutation(systematic_on_host(rng, np.exp(log_weights), num))
        values, log_weights = {name: x[chosen] for name, x in values.items()}, np.full(num, -np.log(num))
        parameters = tuple(x[chosen] for x in parameters)
    return Integrated(values, parameters, log_weights, record)
