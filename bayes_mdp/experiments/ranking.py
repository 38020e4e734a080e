"""Which agent is better, from few seeds on few problems: aggregates of normalised scores with intervals.

After Agarwal, Schwarzer, Castro, Courville and Bellemare, "Deep reinforcement learning at the edge of the statistical
precipice" (2021): runs of all problems are pooled; the interquartile mean is less noisy than the median and less
sensitive to a few runs than the mean; intervals by a bootstrap that resamples the seeds of each problem. Plain numpy.
`describe_compare` and `plot_compare` show the leaderboard of `compare` in words and as a figure.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.validation import as_real, check_count, check_dataset, check_key, check_number, require

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


NUM_RESAMPLES, LEVEL = 2000, 0.95
STATISTICS = ("iqm", "mean", "median", "optimality_gap")
THRESHOLDS = np.linspace(-0.25, 1.05, 131)


class Sorted(NamedTuple):
    """The runs of an agent in order: `values` [M], and the rank of each in its table of problems and seeds, `order`."""

    values: Float[np.ndarray, " M"]
    order: Int[np.ndarray, " M"]


def interquartile_mean(scores: Float[np.ndarray, "..."]) -> float:
    """The mean of all but the lowest and the highest quarter of M scores: floor(M / 4) are left out on either side.

    It has the unit of `scores`.

    Args:
        scores: M numbers of one unit, in an array of any shape.

    Raises:
        ValueError: no scores, or one that is not finite.
        TypeError: scores that are no numbers.
    """
    flat = np.asarray(as_real("scores", scores), np.float64).ravel()
    require(~np.isfinite(flat), "scores", flat, "a finite number")
    if not flat.size:
        raise ValueError("scores is empty, expected at least one")
    return float(_trimmed(_sorted(flat), np.ones((1, flat.size)), flat.size // 4)[0])


def resamples(
    generator: np.random.Generator, num_resamples: int, num_envs: int, num_seeds: int
) -> Float[np.ndarray, "R E N"]:
    """How often each seed of each problem is in each bootstrap sample, which has N seeds of every problem."""
    drawn = generator.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), (num_resamples, num_envs))
    return drawn.astype(np.float64)


def aggregates(scores: Float[np.ndarray, "E N"], weights: Float[np.ndarray, "R E N"]) -> Float[np.ndarray, "R 4"]:
    """The `STATISTICS` of bootstrap samples: interquartile mean, mean, median, mean of 1 - min(score, 1)."""
    flat, by_run = scores.ravel(), weights.reshape(len(weights), -1)
    runs, size = _sorted(flat), flat.size
    mean = by_run @ flat / size
    gap = by_run @ (1.0 - np.minimum(flat, 1.0)) / size
    return np.stack([_trimmed(runs, by_run, size // 4), mean, _trimmed(runs, by_run, (size - 1) // 2), gap], 1)


def _sorted(flat: Float[np.ndarray, " M"]) -> Sorted:
    order = np.argsort(flat, kind="stable")
    return Sorted(flat[order], order)


def _trimmed(runs: Sorted, weights: Float[np.ndarray, "R M"], cut: int) -> Float[np.ndarray, " R"]:
    """Means without the `cut` lowest and highest, of samples that hold each run `weights` times (M runs in all)."""
    size = len(runs.values)
    # Runs below each place of the pooled order, clipped: their differences are the runs kept of each value.
    upto = np.clip(np.cumsum(weights[:, runs.order], 1), cut, size - cut)
    inside = np.diff(upto, axis=1, prepend=cut)
    return inside @ runs.values / (size - 2 * cut)


def mean_ranks(means: Float[np.ndarray, "R A E"]) -> Float[np.ndarray, "R A"]:
    """The rank of each agent by its mean score, 1 the best, ties shared, averaged over the problems."""
    # Rank = 1 + number of better agents + half the number of other agents that are equal.
    other, own = means[:, None, :, :], means[:, :, None, :]
    better, equal = (other > own).sum(2), (other == own).sum(2)
    return (1.0 + better + (equal - 1) / 2).mean(-1)


def improvement(ours: Float[np.ndarray, "E N"], theirs: Float[np.ndarray, "E N"]) -> Float[np.ndarray, "E N N"]:
    """1 where a run of ours is better than one of theirs on the same problem, 1/2 where they are equal, else 0.

    Its mean over a problem is the statistic of Mann and Whitney, an estimate of P(X > Y) + P(X = Y) / 2.
    """
    one, other = ours[:, :, None], theirs[:, None, :]
    return (one > other) + 0.5 * (one == other)


def performance_profile(
    scores: Float[np.ndarray, "E N"], weights: Float[np.ndarray, "R E N"], thresholds: Float[np.ndarray, " T"]
) -> Float[np.ndarray, "R T"]:
    """The fraction of runs with a score above each threshold, of bootstrap samples."""
    above = scores.reshape(-1, 1) > thresholds
    return weights.reshape(len(weights), -1) @ above / scores.size


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
        ValueError, TypeError: no typed key, a count below 1, a level outside (0, 1).
    """
    import xarray as xr

    check_dataset("result", result, "score")
    check_key("key", key)
    check_count("num_resamples", num_resamples)
    check_number("level", level, lambda x: 0.0 < x < 1.0, "a number between 0 and 1")
    scores = result["score"].to_numpy().astype(np.float64)
    counts = np.isfinite(scores).any((0, 2))
    ranked = np.asarray(np.isfinite(scores[:, counts]).all((1, 2)) & counts.any())
    weights = resamples(host_generator(key), num_resamples, int(counts.sum()), scores.shape[2])
    tables = _tables(scores[np.ix_(ranked, counts)], weights, level) if ranked.any() else {}
    found = {}
    for name, (axes, shape) in _axes(len(ranked)).items():
        whole = np.full(shape, np.nan)
        if name in tables:
            whole[np.ix_(ranked, ranked) if "other" in axes else ranked] = tables[name]
        found[name] = (axes, whole)
    return xr.Dataset(
        found,
        {
            "agent": result["agent"],
            "other": ("other", result["agent"].to_numpy()),
            "statistic": list(STATISTICS),
            "threshold": THRESHOLDS,
        },
        {"num_resamples": num_resamples, "level": level},
    )


