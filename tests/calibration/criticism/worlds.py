"""Worlds that are really drawn from a prior, logs of them, and posteriors: everything small, all of one shape."""

from functools import cache
from typing import Any

import jax
import numpy as np

import bayes_mdp as bm
from bayes_mdp.mdp import Log, StateActionSpace, Transitions

S, A, EPISODES, STEPS = 6, 2, 24, 10
SPACE = StateActionSpace(S, A)
REWARD = np.array([[0.0, 0.2], [0.0, 0.1], [0.5, 0.0], [0.0, 0.3], [0.1, 0.0], [1.0, 0.6]])
RIGHT = 1.0  # concentration of each outcome


def world(rng: np.random.Generator, concentration: float = RIGHT) -> np.ndarray:
    """Rows [S A S] from a symmetric Dirichlet distribution."""
    return rng.dirichlet(np.full(S, concentration), (S, A))


def log_of_world(rng: np.random.Generator, rows: np.ndarray, source: str = "log") -> Log:
    """Episodes of ten steps by random actions, cut at their end."""
    state, action, reached = (np.zeros((EPISODES, STEPS), int) for _ in range(3))
    for episode in range(EPISODES):
        now = int(rng.integers(S))
        for step in range(STEPS):
            act = int(rng.integers(A))
            state[episode, step], action[episode, step] = now, act
            now = int(rng.choice(S, p=rows[now, act]))
            reached[episode, step] = now
    cut = np.zeros((EPISODES, STEPS), bool)
    cut[:, -1] = True
    flat = [x.ravel() for x in (state, action, reached, cut)]
    data = Transitions(flat[0], flat[1], REWARD[flat[0], flat[1]], flat[2], None, flat[3])
    return Log(data, tuple(range(S)), tuple(range(A)), source)


@cache
def belief(concentration: float) -> Any:
    """The prior, before data."""
    prior = bm.models.known_rewards(REWARD, concentration)
    return bm.infer(jax.random.key(0), prior, None, space=SPACE)


def learn(before: Any, transitions: Transitions) -> Any:
    """The posterior of a part, at whatever length, without a program for each of them."""
    counts = np.zeros((S * A, S))
    pair = np.asarray(transitions.state) * A + np.asarray(transitions.action)
    np.add.at(counts, (pair, np.asarray(transitions.next_state)), 1.0)
    where = np.arange(S * A * S)
    whole = Transitions(where // (A * S), where // S % A, None, where % S)
    return _update(before, whole, counts.ravel())


@jax.jit
def _update(before: Any, data: Transitions, weight: Any) -> Any:
    return before.update(data, weight)
