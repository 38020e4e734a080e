"""Continuing DeepSea of [BMRL19] (Markou and Rasmussen 2019)."""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.papers.pictures import in_a_line
from bayes_mdp.mdp import MDP, Environment, NormalReward
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_name

LEFT, RIGHT = 0, 1
LARGEST_CHECKED = 40


def deep_sea_continuing(n_states: int = 4, *, noise: Literal["none", "delta"] = "none") -> Environment:
    """Continuing DeepSea: N = `n_states` states in a line, action 0 left (reward 0), action 1 right; first state 0.

    From [BMRL19]. Right moves up with probability 1 - 1/N, else down (clipped), and costs delta = 0.1 exp(-N / 4)
    either way; from the last state it returns to state 0 with reward +1, or else moves down at the same cost.
    `noise="delta"` adds N(0, delta^2) to every reward, as the published code does; the paper's text has none.
    `optimum` is the optimal gain, that of always right (optimal for every N checked, up to 40), and None beyond.

    Raises:
        ValueError: `n_states` below 3 (with 2 the two rewards of the last state have one next state), unknown
            `noise`.
        TypeError: no number.

    Example:
        >>> env = bm.envs.deep_sea_continuing(4)
        >>> env.mdp.n_states, env.mdp.n_actions
        (4, 2)
    """
    check_count("n_states", n_states, 3)
    check_memory(f"n_states is {n_states}", 60.0 * n_states**2)
    check_name("noise", noise, ("none", "delta"))
    delta, success = 0.1 * np.exp(-n_states / 4), 1 - 1 / n_states
    state = np.arange(n_states)
    down = np.eye(n_states)[np.maximum(state - 1, 0)]
    up = np.eye(n_states)[(state + 1) % n_states]
    rows = np.stack([down, success * up + (1 - success) * down], axis=1)
    paid = np.zeros(rows.shape)
    paid[:, RIGHT, :] = -delta
    paid[-1, RIGHT, 0] = 1.0
    mdp = MDP(rows, (rows * paid).sum(-1), initial=np.eye(n_states)[0])
    law = NormalReward(
        jnp.asarray(paid, float), jnp.asarray(delta, float) if noise == "delta" else None, by_outcome=True
    )
    optimum = _gain(rows[:, RIGHT], (rows * paid).sum(-1)[:, RIGHT]) if n_states <= LARGEST_CHECKED else None
    name, picture = f"deep_sea_continuing_{n_states}", in_a_line(n_states)
    return Environment(mdp, law, name=name, optimum=optimum, picture=picture)


def _gain(rows: np.ndarray, reward: np.ndarray) -> float:
    """Reward per step of an irreducible chain with `rows` [S S'] and mean rewards [S]."""
    n = len(reward)
    balance = np.vstack([rows.T - np.eye(n), np.ones(n)])
    return float(np.linalg.lstsq(balance, np.eye(n + 1)[-1], rcond=None)[0] @ reward)
