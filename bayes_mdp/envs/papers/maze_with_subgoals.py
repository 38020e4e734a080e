"""MazeWithSubgoals: a large random maze with tempting goals (Wiering and Schmidhuber 1998; [OIM08])."""

import jax.numpy as jnp
import numpy as np
from scipy.ndimage import binary_dilation, label

from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.envs.papers.grids import moves
from bayes_mdp.envs.papers.maps import FREE, GRAY, START, WALL
from bayes_mdp.mdp import Environment, Picture, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_number

GOAL, SUBGOAL = "Gg"
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
    cells = _draw(np.random.default_rng(seed), size, blocked, punishing)
    name = f"maze_with_subgoals_{size}_seed_{seed}"
    return _environment(cells, slip, name)


def _draw(rng: np.random.Generator, size: int, blocked: float, punishing: float) -> np.ndarray:
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


def _environment(cells: np.ndarray, slip: float, name: str) -> Environment:
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
