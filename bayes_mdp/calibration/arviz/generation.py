"""The differences between ArviZ 0.x (InferenceData) and 1.x (DataTree)."""

import warnings
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Float

if TYPE_CHECKING:
    from arviz import InferenceData

    Tree = InferenceData | xr.DataTree
else:
    Tree = object  # ArviZ is imported when it is first needed


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


def pareto_smoothed(
    log_weights: Float[np.ndarray, "*T N"],
) -> tuple[Float[np.ndarray, "*T N"], Float[np.ndarray, "*T"]]:
    """Log weights of independent draws after Pareto smoothing (Vehtari et al. 2024), normalised; Pareto k."""
    if generation() >= 1:
        arviz()  # registers the accessor
        smoothed, pareto_k = xr.DataArray(log_weights).azstats.psislw(dim=f"dim_{log_weights.ndim - 1}", r_eff=1.0)
        return np.asarray(smoothed), np.asarray(pareto_k)
    with warnings.catch_warnings():
        # It warns of large `pareto_k`, which is returned.
        warnings.simplefilter("ignore", UserWarning)
        smoothed, pareto_k = arviz().psislw(log_weights, reff=1.0)
    return np.asarray(smoothed), np.asarray(pareto_k)
