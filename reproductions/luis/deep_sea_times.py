"""[EUBE23] section 5: episodes until DeepSea is solved, by the variance that the plans are optimistic with.

Solved: the first episode by which 10 % of all episodes reached the goal (`time_to_solve`). The published times are
those that are at hand, not all of the figure; a time agrees within a factor of 2. In words the paper says that its
variance makes exploration more efficient than that of the bound, and the ensemble's: read as a ratio of mean times
above 1.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.envs.papers.chain_mdps import RIGHT, deep_sea
from bayes_mdp.experiments.results import half_width
from bayes_mdp.experiments.resume import Cells, ComputeCell, Values
from bayes_mdp.experiments.rollout.execute import time_to_solve
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Environment, Episodic, NormalReward, SparseMDP
from bayes_mdp.utils.validation import check_count, check_key, check_name
from reproductions.luis.discounted_episodes import METHODS, PUBLISHED, discounted_episodes
from reproductions.reproduction import Reproduction, Row, mean_row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

FULL: dict[str, dict[int, int]] = {name: dict.fromkeys((10, 20, 30, 40), 1000) for name in METHODS}
QUICK: dict[str, dict[int, int]] = {name: {10: 200} for name in METHODS}
TIMES = {
    ("exact", 10): 33.0,
    ("exact", 20): 155.0,
    ("exact", 30): 353.0,
    ("exact", 40): 574.0,
    ("psrl", 10): 72.0,
    ("psrl", 20): 324.0,
    ("psrl", 30): 758.0,
}
"""Published episodes until solved; PSRL does not solve L = 40."""
JUDGED = 10
INFINITE = float("inf")


def grid(size: int) -> Environment:
    """DeepSea as a stationary MDP: state = size * row + column, L^2 states; the last row ends. Without noise."""
    layered = deep_sea(size, noise=0.0).mdp
    assert isinstance(layered, SparseMDP)
    row = np.minimum(np.arange(size) + 1, size - 1)  # after the last row there is an end, and no successor
    successor = (size * row[:, None, None, None] + np.asarray(layered.successor)).reshape(size**2, 2, 1)
    last = (np.arange(size**2) >= size * (size - 1)).astype(float)
    ends = np.broadcast_to(last[:, None], (size**2, 2))
    reward = np.asarray(layered.reward).reshape(size**2, 2)
    initial = np.eye(size**2)[0]
    mdp = SparseMDP(successor, 1.0 - ends[..., None], reward, initial=initial, end_probs=ends)
    return Environment(mdp, NormalReward(mdp.reward), name=f"deep_sea_grid_{size}", optimum=0.99)


def deep_sea_times(
    *,
    key: PRNGKeyArray,
    plan: Mapping[str, Mapping[int, int]] = FULL,
    num_seeds: int = 5,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """Episodes to solve DeepSea, and episodes without the goal, by method and depth.

    Args:
        key: a typed key, the same for all methods: they meet the same random numbers.
        plan: method -> depth -> number of episodes.
        num_seeds: of each.
        cells: keeps every finished (method, depth).

    Returns:
        A Dataset over [agent, depth, seed]: `time`, episodes until solved (nan: not solved, or not tried), `misses`,
        episodes without the goal; and `episodes` [agent, depth], 0 where it was not tried.

    Raises:
        ValueError, TypeError: an unknown method, a count below 1, no typed key.
    """
    import xarray as xr

    check_key("key", key)
    check_count("num_seeds", num_seeds)
    for name, tried in plan.items():
        check_name("method", name, METHODS)
        for num in tried.values():
            check_count("episodes", num)
    depths = sorted({depth for tried in plan.values() for depth in tried})
    todo = [(i, name, depth, num) for i, name in enumerate(plan) for depth, num in plan[name].items()]
    shape = len(plan), len(depths)
    found = {name: np.full((*shape, num_seeds), np.nan) for name in ("time", "misses")}
    episodes = np.zeros(shape, int)
    computes: dict[str, ComputeCell] = {}
    for _, name, depth, num in todo:
        computes[f"{name}-{depth}"] = lambda path, case=(name, depth, num): _cell(*case, key, num_seeds)
    played = (cells or Cells()).get_all(computes)
    for i, name, depth, num in todo:
        at = i, depths.index(depth)
        episodes[at] = num
        for part, values in found.items():
            values[at] = played[f"{name}-{depth}"][part]
    return xr.Dataset(
        {
            **{part: (("agent", "depth", "seed"), values, {"units": "episodes"}) for part, values in found.items()},
            "episodes": (("agent", "depth"), episodes),
        },
        coords={"agent": list(plan), "depth": depths, "seed": np.arange(num_seeds)},
    )


def _cell(name: str, depth: int, num_episodes: int, key: PRNGKeyArray, num_seeds: int) -> Values:
    env = grid(depth)
    agent, space = discounted_episodes(name, env, repeats=float(depth))
    goal = np.zeros((depth**2, 2), bool)
    goal[-1, RIGHT] = True
    options = RunOptions(space=space, progress=False, target=goal, regret="average")
    result = run(
        agent,
        env,
        objective=Episodic(depth),
        key=key,
        num_episodes=num_episodes,
        num_seeds=num_seeds,
        options=options,
    )
    hits = result["target_visits"].to_numpy() > 0
    return {"time": time_to_solve(hits), "misses": (~hits).sum(-1).astype(float)}


def rows(result: "xr.Dataset") -> list[Row]:
    """Every time beside the published one, and the paper's words where the depth is the one that is judged."""
    table = []
    for name in map(str, result["agent"].to_numpy()):
        for depth in map(int, result["depth"].to_numpy()):
            if int(result["episodes"].sel(agent=name, depth=depth)):
                published = TIMES.get((name, depth))
                judged = published is not None and depth == JUDGED
                band = (published / 2, published * 2) if judged and published is not None else None
                table.append(mean_row(f"{name}, L = {depth}", published, _times(result, name, depth), band))
    return table + [
        _ratio(result, name) for name in ("bound", "ensemble") if _has(result, name) and _has(result, "exact")
    ]


