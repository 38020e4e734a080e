"""Table and figure of a summary of regret of [BMRL19] (Markou and Rasmussen 2019), beside the published numbers.

A mean agrees with the published one where their difference is within 2.58 sqrt((s^2 + s_p^2) / 10) + .005: the 99 %
interval of the difference of two means over 10 seeds each, and the precision of the reading. The published oracle meets
other random numbers than its agent, which only s_p depends on; ours uses the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayes_mdp.experiments.results import NORMAL_QUANTILE, half_width
from reproductions.bmrl.published_regret import READING, SEEDS, Published
from reproductions.bmrl.q_evolution import draw_evolution
from reproductions.bmrl.summary_runs import METHODS
from reproductions.reproduction import Row, mean_row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

COLOURS = {"q_learning": "tab:red", "bql": "tab:blue", "psrl": "tab:green", "ube": "tab:purple", "mm": "tab:orange"}
_LEVEL = 0.99


def band_of(published: tuple[float, float], samples: Any) -> tuple[float, float]:
    """Where our mean over `samples` [seed] must lie to agree with a `published` (mean, standard deviation).

    With one seed of ours, its standard deviation is taken to be the published one.
    """
    mean, sd = published
    ours = np.var(samples, ddof=1) / len(samples) if len(samples) > 1 else sd**2
    half = NORMAL_QUANTILE[_LEVEL] * np.sqrt(sd**2 / SEEDS + ours) + READING
    return float(mean - half), float(mean + half)


@dataclass(frozen=True)
class Table:
    """A published summary.

    Args:
        published: method -> size -> (mean, standard deviation).
        size_name: the dimension of the sizes in a Dataset of `summary`.
        symbol: of a size, in the rows.
        judged: sizes with a verdict.
        title: of the axis of the sizes.
    """

    published: Published
    size_name: str
    symbol: str
    judged: Sequence[int]
    title: str


def summary_rows(result: "xr.Dataset", table: Table) -> list[Row]:
    """The table of a Dataset of `summary`: every mean, how many agree, what the error does.

    Verdicts: of methods without a model, and of methods with the error, on each of the `judged` sizes; of these and of
    the methods without the error, on the number of all published sizes that agree, where a size that was not played can
    be either. The rest is for orientation.
    """
    names = [str(name) for name in result["agent"].to_numpy()]
    rows = [row for name in names for row in _method_rows(result, table, name)]
    rows += [_agreeing(result, table, name) for name in names if not METHODS[name].held]
    return rows + [row for name in names if f"{name}_error" in names for row in _effects(result, table, name)]


def _sizes(result: "xr.Dataset", size_name: str) -> list[int]:
    return [int(size) for size in result[size_name].to_numpy()]


def _samples(result: "xr.Dataset", size_name: str, name: str, size: int) -> np.ndarray:
    return result["regret"].sel({"agent": name, size_name: size}).to_numpy()


def _method_rows(result: "xr.Dataset", table: Table, name: str) -> list[Row]:
    method, rows = METHODS[name], []
    for size in _sizes(result, table.size_name):
        samples, beside = _samples(result, table.size_name, name, size), table.published[method.beside].get(size)
        asked = beside is not None and method.error != 0.0 and size in table.judged
        band = band_of(beside, samples) if asked and beside is not None else None
        known = None if beside is None else beside[0]
        rows.append(mean_row(f"{method.label}, {table.symbol} = {size}", known, samples, band))
    return rows


def _agreeing(result: "xr.Dataset", table: Table, name: str) -> Row:
    """How many of the published sizes agree; half of those that were not played, and an interval of all of them."""
    wanted, played = table.published[METHODS[name].beside], _sizes(result, table.size_name)
    agree = 0
    for size in set(wanted) & set(played):
        samples = _samples(result, table.size_name, name, size)
        low, high = band_of(wanted[size], samples)
        agree += bool(low <= samples.mean() <= high)
    open_ = len(set(wanted) - set(played)) / 2
    number = float(len(wanted))
    return Row(f"{METHODS[name].label}: sizes that agree", number, agree + open_, open_, (number, number))


def _effects(result: "xr.Dataset", table: Table, name: str) -> list[Row]:
    """What the error adds to the regret, seeds paired."""
    return [
        mean_row(
            f"{METHODS[name].label}: added by the error, {table.symbol} = {size}",
            None,
            _samples(result, table.size_name, f"{name}_error", size) - _samples(result, table.size_name, name, size),
        )
        for size in _sizes(result, table.size_name)
    ]


def draw_summary(result: "xr.Dataset", table: Table, pairs: Sequence[tuple[int, int]] = ()) -> "Figure":
    """Regret over size with and without the error, published values as crosses; below, Q of `pairs` over time."""
    from matplotlib.figure import Figure

    watched = [name for name in _one_of_each(result) if "q_mean" in result]
    drawing = Figure(figsize=(13.0, 8.0 if watched else 4.6), layout="constrained")
    halves: Any = drawing.subfigures(2, 1, height_ratios=(1.25, 1.0)) if watched else (drawing, None)
    above, below = halves
    panels: Any = above.subplots(1, 2, sharey=True)
    for axes, error in zip(panels, (1.0, 0.0), strict=True):
        _regret_panel(axes, result, table, error)
        axes.set_title("with the error of the published code" if error else "without the error")
        axes.set_xlabel(table.title)
    panels[0].set_ylabel("regret / reward of the oracle")
    panels[0].legend(fontsize=8, ncols=2)
    seeds = result.sizes["seed"]
    drawing.suptitle(f"Dots: mean of {seeds} seeds, 95 % interval; crosses: published, 1 standard deviation")
    if below is not None:
        axes = np.atleast_1d(below.subplots(1, len(watched)))
        for panel, name in zip(axes, watched, strict=True):
            draw_evolution(panel, result, name, list(pairs), METHODS[name].label)
        axes[0].set_ylabel("Q")
        axes[0].legend(fontsize=7)
        where = f"{table.size_name} = {int(result['watched'])}"
        below.suptitle(f"Q(state, action) that the first seed acts by, 95 %; dashed: optimal ({where})", fontsize=10)
    return drawing


def _one_of_each(result: "xr.Dataset") -> list[str]:
    """The agents whose evolution is drawn: with the error where there are both."""
    names = [str(name) for name in result["agent"].to_numpy()]
    return [name for name in names if not METHODS[name].held and f"{name}_error" not in names]


def _regret_panel(axes: Any, result: "xr.Dataset", table: Table, error: float) -> None:
    sizes = np.array(_sizes(result, table.size_name))
    all_sizes = sorted({size for known in table.published.values() for size in known})
    unit = 0.07 * (all_sizes[1] - all_sizes[0])
    for number, (beside, colour) in enumerate(COLOURS.items()):
        known = table.published[beside]
        shift = 2.0 * unit * (number - 2)
        mean, sd = np.array(list(known.values())).T
        axes.errorbar(np.array(list(known)) + shift - unit / 2, mean, sd, color=colour, fmt="x", alpha=0.6, capsize=2)
        for name in map(str, result["agent"].to_numpy()):
            method = METHODS[name]
            if method.beside != beside or method.held or method.error not in (None, error):
                continue
            regret = result["regret"].sel(agent=name).to_numpy()
            half = half_width(regret.T) if regret.shape[-1] > 1 else np.zeros(len(sizes))
            where, label = sizes + shift + unit / 2, method.label.split(",")[0]
            axes.errorbar(where, regret.mean(-1), half, color=colour, fmt="o", markersize=4, capsize=3, label=label)
    axes.set_xticks(all_sizes)
