"""Mazes: cells of a grid, four moves that may slip, and cells that pay.

* SlipperyGrid: from one corner of a square grid to the other; Grid5 and Grid10 of [BAMCP12].
* SevenRooms: rooms in a line that folds, joined by doors: the N-room problem of [RLBERRY21], as in [EUBE23].
* FlagMaze: flags are collected on the way to a goal (Dearden, Friedman and Russell 1998; [OIM08]).
* MazeWithSubgoals: a large random maze with tempting goals (Wiering and Schmidhuber 1998; [OIM08]).
"""

import os
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool
from scipy.ndimage import binary_dilation, label

from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.envs.papers.maps import FREE, GRAY, START, WALL, cells_with, check_map, moves, read_map
from bayes_mdp.mdp import Environment, NormalReward, Picture, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_number

GOAL, SMALL, SUBGOAL, FLAG = "Gggf"
"""Cells that pay, beside the walls and free cells of all maps."""
GRID_SLIP = 0.2
GRID_GAINS = {5: 0.092530397908, 10: 0.043681622938}


def slippery_grid(size: int = 5, *, slip: float = GRID_SLIP) -> Environment:
    """A square grid of `size` x `size` cells: a step from the last cell pays 1 and leads back to the first; continuing.

    State `size * row + column` is a cell. Actions 0 to 3 move up, right, down, left. With probability `slip` the move
    goes to one of the two sides instead (half of it each); the border bars it. In the last cell, at the bottom right,
    every action pays 1 and leads to the first, at the top left, which is the first state. All else pays 0. `optimum` is
    the optimal gain of the two grids of the paper at slip .2: .0925304 for 5 cells a side, .0436816 for 10 (92.5 per
    1000 steps, 87.4 per 2000), otherwise None.

    Sizes, slip and rewards are recalled from [BAMCP12] and the authors' program, which were not at hand. Chosen here:
    that slips go to the two sides in equal parts, that the border is a wall, and that every action leaves the last
    cell.

    Args:
        size: of a side.
        slip: probability of a move to the side.

    Raises:
        ValueError: `size` below 2 (first and last cell would coincide), `slip` outside [0, 1]. TypeError: `size` is no
            integer.

    Example:
        >>> env = bm.envs.slippery_grid(3)
        >>> env.mdp.n_states, env.mdp.n_actions
        (9, 4)
    """
    check_count("size", size, 2)
    check_memory(f"size is {size}", 1000.0 * size**2)
    check_number("slip", slip, lambda x: 0.0 <= x <= 1.0, "a probability")
    target = moves(np.ones((size, size), bool)).reshape(-1, 4)
    target[-1] = 0
    # Actions go round the clock: the sides of a move are its neighbours in that order.
    successor = np.stack([target, np.roll(target, -1, 1), np.roll(target, 1, 1)], -1)
    probability = np.broadcast_to(np.array([1.0 - slip, slip / 2, slip / 2]), successor.shape)
    reward = np.zeros(target.shape)
    reward[-1] = 1.0
    mdp = SparseMDP(successor, probability, reward, initial=np.eye(1, size**2)[0])
    optimum = GRID_GAINS.get(size) if slip == GRID_SLIP else None
    law = NormalReward(jnp.asarray(reward, float))
    return Environment(mdp, law, name=f"slippery_grid_{size}", optimum=optimum, picture=_square_picture(size))


def _square_picture(size: int) -> Picture:
    cells = START + FREE * (size**2 - 2) + GOAL
    lines = tuple(cells[first : first + size] for first in range(0, size**2, size))
    return Picture(tuple((float(x), float(y)) for y, x in np.ndindex(size, size)), lines)


PAID_IN_ROOMS = {GOAL: 1.0, SMALL: 0.1, START: 0.01}


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
    cells = _draw_rooms(num_rooms, room_size, per_row)
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
    reward = np.broadcast_to(np.vectorize(lambda kind: PAID_IN_ROOMS.get(kind, 0.0))(kinds)[:, None], pairs[:2])
    initial = (kinds == START).astype(float)
    mdp = SparseMDP(np.broadcast_to(target[:, None], pairs), probability, reward, initial=initial)
    positions = tuple((float(x), float(y)) for y, x in np.argwhere(free))
    picture = Picture(positions, tuple("".join(line) for line in cells))
    name = f"seven_rooms_{num_rooms}_of_{room_size}"
    return Environment(mdp, NormalReward(jnp.asarray(reward, float)), name=name, picture=picture)


