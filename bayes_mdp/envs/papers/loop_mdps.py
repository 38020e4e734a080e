"""Loops from one state: which of them pays most must be tried.

* Loop, also called double loop (Dearden, Friedman and Russell 1998; [OIM08]).
* SixArms (Strehl and Littman 2008; [OIM08]).
* WideNarrow of [BMRL19] (Markou and Rasmussen 2019): a ring of states with many actions and states with one, in turn.
"""

import jax.numpy as jnp
import numpy as np

from bayes_mdp.mdp import MDP, Environment, NormalReward, Picture
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_number

LOOP_STATES = 9
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
    after = np.zeros((LOOP_STATES, 2), int)
    after[0] = 1, 5
    after[1:4] = [[2], [3], [4]]
    after[5:8, LEFT] = 6, 7, 8
    reward = np.zeros((LOOP_STATES, 2))
    reward[4], reward[8] = PAID_RIGHT, PAID_LEFT
    mdp = MDP(np.eye(LOOP_STATES)[after], reward, initial=np.eye(LOOP_STATES)[0])
    right = ((3.0, 0.0), (4.0, 0.0), (4.0, 2.0), (3.0, 2.0))
    picture = Picture(((2.0, 1.0), *right, *((4.0 - x, y) for x, y in right)))
    return Environment(mdp, NormalReward(mdp.reward), name="loop", optimum=PAID_LEFT / 5, picture=picture)


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
    wide_cells = np.arange(0, n - 1, 2)
    mean, scale = np.full((n, width), float(mean_low)), np.full((n, width), float(scale_low))
    mean[wide_cells, GOOD], scale[wide_cells, GOOD] = mean_high, scale_high
    mean[-1], scale[-1] = 0.0, 0.0
    legal = np.zeros((n, width), bool)
    legal[:, 0], legal[wide_cells] = True, True
    mean, scale = (np.where(legal, x, x[:, :1]) for x in (mean, scale))
    rows = np.broadcast_to(np.roll(np.eye(n), 1, axis=1)[:, None, :], (n, width, n))
    mdp = MDP(rows, mean, legal=legal, initial=np.eye(n)[0])
    gain = num_pairs * (max(mean_high, mean_low) + mean_low) / n
    law = NormalReward(mdp.reward, jnp.asarray(scale, mdp.reward.dtype))
    return Environment(mdp, law, name=f"wide_narrow_{width}", optimum=gain)
