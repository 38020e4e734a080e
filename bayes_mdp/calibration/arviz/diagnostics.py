"""Diagnostics of draws and predictions by ArviZ, the same under ArviZ 0.x and 1.x. Host-side."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.arviz.export import dataset
from bayes_mdp.calibration.arviz.generation import Tree, arviz, smooth_weights
from bayes_mdp.calibration.belief.draws import check_posterior
from bayes_mdp.calibration.belief.observed_data import Data
from bayes_mdp.inference.draws.chains import (
    MAX_R_HAT,
    MIN_ESS,
    MOST_VALUES,
    Chains,
    Scalars,
    effective_size,
    split_r_hat,
)
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.renamed import old_attribute
from bayes_mdp.utils.files import read_with_checksum, write_with_checksum
from bayes_mdp.utils.layout import Bullets, Part, Section, Table, as_html, as_text
from bayes_mdp.utils.messages import count_of, see

LARGE_PARETO_K = 0.7
MOST_ASKED = 200  # elements of a table that are given to ArviZ, which takes time for each
COLUMNS = ("r_hat", "ess_bulk", "ess_tail", "moved", "elements")


class Loo(NamedTuple):
    """Leave-one-out prediction of single transitions.

    Args:
        elpd: expected log predictive density, summed over the transitions, in nats; larger is better.
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
    """Convergence diagnostics of the draws behind a posterior; print it.

    Args:
        method: how the posterior was inferred.
        sites: a row for each latent site, and for the `transition_probs` and `reward_mean` that follow from the draws:
            `r_hat` (rank-normalised, the largest of its elements), `ess_bulk` and `ess_tail` (the smallest), by ArviZ;
            `moved`, how many of its `elements` had more than one value. Discrete sites are replaced by the indicators
            of their values. None: no chains were run.
        num_draws: of all chains, or components, or nodes of a grid; None: no draws.
        divergences: diverging draws; None: not known.
        weights_ess: effective sample size of the weights, of `num_draws`; None: no draws, or nodes of a grid.
        problems: what is wrong and what to do, one sentence each.
        notes: what the draws cannot show (discrete sites that never moved), one sentence each.
    """

    method: str
    sites: pd.DataFrame | None
    num_draws: int | None
    divergences: int | None
    weights_ess: float | None
    problems: list[str]
    notes: list[str]

    trustworthy = old_attribute("diagnosis.trustworthy is not diagnosis.problems", lambda self: not self.problems)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """In words."""
        if self.num_draws is None:
            return Section(f"{self.method}: closed form, no Monte Carlo error. Nothing to diagnose.")
        if self.weights_ess is None:
            title = f"{self.method}: {self.num_draws} nodes of a grid, no Monte Carlo error"
        else:
            size = f"effective sample size of the weights {self.weights_ess:.4g}"
            title = f"{self.method}: {self.num_draws} draws, {size}"
        if self.divergences is not None:
            title += f", {count_of(self.divergences, 'divergence')}"
        parts: list[Part] = []
        if self.sites is not None:
            cells = [
                [str(name), *(f"{x:.4g}" for x in row)]
                for name, row in zip(self.sites.index, self.sites.to_numpy(), strict=True)
            ]
            parts.append(Table(["", *map(str, self.sites.columns)], cells))
        elif self.method in ("svi", "laplace"):
            parts.append("an approximation by one optimiser run: no chains to compare")
        parts += [Bullets([*self.problems, *self.notes])] if self.problems or self.notes else []
        if self.problems:
            parts.append(f"What each problem means, and what to try: {see('how-to/check-a-posterior')}")
        else:
            parts.append("No other problem was seen." if self.notes else "No problem was seen.")
        return Section(title, parts)


