"""Mean rewards that do not exist under a hierarchy: shown by how their integrands behave far out.

The posterior mean of a reward is an integral of its mean m(h) given the hyperparameters h over their density p(h).
Draws give a number for it whether it is finite or not. Along an axis of the unconstrained coordinates, at the distance
t, the integrand must fall faster than 1 / t. It does not for 1 / rate where the density of the rate is positive at zero
(t is the logarithm), nor for the location of a Cauchy distribution.
"""

import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.inference.collapsed.hierarchy import Hierarchy
from bayes_mdp.inference.collapsed.marginal import Given, marginal_of
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.integrals.unconstrained_model import Values

HEAVIEST = 8
"""Values from which one goes out, beside those that are outermost in one number."""
DISTANCES = 2.0 ** np.arange(3, 12)
"""In standard deviations: the last two are compared at which everything is a number."""
MOST_NUMBERS = 2**22
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
    given, prior = marginal_of(hierarchy).given(data_statistics), hierarchy.hyper_prior
    missing = np.zeros(given.num_elements, bool)
    if not prior.dimension or not given.num_elements:
        return missing
    values = {name: np.asarray(x) for name, x in values.items()}
    columns = [np.zeros((len(log_weights), 1)), *(values[name].reshape(len(log_weights), -1) for name in prior.held)]
    number = np.unique(np.concatenate(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    for joint in range(number.max() + 1):  # values of discrete hyperparameters
        of_joint = np.flatnonzero(number == joint)
        at = {name: values[name][of_joint[0]] for name in prior.held}
        points = prior.unconstrained({name: x[of_joint] for name, x in values.items()}, at)
        logs = log_weights[of_joint]
        weights = np.exp(logs - logs.max())
        centre = np.average(points, axis=0, weights=weights)
        scale = np.sqrt(np.average((points - centre) ** 2, axis=0, weights=weights))
        # From the heaviest, and from the outermost of each number: a mean may exist for some values of others only.
        heaviest = np.argsort(-logs, kind="stable")[:HEAVIEST]
        order = dict.fromkeys([*heaviest.tolist(), *points.argmin(0).tolist(), *points.argmax(0).tolist()])
        missing |= falls_slowly(given, at, points[list(order)], scale)
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
    points = points[: max(1, MOST_NUMBERS // max(2 * size * len(DISTANCES) * given.num_elements, 1))]
    axes = np.concatenate([np.diag(scale), -np.diag(scale)])
    out = points[:, None, None] + axes[:, None] * DISTANCES[:, None]
    with np.errstate(all="ignore"):
        logs, means = given.log_density_and_means(out.reshape(-1, size), held)
        logs = logs.reshape(out.shape[:-1])[..., None] + np.log(DISTANCES)[:, None]
        heights = np.log(np.abs(means)).reshape(*out.shape[:-1], -1)
    finite = np.isfinite(logs) & np.isfinite(heights)
    order = np.where(finite, np.arange(len(DISTANCES))[:, None], -1)
    last = order.max(-2, keepdims=True)
    before = np.where(order < last, order, -1).max(-2, keepdims=True)

    def gain(x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        x = np.broadcast_to(x, finite.shape)
        return np.take_along_axis(x, last, -2) - np.take_along_axis(x, np.maximum(before, 0), -2)

    with np.errstate(all="ignore"):
        of_density, of_mean, of_distance = gain(logs), gain(heights), gain(np.log(DISTANCES)[:, None])
        slow = (of_density < 0) & (of_mean > 0) & (of_density + of_mean > -SLOW * of_distance)
    return (slow & (before >= 0)).any((0, 1, 2))
