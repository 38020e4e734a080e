"""A graph on axes: labelled circles and arrows, or, where there are many nodes, dots and lines."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayes_mdp.experiments.environment_curves import along, curves_of
from bayes_mdp.experiments.environment_graph import Graph

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LABELLED = 30  # nodes
MOST_PROBABILITIES = 40  # arrows with a number
MOST_LINES = 20_000
RADIUS, _SMALL_RADIUS = 0.27, 0.12
_POINTS = np.linspace(0.0, 1.0, 9)


def draw_graph(axes: "Axes", graph: Graph, actions: list[str]) -> None:
    """Every state a circle with its name and its mean rewards, every transition an arrow in the colour of its action.

    Many nodes are dots, without names or heads of arrows, their colour the mean reward that is furthest from zero.
    """
    axes.set_aspect("equal")
    few = is_small(graph)
    colors = colors_of(len(actions))
    curves = (_draw_arrows if few else _draw_lines)(axes, graph, colors)
    (_draw_circles if few else _draw_dots)(axes, graph, colors)
    _set_limits(axes, graph, curves)
    _draw_legend(axes, graph, actions, colors, few)
    if graph.shape == "layers":
        _name_layers(axes, graph)
    else:
        axes.axis("off")


def is_small(graph: Graph) -> bool:
    """Whether its nodes are circles with names."""
    return int((~graph.is_end).sum()) <= MOST_LABELLED


def colors_of(number: int) -> list[Any]:
    """A colour for each action."""
    from matplotlib import colormaps

    if number <= 10:
        return [colormaps["tab10"](a) for a in range(number)]
    return [colormaps["turbo"](x) for x in np.linspace(0.05, 0.95, number)]


def size_of(graph: Graph) -> tuple[float, float]:
    """Inches for a figure of its own."""
    reach = np.concatenate([along(curves_of(graph, RADIUS), _POINTS).reshape(-1, 2), graph.positions])
    width, height = np.ptp(reach, axis=0) / graph.unit + 1.0
    unit = min(1.5, 13.0 / width, 8.0 / height)
    return max(6.0, unit * width), max(2.2, unit * height) + 1.0


def _draw_arrows(axes: "Axes", graph: Graph, colors: list[Any]) -> np.ndarray:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    curves = curves_of(graph, RADIUS)
    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    for curve, action, probability in zip(curves, graph.action, graph.probability, strict=True):
        path = Path(curve.tolist(), codes)
        width, opacity = 0.8 + 1.7 * probability, 0.55 + 0.45 * min(probability, 1.0)
        look = {"arrowstyle": "-|>", "mutation_scale": 8 + 5 * probability, "shrinkA": 0, "shrinkB": 0}
        arrow = FancyArrowPatch(path=path, color=colors[action], linewidth=width, alpha=opacity, **look)
        axes.add_patch(arrow)
    if len(curves) <= MOST_PROBABILITIES:
        _draw_probabilities(axes, graph, curves, colors)
    return curves


def _draw_probabilities(axes: "Axes", graph: Graph, curves: np.ndarray, colors: list[Any]) -> None:
    """Beside the middle of each arrow that is not certain; before it where arrows cross in the middle."""
    spots = along(curves, np.array([0.5 if graph.shape == "line" else 0.4]))[:, 0]
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5}
    look["bbox"] = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    for spot, action, probability in zip(spots, graph.action, graph.probability, strict=True):
        if probability < 1.0 - 1e-6:
            axes.text(spot[0], spot[1], f"{probability:.2g}", color=colors[action], **look)


def _draw_circles(axes: "Axes", graph: Graph, colors: list[Any]) -> None:
    from matplotlib.patches import Circle, Rectangle

    radius = RADIUS * graph.unit
    for n, (x, y) in enumerate(graph.positions):
        if graph.is_end[n]:
            side = 0.36 * radius
            axes.add_patch(Rectangle((x - side / 2, y - side / 2), side, side, color="black", zorder=3))
            continue
        width = 2.6 if graph.first[n] else 1.0
        axes.add_patch(Circle((x, y), radius, facecolor="white", edgecolor="black", linewidth=width, zorder=3))
        lines = [(graph.names[n], "black")]
        lines += [(number_text(r, "+"), colors[a]) for a, r in enumerate(graph.reward[n]) if r != 0]
        height = min(0.64, 1.8 / len(lines)) * radius
        for k, (text, color) in enumerate(lines):
            where = y + (k - (len(lines) - 1) / 2) * height
            size = 10.0 if k == 0 else 8.0
            axes.text(x, where, text, color=color, ha="center", va="center", fontsize=size, zorder=4)


def _draw_lines(axes: "Axes", graph: Graph, colors: list[Any]) -> np.ndarray:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    likely = np.sort(np.argsort(-graph.probability, kind="stable")[:MOST_LINES])
    curves = curves_of(_with_edges(graph, likely), _SMALL_RADIUS)
    opacity = np.clip(0.15 + 0.7 * graph.probability[likely], 0.0, 1.0) * min(1.0, 40.0 / len(likely) ** 0.5)
    shades = [to_rgba(colors[a], o) for a, o in zip(graph.action[likely], opacity, strict=True)]
    axes.add_collection(LineCollection(list(along(curves, _POINTS)), colors=shades, linewidths=1.0))
    if len(likely) < len(graph.probability):
        axes.set_title(f"the {len(likely)} most probable of {len(graph.probability)} transitions")
    return curves


def _with_edges(graph: Graph, index: np.ndarray) -> Graph:
    columns = ("source", "action", "target", "probability")
    return replace(graph, **{name: getattr(graph, name)[index] for name in columns})


def _draw_dots(axes: "Axes", graph: Graph, colors: list[Any]) -> None:
    furthest = np.take_along_axis(graph.reward, np.abs(graph.reward).argmax(1)[:, None], 1)[:, 0]
    states, ends = graph.positions[~graph.is_end], graph.positions[graph.is_end]
    span = float(np.abs(furthest).max()) or 1.0
    size = float(np.clip(4000 / len(states), 4.0, 60.0))
    look = {"edgecolors": "black", "linewidths": np.where(graph.first[~graph.is_end], 2.0, 0.5), "zorder": 3}
    shades = axes.scatter(*states.T, s=size, c=furthest[~graph.is_end], cmap="RdBu", vmin=-span, vmax=span, **look)
    axes.scatter(*ends.T, s=size / 4, c="black", marker="s", zorder=3)
    if furthest.any():
        axes.figure.colorbar(shades, ax=axes, fraction=0.04, label="mean reward (of the action furthest from 0)")


def _set_limits(axes: "Axes", graph: Graph, curves: np.ndarray) -> None:
    """FancyArrowPatch moves no limits."""
    room = 0.4 * graph.unit
    reach = np.concatenate([along(curves, _POINTS).reshape(-1, 2), graph.positions - room, graph.positions + room])
    (left, top), (right, bottom) = reach.min(0), reach.max(0)
    margin = 0.1 * graph.unit
    axes.set_xlim(left - margin, right + margin)
    axes.set_ylim(bottom + margin, top - margin)


def _draw_legend(axes: "Axes", graph: Graph, actions: list[str], colors: list[Any], few: bool) -> None:
    from matplotlib.lines import Line2D

    shown = np.unique(graph.action)
    handles = [Line2D([], [], color=colors[a], linewidth=2.5, label=actions[a]) for a in shown]
    look: dict[str, Any] = {"linestyle": "", "markerfacecolor": "white", "markeredgecolor": "black"}
    handles.append(Line2D([], [], marker="o", markersize=9, markeredgewidth=2.4, label="first state", **look))
    if graph.is_end.any():
        look["markerfacecolor"] = "black"
        handles.append(Line2D([], [], marker="s", markersize=5, label="end of the episode", **look))
    notes = []
    if few and graph.reward.any():
        notes.append("In a circle: mean reward of an action, where it is not 0.")
    if few and len(graph.source) <= MOST_PROBABILITIES and np.any(graph.probability < 1.0 - 1e-6):
        notes.append("On an arrow: its probability, where it is not 1.")
    place_legend(axes, handles, 0.5 if graph.shape == "layers" else 0.0, "\n".join(notes))


def _name_layers(axes: "Axes", graph: Graph) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("state, from left to right")
    axes.set_ylabel("step")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)


def place_legend(axes: "Axes", handles: list[Any], below: float, title: str = "") -> None:
    """A legend under the axes, in columns, `below` inches away from them."""
    figure: Any = axes.figure
    width, height = figure.get_size_inches()
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = int(np.clip((width - 0.5) / (0.55 + 0.085 * longest), 1, len(handles)))
    where = {"loc": "upper center", "bbox_to_anchor": (0.5, -below / height * 1.25)}
    axes.legend(
        handles=handles, ncols=columns, frameon=False, title=title or None, title_fontsize=8, fontsize=9, **where
    )


def number_text(value: float, sign: str = "") -> str:
    """Three digits, without an exponent where it can be read without."""
    text = f"{value:{sign}.3g}"
    return f"{value:{sign}.0f}" if "e+" in text and abs(value) < 1e6 else text
