"""WideNarrow of [BMRL19] (Markou and Rasmussen 2019): many actions, then one, in turn."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.mdp import MDP, Environment, NormalReward
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_number

GOOD = 0


def wide_narrow(
    width: int = 6,
    num_pairs: int = 1,
    *,
    mean_high: float = 0.5,
    mean_low: float = 0.0,
    scale_high: float = 1.0,
    scale_low: float = 1.0,
) -> Environment:
    """WideNarrow [BMRL19]: a deterministic ring of 2 N + 1 states, N = `num_pairs`, W = `width` actions; continuing.

    Counted from 0, states 0, 2, .., 2 N - 2 are wide: action 0 pays N(mean_high, scale_high^2), actions 1 .. W - 1 pay
    N(mean_low, scale_low^2). States 1, 3, .., 2 N - 1 are narrow: one action, N(mean_low, scale_low^2). Each leads to
    the next state; state 2 N, narrow too, pays exactly 0 and leads to state 0, the first one. Narrow states have the
    legal action 0 alone (`mdp.legal`); the row of an illegal action is that of action 0.

    `optimum` is the optimal gain, N mean_high / (2 N + 1) in the paper's setting.

    Args:
        width: W, actions of a wide state.
        num_pairs: N, pairs of a wide and a narrow state.
        mean_high, mean_low: means of the rewards of action 0 of a wide state, and of the others (see above).
        scale_high, scale_low: their standard deviations.

    Raises:
        ValueError: `width` below 2, `num_pairs` below 1, a mean that is not finite, a scale that is negative or not
            finite.
        TypeError: a count that is no integer.

    Example:
        >>> env = bm.envs.wide_narrow()
        >>> env.mdp.n_states, env.mdp.n_actions
        (3, 6)
    """
    check_count("width", width, 2)
    check_count("num_pairs", num_pairs)
    check_memory(f"num_pairs is {num_pairs}", 16.0 * (2 * num_pairs + 1) ** 2 * width)
    for name, value in {"mean_high": mean_high, "mean_low": mean_low}.items():
        check_number(name, value, np.isfinite, "a finite number")
    for name, value in {"scale_high": scale_high, "scale_low": scale_low}.items():
        check_number(name, value, lambda x: 0.0 <= x < np.inf, "a finite number, zero or greater")
    n = 2 * num_pairs + 1
    wide = np.arange(0, n - 1, 2)
    mean, scale = np.full((n, width), float(mean_low)), np.full((n, width), float(scale_low))
    mean[wide, GOOD], scale[wide, GOOD] = mean_high, scale_high
    mean[-1], scale[-1] = 0.0, 0.0
    legal = np.zeros((n, width), bool)
    legal[:, 0], legal[wide] = True, True
    mean, scale = (np.where(legal, x, x[:, :1]) for x in (mean, scale))
    rows = np.broadcast_to(np.roll(np.eye(n), 1, axis=1)[:, None, :], (n, width, n))
    mdp = MDP(rows, mean, legal=legal, initial=np.eye(n)[0])
    gain = num_pairs * (max(mean_high, mean_low) + mean_low) / n
    law = NormalReward(mdp.reward, jnp.asarray(scale, mdp.reward.dtype))
    return Environment(mdp, law, name=f"wide_narrow_{width}", optimum=gain)
