"""Pictures of environments, and of what happened in them. matplotlib is loaded when one is drawn.

An environment is its map, or a graph: nodes (states), edges (possible transitions), their places (first half).
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bayes_mdp.mdp import MDP, Environment, Picture, SimulatedEnvironment, SparseMDP
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_count, check_finite, check_index, check_number, check_type

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELLED = 30  # nodes
MOST_PROBABILITIES = 40  # arrows with a number
MOST_LINES = 20_000
RADIUS, _SMALL_RADIUS = 0.27, 0.12
_POINTS = np.linspace(0.0, 1.0, 9)


Color: TypeAlias = tuple[float, float, float, float]
"""Red, green, blue, opacity, from 0 to 1."""

_RING_SPACING = 2.4
_END_AWAY = 0.9


@dataclass(frozen=True)
class Graph:
    """Nodes (states, then ends of an episode) and edges (possible transitions of legal actions).

    positions: Float[N 2], x and y, y downwards. names: of the nodes, "" for ends. reward: Float[N A], mean, zero where
    illegal. first, is_end: Bool[N]. source, action, target, probability: [E]. shape: "line" (side by side), "plane" or
    "layers" (one row of nodes a step). unit: distance by which circles and bends are measured.
    """

    positions: np.ndarray
    names: list[str]
    reward: np.ndarray
    first: np.ndarray
    is_end: np.ndarray
    source: np.ndarray
    action: np.ndarray
    target: np.ndarray
    probability: np.ndarray
    shape: str
    unit: float


def graph_of(mdp: MDP | SparseMDP, picture: Picture | None, names: list[str], step: int | None) -> Graph:
    """The graph of one step; where rows depend on the step and `step` is None, that of all steps from top to bottom.

    Of all steps the states are drawn that can be reached; the last row is what follows the last step.
    """
    mdp = mdp if step is None else mdp.at(step)
    horizon, n_states, initial = mdp.horizon, mdp.n_states, np.asarray(mdp.initial) > 0
    (*time, source, action), outcome, probability = transitions(mdp)
    layer = time[0] if time else np.zeros_like(source)
    if horizon is not None:
        met = _reachable(layer, source, outcome, initial)
        layer, source, action, outcome, probability = (x[met] for x in (layer, source, action, outcome, probability))
    # The key of a node: its layer, then its state, or the state whose end it is: every state that may end has an end
    # beside it, because lines to one common end would cross the picture.
    size, next_layer = 2 * n_states, layer + (horizon is not None)
    tail, head = size * layer + source, size * next_layer + outcome
    head = np.where(outcome == n_states, size * layer + n_states + source, head)
    states = np.arange(n_states) if horizon is None else np.flatnonzero(initial)
    keys = np.unique(np.concatenate([states, tail, head]))
    # A node ends the episode as an end, or as what follows the last step; such nodes come after states.
    is_end = (keys % size >= n_states) | (keys >= size * (horizon or 1))
    order = np.argsort(is_end, kind="stable")
    keys, is_end = keys[order], is_end[order]
    layer_of, state_of = keys // size, keys % n_states
    number = {key: i for i, key in enumerate(keys.tolist())}
    spots = places(n_states, picture)
    unit = _unit(spots, picture) if horizon is None else 1.0
    if horizon is None:
        # Loops are above a line, ends below.
        outward = (-unit if is_line(spots) else unit) * _END_AWAY * outward_of(spots)
        positions = spots[state_of] + is_end[:, None] * outward[state_of]
    else:
        positions = np.stack([order_of(n_states, picture)[state_of], layer_of.astype(float)], -1)
        positions[keys % size >= n_states] += (-0.4, 0.4)
    reward = np.where(True if mdp.legal is None else np.asarray(mdp.legal), np.asarray(mdp.reward, float), 0.0)
    # Without a leading axis of steps there is one layer.
    reward = reward.reshape(-1, n_states, mdp.n_actions)
    return Graph(
        positions=positions,
        names=["" if end else names[state] for state, end in zip(state_of, is_end, strict=True)],
        reward=np.where(is_end[:, None], 0.0, reward[np.where(is_end, 0, layer_of), state_of]),
        first=(layer_of == 0) & ~is_end & initial[state_of],
        is_end=is_end,
        source=np.array([number[key] for key in tail.tolist()], int),
        action=action,
        target=np.array([number[key] for key in head.tolist()], int),
        probability=probability,
        shape="layers" if horizon is not None else "line" if is_line(spots) else "plane",
        unit=unit,
    )


def _reachable(layer: np.ndarray, source: np.ndarray, outcome: np.ndarray, initial: np.ndarray) -> np.ndarray:
    """Bool[E]: which transitions can be met from the first states on."""
    reached, met = initial, np.zeros(len(source), bool)
    for step in range(int(layer.max(initial=-1)) + 1):
        here = (layer == step) & reached[source]
        reached, met = np.isin(np.arange(len(initial)), outcome[here]), met | here
    return met


def transitions(mdp: MDP | SparseMDP) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """What can happen by legal actions: cells (*step, state, action), outcomes (S: the end), probabilities; in order.

    Listed successors stay listed: no dense row is made.
    """
    size, n_states = mdp.reward.shape, mdp.n_states
    if isinstance(mdp, SparseMDP):
        probs, outcome = np.asarray(mdp.probability), np.asarray(mdp.successor)
    else:
        probs = np.asarray(mdp.transition_probs)
        outcome = np.broadcast_to(np.arange(n_states), probs.shape)
    if mdp.end_probs is not None:
        probs = np.concatenate([probs, np.asarray(mdp.end_probs)[..., None]], -1)
        outcome = np.concatenate([outcome, np.full((*size, 1), n_states)], -1)
    legal = np.broadcast_to(True if mdp.legal is None else np.asarray(mdp.legal), size)
    entries = np.nonzero((probs > 0) & legal[..., None])
    # Sort by cell and outcome; a successor that is listed twice is one outcome.
    code = np.ravel_multi_index((*entries[:-1], outcome[entries]), (*size, n_states + 1))
    codes, index = np.unique(code, return_inverse=True)
    *cells, outcome = np.unravel_index(codes, (*size, n_states + 1))
    return tuple(cells), outcome, np.bincount(index, probs[entries], len(codes))


def places(n_states: int, picture: Picture | None) -> np.ndarray:
    """Float[S 2]: positions of the states; without a picture that separates them, a ring, clockwise from the top."""
    if picture is not None and _apart(picture):
        return np.asarray(picture.positions, float)
    # Neighbours on the ring are _RING_SPACING apart: the radius follows from the chord.
    turn = 2 * np.pi * np.arange(n_states) / n_states
    radius = _RING_SPACING / (2 * np.sin(np.pi / n_states)) if n_states > 1 else 0.0
    return radius * np.stack([np.sin(turn), -np.cos(turn)], -1)


def _apart(picture: Picture) -> bool:
    return len(set(picture.positions)) == len(picture.positions)


def _unit(positions: np.ndarray, picture: Picture | None) -> float:
    """The distance of the nearest two states of a picture; 1 in a ring."""
    if picture is None or not _apart(picture) or len(positions) == 1:
        return 1.0
    from scipy.spatial import KDTree

    return float(KDTree(positions).query(positions, 2)[0][:, 1].min())


def order_of(n_states: int, picture: Picture | None) -> np.ndarray:
    """Float[S]: rank of every state from left to right, then downwards; its index where they are in a ring."""
    if picture is None or picture.cells is not None:
        return np.arange(n_states, dtype=float)
    x, y = np.asarray(picture.positions, float).T
    # Sorted by x, then by y; the second argsort turns an order into ranks.
    return np.argsort(np.lexsort((y, x))).astype(float)


def is_line(positions: np.ndarray) -> bool:
    """Whether all positions are on one horizontal line."""
    return bool(np.all(positions[:, 1] == positions[0, 1])) and len(positions) > 1


def outward_of(positions: np.ndarray) -> np.ndarray:
    """Float[N 2]: directions away from the others; up, where they are on one line."""
    outward = positions - positions.mean(0)
    length = np.linalg.norm(outward, axis=-1, keepdims=True)
    up = np.array([0.0, -1.0])
    if is_line(positions):
        return np.broadcast_to(up, outward.shape)
    # The middle of the picture has no outward direction: there it is zero.
    return np.where(length > 1e-9, outward / np.maximum(length, 1e-9), up)


def curves_of(graph: Graph, radius: float) -> np.ndarray:
    """Float[E 4 2]: control points from the rim of the source (of this radius, in units) to that of the target.

    Curves between two nodes lie side by side. Each bends to the left of its direction where there is a way back, and
    long ones over the states in a line between their ends. Where an action leaves a state as it is, a loop.
    """
    radius = radius * graph.unit
    pairs = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    # How many curves a pair of nodes has, and below how many of them are drawn.
    number: dict[tuple[int, int], int] = {}
    for pair in pairs:
        number[pair] = number.get(pair, 0) + 1
    drawn: dict[tuple[int, int], int] = {}
    outward = outward_of(graph.positions[~graph.is_end])
    curves = np.empty((len(pairs), 4, 2))
    for e, pair in enumerate(pairs):
        slot = drawn[pair] = drawn.get(pair, -1) + 1
        source, target = graph.positions[list(pair)]
        if pair[0] == pair[1]:
            # Loops of one state are fanned around its outward direction, symmetrically.
            curves[e] = _loop(source, outward[pair[0]], radius, slot - (number[pair] - 1) / 2)
        else:
            angle = _bend(graph, pair, slot, number)
            curves[e] = _arc(source, target, angle, radius, radius * (0.35 if graph.is_end[pair[1]] else 1.0))
    return curves


def _bend(graph: Graph, pair: tuple[int, int], slot: int, number: dict[tuple[int, int], int]) -> float:
    """The angle at which a curve leaves the straight line, in degrees."""
    siblings = max(number[pair] - 1, 1)
    distance = float(np.linalg.norm(np.diff(graph.positions[list(pair)], axis=0))) / graph.unit
    long = graph.shape == "line" and distance > 1.5
    # Without a way back: straight, or fanned symmetrically around the straight line.
    if not long and (pair[1], pair[0]) not in number:
        return (slot - (number[pair] - 1) / 2) * min(36.0 if graph.shape == "line" else 26.0, 100.0 / siblings)
    if graph.shape == "line":
        # Long curves bend more, towards a limit: those of different length do not coincide.
        least = 32.0 if not long else 46.0 + 20.0 * (1.0 - np.exp((2.0 - distance) / 3.0))
        return least + slot * (min(28.0, 50.0 / siblings) if not long else min(14.0, 30.0 / siblings))
    return 14.0 + slot * min(20.0, 60.0 / siblings)


def _arc(source: np.ndarray, target: np.ndarray, angle: float, start: float, stop: float) -> np.ndarray:
    direction = target - source
    length = np.linalg.norm(direction)
    direction = direction / length
    left = np.array([direction[1], -direction[0]])  # y is downwards
    # A cubic Bezier curve: tangents at both ends are the straight line turned by the angle.
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    leave, arrive = cos * direction + sin * left, -cos * direction + sin * left
    reach = 0.38 * length
    return np.array([source + start * leave, source + reach * leave, target + reach * arrive, target + stop * arrive])


def _loop(center: np.ndarray, outward: np.ndarray, radius: float, slot: float) -> np.ndarray:
    middle = np.arctan2(outward[1], outward[0]) + np.radians(62.0) * slot
    # The inner two control points are further out, and wider apart: the loop is a drop.
    turns = middle + np.radians([-22.0, -30.0, 30.0, 22.0])
    return center + radius * np.array([1.0, 2.9, 2.9, 1.0])[:, None] * np.stack([np.cos(turns), np.sin(turns)], -1)


def along(curves: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Float[E T 2]: points of the curves at times Float[T] from 0 to 1."""
    # Bernstein polynomials of degree three.
    weight = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], -1)
    return np.einsum("tc,ecd->etd", weight, curves)


