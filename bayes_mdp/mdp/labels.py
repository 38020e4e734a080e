"""Names of a space as coordinates: what xarray indexes and NetCDF can hold."""

from collections.abc import Hashable, Sequence

import numpy as np

from bayes_mdp.mdp.space import END, StateActionSpace

OUTCOME = "next_state"
PLACE = "successor"
"""Of the axis of outcomes where successors are listed: which state a place means differs from pair to pair."""
_KINDS: tuple[type | tuple[type, ...], ...] = ((int, np.integer), (float, np.floating), str)


def labels(names: Sequence[Hashable]) -> np.ndarray:
    """Integers, floats and strings as they are; anything else (tuples, mixed kinds) as text."""
    for kind in _KINDS:
        if all(isinstance(name, kind) and not isinstance(name, bool) for name in names):
            return np.asarray(list(names))
    text = [str(name) for name in names]
    # 1 and "1" are two names.
    return np.asarray(text if len(set(text)) == len(text) else [repr(name) for name in names])


def outcome_axis(space: StateActionSpace) -> str:
    """The name of the axis of outcomes: "next_state", or "successor" where they are listed."""
    return OUTCOME if space.successors is None else PLACE


def listed_names(space: StateActionSpace) -> np.ndarray:
    """The label of each listed successor, [*H S A K] as text; empty where a list is shorter than the axis."""
    names = np.asarray([*map(str, space.state_names), *([END] if space.ends else []), ""], dtype=str)
    assert space.successors is not None
    return names[np.broadcast_to(space.successors, (*space.shape, space.n_outcomes))]


def coordinates(space: StateActionSpace) -> dict[str, np.ndarray]:
    """Labels along `step` (where there is a horizon), `state`, `action` and the outcomes."""
    axes = {"state": labels(space.state_names), "action": labels(space.action_names)}
    if space.horizon is not None:
        axes = {"step": np.arange(space.horizon), **axes}
    return {**axes, outcome_axis(space): labels(space.outcome_names)}


def pair_axes(shape: tuple[int, ...], space: StateActionSpace | None) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Dims and coordinates of an array [*H S A] by its shape; the names of `space`, where there is one."""
    names = (range(shape[-2]), range(shape[-1])) if space is None else (space.state_names, space.action_names)
    coords = {"state": labels(names[0]), "action": labels(names[1])}
    if len(shape) == 2:
        return ("state", "action"), coords
    return ("step", "state", "action"), {"step": np.arange(shape[0]), **coords}
