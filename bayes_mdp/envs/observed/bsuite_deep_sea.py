"""DeepSea of bsuite ([BSUITE20]): hidden actions."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.papers.pictures import in_a_line
from bayes_mdp.mdp import Environment, NormalReward, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_bool, check_count

COST = 0.01


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
