"""Chain (Strens 2000; Dearden, Friedman and Russell 1998; [OIM08])."""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs.papers.pictures import in_a_line
from bayes_mdp.mdp import MDP, Environment, NormalReward
from bayes_mdp.utils.validation import check_number

N_STATES = 5
FORWARD, RESET = 0, 1
PAPER_SLIP, PAPER_GAIN = 0.2, 3.6768


def chain(slip: float = PAPER_SLIP) -> Environment:
    """Chain: 5 states, action 0 goes forward (10 for staying at the end), action 1 resets to state 0 (2); continuing.

    With probability `slip` the other action's move and reward happen. The first state is 0. The problem is that of
    [PSRL00]. `optimum` is the optimal gain at the paper's slip 0.2, exactly 3.6768 (always forward; 3677 per phase of
    1000 steps), and None at any other.

    Raises:
        ValueError: `slip` is no probability.
        TypeError: no number.

    Example:
        >>> env = bm.envs.chain()
        >>> env.mdp.n_states, env.optimum  # reward per step
        (5, 3.6768)
    """
    check_number("slip", slip, lambda x: 0.0 <= x <= 1.0, "a probability")
    # Both moves as rows; a slip exchanges them.
    forward = np.eye(N_STATES)[np.minimum(np.arange(N_STATES) + 1, N_STATES - 1)]
    reset = np.eye(N_STATES)[np.zeros(N_STATES, int)]
    rows = np.stack([(1 - slip) * forward + slip * reset, slip * forward + (1 - slip) * reset], axis=1)
    paid = np.zeros((N_STATES, 2, N_STATES))  # the next state tells which move happened
    paid[:, :, 0], paid[-1, :, -1] = 2.0, 10.0
    mdp = MDP(rows, (rows * paid).sum(-1), initial=np.eye(N_STATES)[0])
    optimum = PAPER_GAIN if slip == PAPER_SLIP else None
    law = NormalReward(jnp.asarray(paid, float), by_outcome=True)
    return Environment(mdp, law, name="chain", optimum=optimum, picture=in_a_line(N_STATES))
