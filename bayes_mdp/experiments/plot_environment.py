"""Pictures of environments, and of what happened in them. matplotlib is loaded when one is drawn."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayes_mdp.experiments.environment_drawing import RADIUS, draw_graph, is_small, size_of
from bayes_mdp.experiments.environment_graph import Graph, graph_of, is_line, order_of, places
from bayes_mdp.experiments.environment_map import draw_map, map_size
from bayes_mdp.experiments.environment_path import draw_over_time, draw_path, draw_path_beneath
from bayes_mdp.mdp import MDP, Environment, Picture, SimulatedEnvironment, SparseMDP
from bayes_mdp.mdp.validation import check_count, check_finite, check_index, check_number, check_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

START = "S"
_NEAR = 1.5  # cells


def plot_env(
    env: Environment | SimulatedEnvironment,
    *,
    step: int | None = None,
    states: Sequence[Any] | None = None,
    actions: Sequence[Any] | None = None,
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
    """
    picture = _picture(env)
    tables: Any = env
    if picture is not None and picture.cells is not None:
        figure, where = _place(axes, map_size(picture.cells))
        draw_map(where, picture.cells)
    else:
        graph = _graph(tables, step, states)
        figure, where = _place(axes, size_of(graph))
        draw_graph(where, graph, _names("actions", actions, tables.mdp.n_actions, "action "))
    if axes is None:
        where.set_title(": ".join(filter(None, (env.name, where.get_title()))))
    return figure


def plot_trajectory(
    env: Environment | SimulatedEnvironment,
    states: Any,
    *,
    longest: float | None = None,
    names: Sequence[Any] | None = None,
    axes: "Axes | None" = None,
) -> "Figure":
    """Where a trajectory went, in time order: on the map, or on the plane where the states do not stand in a line.

    Elsewhere the state, by its place in the line (or its number in a ring), is drawn over time; where rows depend on
    the step, the path is drawn on the picture of all steps. Jumps, such as a new episode, are dashed: transitions that
    no legal action makes, and on a map moves of more than a cell and a half to a first state.

    Args:
        env: an `Environment`, or a `SimulatedEnvironment` with a map.
        states: Int[T], indices of states, or on a map or a plane Float[T 2], positions (x, y).
        longest: moves on a map or a plane that are longer are the jumps; None: see above.
        names: of states; None: their numbers.
        axes: where to draw; None: in a figure of its own.

    Raises:
        ValueError: no states, an index or a position out of range (which), more steps than an episode has; neither
            tables nor a map; a picture or names of another number of states.
        TypeError: no environment, states that are neither indices nor positions.
    """
    drawn = _drawn(env)
    if isinstance(env, Environment):
        _names("names", names, env.mdp.n_states)
    indices, points = _visited(env, drawn, states)
    jumps = _jumps(env, indices, points, longest)
    if drawn == "over time":
        figure, where = _place(axes, (8.0, 3.6))
        draw_over_time(where, points[:, 1], jumps)
        _name_states(where, env, names)
        if axes is None:
            where.set_title(env.name)
        return figure
    figure = plot_env(env, states=names, axes=axes)
    where = figure.axes[0] if axes is None else axes
    bar = drawn != "layers"
    graph = None if drawn == "map" else _graph(env, None, None)
    if graph is not None and is_small(graph):
        draw_path_beneath(where, points, jumps, halo=RADIUS * graph.unit, bar=bar)
    else:
        draw_path(where, points, jumps, bar=bar)
    return figure


def _drawn(env: Any) -> str:
    """Where its trajectories are drawn: on a "map", a "plane", the "layers" of its steps, or "over time"."""
    picture = _picture(env)
    if picture is not None and picture.cells is not None:
        return "map"
    if env.mdp.horizon is not None:
        return "layers"
    if picture is None or is_line(places(env.mdp.n_states, picture)) or len(set(picture.positions)) < env.mdp.n_states:
        return "over time"
    return "plane"


