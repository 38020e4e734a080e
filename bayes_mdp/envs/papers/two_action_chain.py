"""The two-action chain of [UBE18] (O'Donoghue et al. 2018), figure 1, truncated."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.papers.pictures import in_rows
from bayes_mdp.mdp import MDP, Environment, NormalReward
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_number

STOP, CHAIN = 0, 1


def two_action_chain(
    depth: int = 100,
    *,
    discount: float = 0.9,
    mean_stop: float = 1.0,
    mean_chain: float = 0.0,
    scale: float = 1.0,
) -> Environment:
    """A root with two actions whose values are equally uncertain, though one is a single reward and one a long chain.

    From [UBE18], figure 1. State 0 is the root. Its action 0 pays N(mean_stop, scale^2) and ends the episode. Its
    action 1 pays the first of `depth` independent rewards N(mean_chain, scale^2 (1 - discount^2)) and leads to state 1;
    states 1 .. depth - 1 pay one each by their only legal action 0 and lead to the next state, the last one ends.
    Transitions are deterministic.

    For `Discounted(discount)`, an episode of the chain has the variance sum_h discount^(2 h) scale^2 (1 - discount^2) =
    scale^2 (1 - discount^(2 depth)): that of action 0 but for the truncation, which is never a self-loop, because the
    rewards of a state that is met again are not independent. `optimum` is the optimal value of an episode under
    `Episodic(depth)`, without discount.

    Args:
        depth: length of the chain.
        discount: that of the objective under which both values are equally uncertain.
        mean_stop, mean_chain: mean of the reward of action 0 of the root, and of those of the chain.
        scale: standard deviation of the reward of action 0 of the root.

    Raises:
        ValueError: `depth` below 2, `discount` outside [0, 1), a mean that is not finite, a scale that is not positive.
        TypeError: `depth` is no integer.

    Example:
        >>> env = bm.envs.two_action_chain(depth=5)
        >>> env.mdp.n_states, env.mdp.n_actions
        (5, 2)
    """
    check_count("depth", depth, 2)
    check_memory(f"depth is {depth}", 32.0 * depth**2)
    check_number("discount", discount, lambda x: 0.0 <= x < 1.0, "a number from 0 up to, but not including, 1")
    for name, value in {"mean_stop": mean_stop, "mean_chain": mean_chain}.items():
        check_number(name, value, np.isfinite, "a finite number")
    check_number("scale", scale, lambda x: 0.0 < x < np.inf, "a finite number greater than zero")
    rows = np.broadcast_to(np.eye(depth, k=1)[:, None, :], (depth, 2, depth)).copy()
    rows[0, STOP] = 0.0
    mean = np.full((depth, 2), float(mean_chain))
    noise = np.full((depth, 2), scale * np.sqrt(1.0 - discount**2))
    mean[0, STOP], noise[0, STOP] = mean_stop, scale
    legal = np.tile([True, False], (depth, 1))
    legal[0, CHAIN] = True
    mdp = MDP(rows, mean, end_probs=1.0 - rows.sum(-1), legal=legal, initial=np.eye(depth)[0])
    law = NormalReward(mdp.reward, jnp.asarray(noise, mdp.reward.dtype))
    optimum = max(float(mean_stop), depth * float(mean_chain))
    return Environment(mdp, law, name=f"two_action_chain_{depth}", optimum=optimum, picture=in_rows(depth))
