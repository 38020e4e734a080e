"""A path on the picture of an environment."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bayes_mdp.experiments.environment_drawing import place_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIRST, _LAST, _JUMP = "tab:green", "tab:red", "0.25"


def draw_path(axes: "Axes", points: np.ndarray, jumps: np.ndarray, *, bar: bool = True) -> None:
    """Through points Float[T 2]: arrows and dots in the colour of their time, jumps (Bool[T-1]) dashed."""
    time = np.arange(len(points))
    moves = np.diff(points, axis=0)
    drawn = ~jumps & np.any(moves != 0, -1)
    (x, y), (dx, dy) = points[:-1][drawn].T, moves[drawn].T
    look = {"angles": "xy", "scale_units": "xy", "scale": 1, "units": "dots", "width": 1.8}
    look |= {"headwidth": 5, "headlength": 6, "headaxislength": 5.5, "zorder": 5}
    axes.quiver(x, y, dx, dy, time[:-1][drawn], **look, **_shades(len(points)))
    dots = axes.scatter(*points.T, c=time, s=12, zorder=5, label="path", **_shades(len(points)))
    _draw_jumps(axes, points, jumps, 5)
    _mark_ends(axes, points)
    if bar and len(points) > 1:
        _draw_bar(axes, dots)
    _extend_legend(axes, bool(jumps.any()))


def draw_path_beneath(axes: "Axes", points: np.ndarray, jumps: np.ndarray, *, halo: float, bar: bool = True) -> None:
    """The same as a broad band beneath the arrows of a graph; rings around its ends, a little wider than `halo`."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Circle

    time = np.arange(len(points))
    segments = np.stack([points[:-1], points[1:]], 1)[~jumps]
    look: dict[str, Any] = {"linewidths": 12.0, "alpha": 0.5, "zorder": 0.5, "capstyle": "round"}
    axes.add_collection(LineCollection(list(segments), array=time[:-1][~jumps], **look, **_shades(len(points))))
    dots = axes.scatter(*points.T, c=time, s=12, zorder=2.5, label="path", **_shades(len(points)))
    _draw_jumps(axes, points, jumps, 2.5)
    for point, size, color in ((points[0], 1.18, _FIRST), (points[-1], 1.36, _LAST)):
        axes.add_patch(Circle(tuple(point), size * halo, fill=False, edgecolor=color, linewidth=3.5, zorder=2.6))
    if bar and len(points) > 1:
        _draw_bar(axes, dots)
    _extend_legend(axes, bool(jumps.any()), "o")


def draw_over_time(axes: "Axes", places: np.ndarray, jumps: np.ndarray) -> None:
    """Places Float[T] of the states over time."""
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import MaxNLocator

    points = np.stack([np.arange(len(places)), places], -1)
    segments = np.stack([points[:-1], points[1:]], 1)[~jumps]
    axes.add_collection(LineCollection(list(segments), colors="tab:blue", linewidths=1.0))
    size = float(np.clip(600 / len(points), 1.0, 4.0))
    axes.plot(*points.T, marker="o", markersize=size, linestyle="", color="tab:blue", label="path")
    _draw_jumps(axes, points, jumps, 2)
    _mark_ends(axes, points)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    margin = max(0.5, 0.02 * len(points))
    axes.set_xlim(-margin, max(len(points) - 1, 1) + margin)
    _extend_legend(axes, bool(jumps.any()))


def _shades(number: int) -> dict[str, Any]:
    """Colours of time: dark first, then light, none too light for a white map."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, Normalize

    shades = ListedColormap(colormaps["plasma"](np.linspace(0.0, 0.85, 256)))
    return {"cmap": shades, "norm": Normalize(0, max(number - 1, 1))}


def _draw_bar(axes: "Axes", dots: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.figure.colorbar(dots, ax=axes, fraction=0.03, label="step", ticks=MaxNLocator(integer=True))


def _draw_jumps(axes: "Axes", points: np.ndarray, jumps: np.ndarray, zorder: float) -> None:
    from matplotlib.collections import LineCollection

    segments = np.stack([points[:-1], points[1:]], 1)[jumps]
    axes.add_collection(
        LineCollection(list(segments), colors=_JUMP, linestyles="--", linewidths=1.0, zorder=zorder, label="jumps")
    )


def _mark_ends(axes: "Axes", points: np.ndarray) -> None:
    look: dict[str, Any] = {"linestyle": "", "zorder": 6, "clip_on": False}
    axes.plot(*points[0], marker="o", markersize=11, fillstyle="none", markeredgewidth=2.0, color=_FIRST, **look)
    axes.plot(*points[-1], marker="X", markersize=9, color=_LAST, markeredgecolor="white", **look)


def _extend_legend(axes: "Axes", jumps: bool, last: str = "X") -> None:
    """The marks of a path beside what the legend already holds."""
    from matplotlib.lines import Line2D

    old: Any = axes.get_legend()
    look: dict[str, Any] = {"linestyle": "", "markersize": 8, "markeredgewidth": 1.5}
    handles = [] if old is None else list(old.legend_handles)
    handles.append(Line2D([], [], marker="o", fillstyle="none", color=_FIRST, label="path starts", **look))
    fill = "none" if last == "o" else "full"
    handles.append(Line2D([], [], marker=last, fillstyle=fill, color=_LAST, label="path ends", **look))
    if jumps:
        handles.append(Line2D([], [], color=_JUMP, linestyle="--", linewidth=1.0, label="jump"))
    place_legend(axes, handles, 0.5, "" if old is None else old.get_title().get_text())
