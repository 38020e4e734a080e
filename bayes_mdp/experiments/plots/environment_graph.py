"""An environment as a graph: nodes (states), edges (possible transitions), their places, and how they are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bayes_mdp.mdp import MDP, Picture, SparseMDP

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

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
    """The graph of one step; that of all steps where rows depend on the step and `step` is None."""
    if mdp.horizon is not None and step is None:
        return _layers(mdp, picture, names)
    mdp = mdp if step is None else mdp.at(step)
    (source, action), outcome, probability = transitions(mdp)
    # An end is a node of its own beside every state that may end: lines to one common end would cross the picture.
    ending = np.unique(source[outcome == mdp.n_states])
    state_positions = places(mdp.n_states, picture)
    unit = _unit(state_positions, picture)
    # Loops are above a line, ends below.
    outward = (-unit if is_line(state_positions) else unit) * _END_AWAY * outward_of(state_positions)
    positions = np.concatenate([state_positions, state_positions[ending] + outward[ending]])
    # `ending` is sorted, so a state's place in it is the number of its end.
    target = np.where(outcome == mdp.n_states, mdp.n_states + np.searchsorted(ending, source), outcome)
    size = len(positions)
    return Graph(
        positions=positions,
        names=[*names, *[""] * len(ending)],
        reward=_pad_with_zeros(_legal_reward(mdp), size),
        first=_pad_with_zeros(np.asarray(mdp.initial) > 0, size),
        is_end=np.arange(size) >= mdp.n_states,
        source=source,
        action=action,
        target=target,
        probability=probability,
        shape="line" if is_line(state_positions) else "plane",
        unit=unit,
    )


def _layers(mdp: MDP | SparseMDP, picture: Picture | None, names: list[str]) -> Graph:
    """Steps from top to bottom, in each the states that can be reached; the last row is what follows the last step."""
    horizon, n_states = mdp.horizon or 0, mdp.n_states
    (step, source, action), outcome, probability = transitions(mdp)
    # States that can be reached at each step, forwards from the first ones; the others are not drawn.
    reached = np.zeros((horizon + 1, n_states), bool)
    reached[0] = np.asarray(mdp.initial) > 0
    ends = np.zeros_like(reached)
    for h in range(horizon):
        possible = (step == h) & reached[h, source]
        reached[h + 1, outcome[possible & (outcome < n_states)]] = True
        ends[h, source[possible & (outcome == n_states)]] = True
    is_reached = reached[step, source]
    step, source, action, outcome, probability = (x[is_reached] for x in (step, source, action, outcome, probability))
    inner, last, ending = (np.argwhere(x) for x in (reached[:-1], reached[-1:], ends[:-1]))
    # The index of a node: states by (step, state), then ends by the (step, state) they follow.
    number = np.full((2, horizon + 1, n_states), -1)
    number[0][reached] = np.arange(reached.sum())
    number[1][ends] = reached.sum() + np.arange(ends.sum())
    # Rows are the steps, so the place within a row is the rank of the state alone.
    x = order_of(n_states, picture)
    spots = [np.stack([x[nodes[:, 1]], nodes[:, 0] + shift], -1) for nodes, shift in ((inner, 0.0), (last, horizon))]
    spots.append(np.stack([x[ending[:, 1]] - 0.4, ending[:, 0] + 0.4], -1))
    positions = np.concatenate(spots)
    reward = _pad_with_zeros(_legal_reward(mdp)[reached[:-1]], len(positions))
    # Clipped for the index only: the targets of what ends are set below.
    follows = number[0][step + 1, np.minimum(outcome, n_states - 1)]
    return Graph(
        positions=positions,
        names=[names[s] for s in inner[:, 1]] + [""] * (len(last) + len(ending)),
        reward=reward,
        first=positions[:, 1] == 0.0,
        is_end=np.arange(len(positions)) >= len(inner),
        source=number[0][step, source],
        action=action,
        target=np.where(outcome == n_states, number[1][step, source], follows),
        probability=probability,
        shape="layers",
        unit=1.0,
    )


def transitions(mdp: MDP | SparseMDP) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """What can happen by legal actions: cells (*step, state, action), outcomes (S: the end), probabilities; in order.

    Listed successors stay listed: no dense row is made.
    """
    size, n_states = mdp.reward.shape, mdp.n_states
    legal = np.broadcast_to(True if mdp.legal is None else np.asarray(mdp.legal), size)
    if isinstance(mdp, SparseMDP):
        probs, outcome = np.asarray(mdp.probability), np.asarray(mdp.successor)
    else:
        probs = np.asarray(mdp.transition_probs)
        outcome = np.broadcast_to(np.arange(n_states), probs.shape)
    entries = np.nonzero((probs > 0) & legal[..., None])
    cells, outcome, probability = entries[:-1], outcome[entries], probs[entries].astype(np.float64)
    if mdp.end_probs is not None:
        ends = np.asarray(mdp.end_probs)
        ending = np.nonzero((ends > 0) & legal)
        cells = tuple(np.concatenate(pair) for pair in zip(cells, ending, strict=True))
        outcome = np.append(outcome, np.full(len(ending[0]), n_states))
        probability = np.append(probability, ends[ending])
    # Sort by cell and outcome, and merge what is listed twice.
    code = np.ravel_multi_index((*cells, outcome), (*size, n_states + 1))
    codes, index = np.unique(code, return_inverse=True)  # a successor that is listed twice is one outcome
    *cells, outcome = np.unravel_index(codes, (*size, n_states + 1))
    return tuple(cells), outcome, np.bincount(index, probability, len(codes))


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


def _legal_reward(mdp: MDP | SparseMDP) -> np.ndarray:
    reward = np.asarray(mdp.reward, float)
    return reward if mdp.legal is None else np.where(np.asarray(mdp.legal), reward, 0.0)


def _pad_with_zeros(values: np.ndarray, size: int) -> np.ndarray:
    """Zeros for the ends."""
    return np.concatenate([values, np.zeros((size - len(values), *np.shape(values)[1:]), np.asarray(values).dtype)])


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
