"""ArviZ's own answers about draws and predictions, the same call on both generations. Host-side."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.export import to_arviz
from bayes_mdp.calibration.generation import arviz, generation
from bayes_mdp.calibration.observed import Data
from bayes_mdp.mdp.files import write_beside

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

LARGE_PARETO_K = 0.7


class Loo(NamedTuple):
    """Leave-one-out prediction of one transition.

    Args:
        elpd: expected log predictive density, summed over the transitions; larger is better.
        se: its standard error.
        share_unreliable: share of the transitions whose Pareto k is above 0.7, for which the approximation fails.
    """

    elpd: float
    se: float
    share_unreliable: float

    def __str__(self) -> str:
        """In words."""
        warning = f" (unreliable at {self.share_unreliable:.1%} of the transitions)" if self.share_unreliable else ""
        return f"LOO {self.elpd:.1f} +- {self.se:.1f}{warning}"


def summary(draws: "xr.Dataset") -> "pd.DataFrame":
    """Mean, standard deviation, interval, effective sample sizes and r-hat of each variable (dims chain, draw, ...)."""
    return arviz().summary(draws)


def predictive_loo(posterior: Any, data: Data, *, key: PRNGKeyArray | None = None, num_draws: int = 500) -> Loo:
    """Pareto-smoothed leave-one-out prediction of the transitions of `data`; only differences between priors matter.

    Raises:
        ValueError, TypeError: see `to_arviz`.
    """
    tree = to_arviz(posterior, num_draws=num_draws, key=key, log_likelihood="transition", data=data)
    with warnings.catch_warnings():
        # What ArviZ warns of is in the answer: `share_unreliable`.
        warnings.simplefilter("ignore", UserWarning)
        result = arviz().loo(tree, pointwise=True, reff=1.0)
    elpd = result.elpd if generation() >= 1 else result.elpd_loo
    share = float(np.mean(np.asarray(result.pareto_k) > LARGE_PARETO_K))
    return Loo(float(elpd), float(result.se), share)


def save_draws(tree: Any, path: str | Path) -> None:
    """Write what `to_arviz` made as NetCDF, whole or not at all; `from_netcdf` of either ArviZ reads it."""
    write_beside(path, lambda beside: tree.to_netcdf(str(beside), engine="h5netcdf"))
