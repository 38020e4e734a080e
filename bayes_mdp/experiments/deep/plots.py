"""Figures of trainings: learning curves, and the film strip of where an agent went."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayes_mdp.experiments.intervals import half_width
from bayes_mdp.experiments.plots import by_name
from bayes_mdp.mdp.validation import check_dataset, check_name

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_training(
    results: "xr.Dataset | Mapping[str, xr.Dataset]",
    *,
    show: str = "score",
    axes: "Axes | None" = None,
) -> "Figure":
    """Learning curves: the mean over seeds, and its 95 % interval; evaluations as points.

    Args:
        results: the dataset of a `Training` (`curves.nc`), or several by name.
        show: a variable [seed, checkpoint]: "score", "length", "loss", "q", "u_loss", ...
        axes: where to draw; None: in a figure of its own.

    Raises:
        ValueError: no results, or no such variable.
    """
    import matplotlib.pyplot as plt

    named = by_name(results)
    if not named:
        raise ValueError("results is empty, expected at least one dataset of train")
    for name, result in named.items():
        check_dataset(f"results[{name!r}]" if name else "results", result)
    figure, where = plt.subplots() if axes is None else (axes.figure, axes)
    for name, result in named.items():
        curves = [str(x) for x, values in result.data_vars.items() if values.dims == ("seed", "checkpoint")]
        check_name("show", show, curves)
        x, line = result["step"].to_numpy(), result[show].to_numpy()
        drawn = _band(where, x, line, name)
        if show == "score" and "evaluation_score" in result:
            _points(where, result, drawn)
    where.set_xlabel("environment steps")
    where.set_ylabel(f"{show} (mean of the episodes that ended)" if show in ("score", "length") else show)
    seeds = next(iter(named.values())).sizes["seed"]
    title = f"mean of {seeds} seed{'s' if seeds > 1 else ''}" + (", 95 % interval" if seeds > 1 else "")
    if set(named) == {""}:
        where.set_title(title)
    else:
        where.legend(title=title)
    return figure  # pyright: ignore[reportReturnType]


def _band(where: Any, x: np.ndarray, values: np.ndarray, name: str) -> str:
    known = np.isfinite(values).any(0)
    mean = np.nanmean(values[:, known], 0)
    (line,) = where.plot(x[known], mean, label=name or None)
    if len(values) > 1:
        half = np.apply_along_axis(_half, 0, values[:, known])
        where.fill_between(x[known], mean - half, mean + half, alpha=0.25, linewidth=0, color=line.get_color())
    return line.get_color()


def _half(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(half_width(values)) if len(values) > 1 else 0.0


def _points(where: Any, result: "xr.Dataset", color: str) -> None:
    scores = result["evaluation_score"].to_numpy()
    known = np.isfinite(scores).any(0)
    where.plot(
        result["evaluation_step"].to_numpy()[known],
        np.nanmean(scores[:, known], 0),
        linestyle="none",
        marker="o",
        markersize=4,
        markerfacecolor="none",
        color=color,
    )


def plot_visits(result: "xr.Dataset", *, seed: int | None = None) -> "Figure":
    """A film strip: how often each place was visited, in each eighth of the training.

    Args:
        result: the dataset of a `Training` in an environment with a map (DeepSea).
        seed: of which seed; None: the mean of all.

    Raises:
        ValueError: the dataset has no visits, or no such seed.
    """
    check_dataset("result", result)
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    if "visits" not in result:
        raise ValueError("result has no visits, expected a training in an environment with a map, such as deep_sea")
    visits = result["visits"]
    if seed is not None and not 0 <= seed < visits.sizes["seed"]:
        raise ValueError(f"seed is {seed}, expected an index from 0 to {visits.sizes['seed'] - 1}")
    shown = visits.mean("seed") if seed is None else visits.isel(seed=seed)
    frames = [frame for frame in shown.to_numpy() if frame.any()]
    figure, axes = plt.subplots(1, len(frames), figsize=(1.9 * len(frames) + 0.8, 2.5), layout="constrained")
    norm = LogNorm(1.0, max(float(max(frame.max() for frame in frames)), 2.0))
    image = None
    for number, (where, frame) in enumerate(zip(np.atleast_1d(axes), frames, strict=True)):
        image = where.imshow(np.where(frame > 0, frame, np.nan), norm=norm, cmap="viridis")
        where.set_title(f"{number + 1} / {len(frames)}", fontsize=9)
        where.set_xticks([])
        where.set_yticks([])
        where.set_facecolor("0.9")
    figure.colorbar(image, ax=axes, label="visits")  # pyright: ignore[reportArgumentType]
    figure.suptitle("where the agent was, part by part of the training", fontsize=10)
    return figure
