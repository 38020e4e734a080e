"""Moves on a grid, shared by the mazes."""

import numpy as np

UP, RIGHT, DOWN, LEFT = range(4)
STEPS = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
"""(rows down, columns to the right) of every action."""


def moves(free: np.ndarray) -> np.ndarray:
    """Int[R C 4]: the cell that each action leads to, as row * C + column; the cell itself where the way is barred.

    Args:
        free: Bool[R C], free cells; those beyond the border are not.
    """
    here = np.moveaxis(np.indices(free.shape), 0, -1)
    there = here[:, :, None] + STEPS
    row, column = np.moveaxis(there + 1, -1, 0)
    there = np.where(np.pad(free, 1)[row, column][..., None], there, here[:, :, None])
    return there[..., 0] * free.shape[1] + there[..., 1]
