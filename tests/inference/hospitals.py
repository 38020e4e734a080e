"""A small hospital: three states with unknown rows, and two that end an episode."""

import numpy as np

import bayes_mdp as bm
from bayes_mdp.mdp import Log, Transitions

N_STATES, N_ACTIONS = 5, 2
STATES = (0, 1, 2, "death", "survival")


def hospital() -> bm.StateActionSpace:
    """From "death" and "survival" nothing follows but the end."""
    support = np.ones((N_STATES, N_ACTIONS, N_STATES + 1), bool)
    support[:3, :, -1] = False
    support[3:, :, :-1] = False
    return bm.StateActionSpace(N_STATES, N_ACTIONS, ends=True, support=support, states=STATES)


def stays(number: int, seed: int = 0) -> Log:
    """Episodes under random actions; survival pays one."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(N_STATES), (3, N_ACTIONS))
    columns: list[tuple[int, int, float, int, bool]] = []
    for _ in range(number):
        state = int(rng.integers(3))
        while state < 3:
            action = int(rng.integers(N_ACTIONS))
            after = int(rng.choice(N_STATES, p=rows[state, action]))
            columns.append((state, action, 0.0, after, False))
            state = after
        columns.append((state, 0, float(state == 4), state, True))
    state, action, reward, after, ended = (np.array(x) for x in zip(*columns, strict=True))
    return Log(Transitions(state, action, reward, after, ended), STATES, (0, 1))
