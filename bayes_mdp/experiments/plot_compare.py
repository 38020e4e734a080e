"""The figure of `compare`: who is best and how sure that is, on which problem, how often how good."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bayes_mdp.experiments.compare_report import order_of
from bayes_mdp.mdp.validation import check_count, check_dataset

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

NUM_PROFILES = 8


def plot_compare(result: "xr.Dataset", *, num_profiles: int = NUM_PROFILES) -> "Figure":
    """Left: interquartile means with intervals; middle: mean score on each problem; right: performance profiles.

    Args:
        result: what `compare` returned, or `load_result` read.
        num_profiles: profiles are drawn of so many agents with the largest interquartile means.
    """
    check_dataset("result", result, "score", "rank")
    check_count("num_profiles", num_profiles, 0)
    from matplotlib.figure import Figure

    names = order_of(result)
    result = result.sel(agent=names)
    envs = result.sizes["env"]
    height = max(4.2, 0.27 * len(names) + 1.6)
    drawing = Figure(figsize=(10.0 + 0.75 * envs, height), layout="constrained")
    left, middle, right = drawing.subplots(1, 3, width_ratios=[4.0, 0.75 * envs + 1.0, 4.6])
    _intervals(left, result, names)
    _table(drawing, middle, result)
    _profiles(right, result, names[:num_profiles])
    drawing.suptitle(
        f"{len(names)} agents, {envs} problems, {result.sizes['seed']} seeds; score 0: random policy, 1: optimal",
        fontsize=11,
    )
    return drawing


def _intervals(axes: Any, result: "xr.Dataset", names: list[str]) -> None:
    places = np.arange(len(names))
    iqm, low, high = (result[f"aggregate{end}"].sel(statistic="iqm").to_numpy() for end in ("", "_low", "_high"))
    axes.barh(places, high - low, left=low, height=0.62, color="C0", alpha=0.3, linewidth=0)
    axes.plot(iqm, places, linestyle="", marker="|", markersize=11, markeredgewidth=2, color="C0")
    for place in places[np.isnan(iqm)]:
        axes.annotate("not ranked", (0.02, place), xycoords=("axes fraction", "data"), va="center", color="0.5")
    axes.set_yticks(places, names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.set_xlabel("score")
    axes.set_title("interquartile mean, 95 % interval", fontsize=10)


def _table(drawing: "Figure", axes: Any, result: "xr.Dataset") -> None:
    means = result["score"].mean("seed").to_numpy()
    image = axes.imshow(means, aspect="auto", cmap="viridis", vmin=0.0, vmax=1.0)
    for (row, column), value in np.ndenumerate(means):
        shown = "-" if np.isnan(value) else f"{value:.2f}"
        colour = "black" if np.isnan(value) or value > 0.6 else "white"
        axes.text(column, row, shown, ha="center", va="center", fontsize=7, color=colour)
    names = [str(env) for env in result["env"].to_numpy()]
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks([])
    axes.set_title("mean score", fontsize=10)
    drawing.colorbar(image, ax=axes, fraction=0.06, extend="both")


def _profiles(axes: Any, result: "xr.Dataset", names: list[str]) -> None:
    tau = result["threshold"].to_numpy()
    for number, name in enumerate(names):
        middle, low, high = (result[f"profile{end}"].sel(agent=name).to_numpy() for end in ("", "_low", "_high"))
        if np.isnan(middle).any():
            continue
        style = "-" if number < 10 else "--"
        axes.plot(tau, middle, label=name, color=f"C{number % 10}", linestyle=style, linewidth=1.5)
        axes.fill_between(tau, low, high, color=f"C{number % 10}", alpha=0.12, linewidth=0)
    axes.set_xlim(tau[0], tau[-1])
    axes.set_ylim(0, 1.02)
    axes.grid(color="0.9")
    axes.set_xlabel("score threshold")
    axes.set_ylabel("fraction of runs above")
    first = "" if len(names) == result.sizes["agent"] else f" of the first {len(names)}"
    axes.set_title(f"performance profiles{first}", fontsize=10)
    if axes.lines:
        axes.legend(fontsize=8, loc="lower left")
