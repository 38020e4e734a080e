"""Which agent is better, from few seeds on few problems: aggregates of normalised scores with intervals.

After Agarwal, Schwarzer, Castro, Courville and Bellemare, "Deep reinforcement learning at the edge of the statistical
precipice" (2021): runs of all problems are pooled; the interquartile mean is less noisy than the median and less
sensitive to a few runs than the mean; intervals by a bootstrap that resamples the seeds of each problem, all by SciPy.
`describe_compare` and `plot_compare` show the leaderboard of `compare` in words and as a figure.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.stats import bootstrap, mannwhitneyu, rankdata, trim_mean

from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.layout import Section, Table
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.validation import check_count, check_dataset, check_key, check_number

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


NUM_RESAMPLES, LEVEL = 2000, 0.95
STATISTICS = ("iqm", "mean", "median", "optimality_gap")
THRESHOLDS = np.linspace(-0.25, 1.05, 131)
_BATCH = 100  # bootstrap samples at a time: of all at once the tables are large


def statistics_of(*problems: Float[np.ndarray, "A *R N"], axis: int = -1) -> Float[np.ndarray, "K A *R"]:
    """The `STATISTICS` of agents, their mean ranks, and the shares of runs above each of the `THRESHOLDS`.

    Args:
        problems: scores on each problem, of A agents (and of R bootstrap samples), on N seeds.
        axis: of the seeds, the last one.
    """
    # All problems count alike: runs of normalised scores are pooled.
    runs = np.concatenate(problems, axis)
    gap = (1.0 - np.minimum(runs, 1.0)).mean(axis)
    # The rank of an agent on a problem: 1 is the best mean score, ties are shared.
    ranks = rankdata([-scores.mean(axis) for scores in problems], axis=1).mean(0)
    exceedances = [(runs > threshold).mean(axis) for threshold in THRESHOLDS]
    return np.stack([trim_mean(runs, 0.25, axis), runs.mean(axis), np.median(runs, axis), gap, ranks, *exceedances])


def leaderboard(
    result: "xr.Dataset", *, key: PRNGKeyArray, num_resamples: int = NUM_RESAMPLES, level: float = LEVEL
) -> "xr.Dataset":
    """The statistics of scores, with percentile intervals of a stratified bootstrap. Host side.

    Problems whose scores are unknown for all agents do not count. An agent that did not play every problem that counts
    is not ranked: its statistics are nan. A bootstrap sample has the same seeds for all agents, as the agents of
    `compare` get the same random numbers.

    Args:
        result: with `score` [agent, env, seed].
        key: a typed key, of the bootstrap.
        num_resamples: of the bootstrap.
        level: of the intervals; with few seeds they cover the truth less often (.95 and 10 seeds: about .90).

    Returns:
        A Dataset, everything with `_low` and `_high` but for `best` and `improvement`:

        * `aggregate` [agent, statistic]: see `STATISTICS`;
        * `rank` [agent]: by the mean score on a problem, 1 the best, averaged over problems;
        * `best` [agent]: in how many bootstrap samples its interquartile mean is the largest (ties shared);
        * `improvement` [agent, other]: P(X > Y) + P(X = Y) / 2 for runs X, Y on a problem, averaged over problems;
        * `profile` [agent, threshold]: the fraction of runs with a score above the threshold, bands pointwise.

    Raises:
        ValueError, TypeError: no typed key, a count below 1, a level outside (0, 1), fewer than two seeds.
    """
    import xarray as xr

    check_dataset("result", result, "score")
    check_key("key", key)
    check_count("num_resamples", num_resamples)
    check_number("level", level, lambda x: 0.0 < x < 1.0, "a number between 0 and 1")
    scores = result["score"].to_numpy().astype(np.float64)
    if scores.shape[2] < 2:
        raise ValueError(f"result has {scores.shape[2]} seed, expected at least two")
    # Problems with a score of some agent count; agents with all scores of these are ranked.
    counts = np.isfinite(scores).any((0, 2))
    ranked = np.asarray(np.isfinite(scores[:, counts]).all((1, 2)) & counts.any())
    num_agents, num_statistics = len(ranked), len(STATISTICS)
    # A row for each statistic, for the mean rank, and the profile at each threshold.
    middle, low, high = np.full((3, num_statistics + 1 + len(THRESHOLDS), num_agents), np.nan)
    best, improvement = np.full(num_agents, np.nan), np.full((num_agents, num_agents), np.nan)
    if ranked.any():
        played = scores[np.ix_(ranked, counts)]
        # Every problem is a sample of seeds of its own (a stratum); its resamples are the same for all agents.
        intervals = bootstrap(
            tuple(np.moveaxis(played, 1, 0)),
            statistics_of,
            n_resamples=num_resamples,
            batch=_BATCH,
            confidence_level=level,
            method="percentile",
            axis=-1,
            random_state=host_generator(key),  # pyright: ignore[reportCallIssue] - `rng` from SciPy 1.15 on
        )
        middle[:, ranked] = statistics_of(*np.moveaxis(played, 1, 0))
        low[:, ranked], high[:, ranked] = intervals.confidence_interval
        iqm = intervals.bootstrap_distribution[0]
        # Ties share the first place of a bootstrap sample.
        largest = iqm == iqm.max(0)
        best[ranked] = (largest / largest.sum(0)).mean(-1)
        # P(X > Y) + P(X = Y) / 2 is the statistic of Mann and Whitney over the number of pairs of runs.
        wins = mannwhitneyu(played[:, None], played[None], method="asymptotic", axis=-1).statistic
        improvement[np.ix_(ranked, ranked)] = wins.mean(-1) / played.shape[2] ** 2
    variables = {"best": ("agent", best), "improvement": (("agent", "other"), improvement)}
    for ending, values in (("", middle), ("_low", low), ("_high", high)):
        variables["aggregate" + ending] = ("agent", "statistic"), values[:num_statistics].T
        variables["rank" + ending] = "agent", values[num_statistics]
        variables["profile" + ending] = ("agent", "threshold"), values[num_statistics + 1 :].T
    return xr.Dataset(
        variables,
        {
            "agent": result["agent"],
            "other": ("other", result["agent"].to_numpy()),
            "statistic": list(STATISTICS),
            "threshold": THRESHOLDS,
        },
        {"num_resamples": num_resamples, "level": level},
    )


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
        >>> options = bm.experiments.RunOptions(progress=False)
        >>> result = bm.compare(agents, tasks, key=jax.random.key(0), num_seeds=2, options=options)
        >>> print(bm.experiments.describe_compare(result))
        2 agents on chain; 2 seeds each
        ...
    """
    check_dataset("result", result, "score", "rank")
    names = order_of(result)
    envs = [str(env) for env in result["env"].to_numpy()]
    short = [env if len(env) <= 9 else f"{env[:8]}." for env in envs]
    head = ("", "agent", "IQM", "95 % interval", "mean", "median", "rank", "best", "P(> next)", *short)
    board = Section(
        f"{count_of(len(names), 'agent')} on {', '.join(envs)}; {count_of(result.sizes['seed'], 'seed')} each",
        [
            "score: 0 is the random policy, 1 an optimal one, over the whole run. IQM: interquartile mean over all "
            "runs, 95 % intervals by a bootstrap over seeds. rank: by mean score on a problem (1: best), averaged over "
            "problems. best: how often the IQM is the largest in the bootstrap. P(> next): chance that a run beats "
            "one of the next.",
            Table(head, [_row(result, number, names) for number in range(len(names))], words=(1,)),
            *_remarks(result, names, envs),
        ],
    )
    return board.text()


