"""Rows of episodes: which one follows which."""

import numpy as np
from jaxtyping import Bool, Int


def episode_order(
    episodes: Int[np.ndarray, " N"],
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """For each row: the next row of its episode (itself at the last), its place there, whether it is the last."""
    order = np.argsort(episodes, kind="stable")
    is_last = np.append(np.diff(episodes[order]) != 0, True)
    start = np.flatnonzero(np.append(True, is_last[:-1]))
    next_row, place, last = (np.empty(len(order), dtype) for dtype in (np.intp, np.int32, bool))
    next_row[order] = np.where(is_last, order, np.roll(order, -1))
    place[order] = np.arange(len(order)) - np.repeat(start, np.diff(np.append(start, len(order))))
    last[order] = is_last
    return next_row, place, last
