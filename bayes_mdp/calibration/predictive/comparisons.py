"""A statistic of data beside that of replicates: p-values, and how several are listed.

The p-value of a statistic T is P(T(replicate, draw) >= T(data, draw)) over draws and replicates, ties counted half
(Gelman, Meng and Stern 1996). It is close to 1/2 if the model fits, close to 0 or 1 if it does not. Under a true model
it is not uniform but concentrated around 1/2: a check by it is conservative, if replicates are free as the data were.

The overall p-value counts the data among the replicates, (1 + hits) / (1 + N) (Phipson and Smyth 2010, *Permutation
p-values should never be zero*): of data that are exchangeable with their replicates it is below any level with at most
that probability, whatever N.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayes_mdp.utils.layout import Part, Section, Table
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.typing import ArrayLike

Axes = tuple[tuple[str, ...], Mapping[str, Sequence[Hashable] | np.ndarray]]
"""Names of the axes of a statistic, and their coordinates."""

OWN = "a model in which this statistic is free to be what it is in the data"
"""What to try where a statistic of the user's own is surprising."""

LEVEL = 0.01
"""Two-sided p-values below this are called surprising."""


class Comparison(NamedTuple):
    """One statistic. Its shape `cells` is () for a number, [*H S A] for one per pair; nan where it is undefined.

    Args:
        observed: [N *cells], of the data with each draw (all equal unless the statistic depends on the draw).
        replicated: [N *cells], of the replicate of each draw.
        p: [*cells], P(replicated >= observed), ties counted half.
        p_overall: two-sided p-value of the whole statistic: of the number, or of the largest standardised deviation
            over pairs, compared with the same maximum in the replicates.
        error: Monte Carlo standard error of `p_overall`.
    """

    observed: Float[np.ndarray, "N *cells"]
    replicated: Float[np.ndarray, "N *cells"]
    p: Float[np.ndarray, "*cells"]
    p_overall: float
    error: float

    @property
    def is_large(self) -> bool:
        """Whether it is larger in the data than in the replicates on average, in the worst cell."""
        worst_cell = (slice(None), *self.worst)
        return bool(self.observed[worst_cell].mean() > self.replicated[worst_cell].mean())

    @property
    def worst(self) -> tuple[int, ...]:
        """Index of the cell with the largest standardised deviation; () for a number."""
        if self.p.ndim == 0:
            return ()
        # Standardised: cells of several scales are compared.
        distance = np.abs(_standardise(self.observed, self.observed, self.replicated)).mean(0)
        return tuple(int(i) for i in np.unravel_index(np.nanargmax(np.nan_to_num(distance)), distance.shape))


def surprises(comparisons: Mapping[str, Comparison]) -> list[str]:
    """Names of the statistics with a two-sided p-value below 1 %."""
    return [name for name, comparison in comparisons.items() if comparison.p_overall < LEVEL]


def comparison_table(
    comparisons: Mapping[str, Comparison], axes_of: Callable[[tuple[int, ...]], Axes | None] = lambda shape: None
) -> xr.Dataset:
    """Per statistic, along `quantity`: observed, mean and sd of the replicates, p.

    Args:
        comparisons: by name of the statistic.
        axes_of: shape of a statistic -> its axes; None: they have numbers.
    """
    made = {}
    for name, comparison in comparisons.items():
        # Means over draws: a discrepancy depends on the draw, in the data too.
        stack = [comparison.observed.mean(0), comparison.replicated.mean(0), comparison.replicated.std(0), comparison.p]
        dims, coords = axes_of(comparison.p.shape) or (tuple(f"{name}_dim_{i}" for i in range(comparison.p.ndim)), {})
        coords = {**coords, "quantity": ["observed", "replicated_mean", "replicated_sd", "p"]}
        attributes = {"p_overall": comparison.p_overall, "p_overall_error": comparison.error}
        made[name] = xr.DataArray(np.stack(stack), coords, ("quantity", *dims), attrs=attributes)
    return xr.Dataset(made)