def draw_graph(axes: "Axes", graph: Graph, actions: list[str]) -> None:
    """Every state a circle with its name and its mean rewards, every transition an arrow in the colour of its action.

    Many nodes are dots, without names or heads of arrows, their colour the mean reward that is furthest from zero.
    """
    axes.set_aspect("equal")
    small = is_small(graph)
    colors = colors_of(len(actions))
    curves = (_draw_arrows if small else _draw_lines)(axes, graph, colors)
    (_draw_circles if small else _draw_dots)(axes, graph, colors)
    _set_limits(axes, graph, curves)
    _draw_legend(axes, graph, actions, colors, small)
    if graph.shape == "layers":
        _name_layers(axes, graph)
    else:
        axes.axis("off")


def is_small(graph: Graph) -> bool:
    """Whether its nodes are circles with names."""
    return int((~graph.is_end).sum()) <= MOST_LABELLED


def colors_of(number: int) -> list[Color]:
    """A colour for each action."""
    from matplotlib import colormaps

    if number <= 10:
        return [colormaps["tab10"](a) for a in range(number)]
    return [colormaps["turbo"](x) for x in np.linspace(0.05, 0.95, number)]


def size_of(graph: Graph) -> tuple[float, float]:
    """Inches for a figure of its own."""
    # Curves reach beyond the nodes: the extent is that of points on them.
    reach = np.concatenate([along(curves_of(graph, RADIUS), _POINTS).reshape(-1, 2), graph.positions])
    width, height = np.ptp(reach, axis=0) / graph.unit + 1.0
    unit = min(1.5, 13.0 / width, 8.0 / height)
    return max(6.0, unit * width), max(2.2, unit * height) + 1.0


