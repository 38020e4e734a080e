"""The rows of a set of intervals whose expected value is least: what robust values and bounds are made of."""

import numpy as np
from jaxtyping import Float


def least_rows(
    lower: Float[np.ndarray, "*rows K"], room: Float[np.ndarray, "*rows K"], worth: Float[np.ndarray, "*rows K"]
) -> Float[np.ndarray, "*rows K"]:
    """The rows p with lower <= p <= lower + room that sum to one and make sum p worth least.

    Every outcome gets its lower end; the rest goes to the outcomes of the least worth first, each up to its room.

    Args:
        lower: the lower ends; rows that sum to one at most.
        room: the upper ends less these.
        worth: of each outcome; minus the worth gives the rows of the greatest value.
    """
    order = np.argsort(worth, axis=-1, kind="stable")
    sorted_room = np.take_along_axis(room, order, -1)
    rest = np.maximum(1.0 - lower.sum(-1, keepdims=True), 0.0)
    taken_before = np.cumsum(sorted_room, -1) - sorted_room
    added = np.empty_like(sorted_room)
    np.put_along_axis(added, order, np.clip(rest - taken_before, 0.0, sorted_room), -1)
    return lower + added
