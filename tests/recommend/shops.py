"""An easy log: in two states one action pays, the log takes both as often; labels that a page must escape."""

from typing import Any

import numpy as np

import bayes_mdp as bm
from bayes_mdp.mdp import Log, Transitions

BAD = '<script>alert("&")</script>'
STATES, ACTIONS = ("idle", BAD), ("wait", 'go"&<b>')
REWARD = np.array([[0.0, 1.0], [0.0, 1.0]])


def easy_log(episodes: int = 60, seed: int = 0, source: str = "log.csv") -> Log:
    """Episodes of ten steps; the next state does not depend on what is done."""
    rng = np.random.default_rng(seed)
    state = rng.integers(2, size=(episodes, 11))
    action = rng.integers(2, size=(episodes, 10))
    cut = np.zeros((episodes, 10), bool)
    cut[:, -1] = True
    before, after, action = state[:, :-1].ravel(), state[:, 1:].ravel(), action.ravel()
    return Log(Transitions(before, action, REWARD[before, action], after, None, cut.ravel()), STATES, ACTIONS, source)


def right_prior(concentration: float = 1.0) -> Any:
    """Known rewards."""
    return bm.models.known_rewards(REWARD, concentration)