def _draw_arrows(axes: "Axes", graph: Graph, colors: list[Color]) -> np.ndarray:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    curves = curves_of(graph, RADIUS)
    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    for curve, action, probability in zip(curves, graph.action, graph.probability, strict=True):
        path = Path(curve.tolist(), codes)
        # What is more probable is thicker and darker.
        width, opacity = 0.8 + 1.7 * probability, 0.55 + 0.45 * min(probability, 1.0)
        look = {"arrowstyle": "-|>", "mutation_scale": 8 + 5 * probability, "shrinkA": 0, "shrinkB": 0}
        arrow = FancyArrowPatch(path=path, color=colors[action], linewidth=width, alpha=opacity, **look)
        axes.add_patch(arrow)
    if len(curves) <= MOST_PROBABILITIES:
        _draw_probabilities(axes, graph, curves, colors)
    return curves


def _draw_probabilities(axes: "Axes", graph: Graph, curves: np.ndarray, colors: list[Color]) -> None:
    """Beside the middle of each arrow that is not certain; before it where arrows cross in the middle."""
    spots = along(curves, np.array([0.5 if graph.shape == "line" else 0.4]))[:, 0]
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5}
    look["bbox"] = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    for spot, action, probability in zip(spots, graph.action, graph.probability, strict=True):
        if probability < 1.0 - 1e-6:
            axes.text(spot[0], spot[1], f"{probability:.2g}", color=colors[action], **look)