def _axes(num_agents: int) -> dict[str, tuple[tuple[str, ...], tuple[int, ...]]]:
    """Dimensions and shape of every variable."""
    kept = {"aggregate": ("statistic", len(STATISTICS)), "profile": ("threshold", len(THRESHOLDS))}
    found: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    for ending in ("", "_low", "_high"):
        found["rank" + ending] = ("agent",), (num_agents,)
        found |= {name + ending: (("agent", axis), (num_agents, size)) for name, (axis, size) in kept.items()}
    return found | {"best": (("agent",), (num_agents,)), "improvement": (("agent", "other"), (num_agents,) * 2)}


def _tables(
    scores: Float[np.ndarray, "A E N"], weights: Float[np.ndarray, "R E N"], level: float
) -> dict[str, np.ndarray]:
    """The variables of `leaderboard` for agents that are ranked. One agent at a time: samples of all are large."""
    once = np.ones((1, *weights.shape[1:]))
    tails = (1 - level) / 2, (1 + level) / 2
    found: dict[str, list[np.ndarray]] = {}
    drawn, means = [], []

    def keep(name: str, one: np.ndarray, samples: np.ndarray) -> None:
        low, high = np.quantile(samples, tails, axis=0)
        for ending, value in (("", one[0]), ("_low", low), ("_high", high)):
            found.setdefault(name + ending, []).append(value)

    # `ones` as weights gives the statistic itself, the resamples its bootstrap distribution.
    for own in scores:
        samples = aggregates(own, weights)
        drawn.append(samples[:, 0])
        means.append(np.einsum("en,ren->re", own, weights) / own.shape[1])
        keep("aggregate", aggregates(own, once), samples)
        keep("profile", *(performance_profile(own, w, THRESHOLDS) for w in (once, weights)))
    # One index of resamples for all agents: ranks and the share of wins compare the same samples.
    iqm, exact = np.stack(drawn, 1), scores.mean(-1)
    largest = iqm == iqm.max(1, keepdims=True)
    parts = np.array_split(np.stack(means, 1), max(1, len(weights) // 100))  # of all at once the tables are large
    ranks = np.concatenate([mean_ranks(part) for part in parts])
    low, high = np.quantile(ranks, tails, axis=0)
    pairs = [[improvement(own, other).mean() for other in scores] for own in scores]
    return {name: np.stack(values) for name, values in found.items()} | {
        "rank": mean_ranks(exact[None])[0],
        "rank_low": low,
        "rank_high": high,
        "best": (largest / largest.sum(1, keepdims=True)).mean(0),
        "improvement": np.array(pairs),
    }


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
