"""[KL21] (O'Donoghue 2021) figures 3 and 4: K-learning and soft Q-learning on DeepSea, L = 50, as film strips.

K-learning has the optimal temperature. Values (14) and log visit counts after 5, 50, 100, 300 and 1000 episodes. The
strip, of our first seed where the paper has one, shows the constants that reproduce figure 2: known transitions,
posterior variance of the mean rewards. The table has two other readings beside it: known transitions with the bonus as
printed, sigma^2 / max(n, 1), and unknown transitions with a span of 1 in place of L - l. The paper's times lie between
the first reading and the second.

Whether the paper's soft Q-learning learns a model is not said. The strip shows the tabular rule without one; the table
has K-learning at temperature .05 without the bonus as well: the mean model, transitions known as in our figure 3.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.envs.papers.chain_mdps import reachable
from bayes_mdp.experiments.rollout.execute import first_visit
from bayes_mdp.utils.validation import check_count, check_key
from reproductions.klearning.deep_sea_methods import METHODS, case
from reproductions.klearning.frames import frames
from reproductions.reproduction import Reproduction, Row, mean_row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

SIZE, SEEDS = 50, 5
TIMES = (5, 50, 100, 300, 1000)
RECENT = 100
READINGS = {"": "k_optimal_known", "_counts": "k_optimal_known_counts", "_span1": "k_optimal_span1"}
"""Ending of the variables of a Dataset -> method."""
NAMES = {"": "", "_counts": "counts: ", "_span1": "span 1: "}
SOFT_Q = {"": "soft_q", "_mean": "soft_q_known"}
"""The same, of figure 4."""
SOFT_Q_NAMES = {"": "no model", "_mean": "mean model"}
PARTS = ("value", "temperature", "visits", "hit")


def strip(
    *,
    key: PRNGKeyArray,
    method: str = "k_optimal_known",
    size: int = SIZE,
    times: Sequence[int] = TIMES,
    num_seeds: int = SEEDS,
) -> "xr.Dataset":
    """Values and visits of a method with a Boltzmann policy on DeepSea, after given numbers of episodes.

    Args:
        key: a typed key.
        method: one of `METHODS`.
        size: L.
        times: increasing numbers of episodes; the last is the length of the run.
        num_seeds: 1 in the paper.

    Returns:
        A Dataset: `value` [time, seed, row, column], tau logsumexp(q / tau) of the plan that follows, equation (14);
        `temperature` [time, seed]; `visits` [time, seed, row, column]; `hit` [seed, episode], whether the goal was
        reached.

    Raises:
        ValueError, TypeError: a count below 1, `times` that do not increase, no typed key.
    """
    import xarray as xr

    check_key("key", key)
    check_count("num_seeds", num_seeds)
    recorded = frames(case(method, size, key, times[-1], num_seeds), times)
    tau = np.asarray(recorded.policies.temperature, np.float64)
    tau = np.broadcast_to(tau.reshape(*tau.shape, *(1,) * (2 - tau.ndim)), (len(times), num_seeds))
    values = _soft_max(np.asarray(recorded.policies.q, np.float64), tau[..., None, None])
    cells = ("time", "seed", "row", "column")
    return xr.Dataset(
        {
            "value": (cells, values, {"long_name": "value (14)"}),
            "temperature": (("time", "seed"), tau),
            "visits": (cells, recorded.visits.sum(-1), {"long_name": "visits"}),
            "hit": (("seed", "episode"), recorded.hits, {"long_name": "the goal was reached"}),
        },
        coords={"time": list(times), "seed": np.arange(num_seeds), "method": METHODS[method].label},
    )


def _soft_max(q: np.ndarray, tau: np.ndarray) -> np.ndarray:
    return tau * np.logaddexp.reduce(q / tau[..., None], -1)


def strips(
    *,
    key: PRNGKeyArray,
    methods: Mapping[str, str] = READINGS,
    size: int = SIZE,
    times: Sequence[int] = TIMES,
    num_seeds: int = SEEDS,
) -> "xr.Dataset":
    """The `strip` of several methods, which meet the same random numbers.

    Args:
        key: a typed key.
        methods: ending of the names of the variables -> method.
        size, times, num_seeds: as there.

    Raises:
        ValueError, TypeError: as there.
    """
    import xarray as xr

    found = xr.Dataset()
    for ending, method in methods.items():
        one = strip(key=key, method=method, size=size, times=times, num_seeds=num_seeds)
        found = found.merge(one.rename({name: f"{name}{ending}" for name in (*PARTS, "method")}))
    return found


def part(result: "xr.Dataset", ending: str) -> "xr.Dataset":
    """The variables of one method of `strips`, by their plain names."""
    return result[[f"{name}{ending}" for name in PARTS]].rename({f"{name}{ending}": name for name in PARTS})


def rows(result: "xr.Dataset") -> list[Row]:
    """The table of figure 3: every reading, the one that is drawn first."""
    return [row for ending, name in NAMES.items() for row in _rows(part(result, ending), name)]


def _rows(result: "xr.Dataset", name: str) -> list[Row]:
    """First visit of the goal, how often it is reached at the end, the bottom row, the values there.

    "Shortly after" episode 300 is read as 300 to 450, "consistently" by episode 1000 as half of the 100 before it. A
    goal that a seed has not visited counts as infinite.
    """
    hits = result["hit"].to_numpy()
    visited = share_visited(result)
    corner = result["value"].to_numpy()[..., -1, -1]
    times = result["time"].to_numpy().tolist()
    first = np.nan_to_num(first_visit(hits), nan=np.inf)
    table = [
        mean_row(f"{name}first visit of the goal, episode", 300.0, first, (300.0, 450.0)),
        mean_row(f"{name}share of the last {RECENT} episodes at the goal", None, hits[:, -RECENT:].mean(1), (0.5, 1.0)),
        mean_row(
            f"{name}share of the bottom row visited, last frame less second",
            None,
            visited[-1] - visited[1],
            (1e-9, 1.0),
        ),
    ]
    for i, time in enumerate(times):
        table.append(mean_row(f"{name}share of the bottom row visited, t = {time}", None, visited[i]))
        table.append(mean_row(f"{name}value of the bottom-right cell, t = {time}", None, corner[i]))
        table.append(mean_row(f"{name}visits of the goal, t = {time}", None, hits[:, :time].sum(1)))
    return table


def soft_q_rows(result: "xr.Dataset") -> list[Row]:
    """The table of figure 4: how far across the grid the agent has come, by both readings; how its values change."""
    size, times = result.sizes["row"], result["time"].to_numpy().tolist()
    table = []
    for ending, name in SOFT_Q_NAMES.items():
        one = part(result, ending)
        columns = (one["visits"].to_numpy()[-1] > 0).any(-2)
        furthest = (columns * np.arange(1, size + 1)).max(-1) / size
        value = one["value"].to_numpy()[..., 0, 0]
        table += [
            mean_row(f"{name}: furthest column, share of L, t = {times[-1]}", None, furthest, (0.0, 0.5)),
            mean_row(f"{name}: visits of the goal, t = {times[-1]}", 0.0, one["hit"].to_numpy().sum(1), (0.0, 0.0)),
            mean_row(f"{name}: value of the first state, last frame less first", None, value[-1] - value[0]),
        ]
        table += [
            mean_row(f"{name}: share of the bottom row visited, t = {time}", None, share)
            for time, share in zip(times, share_visited(one), strict=True)
        ]
    return table


def share_visited(result: "xr.Dataset") -> np.ndarray:
    """[time, seed], the share of the cells of the bottom row that were visited."""
    return (result["visits"].to_numpy()[..., -1, :] > 0).mean(-1)


def figure(result: "xr.Dataset") -> "Figure":
    """The strip of the first seed and method: values above, log visit counts below; darker is larger."""
    from matplotlib.figure import Figure

    times, size = result["time"].to_numpy(), result.sizes["row"]
    drawing = Figure(figsize=(2.3 * len(times) + 0.8, 5.2), layout="constrained")
    axes = np.atleast_2d(drawing.subplots(2, len(times), sharex=True, sharey=True, squeeze=False))
    unreachable = ~reachable(size)
    values = np.ma.array(result["value"].to_numpy()[:, 0])
    counts = np.log1p(result["visits"].to_numpy()[:, 0])
    for row, (images, name) in enumerate(((values, "value (14)"), (counts, "log(1 + visits)"))):
        masked = np.ma.array(images, mask=np.broadcast_to(unreachable, images.shape))
        for column, image in enumerate(masked):
            shown = axes[row, column].imshow(image, cmap="Blues")
            drawing.colorbar(shown, ax=axes[row, column], shrink=0.75, pad=0.02).ax.tick_params(labelsize=7)
            axes[0, column].set_title(f"t = {times[column]}")
        axes[row, 0].set_ylabel(f"{name}\nrow (step)")
    for axis in axes[-1]:
        axis.set_xlabel("column")
    drawing.suptitle(f"DeepSea, L = {size}: {result['method'].item()}, seed 0")
    return drawing


FIGURE3 = Reproduction(
    source="[KL21] figure 3: K-learning on DeepSea, a film strip",
    run=strips,
    rows=rows,
    figure=figure,
    quick={},
    seconds={"quick": 60.0, "full": 60.0},
)
FIGURE4 = Reproduction(
    source="[KL21] figure 4: soft Q-learning on DeepSea, a film strip",
    run=partial(strips, methods=SOFT_Q),
    rows=soft_q_rows,
    figure=figure,
    quick={},
    seconds={"quick": 20.0, "full": 20.0},
)
