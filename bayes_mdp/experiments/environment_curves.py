"""The curves of a drawn graph: one cubic Bezier curve for each transition, apart from one another."""

import numpy as np

from bayes_mdp.experiments.environment_graph import Graph, outward_of


def curves_of(graph: Graph, radius: float) -> np.ndarray:
    """Float[E 4 2]: control points from the rim of the source (of this radius, in units) to that of the target.

    Curves between two nodes lie side by side. Each bends to the left of its direction where there is a way back, and
    long ones over what stands in a line between their ends. Where an action leaves a state as it is, a loop.
    """
    radius = radius * graph.unit
    pairs = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    number: dict[tuple[int, int], int] = {}
    for pair in pairs:
        number[pair] = number.get(pair, 0) + 1
    seen: dict[tuple[int, int], int] = {}
    outward = outward_of(graph.positions[~graph.is_end])
    curves = np.empty((len(pairs), 4, 2))
    for e, pair in enumerate(pairs):
        slot = seen[pair] = seen.get(pair, -1) + 1
        source, target = graph.positions[list(pair)]
        if pair[0] == pair[1]:
            curves[e] = _loop(source, outward[pair[0]], radius, slot - (number[pair] - 1) / 2)
        else:
            angle = _bend(graph, pair, slot, number)
            curves[e] = _arc(source, target, angle, radius, radius * (0.35 if graph.is_end[pair[1]] else 1.0))
    return curves


def _bend(graph: Graph, pair: tuple[int, int], slot: int, number: dict[tuple[int, int], int]) -> float:
    """The angle at which a curve leaves the straight line, in degrees."""
    others = max(number[pair] - 1, 1)
    distance = float(np.linalg.norm(np.diff(graph.positions[list(pair)], axis=0))) / graph.unit
    long = graph.shape == "line" and distance > 1.5
    if not long and (pair[1], pair[0]) not in number:
        return (slot - (number[pair] - 1) / 2) * min(36.0 if graph.shape == "line" else 26.0, 100.0 / others)
    if graph.shape == "line":
        least = 32.0 if not long else 46.0 + 20.0 * (1.0 - np.exp((2.0 - distance) / 3.0))
        return least + slot * (min(28.0, 50.0 / others) if not long else min(14.0, 30.0 / others))
    return 14.0 + slot * min(20.0, 60.0 / others)


def _arc(source: np.ndarray, target: np.ndarray, angle: float, start: float, stop: float) -> np.ndarray:
    along = target - source
    length = np.linalg.norm(along)
    along = along / length
    left = np.array([along[1], -along[0]])  # y is downwards
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    leave, arrive = cos * along + sin * left, -cos * along + sin * left
    reach = 0.38 * length
    return np.array([source + start * leave, source + reach * leave, target + reach * arrive, target + stop * arrive])


def _loop(center: np.ndarray, outward: np.ndarray, radius: float, slot: float) -> np.ndarray:
    middle = np.arctan2(outward[1], outward[0]) + np.radians(62.0) * slot
    turns = middle + np.radians([-22.0, -30.0, 30.0, 22.0])
    return center + radius * np.array([1.0, 2.9, 2.9, 1.0])[:, None] * np.stack([np.cos(turns), np.sin(turns)], -1)


def along(curves: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Float[E T 2]: points of the curves at times Float[T] from 0 to 1."""
    weight = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], -1)
    return np.einsum("tc,ecd->etd", weight, curves)
