"""An environment as a graph: its states as nodes on paper, its possible transitions as edges. Arrays alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayes_mdp.mdp import MDP, Picture, SparseMDP

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
    mdp = mdp if mdp.horizon is None else mdp.at(step)
    (source, action), outcome, probability = transitions(mdp)
    ending = np.unique(source[outcome == mdp.n_states])
    where = places(mdp.n_states, picture)
    unit = _unit(where, picture)
    away = (-unit if is_line(where) else unit) * _END_AWAY * outward_of(where)  # loops are above a line, ends below
    positions = np.concatenate([where, where[ending] + away[ending]])
    target = np.where(outcome == mdp.n_states, mdp.n_states + np.searchsorted(ending, source), outcome)
    size = len(positions)
    return Graph(
        positions=positions,
        names=[*names, *[""] * len(ending)],
        reward=_padded(_legal_reward(mdp), size),
        first=_padded(np.asarray(mdp.initial) > 0, size),
        is_end=np.arange(size) >= mdp.n_states,
        source=source,
        action=action,
        target=target,
        probability=probability,
        shape="line" if is_line(where) else "plane",
        unit=unit,
    )


def _layers(mdp: MDP | SparseMDP, picture: Picture | None, names: list[str]) -> Graph:
    """Steps from top to bottom, in each the states that can be reached; the last row is what follows the last step."""
    horizon, n_states = mdp.horizon or 0, mdp.n_states
    (step, source, action), outcome, probability = transitions(mdp)
    reached = np.zeros((horizon + 1, n_states), bool)
    reached[0] = np.asarray(mdp.initial) > 0
    ends = np.zeros_like(reached)
    for h in range(horizon):
        possible = (step == h) & reached[h, source]
        reached[h + 1, outcome[possible & (outcome < n_states)]] = True
        ends[h, source[possible & (outcome == n_states)]] = True
    kept = reached[step, source]
    step, source, action, outcome, probability = (x[kept] for x in (step, source, action, outcome, probability))
    inner, last, ending = (np.argwhere(x) for x in (reached[:-1], reached[-1:], ends[:-1]))
    number = np.full((2, horizon + 1, n_states), -1)
    number[0][reached] = np.arange(reached.sum())
    number[1][ends] = reached.sum() + np.arange(ends.sum())
    x = order_of(n_states, picture)
    spots = [np.stack([x[nodes[:, 1]], nodes[:, 0] + shift], -1) for nodes, shift in ((inner, 0.0), (last, horizon))]
    spots.append(np.stack([x[ending[:, 1]] - 0.4, ending[:, 0] + 0.4], -1))
    positions = np.concatenate(spots)
    reward = _padded(_legal_reward(mdp)[reached[:-1]], len(positions))
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
    where = np.nonzero((probs > 0) & legal[..., None])
    cells, outcome, probability = where[:-1], outcome[where], probs[where].astype(np.float64)
    if mdp.end_probs is not None:
        ends = np.asarray(mdp.end_probs)
        ending = np.nonzero((ends > 0) & legal)
        cells = tuple(np.concatenate(pair) for pair in zip(cells, ending, strict=True))
        outcome = np.append(outcome, np.full(len(ending[0]), n_states))
        probability = np.append(probability, ends[ending])
    code = np.ravel_multi_index((*cells, outcome), (*size, n_states + 1))
    codes, index = np.unique(code, return_inverse=True)  # a successor that is listed twice is one outcome
    *cells, outcome = np.unravel_index(codes, (*size, n_states + 1))
    return tuple(cells), outcome, np.bincount(index, probability, len(codes))


def places(n_states: int, picture: Picture | None) -> np.ndarray:
    """Float[S 2]: where states stand; in a ring, clockwise from the top, where nothing keeps them apart."""
    if picture is not None and _apart(picture):
        return np.asarray(picture.positions, float)
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
    """Float[S]: rank of every state from left to right, then downwards; its index where they stand in a ring."""
    if picture is None or picture.cells is not None:
        return np.arange(n_states, dtype=float)
    x, y = np.asarray(picture.positions, float).T
    return np.argsort(np.lexsort((y, x))).astype(float)


def is_line(positions: np.ndarray) -> bool:
    """Whether they stand side by side."""
    return bool(np.all(positions[:, 1] == positions[0, 1])) and len(positions) > 1


def outward_of(positions: np.ndarray) -> np.ndarray:
    """Float[N 2]: directions away from the others; up, where they stand side by side."""
    away = positions - positions.mean(0)
    length = np.linalg.norm(away, axis=-1, keepdims=True)
    up = np.array([0.0, -1.0])
    if is_line(positions):
        return np.broadcast_to(up, away.shape)
    return np.where(length > 1e-9, away / np.maximum(length, 1e-9), up)


def _legal_reward(mdp: MDP | SparseMDP) -> np.ndarray:
    reward = np.asarray(mdp.reward, float)
    return reward if mdp.legal is None else np.where(np.asarray(mdp.legal), reward, 0.0)


def _padded(values: Any, size: int) -> np.ndarray:
    """Zeros for the ends."""
    return np.concatenate([values, np.zeros((size - len(values), *np.shape(values)[1:]), np.asarray(values).dtype)])
