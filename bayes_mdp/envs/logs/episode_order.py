"""Rows of episodes: which one follows which."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int


class EpisodeOrder(NamedTuple):
    """The rows of episodes, which may be interleaved.

    Args:
        order: the rows, those of an episode together, else as they are.
        next_row: of each row the next one of its episode (itself at the last).
        place: of each row in its episode.
        last: whether a row is the last of its episode.
    """

    order: Int[np.ndarray, " N"]
    next_row: Int[np.ndarray, " N"]
    place: Int[np.ndarray, " N"]
    last: Bool[np.ndarray, " N"]


def episode_order(episodes: Int[np.ndarray, " N"]) -> EpisodeOrder:
    """The order of rows by the number of their episode, in which episodes are numbered as they appear."""
    order = np.argsort(episodes, kind="stable")
    is_last = np.append(np.diff(episodes[order]) != 0, True)
    start = np.flatnonzero(np.append(True, is_last[:-1]))
    next_row, place, last = (np.empty(len(order), dtype) for dtype in (np.intp, np.int32, bool))
    next_row[order] = np.where(is_last, order, np.roll(order, -1))
    place[order] = np.arange(len(order)) - np.repeat(start, np.diff(np.append(start, len(order))))
    last[order] = is_last
    return EpisodeOrder(order, next_row, place, last)