def _draw_circles(axes: "Axes", graph: Graph, colors: list[Color]) -> None:
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
            text_y = y + (k - (len(lines) - 1) / 2) * height
            size = 10.0 if k == 0 else 8.0
            axes.text(x, text_y, text, color=color, ha="center", va="center", fontsize=size, zorder=4)


def _draw_lines(axes: "Axes", graph: Graph, colors: list[Color]) -> np.ndarray:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    # Back in their own order, as curves side by side are numbered by it.
    likely = np.sort(np.argsort(-graph.probability, kind="stable")[:MOST_LINES])
    curves = curves_of(_with_edges(graph, likely), _SMALL_RADIUS)
    # Many lines are fainter, so that dense parts can still be told apart.
    opacity = np.clip(0.15 + 0.7 * graph.probability[likely], 0.0, 1.0) * min(1.0, 40.0 / len(likely) ** 0.5)
    shades = [to_rgba(colors[a], o) for a, o in zip(graph.action[likely], opacity, strict=True)]
    axes.add_collection(LineCollection(list(along(curves, _POINTS)), colors=shades, linewidths=1.0))
    if len(likely) < len(graph.probability):
        axes.set_title(f"the {len(likely)} most probable of {len(graph.probability)} transitions")
    return curves


def _with_edges(graph: Graph, index: np.ndarray) -> Graph:
    columns = ("source", "action", "target", "probability")
    return replace(graph, **{name: getattr(graph, name)[index] for name in columns})


def _draw_dots(axes: "Axes", graph: Graph, colors: list[Color]) -> None:
    furthest = np.take_along_axis(graph.reward, np.abs(graph.reward).argmax(1)[:, None], 1)[:, 0]
    states, ends = graph.positions[~graph.is_end], graph.positions[graph.is_end]
    # Symmetric around zero: white is a reward of zero.
    span = float(np.abs(furthest).max()) or 1.0
    size = float(np.clip(4000 / len(states), 4.0, 60.0))
    look = {"edgecolors": "black", "linewidths": np.where(graph.first[~graph.is_end], 2.0, 0.5), "zorder": 3}
    shades = axes.scatter(*states.T, s=size, c=furthest[~graph.is_end], cmap="RdBu", vmin=-span, vmax=span, **look)
    axes.scatter(*ends.T, s=size / 4, c="black", marker="s", zorder=3)
    if furthest.any():
        axes.figure.colorbar(shades, ax=axes, fraction=0.04, label="mean reward (of the action furthest from 0)")