def _draw_rooms(num_rooms: int, room_size: int, per_row: int) -> np.ndarray:
    """Str[rows columns]: the map, without a wall around it."""
    row, column = np.divmod(np.arange(num_rooms), per_row)
    column = np.where(row % 2 == 0, column, per_row - 1 - column)  # every second row runs to the left
    pitch = room_size + 1
    cells = np.full(((row.max() + 1) * pitch - 1, (column.max() + 1) * pitch - 1), WALL)
    for top, left in zip(row * pitch, column * pitch, strict=True):
        cells[top : top + room_size, left : left + room_size] = FREE
    centre = np.stack([row, column], axis=-1) * pitch + room_size // 2
    # The straight way from a centre to the next one passes the door between them.
    for first, second in pairwise(centre):
        (top, left), (bottom, right) = np.minimum(first, second), np.maximum(first, second)
        cells[top : bottom + 1, left : right + 1] = FREE
    for kind, room in ((SMALL, 0), (START, num_rooms // 2), (GOAL, num_rooms - 1)):
        cells[tuple(centre[room])] = kind
    return cells


def _happens(open_ways: Bool[np.ndarray, "S 4"], slip: float) -> np.ndarray:
    """Float[S 4 4]: probability that each move happens (last axis) where another is chosen (middle axis)."""
    chosen = np.eye(4, dtype=bool)
    other_ways = open_ways[:, None, :] & ~chosen
    count = other_ways.sum(-1, keepdims=True)
    # At a wall, and where there is no other way, what is chosen happens.
    slips = np.where(open_ways[..., None] & (count > 0), slip, 0.0)
    return np.where(chosen, 1.0 - slips, np.where(other_ways, slips / np.maximum(count, 1), 0.0))


DEARDEN = """
S#f.#.G
.#..#..
.......
##...##
......f
f.....#
"""
FLAG_SLIP, FLAG_GAIN = 0.1, 0.094218369636
MOST_FLAGS = 12


def flag_maze(slip: float = FLAG_SLIP, *, layout: "str | os.PathLike[str]" = DEARDEN) -> Environment:
    """FlagMaze: 33 cells and 3 flags, 264 states; a trip pays the number of flags that it brings to the goal.

    Actions 0 to 3 move up, right, down, left. With probability `slip` the move goes to one of the two sides instead
    (half of it each); a wall or the border bars it. A flag is taken where its cell is entered, once in a trip. Entering
    the goal pays the number of flags held and is at once the first state of the next trip: the reset costs no step and
    restores all flags. All else pays 0; continuing.

    State 2^F i + b is the i-th cell that is no wall, in reading order, with the flags of the bits of b (bit j: the j-th
    flag in reading order). Some of them never occur, 20 of the 264: at the goal, or at the cell of a flag, without it.
    They are kept, as in the literature. `optimum` is the optimal gain of the paper's maze at its slip 0.1, .0942184
    (1884.4 per phase of 20,000 steps; [OIM08]: about 1890), otherwise None.

    Args:
        slip: probability of a move to the side.
        layout: a map as text, or a file with one: `S` start, `G` goal, `f` flag, `#` wall, `.` free.

    Raises:
        ValueError: `slip` is no probability; no such file, an unknown character, lines of several lengths, not one
            start and one goal, no flag or more than 12, no way from start to goal.
        TypeError: `layout` is neither a str nor a path.

    Example:
        >>> env = bm.envs.flag_maze()
        >>> env.mdp.n_states, env.mdp.n_actions
        (264, 4)
    """
    check_number("slip", slip, lambda x: 0.0 <= x <= 1.0, "a probability")
    name, cells = _read_flags(layout)
    after, flags_paid, start = _flag_moves(cells)
    # Actions go round the clock: the sides of a move are its neighbours in that order.
    sides = [np.roll(after, shift, 1) for shift in (-1, 1)]  # sides of up: right and left
    successor = np.stack([after, *sides], -1)
    probability = np.broadcast_to(np.array([1.0 - slip, slip / 2, slip / 2]), successor.shape)
    paid = np.stack([flags_paid, *(np.roll(flags_paid, shift, 1) for shift in (-1, 1))], -1)
    mdp = SparseMDP(successor, probability, (probability * paid).sum(-1), initial=np.eye(1, len(after), start)[0])
    law = ListedReward(jnp.asarray(successor), jnp.asarray(probability, float), jnp.asarray(paid, float))
    optimum = FLAG_GAIN if slip == FLAG_SLIP and cells == _read_flags(DEARDEN)[1] else None
    return Environment(mdp, law, name=name, optimum=optimum, picture=_flag_picture(cells))


def _read_flags(layout: "str | os.PathLike[str]") -> tuple[str, tuple[str, ...]]:
    """(name of the environment, lines)."""
    known = START + GOAL + FLAG + WALL + FREE
    stem, cells = read_map("layout", layout, known)
    check_map("layout", cells, known, ((START, "start"), (GOAL, "goal"), (FLAG, "flag")))
    for kind, role in ((START, "start"), (GOAL, "goal")):
        if len(cells_with(cells, kind)) > 1:
            raise ValueError(f"layout has {len(cells_with(cells, kind))} cells {kind}, expected one {role}")
    if len(cells_with(cells, FLAG)) > MOST_FLAGS:
        raise ValueError(f"layout has {len(cells_with(cells, FLAG))} flags, expected at most {MOST_FLAGS}")
    grid = np.array([list(line) for line in cells])
    part: np.ndarray = label(grid != WALL)[0]  # pyright: ignore
    if part[grid == START][0] != part[grid == GOAL][0]:
        raise ValueError("layout has no way from the start S to the goal G, expected one")
    return "flag_maze" if stem == "custom" else f"flag_maze_{stem}", cells


def _flag_moves(cells: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, int]:
    """Where every action leads that does not slip, [S 4], what it pays, [S 4], and the first state."""
    grid = np.array([list(line) for line in cells])
    free = grid != WALL
    number = np.cumsum(free).reshape(free.shape) - 1
    target = number.ravel()[moves(free)][free]  # [cells 4]
    kinds = grid[free]
    flag_of_cell = np.zeros(len(kinds), int)
    flag_of_cell[kinds == FLAG] = 1 << np.arange(np.sum(kinds == FLAG))
    flags = np.arange(1 << np.sum(kinds == FLAG))
    number_held = sum((flags >> bit) & 1 for bit in range(MOST_FLAGS))
    start = int(np.argmax(kinds == START)) * len(flags)
    # State = cell, then the bits of the flags held. The goal pays them and is the start again, without flags.
    ends = (kinds[target] == GOAL)[:, None]
    after = np.where(ends, start, target[:, None] * len(flags) + (flags[:, None] | flag_of_cell[target][:, None]))
    paid = np.where(ends, np.asarray(number_held)[:, None], 0)
    return after.reshape(-1, 4), paid.reshape(-1, 4), start


def _flag_picture(cells: tuple[str, ...]) -> Picture:
    """All states of one cell on one spot."""
    number = 1 << len(cells_with(cells, FLAG))
    spots = [(float(x), float(y)) for y, line in enumerate(cells) for x, cell in enumerate(line) if cell != WALL]
    return Picture(tuple(spot for spot in spots for _ in range(number)), cells)


PAID = {GOAL: 1000.0, SUBGOAL: 500.0, GRAY: -10.0, FREE: -1.0, START: -1.0}
BUMP = -2.0
MOST_DRAWS = 1000


def maze_with_subgoals(
    seed: int = 0, size: int = 50, *, blocked: float = 0.2, punishing: float = 0.2, slip: float = 0.1
) -> Environment:
    """A random maze of size x size cells, 2500 states: a far goal pays 1000, two others 500; continuing.

    Actions 0 to 3 move up, right, down, left; with probability `slip` a uniformly drawn one of the four takes their
    place. State `size * row + column` is a cell, counted from 0 (blocked cells are states that never occur). The first
    state is (1, 1). Entering the goal (size - 2, size - 2) pays 1000, entering (1, size - 2) or (size - 2, 1) pays
    500; each is at once a new start (the reset costs no step). A blocked cell bars the way, which costs 2; entering a
    punishing cell costs 10, any other 1. [OIM08] counts cells from 1 and takes shares of .2.

    Our completions, where neither paper nor public program defines it: the outer ring is blocked, the two kinds of
    cells are drawn from the inner ones but start and goals, without overlap, an exact share of each; the maze is drawn
    again until a way leads to each of the three goals. The optimal way has 94 steps or more: at a discount of .98 a
    near goal is the better one in 7 of the first 8 mazes, so that .995 is meant. `optimum` is None (see
    `planning.solve`).

    Args:
        seed: of numpy's default generator; the same maze for the same seed.
        size: of a side.
        blocked, punishing: shares of the inner cells other than start and goals.
        slip: probability that an action is replaced.

    Raises:
        ValueError: `seed` negative, `size` below 5, a share or `slip` outside [0, 1], shares that exceed 1 together, or
            no maze with ways to all goals in 1000 draws.
        TypeError: `seed` or `size` is no integer.

    Example:
        >>> env = bm.envs.maze_with_subgoals(size=8)
        >>> env.mdp.n_actions
        4
    """
    check_count("seed", seed, 0)
    check_count("size", size, 5)
    check_memory(f"size is {size}", 1000.0 * size**2)
    for name, share in {"blocked": blocked, "punishing": punishing, "slip": slip}.items():
        check_number(name, share, lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1")
    if blocked + punishing > 1.0:
        raise ValueError(f"blocked + punishing is {blocked + punishing:g}, expected at most 1: no cell is both")
    cells = _draw_maze(np.random.default_rng(seed), size, blocked, punishing)
    name = f"maze_with_subgoals_{size}_seed_{seed}"
    return _maze(cells, slip, name)


def _draw_maze(rng: np.random.Generator, size: int, blocked: float, punishing: float) -> np.ndarray:
    """Str[size size]: the first maze with a way to every goal."""
    last = size - 2
    fixed = np.full((size, size), WALL)
    fixed[1:-1, 1:-1] = FREE
    fixed[1, 1], fixed[last, last], fixed[1, last], fixed[last, 1] = START, GOAL, SUBGOAL, SUBGOAL
    drawn = np.flatnonzero(fixed == FREE)
    num_blocked, num_punishing = (round(share * len(drawn)) for share in (blocked, punishing))
    num_punishing = min(num_punishing, len(drawn) - num_blocked)  # rounded up both
    kinds = np.repeat([WALL, GRAY], [num_blocked, num_punishing])
    for _ in range(MOST_DRAWS):
        cells = fixed.copy()
        cells.flat[rng.permutation(drawn)[: len(kinds)]] = kinds
        passable = ~np.isin(cells, (WALL, GOAL, SUBGOAL))  # a goal is the end of a way, no way leads through it
        part: np.ndarray = label(passable)[0]  # pyright: ignore
        reached = binary_dilation(part == part[1, 1])
        if np.all(reached[[1, last, last], [last, 1, last]]):
            return cells
    raise ValueError(
        f"blocked is {blocked:g}, expected a smaller share: none of {MOST_DRAWS} mazes has a way to every goal"
    )


def _maze(cells: np.ndarray, slip: float, name: str) -> Environment:
    size, start = len(cells), len(cells) + 1
    target = moves(cells != WALL).reshape(-1, 4)
    bumps = target == np.arange(size * size)[:, None]
    kinds = cells.ravel()[target]
    value = np.where(bumps, BUMP, np.select([kinds == kind for kind in PAID], list(PAID.values()), 0.0))
    target = np.where(~bumps & ((kinds == GOAL) | (kinds == SUBGOAL)), start, target)
    pairs = (size * size, 4, 4)  # state, action, action that happens
    successor, paid = (np.broadcast_to(x[:, None], pairs) for x in (target, value))
    probability = np.broadcast_to((1.0 - slip) * np.eye(4) + slip / 4, pairs)
    mdp = SparseMDP(successor, probability, (probability * paid).sum(-1), initial=np.eye(1, size * size, start)[0])
    law = ListedReward(jnp.asarray(successor), jnp.asarray(probability, float), jnp.asarray(paid, float))
    positions = tuple((float(x), float(y)) for y, x in np.ndindex(cells.shape))
    picture = Picture(positions, tuple("".join(line) for line in cells))
    return Environment(mdp, law, name=name, picture=picture)
