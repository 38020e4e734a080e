"""SixArms (Strehl and Littman 2008; [OIM08])."""

import numpy as np

from bayes_mdp.mdp import MDP, Environment, NormalReward, Picture

WIN_PROBS = (1.0, 0.15, 0.10, 0.05, 0.03, 0.01)
PAYS = (50.0, 133.0, 300.0, 800.0, 1660.0, 6000.0)
LEAVE_FIRST = 4
"""The one action that leads back from the state of the first arm."""


def six_arms() -> Environment:
    """SixArms: from state 0 action k - 1 pulls arm k, which leads to state k, or nowhere; continuing.

    Arm k wins with probability 1, .15, .1, .05, .03, .01 (otherwise the state stays 0); it pays nothing. In state k
    action k - 1 stays and pays 50, 133, 300, 800, 1660, 6000; every other action leads back to state 0, unpaid. State 1
    is the exception: all actions but action 4 stay and pay 50. The first state is 0. `optimum` is the optimal gain,
    6000; the expected total of 5000 steps is 2.94e7. Source: [OIM08], checked against three public
    implementations.

    Example:
        >>> env = bm.envs.six_arms()
        >>> env.mdp.n_states, env.mdp.n_actions
        (7, 6)
    """
    n_arms = len(PAYS)
    arm = np.arange(n_arms)
    rows, reward = np.zeros((n_arms + 1, n_arms, n_arms + 1)), np.zeros((n_arms + 1, n_arms))
    rows[0, arm, arm + 1] = WIN_PROBS
    rows[0, arm, 0] += 1.0 - np.array(WIN_PROBS)
    stays = np.eye(n_arms, dtype=bool)
    stays[0] = arm != LEAVE_FIRST
    home, action = np.nonzero(stays)
    rows[1:, :, 0] = ~stays
    rows[home + 1, action, home + 1] = 1.0
    reward[1:] = np.where(stays, np.array(PAYS)[:, None], 0.0)
    mdp = MDP(rows, reward, initial=np.eye(n_arms + 1)[0])
    turn = 2 * np.pi * arm / n_arms
    around = zip((2.2 * np.sin(turn)).tolist(), (-2.2 * np.cos(turn)).tolist(), strict=True)
    picture = Picture(((0.0, 0.0), *around))
    return Environment(mdp, NormalReward(mdp.reward), name="six_arms", optimum=max(PAYS), picture=picture)
