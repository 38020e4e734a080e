"""Pictures of environments, and of what happened in them. matplotlib is loaded when one is drawn."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np

from bayes_mdp.experiments.plots.environment_graph import (
    RADIUS,
    Graph,
    draw_graph,
    graph_of,
    is_line,
    is_small,
    order_of,
    place_legend,
    places,
    size_of,
)
from bayes_mdp.mdp import MDP, Environment, Picture, SimulatedEnvironment, SparseMDP
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_count, check_finite, check_index, check_number, check_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.figure import Figure

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
    picture = _picture(env)
    if picture is not None and picture.cells is not None:
        figure, panel = _place(axes, map_size(picture.cells))
        draw_map(panel, picture.cells)
    else:
        tables = _tables(env)
        graph = _graph(tables, step, states)
        figure, panel = _place(axes, size_of(graph))
        draw_graph(panel, graph, _names("actions", actions, tables.mdp.n_actions, "action "))
    if axes is None:
        panel.set_title(": ".join(filter(None, (env.name, panel.get_title()))))
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
    drawn = _drawing_kind(env)
    if isinstance(env, Environment):
        _names("names", names, env.mdp.n_states)
    indices, points = _points_of(env, drawn, states)
    jumps = _jumps(env, indices, points, longest)
    if drawn == "over time":
        figure, panel = _place(axes, (8.0, 3.6))
        draw_over_time(panel, points[:, 1], jumps)
        _name_states(panel, _tables(env), names)
        if axes is None:
            panel.set_title(env.name)
        return figure
    figure = plot_env(env, states=names, axes=axes)
    panel = figure.axes[0] if axes is None else axes
    bar = drawn != "layers"
    graph = None if drawn == "map" else _graph(_tables(env), None, None)
    halo = RADIUS * graph.unit if graph is not None and is_small(graph) else None
    draw_path(panel, points, jumps, halo=halo, bar=bar)
    return figure


def _drawing_kind(env: Drawable) -> str:
    """Where its trajectories are drawn: on a "map", a "plane", the "layers" of its steps, or "over time"."""
    picture = _picture(env)
    if picture is not None and picture.cells is not None:
        return "map"
    mdp = _tables(env).mdp
    if mdp.horizon is not None:
        return "layers"
    if picture is None or is_line(places(mdp.n_states, picture)) or len(set(picture.positions)) < mdp.n_states:
        return "over time"
    return "plane"


def _tables(env: Drawable) -> Environment:
    assert isinstance(env, Environment)  # `_picture` refuses what has neither tables nor a map
    return env


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
        starts = np.array([_cell(cells, point) == START for point in points[1:]], bool)
    return jumps | ((cells is not None) & starts & (length > _NEAR))


def _cell(cells: tuple[str, ...], point: np.ndarray) -> str:
    """The character of the map at a point."""
    x, y = np.rint(point).astype(int)
    return cells[y][x : x + 1] if y < len(cells) else ""


def _possible(mdp: MDP | SparseMDP, states: np.ndarray) -> np.ndarray:
    """Bool[T-1]: whether some legal action leads from each state to the one after it. No dense row is made."""
    before, after = states[:-1], states[1:]
    cell = (before,) if mdp.horizon is None else (np.arange(len(before)), before)
    if isinstance(mdp, SparseMDP):
        listed = np.asarray(mdp.successor)[cell] == after[:, None, None]
        likely = (listed & (np.asarray(mdp.probability)[cell] > 0)).any(-1)
    else:
        likely = np.asarray(mdp.transition_probs)[(*cell, slice(None), after)] > 0
    legal = True if mdp.legal is None else np.asarray(mdp.legal)[before]
    return np.any(likely & legal, axis=-1)


def _name_states(axes: "Axes", env: Environment, names: Sequence[Hashable] | None) -> None:
    """The states in their order on the y axis, at most 20 of them with a name."""
    states = _names("names", names, env.mdp.n_states)
    order = np.argsort(order_of(len(states), env.picture))
    stride = max(1, -(-len(states) // 20))
    axes.set_yticks(range(0, len(states), stride), [states[s] for s in order[::stride]])
    axes.set(xlabel="step", ylabel="state", ylim=(-0.5, len(states) - 0.5))


def _place(axes: "Axes | None", size: tuple[float, float]) -> tuple["Figure", "Axes"]:
    """The figure and axes to draw in; a figure of its own has this size in inches."""
    from bayes_mdp.utils.figures import place

    return place(axes, size)


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
        _draw_bar(axes, dots)
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


class Shades(TypedDict):
    """How a number becomes a colour: the arguments of a matplotlib collection."""

    cmap: "ListedColormap"
    norm: "Normalize"


def _shades(number: int) -> Shades:
    """Colours of time: dark first, then light, none too light for a white map."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, Normalize

    shades = ListedColormap(colormaps["plasma"](np.linspace(0.0, 0.85, 256)))
    return {"cmap": shades, "norm": Normalize(0, max(number - 1, 1))}


def _draw_bar(axes: "Axes", dots: "PathCollection") -> None:
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
