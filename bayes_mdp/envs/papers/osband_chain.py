"""The chains of TabulaRL ([RLSVI19])."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.papers.pictures import in_a_line
from bayes_mdp.mdp import Environment, NormalReward, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_bool, check_count

LEFT, RIGHT = 0, 1


def osband_chain(n_states: int = 10, *, horizon: int | None = None, stochastic: bool = False) -> Environment:
    """A chain that pays at its far end: n = `n_states` states in a line, first state 0; meant for `Episodic(horizon)`.

    From [RLSVI19]. Action 0 moves left (clipped), action 1 right (clipped); `stochastic`: right succeeds with
    probability 1 - 1/n, else it moves left (clipped). Left in state 0 pays N(0, 1), right in state n - 1 pays N(1,
    1) whether or not it succeeds, everything else pays exactly 0. The MDP does not depend on the step. Source:
    `make_deterministicChain` and `make_stochasticChain` of TabulaRL.

    `optimum` is the optimal value of an episode of `horizon` steps: max(0, H - n + 1), and (1 - 1/n)^(n - 1) in a
    stochastic chain with H = n.

    Args:
        n_states: n.
        horizon: H, for `optimum` alone; None: n, that of the stochastic chain of TabulaRL.
        stochastic: see above.

    Raises:
        ValueError: `n_states` below 2, `horizon` below 1. TypeError: one of them is no integer.

    Example:
        >>> env = bm.envs.osband_chain(5)
        >>> env.mdp.n_states, env.mdp.n_actions
        (5, 2)
    """
    check_count("n_states", n_states, 2)
    check_bool("stochastic", stochastic)
    check_memory(f"n_states is {n_states}", 100.0 * n_states)
    horizon = n_states if horizon is None else horizon
    check_count("horizon", horizon)
    state = np.arange(n_states)
    down, up = np.maximum(state - 1, 0), np.minimum(state + 1, n_states - 1)
    fails = 1 / n_states if stochastic else 0.0
    successor = np.stack([np.stack([down, down], -1), np.stack([up, down], -1)], 1)
    probability = np.broadcast_to([[1.0, 0.0], [1 - fails, fails]], successor.shape)
    if not stochastic:
        successor, probability = successor[..., :1], probability[..., :1]
    reward, noise = np.zeros((n_states, 2)), np.zeros((n_states, 2))
    reward[-1, RIGHT] = noise[-1, RIGHT] = noise[0, LEFT] = 1.0
    v = np.zeros(n_states)
    for _ in range(horizon):
        v = (reward + (probability * v[successor]).sum(-1)).max(-1)
    mdp = SparseMDP(successor, probability, reward, initial=np.eye(1, n_states)[0])
    law = NormalReward(mdp.reward, jnp.asarray(noise, mdp.reward.dtype))
    name = f"osband_chain{'_stochastic' if stochastic else ''}_{n_states}"
    return Environment(mdp, law, name=name, optimum=float(v[0]), picture=in_a_line(n_states))