def _picture(env: Any) -> Picture | None:
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


def _graph(env: Any, step: int | None, states: Sequence[Any] | None) -> Graph:
    mdp = env.mdp
    if step is not None:
        check_count("step", step, 0)
    if step is not None and not 0 <= step < (mdp.horizon or 1):
        raise ValueError(f"step is {step}, expected an index from 0 to {(mdp.horizon or 1) - 1}")
    return graph_of(mdp, env.picture, _names("states", states, mdp.n_states), step)


def _names(argument: str, names: Sequence[Any] | None, number: int, before: str = "") -> list[str]:
    if names is None:
        return [f"{before}{i}" for i in range(number)]
    check_type(argument, names, Iterable, "a sequence of names")
    given = list(names)
    if len(given) != number:
        raise ValueError(f"{argument} has {len(given)} names, expected {number}")
    return [str(name) for name in given]


def _visited(env: Any, drawn: str, states: Any) -> tuple[np.ndarray | None, np.ndarray]:
    """The indices of the states, where they are indices, and where they are drawn: Float[T 2]."""
    array, picture = np.asarray(states), env.picture
    if not array.size:
        raise ValueError("states is empty, expected at least one state")
    if array.ndim == 2 and array.shape[1] == 2 and drawn in ("map", "plane"):
        check_finite("states", array)
        _check_on_map(picture, array)
        return None, array.astype(float)
    if array.ndim != 1:
        also = " or (time, 2), positions x and y" if drawn in ("map", "plane") else ""
        raise ValueError(f"states has shape {array.shape}, expected (time,), indices of states{also}")
    n_states = env.mdp.n_states if isinstance(env, Environment) else len(picture.positions)
    if not n_states:
        raise ValueError(f"env {env.name!r} has no positions of states, expected states of shape (time, 2), x and y")
    check_index("states", array, n_states, "state")
    horizon = env.mdp.horizon if isinstance(env, Environment) else None
    if horizon is not None and len(array) > horizon + 1:
        raise ValueError(f"states has {len(array)} entries, expected at most {horizon + 1}, one episode")
    if drawn in ("map", "plane"):
        return array, np.asarray(picture.positions, float)[array]
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


def _jumps(env: Any, indices: np.ndarray | None, points: np.ndarray, longest: float | None) -> np.ndarray:
    """Bool[T-1]: the moves that are no part of a way."""
    length = np.linalg.norm(np.diff(points, axis=0), axis=-1)
    if longest is not None:
        check_number("longest", longest, lambda x: x > 0, "a number greater than zero")
        return length > longest
    jumps, starts = np.zeros(len(length), bool), np.zeros(len(length), bool)
    if indices is not None and isinstance(env, Environment):
        jumps = ~_possible(env.mdp, indices)
        starts = np.asarray(env.mdp.initial)[indices[1:]] > 0
    elif env.picture.cells is not None:
        starts = np.array([_cell(env.picture.cells, point) == START for point in points[1:]], bool)
    on_map = env.picture is not None and env.picture.cells is not None
    return jumps | (on_map & starts & (length > _NEAR))


def _cell(cells: tuple[str, ...], point: np.ndarray) -> str:
    """What a point of the map stands on."""
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


def _name_states(axes: "Axes", env: Any, names: Any) -> None:
    """The states in their order on the y axis, at most 20 of them with a name."""
    states = _names("names", names, env.mdp.n_states)
    order = np.argsort(order_of(len(states), env.picture))
    every = max(1, -(-len(states) // 20))
    axes.set_yticks(range(0, len(states), every), [states[s] for s in order[::every]])
    axes.set(xlabel="step", ylabel="state", ylim=(-0.5, len(states) - 0.5))


def _place(axes: "Axes | None", size: tuple[float, float]) -> tuple["Figure", Any]:
    """The figure and axes to draw in; a figure of its own has this size in inches."""
    from matplotlib.figure import Figure

    if axes is not None:
        return axes.figure, axes  # pyright: ignore
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()