def _set_limits(axes: "Axes", graph: Graph, curves: np.ndarray) -> None:
    """Limits around nodes and curves: matplotlib does not take a FancyArrowPatch into account."""
    room = 0.4 * graph.unit
    reach = np.concatenate([along(curves, _POINTS).reshape(-1, 2), graph.positions - room, graph.positions + room])
    (left, top), (right, bottom) = reach.min(0), reach.max(0)
    margin = 0.1 * graph.unit
    axes.set_xlim(left - margin, right + margin)
    # y downwards: the first step, or the upper row of a grid, is at the top.
    axes.set_ylim(bottom + margin, top - margin)


def _draw_legend(axes: "Axes", graph: Graph, actions: list[str], colors: list[Color], few: bool) -> None:
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


def place_legend(axes: "Axes", handles: "Sequence[Artist]", below: float, title: str = "") -> None:
    """A legend under the axes, in columns, `below` inches away from them."""
    figure: Any = axes.figure
    width, height = figure.get_size_inches()
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = int(np.clip((width - 0.5) / (0.55 + 0.085 * longest), 1, len(handles)))
    placement = {"loc": "upper center", "bbox_to_anchor": (0.5, -below / height * 1.25)}
    axes.legend(
        handles=handles, ncols=columns, frameon=False, title=title or None, title_fontsize=8, fontsize=9, **placement
    )


def number_text(value: float, sign: str = "") -> str:
    """Three digits, without an exponent where it can be read without."""
    text = f"{value:{sign}.3g}"
    return f"{value:{sign}.0f}" if "e+" in text and abs(value) < 1e6 else text


Drawable: TypeAlias = Environment | SimulatedEnvironment
"""An environment with tables, or one with a map."""

LEGEND = {
    "#": ("wall", "#3b3f46"),
    "x": ("gray (penalty)", "#c4b8b0"),
    ".": ("free", "#fbfaf5"),
    "S": ("start", "#a8d5a2"),
    "F": ("finish", "#f2c14e"),
    "G": ("goal", "#f2c14e"),
    "g": ("lesser goal", "#f7e3a1"),
    "f": ("flag", "#f4a582"),
    "P": ("pickup", "#9ecae1"),
    "D": ("delivery", "#c5b0d5"),
}
_PLAIN = "#.x "
_OTHERS = ("#f4a582", "#b2dfdb", "#e7cb94", "#dadaeb")
_FIRST, _LAST, _JUMP = "tab:green", "tab:red", "0.25"


START = "S"
_NEAR = 1.5  # cells


def plot_env(
    env: Drawable,
    *,
    step: int | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    axes: "Axes | None" = None,
) -> "Figure":
    """What an environment looks like: its map where it has one, else its states and what leads from one to another.

    A circle is a state (thick: a possible first one), with the mean reward of each action where it is not zero; an
    arrow is a possible transition by a legal action, in the colour of the action, the wider the more probable; a small
    square is the end of an episode. Rows that depend on the step are drawn for all steps, from top to bottom, with the
    states that can be reached. Above 30 states there are dots without names, and lines without heads.

    Args:
        env: an `Environment`, or a `SimulatedEnvironment` with a map.
        step: this step alone, where rows depend on it.
        states, actions: their names; None: their numbers.
        axes: where to draw; None: in a figure of its own.

    Raises:
        ValueError: neither tables nor a map, `step` is none of its steps, a picture or names of another number of
            states or actions.
        TypeError: no environment.

    Example:
        >>> bm.plots.plot_env(bm.envs.chain()).savefig("chain.png")
    """
    from bayes_mdp.utils.figures import place

    picture = _picture(env)
    if picture is not None and picture.cells is not None:
        figure, panel = place(axes, map_size(picture.cells))
        draw_map(panel, picture.cells)
    else:
        assert isinstance(env, Environment)  # `_picture` refuses what has neither tables nor a map
        graph = _graph(env, step, states)
        figure, panel = place(axes, size_of(graph))
        draw_graph(panel, graph, _names("actions", actions, env.mdp.n_actions, "action "))
    if axes is None:
        panel.set_title(": ".join(filter(None, (env.name, panel.get_title()))))
        # Makes room for title and legend around where axes of a fixed aspect are drawn, "constrained" does not.
        figure.set_layout_engine("compressed")
    return figure


