"""[EUBE23] section 5: total regret in the seven rooms, by the variance that the plans are optimistic with.

No number of the paper is at hand. In words it says that its variance leads to lower regret than the bound and the
ensemble: read as a ratio of mean total regrets above 1. Regret is exact: the value of each policy in the true MDP.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.envs.papers.mazes import seven_rooms
from bayes_mdp.experiments.results import half_width
from bayes_mdp.experiments.resume import Cells, ComputeCell, Values
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Episodic
from bayes_mdp.utils.validation import check_count, check_key, check_name
from reproductions.luis.discounted_episodes import METHODS, PUBLISHED, discounted_episodes
from reproductions.reproduction import Reproduction, Row, mean_row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

STEPS = 40
JUDGED = ("bound", "ensemble")
INFINITE = float("inf")


def seven_rooms_regret(
    *,
    key: PRNGKeyArray,
    agents: Sequence[str] = tuple(METHODS),
    room_size: int = 5,
    num_episodes: int = 1000,
    num_seeds: int = 30,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """Cumulative regret in seven rooms, episodes of 40 steps.

    Args:
        key: a typed key, the same for all methods: they meet the same random numbers.
        agents: names of methods.
        room_size: 5 in the paper.
        num_episodes, num_seeds: of each method; the numbers of the paper are not known to us.
        cells: keeps every finished method.

    Returns:
        A Dataset: `regret`, cumulative, [agent, seed, episode], in units of the reward; `reward` of each episode.

    Raises:
        ValueError, TypeError: an unknown method, a count below 1, no typed key.
    """
    import xarray as xr

    check_key("key", key)
    for name, number in (("num_episodes", num_episodes), ("num_seeds", num_seeds)):
        check_count(name, number)
    for name in agents:
        check_name("agent", name, METHODS)
    computes: dict[str, ComputeCell] = {
        name: lambda path, name=name: _cell(name, room_size, num_episodes, key, num_seeds) for name in agents
    }
    played = (cells or Cells()).get_all(computes)
    dimensions = "agent", "seed", "episode"
    return xr.Dataset(
        {part: (dimensions, np.stack([played[name][part] for name in agents])) for part in ("regret", "reward")},
        coords={"agent": list(agents), "seed": np.arange(num_seeds), "episode": np.arange(1, num_episodes + 1)},
    )


def _cell(name: str, room_size: int, num_episodes: int, key: PRNGKeyArray, num_seeds: int) -> Values:
    env = seven_rooms(room_size=room_size)
    agent, space = discounted_episodes(name, env)
    options = RunOptions(space=space, progress=False)
    result = run(
        agent,
        env,
        objective=Episodic(STEPS),
        key=key,
        num_episodes=num_episodes,
        num_seeds=num_seeds,
        options=options,
    )
    return {part: result[part].to_numpy() for part in ("regret", "reward")}


def rows(result: "xr.Dataset") -> list[Row]:
    """Total regret, the reward of the last tenth of the episodes, and the paper's words."""
    names = list(map(str, result["agent"].to_numpy()))
    number = result.sizes["episode"]
    total = {name: result["regret"].sel(agent=name).to_numpy()[:, -1] for name in names}
    late = {name: result["reward"].sel(agent=name).to_numpy()[:, -max(1, number // 10) :].mean(-1) for name in names}
    table = [mean_row(f"{name}: total regret", None, total[name]) for name in names]
    table += [mean_row(f"{name}: reward of a late episode", None, late[name]) for name in names]
    rivals = [name for name in ("bound", "ensemble", "psrl") if name in names and "exact" in names]
    return table + [_ratio(name, total[name], total["exact"]) for name in rivals]


def _ratio(name: str, above: np.ndarray, below: np.ndarray) -> Row:
    """Ratio of mean total regrets, its interval by linearisation, seeds paired."""
    ratio = float(above.mean() / below.mean())
    half = float(half_width((above - ratio * below) / below.mean())) if len(above) > 1 else INFINITE
    band = (1.0, INFINITE) if name in JUDGED else None
    return Row(f"{name} / exact: total regret", None, ratio, half, band)


def figure(result: "xr.Dataset") -> "Figure":
    """Mean cumulative regret over episodes with 95 % intervals."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = drawing.subplots()
    episode = result["episode"].to_numpy()
    for number, name in enumerate(map(str, result["agent"].to_numpy())):
        regret = result["regret"].sel(agent=name).to_numpy()
        mean = regret.mean(0)
        half = half_width(regret) if len(regret) > 1 else np.zeros_like(mean)
        axes.plot(episode, mean, color=f"C{number}", linestyle="-" if name in PUBLISHED else ":", label=name)
        axes.fill_between(episode, mean - half, mean + half, color=f"C{number}", alpha=0.2, linewidth=0)
    axes.set_xlabel("episode")
    axes.set_ylabel("total regret")
    axes.set_title(f"Seven rooms: mean of {result.sizes['seed']} seeds, 95 % interval")
    axes.legend(fontsize=8)
    return drawing


REPRODUCTION = Reproduction(
    source="[EUBE23] section 5: seven rooms, optimism by three variances",
    run=seven_rooms_regret,
    rows=rows,
    figure=figure,
    quick={"room_size": 3, "num_episodes": 600, "num_seeds": 5},
    seconds={"quick": 400.0, "full": 50_000.0},
    one_thread=True,
)
