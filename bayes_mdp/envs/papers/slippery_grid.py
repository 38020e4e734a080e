"""SlipperyGrid: from one corner of a square grid to the other; Grid5 and Grid10 of [BAMCP12]."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.papers.grids import moves
from bayes_mdp.envs.papers.maps import FREE, START
from bayes_mdp.mdp import Environment, NormalReward, Picture, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_number

GOAL = "G"
PAPER_SLIP = 0.2
PAPER_GAINS = {5: 0.092530397908, 10: 0.043681622938}


def slippery_grid(size: int = 5, *, slip: float = PAPER_SLIP) -> Environment:
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
    optimum = PAPER_GAINS.get(size) if slip == PAPER_SLIP else None
    law = NormalReward(jnp.asarray(reward, float))
    return Environment(mdp, law, name=f"slippery_grid_{size}", optimum=optimum, picture=_picture(size))


def _picture(size: int) -> Picture:
    cells = START + FREE * (size**2 - 2) + GOAL
    lines = tuple(cells[first : first + size] for first in range(0, size**2, size))
    return Picture(tuple((float(x), float(y)) for y, x in np.ndindex(size, size)), lines)
