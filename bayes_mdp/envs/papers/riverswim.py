"""RiverSwim (Strehl and Littman 2008; [OIM08]) and its episodic variant (Osband, TabulaRL)."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.papers.pictures import in_a_line
from bayes_mdp.mdp import MDP, Environment, NormalReward

N_STATES = 6
LEFT, RIGHT = 0, 1


def riverswim() -> Environment:
    """RiverSwim: 6 states in a line, action 0 swims left (downstream), action 1 right; continuing.

    Rewards are paid on (state, action, next state): 5 for staying at the left bank by swimming left, 10000 for
    staying at the right end by swimming right. The first state is 1 or 2. `optimum` is the optimal gain, 668.807
    (always right); the expected total of 5000 steps is 3.3365e6. Source: [OIM08], checked against four
    public implementations.

    Example:
        >>> env = bm.envs.riverswim()
        >>> env.mdp.n_states, env.mdp.n_actions
        (6, 2)
    """
    rows = _rows(first=(0.7, 0.3), middle=(0.1, 0.6, 0.3), last=(0.7, 0.3))
    paid = np.zeros((N_STATES, 2, N_STATES))
    paid[0, LEFT, 0], paid[-1, RIGHT, -1] = 5.0, 10_000.0
    initial = np.array([0.0, 0.5, 0.5, 0.0, 0.0, 0.0])
    mdp = MDP(rows, (rows * paid).sum(-1), initial=initial)
    # Birth-death chain of always-right: pi_5 = 243 / 1090, paid 3000 in the mean.
    law = NormalReward(jnp.asarray(paid, float), by_outcome=True)
    return Environment(mdp, law, name="riverswim", optimum=729_000 / 1_090, picture=in_a_line(N_STATES))


def riverswim_episodic() -> Environment:
    """Osband's RiverSwim: rewards on (state, action), without noise, first state 0; meant for `Episodic(20)`.

    After [MBIE08]. The MDP does not depend on the step. `optimum` is the optimal value of an episode of 20 steps,
    3.397264 (optimal gain 0.42862). Source: `make_riverSwim` of TabulaRL.

    Example:
        >>> env = bm.envs.riverswim_episodic()
        >>> bm.solve(env.mdp, bm.Episodic(20)).policy.shape  # step, state
        (20, 6)
    """
    rows = _rows(first=(0.4, 0.6), middle=(0.05, 0.6, 0.35), last=(0.4, 0.6))
    reward = np.zeros((N_STATES, 2))
    reward[0, LEFT], reward[-1, RIGHT] = 0.005, 1.0
    mdp = MDP(rows, reward, initial=np.eye(N_STATES)[0])
    law, picture = NormalReward(mdp.reward), in_a_line(N_STATES)
    return Environment(mdp, law, name="riverswim_episodic", optimum=3.397264, picture=picture)


def _rows(first: tuple[float, ...], middle: tuple[float, ...], last: tuple[float, ...]) -> np.ndarray:
    """Float64[S A S']: left always moves; right: `first` (stay, up), `middle` (down, stay, up), `last` (down, stay)."""
    rows = np.zeros((N_STATES, 2, N_STATES))
    rows[np.arange(N_STATES), LEFT, np.maximum(np.arange(N_STATES) - 1, 0)] = 1.0
    rows[0, RIGHT, :2] = first
    for s in range(1, N_STATES - 1):
        rows[s, RIGHT, s - 1 : s + 2] = middle
    rows[-1, RIGHT, -2:] = last
    return rows