def plot_trajectory(
    env: Drawable,
    states: ArrayLike,
    *,
    longest: float | None = None,
    names: Sequence[Hashable] | None = None,
    axes: "Axes | None" = None,
) -> "Figure":
    """Where a trajectory went, in time order: on the map, or on the plane where the states are not on one line.

    Elsewhere the state, by its place in the line (or its number in a ring), is drawn over time; where rows depend on
    the step, the path is drawn on the picture of all steps. Jumps, such as a new episode, are dashed: transitions that
    no legal action makes, and on a map moves of more than a cell and a half to a first state.

    Args:
        env: an `Environment`, or a `SimulatedEnvironment` with a map.
        states: Int[T], indices of states, or on a map or a plane Float[T 2], positions (x, y).
        longest: moves on a map or a plane that are longer (in units of its axes) are the jumps; None: see above.
        names: of states; None: their numbers.
        axes: where to draw; None: in a figure of its own.

    Raises:
        ValueError: no states, an index or a position out of range (which), more steps than an episode has; neither
            tables nor a map; a picture or names of another number of states.
        TypeError: no environment, states that are neither indices nor positions.

    Example:
        >>> bm.plots.plot_trajectory(bm.envs.slippery_grid(3), [0, 1, 2]).savefig("walk.png")
    """
    from bayes_mdp.utils.figures import place

    drawn = _drawing_kind(env)
    if isinstance(env, Environment):
        _names("names", names, env.mdp.n_states)
    indices, points = _points_of(env, drawn, states)
    jumps = _jumps(env, indices, points, longest)
    if drawn == "map":
        figure = plot_env(env, axes=axes)
        draw_path(figure.axes[0] if axes is None else axes, points, jumps)
        return figure
    assert isinstance(env, Environment)  # `_picture` refuses what has neither tables nor a map
    if drawn == "over time":
        figure, panel = place(axes, (8.0, 3.6))
        draw_over_time(panel, points[:, 1], jumps)
        _name_states(panel, env, names)
        if axes is None:
            panel.set_title(env.name)
        return figure
    figure, graph = plot_env(env, states=names, axes=axes), _graph(env, None, None)
    halo = RADIUS * graph.unit if is_small(graph) else None
    draw_path(figure.axes[0] if axes is None else axes, points, jumps, halo=halo, bar=drawn != "layers")
    return figure


def _drawing_kind(env: Drawable) -> str:
    """Where its trajectories are drawn: on a "map", a "plane", the "layers" of its steps, or "over time"."""
    picture = _picture(env)
    if picture is not None and picture.cells is not None:
        return "map"
    assert isinstance(env, Environment)  # `_picture` refuses what has neither tables nor a map
    mdp = env.mdp
    if mdp.horizon is not None:
        return "layers"
    if picture is None or is_line(places(mdp.n_states, picture)) or len(set(picture.positions)) < mdp.n_states:
        return "over time"
    return "plane"


def _picture(env: Drawable) -> Picture | None:
    """The picture of an environment that can be drawn."""
    if not isinstance(env, Environment | SimulatedEnvironment):
        raise TypeError(f"env is a {type(env).__name__}, expected an Environment or a SimulatedEnvironment")
    picture = env.picture
    if isinstance(env, Environment):
        n_states = env.mdp.n_states
        if picture is not None and len(picture.positions) != n_states:
            raise ValueError(f"env.picture has {len(picture.positions)} positions, expected {n_states}, one a state")
    elif picture is None or picture.cells is None:
        raise ValueError(f"env {env.name!r} has neither tables nor a map, expected one of them to draw")
    return picture


def _graph(env: Environment, step: int | None, states: Sequence[Hashable] | None) -> Graph:
    mdp = env.mdp
    if step is not None:
        check_count("step", step, 0)
    if step is not None and not 0 <= step < (mdp.horizon or 1):
        raise ValueError(f"step is {step}, expected an index from 0 to {(mdp.horizon or 1) - 1}")
    return graph_of(mdp, env.picture, _names("states", states, mdp.n_states), step)