def diagnose(posterior: Fitted) -> Diagnosis:
    """R-hat, effective sample sizes and divergences of a sampled posterior, and what they mean.

    All scalars that follow from the draws are examined: the elements of all latent sites, the transition probabilities
    and the mean rewards (of a collapsed posterior: their expectations given the hyperparameters). Of tables with more
    than 200 elements ArviZ is given the 200 that are worst by split r-hat or effective sample size.

    Args:
        posterior: as `infer` returns it, or a mixture.

    Raises:
        TypeError: no posterior of this package.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> print(bm.calibration.diagnose(posterior))
        exact: closed form, no Monte Carlo error. Nothing to diagnose.
    """
    check_posterior(posterior, 1)
    # Without weights there are no draws: a closed form.
    if posterior.log_weights is None:
        return Diagnosis(posterior.method, None, None, None, None, [], [])
    weighted: Any = posterior
    chains = posterior.chains
    diverging = None if chains is None or chains.diverging is None else int(np.sum(chains.diverging))
    sites = None if chains is None else _site_table(chains, posterior.derived_tables())
    size = None if posterior.on_grid else float(weighted.effective_sample_size())
    problems = posterior.problems()
    # What the posterior says of its chains is not said twice.
    if sites is not None and not any("r-hat" in text or "effective sample size of" in text for text in problems):
        problems = [*problems, *_by_arviz(sites)]
    return Diagnosis(posterior.method, sites, len(posterior.log_weights), diverging, size, problems, posterior.notes())


def _site_table(chains: Chains, tables: Mapping[str, Scalars]) -> pd.DataFrame:
    """A row for each site and table, by ArviZ from the scalars that moved."""
    rows = {name: _site_row(*_scalars(chains, name)) for name in chains.draws}
    # A site that is a table already has its row.
    rows |= {name: _table_row(chains, table) for name, table in tables.items() if name not in rows}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))


def _scalars(chains: Chains, name: str) -> tuple[np.ndarray, int, int]:
    """The scalars [C N e] of a site that moved, its number of elements, and how many of them moved."""
    values = np.asarray(chains.draws[name], np.float64).reshape(chains.num_chains, chains.num_samples, -1)
    moved = (values != values[:1, :1]).any((0, 1))
    moving = values[..., moved]
    # A discrete site with few values is a label: an indicator for each value takes its place.
    levels = np.unique(moving) if name in chains.discrete else ()
    if 2 < len(levels) <= MOST_VALUES:
        moving = np.concatenate([(moving == level).astype(np.float64) for level in levels], axis=-1)
        moving = moving[..., (moving != moving[:1, :1]).any((0, 1))]
    return moving, values.shape[-1], int(moved.sum())


