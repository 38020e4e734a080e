"""SevenRooms: rooms in a line that folds, joined by doors: the N-room problem of [RLBERRY21], as in [EUBE23]."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from bayes_mdp.envs.papers.grids import moves
from bayes_mdp.envs.papers.maps import FREE, START, WALL
from bayes_mdp.mdp import Environment, NormalReward, Picture, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_number

GOAL, SMALL = "Gg"
PAID = {GOAL: 1.0, SMALL: 0.1, START: 0.01}


def seven_rooms(num_rooms: int = 7, room_size: int = 5, *, slip: float = 0.05, per_row: int = 5) -> Environment:
    """`num_rooms` rooms of `room_size` x `room_size` cells, joined by doors: a far goal, a lesser one.

    Rooms are counted along a line that folds after `per_row` of them: to the right, down, to the left, down. A wall of
    one cell separates neighbours, the door is in its middle. The first state is the centre of the middle room
    (`num_rooms // 2`, counted from 0). Actions 0 to 3 move up, right, down, left. Where the way is free, with
    probability `slip` one of the other free ways of the cell takes its place, uniformly (a cell with one free way has
    no other); where it is barred nothing happens. A step from the centre of the last room pays 1, from that of the
    first .1, from the start .01, from any other cell nothing. The goal, the centre of the last room, is never left.
    State i is the i-th free cell in reading order: 181 states with the defaults.

    With the defaults the goal and the lesser goal are 18 steps from the start, and an episode of 40 steps is worth
    20.29 at best. Sizes, slip and rewards are those of the public program of [RLBERRY21]; there the goal ends an
    episode. That it is never left is our reading of [EUBE23], whose program ignores the end, plays 40 steps and has 19
    as the approximate optimum: with a goal that can be left the best value is 9.7. `optimum` is None: it depends on the
    length of an episode (see `planning.solve`).

    Raises:
        ValueError: `num_rooms` below 3 (start and goals would coincide), `room_size` or `per_row` below 1, `slip`
            outside [0, 1]. TypeError: a count is no integer.

    Example:
        >>> env = bm.envs.seven_rooms(3, 3)
        >>> env.mdp.n_actions
        4
    """
    check_count("num_rooms", num_rooms, 3)
    check_count("room_size", room_size)
    check_count("per_row", per_row)
    check_memory(f"num_rooms is {num_rooms}, room_size is {room_size}", 1000.0 * num_rooms * (room_size + 1.0) ** 2)
    check_number("slip", slip, lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1")
    cells = _draw(num_rooms, room_size, per_row)
    free = cells != WALL
    number = np.cumsum(free).reshape(free.shape) - 1  # of a free cell among the free ones
    target = number.ravel()[moves(free)[free]]
    kinds = cells[free]
    # What is done decides what happens: the way itself, or another free one. Nothing else happens at a wall, or at the
    # goal.
    open_ways = (target != np.arange(len(target))[:, None]) & (kinds != GOAL)[:, None]
    target = np.where(open_ways, target, np.arange(len(target))[:, None])
    probability = _happens(open_ways, slip)
    pairs = probability.shape
    reward = np.broadcast_to(np.vectorize(lambda kind: PAID.get(kind, 0.0))(kinds)[:, None], pairs[:2])
    initial = (kinds == START).astype(float)
    mdp = SparseMDP(np.broadcast_to(target[:, None], pairs), probability, reward, initial=initial)
    positions = tuple((float(x), float(y)) for y, x in np.argwhere(free))
    picture = Picture(positions, tuple("".join(line) for line in cells))
    name = f"seven_rooms_{num_rooms}_of_{room_size}"
    return Environment(mdp, NormalReward(jnp.asarray(reward, float)), name=name, picture=picture)


def _draw(num_rooms: int, room_size: int, per_row: int) -> np.ndarray:
    """Str[rows columns]: the map, without a wall around it."""
    row, column = np.divmod(np.arange(num_rooms), per_row)
    column = np.where(row % 2 == 0, column, per_row - 1 - column)  # every second row runs to the left
    pitch = room_size + 1
    cells = np.full(((row.max() + 1) * pitch - 1, (column.max() + 1) * pitch - 1), WALL)
    for top, left in zip(row * pitch, column * pitch, strict=True):
        cells[top : top + room_size, left : left + room_size] = FREE
    centre = np.stack([row, column], axis=-1) * pitch + room_size // 2
    # The straight way from a centre to the next one passes the door between them.
    for here, there in pairwise(centre):
        (top, left), (bottom, right) = np.minimum(here, there), np.maximum(here, there)
        cells[top : bottom + 1, left : right + 1] = FREE
    for kind, room in ((SMALL, 0), (START, num_rooms // 2), (GOAL, num_rooms - 1)):
        cells[tuple(centre[room])] = kind
    return cells


def _happens(open_ways: Bool[np.ndarray, "S 4"], slip: float) -> np.ndarray:
    """Float[S 4 4]: probability that each move happens (last axis) where another is chosen (middle axis)."""
    chosen = np.eye(4, dtype=bool)
    others = open_ways[:, None, :] & ~chosen
    count = others.sum(-1, keepdims=True)
    # At a wall, and where there is no other way, what is chosen happens.
    slips = np.where(open_ways[..., None] & (count > 0), slip, 0.0)
    return np.where(chosen, 1.0 - slips, np.where(others, slips / np.maximum(count, 1), 0.0))
