"""Names of a space as coordinates: what xarray indexes and NetCDF can hold."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.space import PLATE_NAMES

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


def item_coordinates(unit: str, cell: tuple[np.ndarray, ...], axes: dict[str, np.ndarray]) -> dict[str, Any]:
    """Labels along the dimension `unit`, and the (step,) state and action of each as `{unit}_state`, `{unit}_action`.

    Transitions are numbered; a "cell" is called "state, action".
    """
    parts = {name: axes[name][index] for name, index in zip(PLATE_NAMES[-len(cell) :], cell, strict=True)}
    number = np.arange(cell[0].size)
    text = np.asarray([", ".join(map(str, each)) for each in zip(*parts.values(), strict=True)], dtype=str)
    return {unit: number if unit == "transition" else text, **{f"{unit}_{n}": (unit, x) for n, x in parts.items()}}