def _has(result: "xr.Dataset", name: str) -> bool:
    known = name in result["agent"] and JUDGED in result["depth"]
    return known and int(result["episodes"].sel(agent=name, depth=JUDGED)) > 0


def _times(result: "xr.Dataset", name: str, depth: int) -> np.ndarray:
    """[seed], infinite where unsolved."""
    return np.nan_to_num(result["time"].sel(agent=name, depth=depth).to_numpy(), nan=INFINITE)


def _ratio(result: "xr.Dataset", name: str) -> Row:
    """Mean time of a rival over that of "exact", its interval by linearisation, seeds paired."""
    above, below = _times(result, name, JUDGED), _times(result, "exact", JUDGED)
    quantity, band = f"{name} / exact, L = {JUDGED}: episodes", (1.0, INFINITE)
    if not np.isfinite(below).all():
        return Row(quantity, None, float("nan"), INFINITE, band)
    if not np.isfinite(above).all():
        return Row(quantity, None, INFINITE, INFINITE, band)
    ratio = float(above.mean() / below.mean())
    half = float(half_width((above - ratio * below) / below.mean())) if len(above) > 1 else INFINITE
    return Row(quantity, None, ratio, half, band)


def figure(result: "xr.Dataset") -> "Figure":
    """Mean episodes until solved over depth, published times as crosses, and mean episodes without the goal."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(10.0, 4.2), layout="constrained")
    panels = drawing.subplots(1, 2)
    depths = result["depth"].to_numpy()
    for number, name in enumerate(map(str, result["agent"].to_numpy())):
        style = {"color": f"C{number}", "linestyle": "-" if name in PUBLISHED else ":"}
        times = np.array([_times(result, name, int(depth)).mean() for depth in depths])
        panels[0].plot(depths, times, marker="o", label=name, **style)
        known = [(depth, time) for (of, depth), time in TIMES.items() if of == name and depth <= depths.max()]
        panels[0].plot([x for x, _ in known], [y for _, y in known], "x", color=f"C{number}")
        panels[1].plot(depths, result["misses"].sel(agent=name).to_numpy().mean(-1), marker="o", label=name, **style)
    for axes, what in zip(panels, ("episodes until solved (x: published)", "episodes without the goal"), strict=True):
        axes.set_xlabel("depth L")
        axes.set_ylabel(what)
        axes.set_yscale("log")
    panels[0].legend(fontsize=8)
    drawing.suptitle(f"DeepSea, prior and plans of [EUBE23]: mean of {result.sizes['seed']} seeds")
    return drawing


REPRODUCTION = Reproduction(
    source="[EUBE23] section 5: DeepSea, optimism by three variances",
    run=deep_sea_times,
    rows=rows,
    figure=figure,
    quick={"plan": QUICK},
    seconds={"quick": 200.0, "full": 200_000.0},
    one_thread=True,
)