def lay_out_comparisons(
    title: str,
    comparisons: Mapping[str, Comparison],
    where: Callable[[tuple[int, ...]], str],
    verdict: str,
    next_steps: Mapping[str, tuple[str, str]],
) -> Section:
    """`title`, a row for each statistic, and those that are surprising.

    Args:
        title: the first line.
        comparisons: by name of the statistic.
        where: index of a cell -> the cell in words; "" for ().
        verdict: the sentence after the surprising ones.
        next_steps: statistic -> what to try where it is surprisingly large, and small; `OWN` of those not in it.
    """
    rows = []
    for name, comparison in comparisons.items():
        worst_cell = (slice(None), *comparison.worst)
        # Of the cell that deviates most.
        low, high = np.quantile(comparison.replicated[worst_cell], [0.05, 0.95])
        rows.append(
            (
                name,
                f"{comparison.observed[worst_cell].mean():.4g}",
                f"{low:.4g} to {high:.4g}",
                f"{comparison.p_overall:.3f} +- {comparison.error:.3f}",
                where(comparison.worst).strip(),
            )
        )
    surprising = surprises(comparisons)
    parts: list[Part] = [Table(("statistic", "observed", "90 % of replicates", "p", ""), rows, (0, 4))]
    if surprising:
        names = ", ".join(surprising)
        parts.append(f"Surprising at the 1 % level: {names}. {verdict} {see('how-to/check-a-posterior')}")
    else:
        parts.append("No statistic is surprising at the 1 % level.")
    for name in surprising:
        large, small = next_steps.get(name, (OWN, OWN))
        parts.append(f"{name}, what to try: {large if comparisons[name].is_large else small}")
    return Section(title, parts)


def stack_statistic(name: str, values: Sequence[ArrayLike]) -> Float[np.ndarray, "N *cells"]:
    """The values of the statistic `name` for each draw.

    Raises:
        ValueError: they have several shapes.
    """
    arrays = [np.asarray(value, float) for value in values]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ValueError(f"statistics[{name!r}] has shapes {', '.join(map(str, sorted(shapes)))}, expected one shape")
    return np.stack(arrays)


def compare_statistic(observed: np.ndarray, replicated: np.ndarray, num_chains: int) -> Comparison:
    """A statistic of the data with that of replicates, [N *cells] each; draws of `num_chains`, one after the other."""
    exists = ~np.isnan(observed).any(0)
    # A cell where the data have no value has no p-value.
    p = np.where(exists, _exceeds(replicated, observed).mean(0), np.nan)
    if p.ndim == 0:
        # One number: two-sided, twice the smaller tail.
        hits = _exceeds(replicated, observed)
        overall = min(1.0, 2.0 * min(_with_data(hits), _with_data(1.0 - hits)))
        return Comparison(observed, replicated, p, overall, 2.0 * _error(hits, num_chains))
    # Several cells: the largest deviation from the mean of the replicates, in their standard deviations.
    largest, of_data = (
        np.nan_to_num(np.abs(_standardise(x, observed, replicated))).reshape(len(x), -1).max(1, initial=0.0)
        for x in (replicated, observed)
    )
    # Deviations have no sign: one tail.
    hits = _exceeds(largest, of_data)
    return Comparison(observed, replicated, p, _with_data(hits), _error(hits, num_chains))


def _with_data(hits: Float[np.ndarray, " N"]) -> float:
    """The share of hits, the data themselves counted as one."""
    return float((1.0 + hits.sum()) / (1.0 + len(hits)))


def _exceeds(one: np.ndarray, other: np.ndarray) -> Float[np.ndarray, "N *cells"]:
    """1 where greater, 1/2 where equal."""
    close = np.isclose(one, other, rtol=1e-9, atol=1e-12)
    return np.where(close, 0.5, one > other)


def _standardise(values: np.ndarray, observed: np.ndarray, replicated: np.ndarray) -> Float[np.ndarray, "N *cells"]:
    """In standard deviations from the mean of the replicates and, if it does not depend on the draw, the data.

    With the data, these are treated as the replicates are: an event that is rare in a cell has the same deviation
    wherever it comes up. nan where nothing varies.
    """
    # The data are one of the points, unless they differ from draw to draw.
    fixed = bool(np.all((observed == observed[:1]) | np.isnan(observed)))
    reference = np.concatenate([replicated, observed[:1]]) if fixed else replicated
    mean, sd = reference.mean(0), reference.std(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (values - mean) / sd


def _error(hits: Float[np.ndarray, " N"], num_chains: int) -> float:
    """Standard error of the mean: binomial, or that between the chains if it is larger."""
    # Off 0 and 1, where the binomial error would vanish.
    p = (hits.sum() + 0.5) / (len(hits) + 1)
    binomial = np.sqrt(p * (1 - p) / len(hits))
    if num_chains == 1:
        return float(binomial)
    # Chains that disagree by more than chance have the larger error.
    between = hits.reshape(num_chains, -1).mean(1).std(ddof=1) / np.sqrt(num_chains)
    return float(max(binomial, between))
