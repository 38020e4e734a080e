"""DeepSea: a grid that is descended, one row a step; that of [KL21] (O'Donoghue 2021), and bsuite's ([BSUITE20])."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.papers.chain_mdps import in_a_line
from bayes_mdp.mdp import Environment, NormalReward, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_bool, check_count, check_number

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
        >>> from bayes_mdp.envs.papers.deep_sea import reachable
        >>> reachable(3).sum(axis=1).tolist()  # cells of each row
        [1, 2, 3]
    """
    check_count("size", size)
    return np.tri(size, dtype=bool)


def bsuite_deep_sea(size: int = 10, *, stochastic: bool = False, mapping_seed: int | None = None) -> Environment:
    """DeepSea as in bsuite: `size` x `size` grid, N = `size` steps from the top-left column; meant for `Episodic(N)`.

    From [BSUITE20]. Every step goes down a row and one column left or right (clipped). Which action means right is
    drawn for every cell (`action_mapping`). Right costs 0.01 / N, and pays 1 in column N - 1, whether or not it
    succeeds. `stochastic`: right succeeds with probability 1 - 1/N, else the column stays; in the last row, columns
    0 and N - 1, both actions have noise N(0, 1). State = column, step = row, as in `deep_sea`: arrays [N, N, 2] and
    one listed successor, or two.

    `optimum` is the optimal value of an episode: 0.99; stochastic, with p = 1 - 1/N, p^(N - 1) - 0.01 (1 - p^N), which
    goes left, for nothing, once a right has failed. bsuite reports p^(N - 1) - 0.01, where every right is paid for.

    Args:
        size: N.
        stochastic: see above.
        mapping_seed: of the meaning of the actions, drawn as bsuite does (the same cells for the same number); None:
            action 1 is right everywhere (`randomize_actions=False` there).

    Raises:
        ValueError: `size` below 2, `mapping_seed` negative. TypeError: one of them is no integer.

    Example:
        >>> env = bm.envs.bsuite_deep_sea(5)
        >>> env.mdp.n_states, round(env.optimum, 2)
        (5, 0.99)
    """
    check_count("size", size, 2)
    check_bool("stochastic", stochastic)
    check_memory(f"size is {size}", 100.0 * size**2)
    rows = columns = np.arange(size)
    right = action_right(size, mapping_seed)[..., None] == np.arange(2)  # [N, N, 2]
    up, down = np.minimum(columns + 1, size - 1), np.maximum(columns - 1, 0)
    moved = np.where(right, up[:, None], down[:, None])
    successor, probability = moved[..., None], np.ones((*right.shape, 1))
    if stochastic:
        successor = np.stack([moved, np.broadcast_to(columns[:, None], right.shape)], -1)
        probability = np.stack([1.0 - right / size, right / size], -1)
    corner = (columns == size - 1)[:, None]
    reward = np.where(right, corner - COST / size, 0.0)
    mdp = SparseMDP(successor, probability, reward, initial=np.eye(size)[0])
    noisy = (rows == size - 1)[:, None] & np.isin(columns, (0, size - 1))
    noise = np.broadcast_to(noisy[..., None], reward.shape)
    law = NormalReward(mdp.reward, jnp.asarray(noise, mdp.reward.dtype) if stochastic else None)
    p = 1 - 1 / size
    optimum = p ** (size - 1) - COST * (1 - p**size) if stochastic else 1.0 - COST
    name = f"bsuite_deep_sea{'_stochastic' if stochastic else ''}_{size}"
    return Environment(mdp, law, name=name, optimum=optimum, picture=in_a_line(size))


def action_right(size: int, mapping_seed: int | None) -> np.ndarray:
    """Int[N N] over (row, column): the action that means right."""
    if mapping_seed is None:
        return np.ones((size, size), int)
    check_count("mapping_seed", mapping_seed, 0)
    return np.random.RandomState(mapping_seed).binomial(1, 0.5, (size, size))
