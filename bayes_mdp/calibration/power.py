"""Sensitivity to power-scaling of a density, by ArviZ 1.x, and for ArviZ 0.x by the same formulas. Host-side."""

from typing import Any

import numpy as np
from jaxtyping import Float

from bayes_mdp.calibration.generation import arviz, generation, pareto_smoothed

ALPHAS = (0.99, 1.01)


def sensitivity(
    values: Float[np.ndarray, "N M"], log_density: Float[np.ndarray, " N"], num_chains: int = 1
) -> Float[np.ndarray, " M"]:
    """How fast each of M quantities moves when a density of the model is raised to a power; nan where it is constant.

    The mean over alpha = .99 and 1.01 of the cumulative Jensen-Shannon distance, over |log2 alpha| (Kallioinen et al.
    2023, equations 6 to 9).

    Args:
        values: draws, chain by chain.
        log_density: of each draw, of what is scaled.
        num_chains: chains in the N.
    """
    varies = np.ptp(values, axis=0) > 0
    found = np.full(values.shape[1], np.nan)
    if varies.any():
        by = _by_arviz if generation() >= 1 else by_formula
        found[varies] = by(values[:, varies], log_density, num_chains)
    return found


def _by_arviz(values: np.ndarray, log_density: np.ndarray, num_chains: int) -> Any:
    import xarray as xr

    dims = ("chain", "draw")
    posterior = xr.Dataset({"x": ((*dims, "item"), values.reshape(num_chains, -1, values.shape[1]))})
    prior = xr.Dataset({"density": (dims, log_density.reshape(num_chains, -1))})
    tree = xr.DataTree.from_dict({"/posterior": posterior, "/log_prior": prior})
    return np.asarray(arviz().psense(tree, group="prior", alphas=ALPHAS)["x"])


def by_formula(values: np.ndarray, log_density: np.ndarray, num_chains: int = 1) -> Float[np.ndarray, " M"]:
    """As `sensitivity`, by the formulas themselves."""
    del num_chains
    rates = []
    for alpha in ALPHAS:
        weights = np.exp(pareto_smoothed((alpha - 1.0) * log_density)[0])
        distance = np.maximum(_distance(values, weights), _distance(-values, weights))
        rates.append(distance / abs(np.log2(alpha)))
    return np.mean(rates, axis=0)


def _distance(values: Float[np.ndarray, "N M"], weights: Float[np.ndarray, " N"]) -> Float[np.ndarray, " M"]:
    """Cumulative Jensen-Shannon distance between draws as they are and by weight, from 0 to 1."""
    order = np.argsort(values, axis=0)
    width = np.diff(np.take_along_axis(values, order, 0), axis=0)
    number = len(values)
    plain = np.broadcast_to(np.linspace(1 / number, 1 - 1 / number, number - 1)[:, None], width.shape)
    weighted = np.cumsum((weights / weights.sum())[order], axis=0)[:-1]
    middle = 0.5 * (plain + weighted)
    divergence = sum(_integral(width, _log_ratio(p, middle)) for p in (plain, weighted))
    bound = _integral(width, plain) + _integral(width, weighted)
    return np.sqrt(np.maximum(divergence, 0.0) / bound)


def _log_ratio(p: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """p log2(p / middle), zero where p is zero."""
    ratio = np.divide(p, middle, out=np.ones_like(middle), where=p > 0)
    return p * np.log2(ratio)


def _integral(width: np.ndarray, heights: np.ndarray) -> Float[np.ndarray, " M"]:
    return (width * heights).sum(0)
