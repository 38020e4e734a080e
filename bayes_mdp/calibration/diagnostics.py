"""ArviZ's own answers about draws and predictions, the same call on both generations. Host-side."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.beliefs import chains_of, check_posterior, method_of
from bayes_mdp.calibration.export import to_arviz
from bayes_mdp.calibration.generation import arviz, generation
from bayes_mdp.calibration.observed import Data
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.summary_sites import problems
from bayes_mdp.mdp.files import read_sealed, write_sealed

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


class Diagnosis(NamedTuple):
    """Whether the draws behind a posterior can be trusted; print it.

    Args:
        method: how the posterior was inferred.
        sites: a row for each latent site: `r_hat` (rank-normalised, the largest of its elements), `ess_bulk` and
            `ess_tail` (the smallest), by ArviZ; None where no chains were run.
        num_draws: of all chains, or components; None: no draws.
        divergences: diverging draws; None: not known.
        weights_ess: effective sample size of the weights, of `num_draws`; None: no draws.
        problems: one sentence each: what is wrong, what to do.
    """

    method: str
    sites: "pd.DataFrame | None"
    num_draws: int | None
    divergences: int | None
    weights_ess: float | None
    problems: list[str]

    @property
    def trustworthy(self) -> bool:
        """Whether no problem was seen."""
        return not self.problems

    def __str__(self) -> str:
        """In words."""
        if self.num_draws is None:
            return f"{self.method}: closed form, no Monte Carlo error. Nothing to diagnose."
        lines = [f"{self.method}: {self.num_draws} draws, effective sample size of the weights {self.weights_ess:.4g}"]
        if self.divergences is not None:
            lines[0] += f", {self.divergences} divergences"
        if self.sites is not None:
            lines += ["  " + line for line in self.sites.to_string(float_format=lambda x: f"{x:.4g}").splitlines()]
        elif self.method in ("svi", "laplace"):
            lines.append("  an approximation by one optimiser run: no chains to compare")
        lines += [f"  - {text}" for text in self.problems] or ["No problem was seen."]
        return "\n".join(lines)


def diagnose(posterior: Any) -> Diagnosis:
    """R-hat, effective sample sizes and divergences of a sampled fit, and what they mean.

    Args:
        posterior: as `infer` returns it, or a mixture.

    Raises:
        TypeError: what is no posterior of this package.
    """
    check_posterior(posterior, 1)
    if isinstance(posterior, ConjugatePosterior):
        return Diagnosis(posterior.method, None, None, None, None, [])
    chains = chains_of(posterior)
    diverging = None if chains is None or chains.diverging is None else int(np.sum(chains.diverging))
    sites = None if chains is None else _site_table(chains)
    size = float(posterior.effective_sample_size())
    return Diagnosis(method_of(posterior), sites, posterior.weights.shape[0], diverging, size, problems(posterior))


def _site_table(chains: Any) -> "pd.DataFrame":
    import pandas as pd
    import xarray as xr

    draws = {}
    for name, values in chains.draws.items():
        if name not in chains.discrete:
            flat = np.asarray(values, np.float64).reshape(chains.num_chains, chains.num_samples, -1)
            draws[name] = (("chain", "draw", f"{name}_element"), flat)
    data = xr.Dataset(draws)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # What is wrong with a site that does not vary is in `problems`.
        warnings.simplefilter("ignore")
        r_hat, bulk, tail = arviz().rhat(data), *(arviz().ess(data, method=m) for m in ("bulk", "tail"))
    rows = {
        name: {
            "r_hat": _worst(r_hat[name], np.nanmax),
            "ess_bulk": _worst(bulk[name], np.nanmin),
            "ess_tail": _worst(tail[name], np.nanmin),
        }
        for name in draws
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=["r_hat", "ess_bulk", "ess_tail"])


def _worst(values: Any, reduce: Any) -> float:
    array = np.asarray(values, float)
    return float(reduce(array)) if np.isfinite(array).any() else float("nan")


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
    """Write what `to_arviz` made as NetCDF, whole or not at all; `from_netcdf` of either ArviZ reads it.

    Raises:
        ValueError: there is a folder, a device or a pipe. OSError: the file cannot be written.
    """
    write_sealed(path, lambda beside: tree.to_netcdf(str(beside), engine="h5netcdf"))


def load_draws(path: str | Path) -> Any:
    """What `save_draws` wrote, as ArviZ reads it.

    Raises:
        ValueError: the file is cut, altered (its checksum does not fit), or not ours. OSError: it cannot be read.
    """
    expected = "a whole NetCDF file that save_draws wrote"
    read_sealed(path, expected)
    try:
        return arviz().from_netcdf(str(path), engine="h5netcdf")
    except Exception as error:  # HDF5 raises what it likes
        raise ValueError(f"path is {str(path)!r}, which holds no draws, expected {expected}") from error