def _row(result: "xr.Dataset", number: int, names: list[str]) -> list[str]:
    """The cells of one agent in the leaderboard, `number` places from the top."""
    row = result.sel(agent=names[number])
    scores = [_number(x) for x in row["score"].mean("seed").to_numpy()]
    iqm, mean, median = (float(row["aggregate"].sel(statistic=x)) for x in ("iqm", "mean", "median"))
    if np.isnan(iqm):
        return ["-", names[number], "not ranked", *[""] * 6, *scores]
    low, high = (float(row[f"aggregate_{x}"].sel(statistic="iqm")) for x in ("low", "high"))
    after = names[number + 1] if number + 1 < len(names) else None
    chance = np.nan if after is None else float(row["improvement"].sel(other=after))
    statistics = [f"{iqm:.3f}", f"{low:.3f} to {high:.3f}", f"{mean:.3f}", f"{median:.3f}", f"{float(row['rank']):.1f}"]
    return [str(number + 1), names[number], *statistics, f"{float(row['best']):.0%}", _number(chance), *scores]


def _remarks(result: "xr.Dataset", names: list[str], envs: list[str]) -> list[str]:
    remarks = [
        f"not scored: {env}: {result['unscored'].sel(env=env).item()}"
        for env in envs
        if result["unscored"].sel(env=env).item()
    ]
    for name in names:
        sentences = {env: str(result["refused"].sel(agent=name, env=env).item()) for env in envs}
        for sentence in dict.fromkeys(filter(None, sentences.values())):
            problems = ", ".join(env for env in envs if sentences[env] == sentence)
            remarks.append(f"refused: {name} on {problems}: {sentence}")
    return remarks


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"


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
        >>> options = bm.experiments.RunOptions(progress=False)
        >>> result = bm.compare(agents, tasks, key=jax.random.key(0), num_seeds=2, options=options)
        >>> bm.plots.plot_compare(result).savefig("compare.png")
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
        f"{count_of(len(names), 'agent')}, {count_of(envs, 'problem')}, "
        f"{count_of(result.sizes['seed'], 'seed')}; score 0: random policy, 1: optimal",
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
