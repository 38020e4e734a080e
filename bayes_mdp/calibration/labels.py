"""Coordinates of transitions and of pairs with data: names of what each is about."""

from typing import Any

import numpy as np

from bayes_mdp.mdp.space import PLATE_NAMES


def item_coordinates(unit: str, cell: tuple[np.ndarray, ...], axes: dict[str, np.ndarray]) -> dict[str, Any]:
    """Labels along the dimension `unit`, and the (step,) state and action of each as `{unit}_state`, `{unit}_action`.

    Transitions are numbered; a "cell" is called "state, action".
    """
    parts = {name: axes[name][index] for name, index in zip(PLATE_NAMES[-len(cell) :], cell, strict=True)}
    number = np.arange(cell[0].size)
    text = np.asarray([", ".join(map(str, each)) for each in zip(*parts.values(), strict=True)], dtype=str)
    return {unit: number if unit == "transition" else text, **{f"{unit}_{n}": (unit, x) for n, x in parts.items()}}
