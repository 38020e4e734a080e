"""Names of a space as coordinates: what xarray indexes and NetCDF can hold."""

from collections.abc import Hashable, Sequence

import numpy as np

from bayes_mdp.mdp.space import StateActionSpace

OUTCOME = "next_state"
_KINDS: tuple[type | tuple[type, ...], ...] = ((int, np.integer), (float, np.floating), str)


def labels(names: Sequence[Hashable]) -> np.ndarray:
    """Integers, floats and strings as they are; anything else (tuples, mixed kinds) as text."""
    for kind in _KINDS:
        if all(isinstance(name, kind) and not isinstance(name, bool) for name in names):
            return np.asarray(list(names))
    text = [str(name) for name in names]
    # 1 and "1" are two names.
    return np.asarray(text if len(set(text)) == len(text) else [repr(name) for name in names])


def coordinates(space: StateActionSpace) -> dict[str, np.ndarray]:
    """Labels along `step` (where there is a horizon), `state`, `action` and `next_state`."""
    axes = {"state": labels(space.state_names), "action": labels(space.action_names)}
    if space.horizon is not None:
        axes = {"step": np.arange(space.horizon), **axes}
    return {**axes, OUTCOME: labels(space.outcome_names)}


def pair_axes(shape: tuple[int, ...], space: StateActionSpace | None) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Dims and coordinates of an array [*H S A] by its shape; the names of `space`, where there is one."""
    names = (range(shape[-2]), range(shape[-1])) if space is None else (space.state_names, space.action_names)
    coords = {"state": labels(names[0]), "action": labels(names[1])}
    if len(shape) == 2:
        return ("state", "action"), coords
    return ("step", "state", "action"), {"step": np.arange(shape[0]), **coords}
