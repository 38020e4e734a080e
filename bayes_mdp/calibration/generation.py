"""Which ArviZ is installed: 0.x (InferenceData) or 1.x (DataTree)."""

import warnings
from importlib.metadata import version
from types import ModuleType

import numpy as np
from jaxtyping import Float


def generation() -> int:
    """0 or 1."""
    return int(version("arviz").split(".")[0])


def arviz() -> ModuleType:
    """ArviZ, imported when it is first needed."""
    with warnings.catch_warnings():
        # ArviZ 0.23 announces 1.0 whenever it is imported.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz as module
    return module


def pareto_smoothed(
    log_weights: Float[np.ndarray, "*T N"],
) -> tuple[Float[np.ndarray, "*T N"], Float[np.ndarray, "*T"]]:
    """Log weights of independent draws after Pareto smoothing (Vehtari et al. 2024), normalised; Pareto k."""
    if generation() >= 1:
        import xarray as xr

        arviz()  # registers the accessor
        smoothed, pareto_k = xr.DataArray(log_weights).azstats.psislw(dim=f"dim_{log_weights.ndim - 1}", r_eff=1.0)
        return np.asarray(smoothed), np.asarray(pareto_k)
    with warnings.catch_warnings():
        # What it warns of is in `pareto_k`.
        warnings.simplefilter("ignore", UserWarning)
        smoothed, pareto_k = arviz().psislw(log_weights, reff=1.0)
    return np.asarray(smoothed), np.asarray(pareto_k)
