"""DeepSea of [KL21] (O'Donoghue 2021): a grid that is descended, one row a step."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.papers.pictures import in_a_line
from bayes_mdp.mdp import Environment, NormalReward, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_number

LEFT, RIGHT = 0, 1
COST = 0.01


def deep_sea(size: int = 10, *, noise: float = 0.1) -> Environment:
    """DeepSea: `size` x `size` grid, L = `size` steps from the top-left column; meant for `Episodic(size)`.

    Every step goes down a row and one column left (action 0, clipped) or right (action 1). State = column, step =
    row: a time-inhomogeneous `SparseMDP` with arrays [L, L, 2] and one listed successor (dense rows:
    `mdp.to_dense()`). Rewards are N(m, noise^2) on every (row, column, action) with m = 0 (left) or -0.01 / L
    (right), plus 1 for right in the bottom-right cell; nothing follows the last row's action. `optimum` is 0.99.

    [KL21] gives neither the law of the noise nor its scale nor the cost: those are ours; a standard deviation `noise`
    of 0.1 is what reproduces its figure 2. Columns beyond the row cannot be reached, see `reachable`.

    Raises:
        ValueError: `size` below 2, `noise` negative or not finite.
        TypeError: no number.

    Example:
        >>> env = bm.envs.deep_sea(5)
        >>> env.mdp.transition_probs.shape[:2], round(env.optimum, 2)  # of Episodic(5)
        ((5, 5), 0.99)
    """
    check_count("size", size, 2)
    check_memory(f"size is {size}", 100.0 * size**2)
    check_number("noise", noise, lambda x: 0.0 <= x < np.inf, "a finite number, zero or greater")
    column = np.arange(size)
    moves = np.stack([np.maximum(column - 1, 0), np.minimum(column + 1, size - 1)], axis=-1)
    successor = np.broadcast_to(moves[None, :, :, None], (size, size, 2, 1))
    reward = np.zeros((size, size, 2))
    reward[:, :, RIGHT] = -COST / size
    reward[-1, -1, RIGHT] += 1.0
    mdp = SparseMDP(successor, np.ones(successor.shape), reward, initial=np.eye(size)[0])
    law = NormalReward(mdp.reward, None if noise == 0 else jnp.asarray(noise, mdp.reward.dtype))
    return Environment(mdp, law, name=f"deep_sea_{size}", optimum=1.0 - COST, picture=in_a_line(size))


def reachable(size: int) -> np.ndarray:
    """Bool[L L] over (row, column): the L (L + 1) / 2 cells that can be reached, of the L^2 cells of the grid.

    Of `deep_sea` [KL21]. Which of the two numbers stands for "the number of states" enters the temperature of
    K-learning.

    Raises:
        ValueError: `size` is below 1. TypeError: no integer.

    Example:
        >>> bm.envs.reachable(3).sum(axis=1).tolist()  # cells of each row
        [1, 2, 3]
    """
    check_count("size", size)
    return np.tri(size, dtype=bool)
