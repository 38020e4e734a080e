"""Loop, also called double loop (Dearden, Friedman and Russell 1998; [OIM08])."""

import numpy as np

from bayes_mdp.mdp import MDP, Environment, NormalReward, Picture

N_STATES = 9
RIGHT, LEFT = 0, 1
PAID_RIGHT, PAID_LEFT = 1.0, 2.0


def loop() -> Environment:
    """Loop: two loops of 5 steps that meet in state 0, deterministic; continuing.

    Action 0 enters the right loop, 1, 2, 3, 4, which leads back to state 0 whatever is done and pays 1 on the way from
    4. Action 1 enters the left loop, 5, 6, 7, 8: in 5, 6 and 7 action 1 goes on, action 0 falls back to state 0,
    unpaid; from 8 both actions lead to state 0 and pay 2. The first state is 0. `optimum` is the optimal gain, 0.4 (400
    per phase of 1000 steps). Source: [OIM08], checked against three public implementations.

    Example:
        >>> env = bm.envs.loop()
        >>> env.mdp.n_states, env.mdp.n_actions
        (9, 2)
    """
    after = np.zeros((N_STATES, 2), int)
    after[0] = 1, 5
    after[1:4] = [[2], [3], [4]]
    after[5:8, LEFT] = 6, 7, 8
    reward = np.zeros((N_STATES, 2))
    reward[4], reward[8] = PAID_RIGHT, PAID_LEFT
    mdp = MDP(np.eye(N_STATES)[after], reward, initial=np.eye(N_STATES)[0])
    right = ((3.0, 0.0), (4.0, 0.0), (4.0, 2.0), (3.0, 2.0))
    picture = Picture(((2.0, 1.0), *right, *((4.0 - x, y) for x, y in right)))
    return Environment(mdp, NormalReward(mdp.reward), name="loop", optimum=PAID_LEFT / 5, picture=picture)
