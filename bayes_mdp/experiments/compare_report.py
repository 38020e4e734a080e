"""The leaderboard of `compare` in words."""

from typing import TYPE_CHECKING

import numpy as np

from bayes_mdp.mdp.validation import check_dataset

if TYPE_CHECKING:
    import xarray as xr


def order_of(result: "xr.Dataset") -> list[str]:
    """The agents by falling interquartile mean; those that are not ranked at the end, in their order."""
    iqm = result["aggregate"].sel(statistic="iqm").to_numpy()
    names = [str(name) for name in result["agent"].to_numpy()]
    return [names[i] for i in np.argsort(np.where(np.isnan(iqm), np.inf, -iqm), kind="stable")]


def describe_compare(result: "xr.Dataset") -> str:
    """The leaderboard as text: a line for each agent by falling interquartile mean, then what was refused, and why.

    Args:
        result: what `compare` returned, or `load_result` read.
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
