"""Figures of a check, one function each, and all of them (`plot_check`). matplotlib is loaded when one is drawn.

The quantities with the smallest p-values are drawn in colour and named, the others in grey.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy import stats

from bayes_mdp.calibration.checks.check_result import Check
from bayes_mdp.calibration.simulation_based.ecdf import simultaneous_band
from bayes_mdp.utils.validation import check_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 4
MOST_POINTS = 100  # of one quantity, if each has an error bar
GREY = "0.75"
BAND = {"color": "tab:blue", "alpha": 0.15, "linewidth": 0}
LEVEL = 0.95


def plot_check(check: Check) -> "Figure":
    """All figures: recovery, ECDF difference, coverage, z-score, joint score, and the reliability of P(optimal).

    Args:
        check: result of `check`.

    Raises:
        TypeError: no `Check`.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> result = bm.check(jax.random.key(0), prior, space, num_simulations=20, num_transitions=10)
        >>> bm.plot_check(result).savefig("check.png")
    """
    check_type("check", check, Check, "a Check")
    from bayes_mdp.utils.figures import NotebookFigure

    pictures = [plot_recovery, plot_ecdf, plot_coverage, plot_z_score]
    pictures += [plot_joint] if "joint_rank" in check.dataset else []
    pictures += [plot_reliability] if "optimal" in check.dataset else []
    figure = NotebookFigure(figsize=(13.5, 8.0), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    for draw, where in zip(pictures, axes, strict=False):
        draw(check, axes=where)
    for unused in axes[len(pictures) :]:
        unused.remove()
    state = "calibrated" if check.calibrated else "NOT CALIBRATED"
    attrs, number = check.dataset.attrs, check.dataset.sizes["simulation"]
    figure.suptitle(f"{attrs['prior']}, inference {attrs['method']}, {number} truths from {attrs['source']}: {state}")
    return figure


def plot_recovery(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """Posterior means and intervals against the truths, in standard deviations of the truths from their mean."""
    figure, where = _place(axes)
    limits = [0.0, 0.0]
    for name, color, data in _quantities(check, only_named=True):
        mean, sd = float(data["truth"].mean()), float(data["truth"].std(ddof=1))
        shown = slice(MOST_POINTS)
        names = ("truth", "posterior_mean", "interval_low", "interval_high")
        truth, middle, low, high = ((data[each].to_numpy()[shown] - mean) / sd for each in names)
        bars = np.maximum([middle - low, high - middle], 0.0)
        where.errorbar(truth, middle, bars, fmt="o", color=color, ms=2.5, elinewidth=0.5, alpha=0.6, label=name)
        limits = [min(limits[0], low.min(), truth.min()), max(limits[1], high.max(), truth.max())]
    where.plot(limits, limits, "k-", linewidth=0.8)
    probability = check.dataset["interval_low"].attrs["probability"]
    where.set(
        title=f"recovery: posterior mean, {probability:.0%} interval", xlabel="truth (prior sd)", ylabel="posterior"
    )
    where.legend(fontsize="small")
    return figure


def plot_ecdf(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """ECDF of the ranks minus that of uniform ranks, with the band of the test."""
    figure, where = _place(axes)
    num_draws, alarm = int(check.dataset.attrs["num_draws"]), check.dataset.attrs["false_alarm"]
    x = np.arange(1, num_draws + 2) / (num_draws + 1)
    number = check.dataset.sizes["simulation"]
    band = simultaneous_band(number, num_draws, alarm / len(check.p_values))
    where.fill_between(x, band.low / number - x, band.high / number - x, step="post", label="band", **BAND)
    for name, color, data in _quantities(check):
        where.step(x, _ecdf(data["rank"].to_numpy(), num_draws) - x, where="post", color=color, label=name, linewidth=1)
    if "joint_rank" in check.dataset:
        joint = _ecdf(check.dataset["joint_rank"].to_numpy(), num_draws) - x
        where.step(x, joint, "k--", where="post", label="joint", linewidth=1)
    where.axhline(0, color="k", linewidth=0.8)
    where.set(title="ranks: ECDF difference", xlabel="rank of the truth / draws", ylabel="ECDF - uniform", xlim=(0, 1))
    where.legend(fontsize="small")
    return figure


def plot_coverage(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """Fraction of simulations whose central interval holds the truth against its level, and the band of one level."""
    figure, where = _place(axes)
    number = check.dataset.sizes["simulation"]
    level = np.linspace(0.0, 1.0, 201)
    low, high = stats.binom.interval(LEVEL, number, level)
    where.fill_between(level, low / number, high / number, label=f"{LEVEL:.0%} at one level", **BAND)
    for name, color, data in _quantities(check):
        where.plot(data["level"], data["coverage"], ".-", color=color, label=name, linewidth=1, markersize=3)
    where.plot([0, 1], [0, 1], "k-", linewidth=0.8)
    where.set(title="coverage of central intervals", xlabel="nominal", ylabel="coverage", xlim=(0, 1), ylim=(0, 1))
    where.legend(fontsize="small", loc="upper left")
    return figure


def plot_z_score(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """z-score of the truth against contraction, a point for each simulation and quantity."""
    figure, where = _place(axes)
    for name, color, data in _quantities(check):
        where.plot(data["contraction"], data["z_score"], ".", color=color, label=name, markersize=3, alpha=0.6)
    for z in (-2, 2):
        where.axhline(z, color="k", linewidth=0.8, linestyle=":")
    where.axhline(0, color="k", linewidth=0.8)
    where.set(title="z-score and contraction (2 in 3 within 1)", xlabel="contraction", ylabel="(truth - mean) / sd")
    where.legend(fontsize="small")
    return figure


def plot_joint(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """Ranks of the truth's energy score among those of the draws: all quantities together.

    Raises:
        ValueError: the check has only one quantity that varies.
    """
    if "joint_rank" not in check.dataset:
        raise ValueError("check holds one quantity that varies, expected at least two for a joint score")
    figure, where = _place(axes)
    num_bins = 10
    rank = (check.dataset["joint_rank"].to_numpy() + 0.5) / (int(check.dataset.attrs["num_draws"]) + 1)
    number = len(rank)
    low, high = stats.binom.interval(LEVEL, number, 1 / num_bins)
    where.axhspan(low / number, high / number, label=f"{LEVEL:.0%} of one bar", **BAND)
    where.hist(
        rank, np.linspace(0, 1, num_bins + 1).tolist(), weights=np.full(number, 1 / number), color="0.4", rwidth=0.9
    )
    where.axhline(1 / num_bins, color="k", linewidth=0.8)
    p_value = float(check.dataset["joint_p_value"])
    where.set(
        title=f"joint energy score of the truth, p = {p_value:.2g}",
        xlabel="rank among the draws (left: too wide, right: too narrow or off)",
        ylabel="share of simulations",
        xlim=(0, 1),
    )
    where.legend(fontsize="small")
    return figure


def plot_reliability(check: Check, *, axes: "Axes | None" = None) -> "Figure":
    """How often an action was optimal against its posterior probability.

    Raises:
        ValueError: the check has no events of optimal actions.
    """
    if "optimal" not in check.dataset:
        raise ValueError("check holds no probabilities of optimal actions, expected those of an objective with actions")
    figure, where = _place(axes)
    names = ("forecast", "frequency", "error", "count")
    forecast, frequency, error, count = (check.dataset[f"reliability_{name}"].to_numpy() for name in names)
    bars = stats.norm.ppf((1 + LEVEL) / 2) * error
    where.errorbar(forecast, frequency, bars, fmt="o", color="tab:blue", label=f"{LEVEL:.0%} interval", capsize=2)
    where.bar(forecast, count / count.sum(), width=0.03, color=GREY, label="share of the forecasts")
    where.plot([0, 1], [0, 1], "k-", linewidth=0.8)
    score, expected = float(check.dataset["brier_score"]), float(check.dataset["brier_expected"])
    where.set(
        title=f"P(optimal): Brier score {score:.3f}, {expected:.3f} expected",
        xlabel="forecast",
        ylabel="frequency",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
    )
    where.legend(fontsize="small", loc="upper left")
    return figure


def _quantities(check: Check, *, only_named: bool = False) -> Iterator[tuple[str | None, str, xr.Dataset]]:
    """Label, colour and data of each quantity that varies; the named ones last, on top."""
    data = check.dataset
    order = np.argsort(np.where(data["varies"], data["p_value"], np.inf))[: int(data["varies"].sum())]
    named, others = order[:NAMED], order[NAMED:]
    for index in () if only_named else others:
        yield None, GREY, data.isel(quantity=index)
    for place, index in enumerate(named):
        yield str(data["quantity"].to_numpy()[index]), f"C{place}", data.isel(quantity=index)


def _ecdf(rank: np.ndarray, num_draws: int) -> np.ndarray:
    return np.cumsum(np.bincount(rank, minlength=num_draws + 1)) / len(rank)


def _place(axes: "Axes | None") -> "tuple[Figure, Axes]":
    """The figure and axes to draw in: a new figure, if no axes are given."""
    from bayes_mdp.utils.figures import place

    return place(axes, (6.4, 4.8))
