"""FlagMaze: flags are collected on the way to a goal (Dearden, Friedman and Russell 1998; [OIM08])."""

import os

import jax.numpy as jnp
import numpy as np
from scipy.ndimage import label

from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.envs.papers.grids import moves
from bayes_mdp.envs.papers.maps import FREE, START, WALL, cells_with, check_map, read_map
from bayes_mdp.mdp import Environment, Picture, SparseMDP
from bayes_mdp.utils.validation import check_number

GOAL, FLAG = "Gf"
DEARDEN = """
S#f.#.G
.#..#..
.......
##...##
......f
f.....#
"""
PAPER_SLIP, PAPER_GAIN = 0.1, 0.094218369636
MOST_FLAGS = 12


def flag_maze(slip: float = PAPER_SLIP, *, layout: "str | os.PathLike[str]" = DEARDEN) -> Environment:
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
    name, cells = _read(layout)
    after, flags_paid, start = _moves(cells)
    # Actions go round the clock: the sides of a move are its neighbours in that order.
    sides = [np.roll(after, shift, 1) for shift in (-1, 1)]  # sides of up: right and left
    successor = np.stack([after, *sides], -1)
    probability = np.broadcast_to(np.array([1.0 - slip, slip / 2, slip / 2]), successor.shape)
    paid = np.stack([flags_paid, *(np.roll(flags_paid, shift, 1) for shift in (-1, 1))], -1)
    mdp = SparseMDP(successor, probability, (probability * paid).sum(-1), initial=np.eye(1, len(after), start)[0])
    law = ListedReward(jnp.asarray(successor), jnp.asarray(probability, float), jnp.asarray(paid, float))
    optimum = PAPER_GAIN if slip == PAPER_SLIP and cells == _read(DEARDEN)[1] else None
    return Environment(mdp, law, name=name, optimum=optimum, picture=_picture(cells))


def _read(layout: "str | os.PathLike[str]") -> tuple[str, tuple[str, ...]]:
    """(name of the environment, lines)."""
    known = START + GOAL + FLAG + WALL + FREE
    stem, cells = read_map("layout", layout, known)
    check_map("layout", cells, known, ((START, "start"), (GOAL, "goal"), (FLAG, "flag")))
    for kind, what in ((START, "start"), (GOAL, "goal")):
        if len(cells_with(cells, kind)) > 1:
            raise ValueError(f"layout has {len(cells_with(cells, kind))} cells {kind}, expected one {what}")
    if len(cells_with(cells, FLAG)) > MOST_FLAGS:
        raise ValueError(f"layout has {len(cells_with(cells, FLAG))} flags, expected at most {MOST_FLAGS}")
    grid = np.array([list(line) for line in cells])
    part: np.ndarray = label(grid != WALL)[0]  # pyright: ignore
    if part[grid == START][0] != part[grid == GOAL][0]:
        raise ValueError("layout has no way from the start S to the goal G, expected one")
    return "flag_maze" if stem == "custom" else f"flag_maze_{stem}", cells


def _moves(cells: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, int]:
    """Where every action leads that does not slip, [S 4], what it pays, [S 4], and the first state."""
    grid = np.array([list(line) for line in cells])
    free = grid != WALL
    number = np.cumsum(free).reshape(free.shape) - 1
    target = number.ravel()[moves(free)][free]  # [cells 4]
    kinds = grid[free]
    found = np.zeros(len(kinds), int)
    found[kinds == FLAG] = 1 << np.arange(np.sum(kinds == FLAG))
    held = np.arange(1 << np.sum(kinds == FLAG))
    number_held = sum((held >> bit) & 1 for bit in range(MOST_FLAGS))
    start = int(np.argmax(kinds == START)) * len(held)
    # State = cell, then the bits of the flags held. The goal pays them and is the start again, without flags.
    ends = (kinds[target] == GOAL)[:, None]
    after = np.where(ends, start, target[:, None] * len(held) + (held[:, None] | found[target][:, None]))
    paid = np.where(ends, np.asarray(number_held)[:, None], 0)
    return after.reshape(-1, 4), paid.reshape(-1, 4), start


def _picture(cells: tuple[str, ...]) -> Picture:
    """All states of one cell on one spot."""
    number = 1 << len(cells_with(cells, FLAG))
    spots = [(float(x), float(y)) for y, line in enumerate(cells) for x, cell in enumerate(line) if cell != WALL]
    return Picture(tuple(spot for spot in spots for _ in range(number)), cells)
