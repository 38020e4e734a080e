"""The leaderboard of `compare` in words and as a figure."""

from typing import TYPE_CHECKING

import numpy as np

from bayes_mdp.utils.validation import check_count, check_dataset

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NUM_PROFILES = 8


def order_of(result: "xr.Dataset") -> list[str]:
    """The agents by falling interquartile mean; those that are not ranked at the end, in their order."""
    iqm = result["aggregate"].sel(statistic="iqm").to_numpy()
    names = [str(name) for name in result["agent"].to_numpy()]
    return [names[i] for i in np.argsort(np.where(np.isnan(iqm), np.inf, -iqm), kind="stable")]


def describe_compare(result: "xr.Dataset") -> str:
    """The leaderboard as text: a line for each agent by falling interquartile mean, then what was refused, and why.

    Args:
        result: what `compare` returned, or `load_result` read.

    Raises:
        TypeError, ValueError: no dataset that `compare` returned.

    Example:
        >>> tasks = {
        ...     "chain": bm.experiments.Task(
        ...         bm.envs.chain(), bm.Discounted(0.9), 50, prior=bm.models.dirichlet_normal()
        ...     )
        ... }
        >>> agents = ["psrl", "epsilon_greedy_q"]
        >>> options = bm.RunOptions(progress=False)
        >>> result = bm.compare(agents, tasks, key=jax.random.key(0), num_seeds=2, options=options)
        >>> print(bm.describe_compare(result))
        2 agents on chain; 2 seeds each
        ...
    """
    check_dataset("result", result, "score", "rank")
    names = order_of(result)
    envs = [str(env) for env in result["env"].to_numpy()]
    width = max(len("agent"), *(len(name) for name in names))
    seeds = result.sizes["seed"]
    text = [
        f"{len(names)} agents on {', '.join(envs)}; {seeds} seeds each",
        "score: 0 is the random policy, 1 an optimal one, over the whole run. IQM: interquartile mean over all runs,",
        "95 % intervals by a bootstrap over seeds. rank: by mean score on a problem (1: best), averaged over problems.",
        "best: how often the IQM is the largest in the bootstrap. P(> next): chance that a run beats one of the next.",
        "",
        f"{'':>3} {'agent':<{width}}{'IQM':>7}{'95 % interval':>17}{'mean':>8}{'median':>8}{'rank':>7}"
        f"{'best':>7}{'P(> next)':>11}  " + "".join(f"{_short(env):>10}" for env in envs),
    ]
    text += [_line(result, number, names, width) for number in range(len(names))]
    return "\n".join(text + _remarks(result, names, envs))


def _line(result: "xr.Dataset", number: int, names: list[str], width: int) -> str:
    name = names[number]
    one = result.sel(agent=name)
    means = "".join(_number(x, 10) for x in one["score"].mean("seed").to_numpy())
    iqm, mean, median = (float(one["aggregate"].sel(statistic=x)) for x in ("iqm", "mean", "median"))
    if np.isnan(iqm):
        return f"{'-':>3} {name:<{width}}{'not ranked':>24}{'':>41}  {means}"
    low, high = (float(one[f"aggregate_{x}"].sel(statistic="iqm")) for x in ("low", "high"))
    after = names[number + 1] if number + 1 < len(names) else None
    over = np.nan if after is None else float(one["improvement"].sel(other=after))
    return (
        f"{number + 1:>3} {name:<{width}}{iqm:>7.3f}{f'{low:.3f} to {high:.3f}':>17}{mean:>8.3f}{median:>8.3f}"
        f"{float(one['rank']):>7.1f}{float(one['best']):>7.0%}{_number(over, 11)}  {means}"
    )


def _remarks(result: "xr.Dataset", names: list[str], envs: list[str]) -> list[str]:
    found = [
        f"not scored: {env}: {result['unscored'].sel(env=env).item()}"
        for env in envs
        if result["unscored"].sel(env=env).item()
    ]
    for name in names:
        sentences = {env: str(result["refused"].sel(agent=name, env=env).item()) for env in envs}
        for sentence in dict.fromkeys(filter(None, sentences.values())):
            where = ", ".join(env for env in envs if sentences[env] == sentence)
            found.append(f"refused: {name} on {where}: {sentence}")
    return ["", *found] if found else []


def _number(value: float, width: int) -> str:
    return f"{'-':>{width}}" if np.isnan(value) else f"{value:>{width}.2f}"


def _short(name: str, most: int = 9) -> str:
    return name if len(name) <= most else name[: most - 1] + "."


def plot_compare(result: "xr.Dataset", *, num_profiles: int = NUM_PROFILES) -> "Figure":
    """Left: interquartile means with intervals; middle: mean score on each problem; right: performance profiles.

    Args:
        result: what `compare` returned, or `load_result` read.
        num_profiles: profiles are drawn of so many agents with the largest interquartile means.

    Raises:
        TypeError, ValueError: no dataset that `compare` returned; `num_profiles` is no integer of at least 0.

    Example:
        >>> tasks = {
        ...     "chain": bm.experiments.Task(
        ...         bm.envs.chain(), bm.Discounted(0.9), 50, prior=bm.models.dirichlet_normal()
        ...     )
        ... }
        >>> agents = ["psrl", "epsilon_greedy_q"]
        >>> options = bm.RunOptions(progress=False)
        >>> result = bm.compare(agents, tasks, key=jax.random.key(0), num_seeds=2, options=options)
        >>> bm.plot_compare(result).savefig("compare.png")
    """
    check_dataset("result", result, "score", "rank")
    check_count("num_profiles", num_profiles, 0)
    from bayes_mdp.utils.figures import NotebookFigure

    names = order_of(result)
    result = result.sel(agent=names)
    envs = result.sizes["env"]
    height = max(4.2, 0.27 * len(names) + 1.6)
    drawing = NotebookFigure(figsize=(10.0 + 0.75 * envs, height), layout="constrained")
    left, middle, right = drawing.subplots(1, 3, width_ratios=[4.0, 0.75 * envs + 1.0, 4.6])
    _intervals(left, result, names)
    _table(drawing, middle, result)
    _profiles(right, result, names[:num_profiles])
    drawing.suptitle(
        f"{len(names)} agents, {envs} problems, {result.sizes['seed']} seeds; score 0: random policy, 1: optimal",
        fontsize=11,
    )
    return drawing


def _intervals(axes: "Axes", result: "xr.Dataset", names: list[str]) -> None:
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


def _table(drawing: "Figure", axes: "Axes", result: "xr.Dataset") -> None:
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


def _profiles(axes: "Axes", result: "xr.Dataset", names: list[str]) -> None:
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