def _table_row(chains: Chains, table: Scalars) -> tuple[float, ...]:
    number = chains.num_chains * chains.num_samples
    r_hat, size = table.measure(split_r_hat, number), table.measure(effective_size, number)
    # Elements that never move have neither diagnostic.
    moved = np.flatnonzero(~np.isnan(size) | ~np.isnan(r_hat))
    examined = moved
    # Half of the elements given to ArviZ have the largest split r-hat, half the smallest effective sample size.
    if len(moved) > MOST_ASKED:
        by_r_hat, by_size = moved[np.argsort(-r_hat[moved])], moved[np.argsort(size[moved])]
        examined = np.unique(np.concatenate([by_r_hat[: MOST_ASKED // 2], by_size[: MOST_ASKED // 2]]))
    return _site_row(table.steady(table.places[examined]), len(table.places), len(moved))


def _site_row(values: np.ndarray, elements: int, moved: int) -> tuple[float, ...]:
    if not values.shape[-1]:
        return (np.nan, np.nan, np.nan, moved, elements)
    data = xr.Dataset({"x": (("chain", "draw", "element"), values)})
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # `problems` reports too few draws and chains that do not move.
        warnings.simplefilter("ignore")
        r_hat, bulk, tail = arviz().rhat(data), *(arviz().ess(data, method=m) for m in ("bulk", "tail"))
    return _worst(r_hat["x"], np.max), _worst(bulk["x"], np.min), _worst(tail["x"], np.min), moved, elements


def _worst(values: xr.DataArray, reduce: Callable[[np.ndarray], float]) -> float:
    array = np.asarray(values, float)
    # nan: of an element that does not move in some chain.
    array = array[~np.isnan(array)]
    return float(reduce(array)) if array.size else float("nan")


def _by_arviz(sites: pd.DataFrame) -> list[str]:
    """Problems that only the rank-normalised diagnostics of ArviZ show."""
    # A diagnostic that is nan says nothing: it is never the worst.
    worst = sites.loc[sites["r_hat"].fillna(0.0).idxmax()]
    if worst["r_hat"] > MAX_R_HAT:
        return [
            f"the rank-normalised r-hat of {worst.name!r} is {worst['r_hat']:.3f}, above {MAX_R_HAT}: the chains "
            "differ in scale or tails; give more warm-up and more draws (num_warmup=, num_samples=), or reparametrise"
        ]
    least = sites.loc[sites["ess_bulk"].fillna(np.inf).idxmin()]
    if least["ess_bulk"] < MIN_ESS:
        return [
            f"the effective sample size of {least.name!r} is {least['ess_bulk']:.0f}, below {MIN_ESS:.0f}: give more "
            "draws (num_samples=), or reparametrise"
        ]
    return []


def summary(draws: xr.Dataset) -> pd.DataFrame:
    """Mean, standard deviation, interval, effective sample sizes and r-hat of each variable.

    Args:
        draws: variables with dimensions chain and draw, then any others.
    """
    return arviz().summary(draws)


def predictive_loo(posterior: Fitted, data: Data, *, key: PRNGKeyArray | None = None, num_draws: int = 500) -> Loo:
    """Leave-one-out prediction of transitions (PSIS-LOO), to compare priors: only differences between them matter.

    Args:
        posterior: as `infer` returns it, or a mixture.
        data: the transitions that it was inferred from.
        key: of the draws; None: `jax.random.key(0)`.
        num_draws: draws of the posterior.

    Raises:
        ValueError, TypeError: as `to_arviz`.
    """
    terms = dataset(posterior, "log_likelihood", num_draws=num_draws, key=key, log_likelihood="transition", data=data)
    values = terms["observed_transition"].to_numpy().reshape(-1, terms.sizes["transition"])
    # The same transition again has the same terms, which are smoothed once.
    distinct, copy_of = np.unique(values.T, axis=0, return_inverse=True)
    # Leaving an observation out divides the weight of a draw by its likelihood.
    log_weights, pareto_k = smooth_weights(-distinct)
    # elpd_i = log sum_n w_n p(y_i | draw n) with weights near 1 / p(y_i | draw n) [LOO17].
    elpd = np.logaddexp.reduce(log_weights + distinct, axis=-1)[copy_of]
    share = float(np.mean(pareto_k[copy_of] > LARGE_PARETO_K))
    # sqrt(T var): the standard error of a sum of T terms [LOO17].
    return Loo(float(elpd.sum()), float((elpd.size * elpd.var()) ** 0.5), share)


def save_draws(tree: Tree, path: str | Path) -> None:
    """Write the result of `to_arviz` as NetCDF, atomically; `from_netcdf` of either ArviZ reads it.

    Args:
        tree: as `to_arviz` returns it.
        path: of the file.

    Raises:
        ValueError: `path` is a folder, a device or a pipe.
        OSError: the file cannot be written.
    """
    write_with_checksum(path, lambda beside: tree.to_netcdf(str(beside), engine="h5netcdf"))


def load_draws(path: str | Path) -> Tree:
    """Read a file of `save_draws`.

    Args:
        path: of the file.

    Returns:
        The groups that `to_arviz` made.

    Raises:
        ValueError: the file is truncated or altered (its checksum does not fit), or not of `save_draws`.
        OSError: it cannot be read.
    """
    expected = "a whole NetCDF file that save wrote"
    read_with_checksum(path, expected)
    try:
        return arviz().from_netcdf(str(path), engine="h5netcdf")
    except Exception as error:  # HDF5 raises errors of many types
        raise ValueError(f"path is {str(path)!r}, which holds no draws, expected {expected}") from error