def _names(argument: str, names: Sequence[Hashable] | None, number: int, before: str = "") -> list[str]:
    if names is None:
        return [f"{before}{i}" for i in range(number)]
    check_type(argument, names, Iterable, "a sequence of names")
    labels = list(names)
    if len(labels) != number:
        raise ValueError(f"{argument} has {len(labels)} names, expected {number}")
    return [str(name) for name in labels]


def _points_of(env: Drawable, drawn: str, states: ArrayLike) -> tuple[np.ndarray | None, np.ndarray]:
    """The indices of the states, where they are indices, and where they are drawn: Float[T 2]."""
    array, picture = np.asarray(states), env.picture
    plane = picture if drawn in ("map", "plane") else None
    if not array.size:
        raise ValueError("states is empty, expected at least one state")
    if array.ndim == 2 and array.shape[1] == 2 and plane is not None:
        check_finite("states", array)
        _check_on_map(plane, array)
        return None, array.astype(float)
    if array.ndim != 1:
        also = " or (time, 2), positions x and y" if plane is not None else ""
        raise ValueError(f"states has shape {array.shape}, expected (time,), indices of states{also}")
    n_states = env.mdp.n_states if isinstance(env, Environment) else len(() if plane is None else plane.positions)
    if not n_states:
        raise ValueError(f"env {env.name!r} has no positions of states, expected states of shape (time, 2), x and y")
    check_index("states", array, n_states, "state")
    horizon = env.mdp.horizon if isinstance(env, Environment) else None
    if horizon is not None and len(array) > horizon + 1:
        raise ValueError(f"states has {len(array)} entries, expected at most {horizon + 1}, one episode")
    if plane is not None:
        return array, np.asarray(plane.positions, float)[array]
    time = np.arange(len(array))
    rank = order_of(n_states, picture)[array]
    return array, np.stack([rank, time] if drawn == "layers" else [time, rank], -1)


def _check_on_map(picture: Picture, points: np.ndarray) -> None:
    if picture.cells is None:
        return
    size = np.array([max(map(len, picture.cells)), len(picture.cells)])
    outside = np.flatnonzero(((points < -0.5) | (points > size - 0.5)).any(-1))
    if len(outside):
        t = int(outside[0])
        spot, width, height = tuple(points[t].tolist()), *size.tolist()
        raise ValueError(f"states[{t}] is {spot}, expected a place on the map of {width} columns and {height} lines")


def _jumps(env: Drawable, indices: np.ndarray | None, points: np.ndarray, longest: float | None) -> np.ndarray:
    """Bool[T-1]: the moves that no transition of the environment makes."""
    length = np.linalg.norm(np.diff(points, axis=0), axis=-1)
    if longest is not None:
        check_number("longest", longest, lambda x: x > 0, "a number greater than zero")
        return length > longest
    cells = None if env.picture is None else env.picture.cells
    jumps, starts = np.zeros(len(length), bool), np.zeros(len(length), bool)
    if indices is not None and isinstance(env, Environment):
        jumps = ~_possible(env.mdp, indices)
        starts = np.asarray(env.mdp.initial)[indices[1:]] > 0
    elif cells is not None:
        places_of_starts = {(x, y) for y, line in enumerate(cells) for x, kind in enumerate(line) if kind == START}
        starts = np.array([tuple(cell) in places_of_starts for cell in np.rint(points[1:]).astype(int).tolist()], bool)
    return jumps | ((cells is not None) & starts & (length > _NEAR))


def _possible(mdp: MDP | SparseMDP, states: np.ndarray) -> np.ndarray:
    """Bool[T-1]: whether some legal action leads from each state to the one after it."""
    (*time, source, _), outcome, _ = transitions(mdp)
    size = (mdp.horizon or 1, mdp.n_states, mdp.n_states + 1)
    layer = time[0] if time else np.zeros_like(source)
    step = np.arange(len(states) - 1) * bool(time)
    possible = np.ravel_multi_index((layer, source, outcome), size)
    return np.isin(np.ravel_multi_index((step, states[:-1], states[1:]), size), possible)


