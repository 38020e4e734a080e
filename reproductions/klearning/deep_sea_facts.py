"""[KL21] (O'Donoghue 2021) figure 1: the DeepSea MDP, drawn, with its facts."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.envs.papers.chain_mdps import COST, LEFT, RIGHT, deep_sea
from bayes_mdp.experiments.rollout.regret import optimal_rate
from bayes_mdp.mdp import Episodic
from reproductions.reproduction import Reproduction, Row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


def facts(*, key: PRNGKeyArray, size: int = 10) -> "xr.Dataset":
    """DeepSea of L = `size`: mean rewards, how likely each cell is under uniform actions, the optimal return.

    Args:
        key: not used.
        size: L, at least 2.

    Returns:
        A Dataset: `reward` [row, column, action]; `reached` [row, column], probability to be in a cell under actions
        drawn uniformly; `optimum`, of an episode, by backward induction.

    Raises:
        ValueError: `size` below 2.
    """
    import xarray as xr

    del key
    env = deep_sea(size)
    mdp: Any = env.mdp.to_dense()  # type: ignore[union-attr]
    rows = np.asarray(mdp.transition_probs, np.float64).mean(2)
    reached = [np.asarray(mdp.initial, np.float64)]
    for row in rows[:-1]:
        reached.append(reached[-1] @ row)
    return xr.Dataset(
        {
            "reward": (("row", "column", "action"), np.asarray(mdp.reward, np.float64), {"long_name": "mean reward"}),
            "reached": (("row", "column"), np.array(reached), {"long_name": "probability under uniform actions"}),
            "optimum": ((), float(optimal_rate(env.mdp, Episodic(size))), {"long_name": "optimal expected return"}),
        },
        coords={"row": np.arange(size), "column": np.arange(size), "action": ["left", "right"]},
    )


def rows(result: "xr.Dataset") -> list[Row]:
    """The table: optimum, numbers of states, mean rewards, how rarely uniform actions reach the goal."""
    size, reward = result.sizes["row"], result["reward"].to_numpy()
    reached, optimum = result["reached"].to_numpy(), float(result["optimum"])
    states, cells = int((reached > 0).sum()), reached.size
    left, right = np.abs(reward[..., LEFT]).max(), reward[0, 0, RIGHT]
    goal, luck = reward[-1, -1, RIGHT], reached[-1, -1]
    return [
        _exact("optimal return of an episode", 1 - COST, optimum, 1e-6),
        _exact("states that can be reached, over L (L + 1) / 2", 1.0, states / (size * (size + 1) / 2), 1e-9),
        _exact("cells of the grid, over L^2", 1.0, cells / size**2, 1e-9),
        _exact("largest mean reward of left, absolute", 0.0, float(left), 1e-9),
        _exact("mean reward of right, times L", -COST, float(right * size), 1e-6),
        _exact("mean reward of the goal, less that of right", 1.0, float(goal - right), 1e-6),
        _exact("uniform actions: episodes to the goal, over 2^(L - 1)", 1.0, float(1 / luck / 2 ** (size - 1)), 1e-6),
    ]


def _exact(quantity: str, published: float, ours: float, tolerance: float) -> Row:
    return Row(quantity, published, ours, band=(published - tolerance, published + tolerance))


def figure(result: "xr.Dataset") -> "Figure":
    """The grid: a cell that can be reached is an open circle, the start is marked, the cell that pays is filled."""
    from matplotlib.figure import Figure

    size, reached = result.sizes["row"], result["reached"].to_numpy() > 0
    drawing = Figure(figsize=(6.0, 6.0), layout="constrained")
    axes = drawing.subplots()
    for row, column in np.argwhere(reached[:-1]):
        for step, colour in ((-1, "tab:blue"), (1, "tab:orange")):
            there = (max(column + step, 0), row + 1)
            style = {"arrowstyle": "-|>", "color": colour, "shrinkA": 7, "shrinkB": 7, "linewidth": 1.0}
            axes.annotate("", there, (column, row), arrowprops=style)
    where = np.argwhere(reached)
    axes.scatter(where[:, 1], where[:, 0], s=110, facecolor="white", edgecolor="black", zorder=3)
    axes.scatter([size - 1], [size - 1], s=110, color="tab:green", edgecolor="black", zorder=4)
    axes.annotate("start", (0, 0), (9, 4), textcoords="offset points", ha="left")
    axes.annotate("+1", (size - 1, size - 1), (10, -4), textcoords="offset points", ha="left")
    axes.plot([], [], color="tab:blue", label="left: mean 0")
    axes.plot([], [], color="tab:orange", label=f"right: mean -{COST:g} / L")
    axes.legend(loc="upper right")
    axes.set_xlim(-0.6, size - 0.2)
    axes.set_ylim(size - 0.4, -0.6)
    axes.set_aspect("equal")
    axes.set_xlabel("column (state)")
    axes.set_ylabel("row (step)")
    axes.set_title(f"DeepSea, L = {size}: {len(where)} cells of {size**2}")
    return drawing


REPRODUCTION = Reproduction(
    source="[KL21] figure 1: the DeepSea MDP",
    run=facts,
    rows=rows,
    figure=figure,
    quick={},
    seconds={"quick": 3.0, "full": 3.0},
)
