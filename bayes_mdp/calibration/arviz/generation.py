"""The differences between ArviZ 0.x (InferenceData) and 1.x (DataTree)."""

import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Float

import bayes_mdp

if TYPE_CHECKING:
    from arviz import InferenceData

    Tree = InferenceData | xr.DataTree
else:
    Tree = object  # ArviZ is imported when it is first needed


TIED = 5
"""Draws of the tail from which ArviZ fits a Pareto law."""
TIES_SPREAD = 1e-10
"""Far below the Monte Carlo error of any log-likelihood, far above its rounding."""


def generation() -> int:
    """Major version of the installed ArviZ: 0 or 1."""
    return int(version("arviz").split(".")[0])


def arviz() -> ModuleType:
    """ArviZ, imported when it is first needed."""
    with warnings.catch_warnings():
        # ArviZ 0.23 warns of version 1.0 whenever it is imported.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz as module
    return module


def schema_attributes(sample_dims: Sequence[str]) -> dict[str, str | float | list[str]]:
    """The attributes of a group that the InferenceData schema requires.

    Args:
        sample_dims: "chain" and "draw" where the group has them.
    """
    return {
        "created_at": datetime.now(UTC).isoformat(),
        "creation_library": "bayes_mdp",
        "creation_library_version": bayes_mdp.__version__,
        "inference_library": "bayes_mdp",
        "inference_library_version": bayes_mdp.__version__,
        "sample_dims": list(sample_dims),
    }


def as_tree(groups: Mapping[str, xr.Dataset]) -> Tree:
    """Groups by name as the installed ArviZ takes them."""
    if generation() >= 1:
        return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
    return arviz().InferenceData(**groups)


def break_ties(log_likelihood: Float[np.ndarray, "N *T"]) -> Float[np.ndarray, "N *T"]:
    """Log-likelihoods for `az.loo`, which cannot smooth equal weights: it raises (1.x), or reports a Pareto k of inf.

    Terms whose five smallest values are equal (those that do not depend on the parameters) are spread evenly by
    `TIES_SPREAD` over the draws; the others are what they were.
    """
    values = np.asarray(log_likelihood, np.float64)
    if len(values) < TIED:
        # The smallest five are what a Pareto fit of the tail would start from.
        return values
    smallest = np.partition(values, TIED - 1, axis=0)[:TIED]
    tied = (smallest == smallest[:1]).all(0)
    # An arithmetic sequence around zero: the mean of the terms stays.
    spread = np.linspace(-0.5 * TIES_SPREAD, 0.5 * TIES_SPREAD, len(values)).reshape(-1, *[1] * (values.ndim - 1))
    return values + tied * spread


def smooth_weights(
    log_weights: Float[np.ndarray, "*T N"],
) -> tuple[Float[np.ndarray, "*T N"], Float[np.ndarray, "*T"]]:
    """Log weights of independent draws after Pareto smoothing (Vehtari et al. 2024), normalised; Pareto k."""
    if generation() >= 1:
        arviz()  # registers the accessor
        # Of log-likelihoods, whose negatives are the log weights: ArviZ 0.x takes these themselves.
        smoothed, pareto_k = xr.DataArray(-log_weights).azstats.psislw(dim=f"dim_{log_weights.ndim - 1}", r_eff=1.0)
        return np.asarray(smoothed), np.asarray(pareto_k)
    with warnings.catch_warnings():
        # It warns of large `pareto_k`, which is returned.
        warnings.simplefilter("ignore", UserWarning)
        smoothed, pareto_k = arviz().psislw(log_weights, reff=1.0)
    return np.asarray(smoothed), np.asarray(pareto_k)