def _name_states(axes: "Axes", env: Environment, names: Sequence[Hashable] | None) -> None:
    """The states in their order on the y axis, at most 20 of them with a name."""
    states = _names("names", names, env.mdp.n_states)
    order = np.argsort(order_of(len(states), env.picture))
    stride = max(1, -(-len(states) // 20))
    axes.set_yticks(range(0, len(states), stride), [states[s] for s in order[::stride]])
    axes.set(xlabel="step", ylabel="state", ylim=(-0.5, len(states) - 0.5))


def draw_map(axes: "Axes", cells: tuple[str, ...]) -> None:
    """The lines of a text map as coloured cells: column x of line y around the point (x, y), y downwards."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    width = max(map(len, cells))
    grid = np.array([list(line.ljust(width)) for line in cells])
    kinds = [kind for kind in dict.fromkeys([*LEGEND, *sorted(set(grid.ravel()))]) if (grid == kind).any()]
    other_kinds = [kind for kind in kinds if kind not in LEGEND and kind != " "]
    shades = {kind: LEGEND[kind][1] for kind in LEGEND} | {" ": "white"}
    shades |= {kind: _OTHERS[i % len(_OTHERS)] for i, kind in enumerate(other_kinds)}
    codes = np.argmax(grid[..., None] == np.array(kinds), -1)
    look = ListedColormap([shades[kind] for kind in kinds])
    axes.imshow(codes, cmap=look, vmin=-0.5, vmax=len(kinds) - 0.5, interpolation="none")
    axes.set_xticks(np.arange(width + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(cells) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="black", alpha=0.12, linewidth=0.6)
    axes.tick_params(which="both", length=0, labelsize=7)
    for y, x in np.argwhere(~np.isin(grid, list(_PLAIN))):
        axes.text(x, y, str(grid[y, x]), ha="center", va="center", fontsize=9, color="#3b3f46", fontweight="bold")
    named = [(kind, LEGEND[kind][0] if kind in LEGEND else kind) for kind in kinds if kind != " "]
    handles = [Patch(facecolor=shades[kind], edgecolor="0.6", label=name) for kind, name in named]
    place_legend(axes, handles, 0.3)


def map_size(cells: tuple[str, ...]) -> tuple[float, float]:
    """Inches for a figure of its own."""
    width, height = max(map(len, cells)), len(cells)
    unit = min(0.42, 12.0 / width, 8.0 / height)
    return max(4.2, unit * width + 1.4), max(2.6, unit * height + 1.1)


def draw_path(
    axes: "Axes", points: np.ndarray, jumps: np.ndarray, *, halo: float | None = None, bar: bool = True
) -> None:
    """Through points Float[T 2] in the colour of their time, jumps (Bool[T-1]) dashed.

    On a map arrows; on a graph of circles (of radius `halo`) a broad band beneath its arrows, rings around the ends.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Circle
    from matplotlib.ticker import MaxNLocator

    time, shades = np.arange(len(points)), _shades(len(points))
    look: dict[str, Any]
    if halo is None:
        moves, level = np.diff(points, axis=0), 5.0
        moved = ~jumps & np.any(moves != 0, -1)
        look = {"angles": "xy", "scale_units": "xy", "scale": 1, "units": "dots", "width": 1.8}
        look |= {"headwidth": 5, "headlength": 6, "headaxislength": 5.5, "zorder": level}
        axes.quiver(*points[:-1][moved].T, *moves[moved].T, time[:-1][moved], **look, **shades)
        _mark_ends(axes, points)
    else:
        segments, level = np.stack([points[:-1], points[1:]], 1)[~jumps], 2.5
        look = {"linewidths": 12.0, "alpha": 0.5, "zorder": 0.5, "capstyle": "round"}
        axes.add_collection(LineCollection(list(segments), array=time[:-1][~jumps], **look, **shades))
        for point, size, color in ((points[0], 1.18, _FIRST), (points[-1], 1.36, _LAST)):
            axes.add_patch(Circle(tuple(point), size * halo, fill=False, edgecolor=color, linewidth=3.5, zorder=2.6))
    dots = axes.scatter(*points.T, c=time, s=12, zorder=level, label="path", **shades)
    _draw_jumps(axes, points, jumps, level)
    if bar and len(points) > 1:
        axes.figure.colorbar(dots, ax=axes, fraction=0.03, label="step", ticks=MaxNLocator(integer=True))
    _extend_legend(axes, bool(jumps.any()), "X" if halo is None else "o")


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
    """Colours of time, as arguments of a collection: dark first, then light, none too light for a white map."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, Normalize

    shades = ListedColormap(colormaps["plasma"](np.linspace(0.0, 0.85, 256)))
    return {"cmap": shades, "norm": Normalize(0, max(number - 1, 1))}


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
