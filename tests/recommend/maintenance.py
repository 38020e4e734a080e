"""Machines that are run, serviced or repaired: some pairs are hardly tried; true values in plain numpy."""

import numpy as np

from bayes_mdp.mdp import Log, Transitions

STATES, ACTIONS = ("new", "worn", "bad", "failed"), ("run", "service", "repair")
PRACTICE = np.array([[0.85, 0.1, 0.05], [0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.1, 0.8]])
NOISE, STEPS, DISCOUNT = 6.0, 30, 0.95
RUN = [[0.80, 0.17, 0.02, 0.01], [0, 0.75, 0.2, 0.05], [0, 0, 0.7, 0.3], [0, 0, 0, 1]]
SERVICE = [[0.95, 0.05, 0, 0], [0.5, 0.45, 0.05, 0], [0.1, 0.4, 0.45, 0.05], [0, 0, 0, 1]]
PAID = [[20, 14, -30], [16, 10, -34], [8, 2, -40], [-40, -45, -90]]


def plant(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows and mean rewards of one plant."""
    rows = np.stack([RUN, SERVICE, [[0.99, 0.01, 0, 0]] * 4], 1) + rng.uniform(0, 0.04, (4, 3, 4))
    return rows / rows.sum(-1, keepdims=True), PAID + rng.normal(0, 4, (4, 3))


def logged(rng: np.random.Generator, rows: np.ndarray, reward: np.ndarray, episodes: int) -> Log:
    """Episodes of thirty steps from a new machine."""
    state, steps = np.zeros(episodes, int), []
    for _ in range(STEPS):
        action = (rng.random((episodes, 1)) > PRACTICE.cumsum(-1)[state]).sum(1).clip(0, 2)
        after = (rng.random((episodes, 1)) > rows.cumsum(-1)[state, action]).sum(1).clip(0, 3)
        steps.append((state, action, after))
        state = after
    before, action, after = (np.stack(x, 1).ravel() for x in zip(*steps, strict=True))
    cut = np.tile(np.arange(STEPS) == STEPS - 1, episodes)
    paid = reward[before, action] + NOISE * rng.normal(size=len(before))
    return Log(Transitions(before, action, paid, after, None, cut), STATES, ACTIONS)


def plants(seed: int, number: int, episodes: int) -> list[tuple[np.ndarray, np.ndarray, Log]]:
    """Plants with their logs, one after the other."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(number):
        rows, reward = plant(rng)
        found.append((rows, reward, logged(rng, rows, reward, episodes)))
    return found


def true_value(rows: np.ndarray, reward: np.ndarray, policy: np.ndarray) -> float:
    """Of a new machine."""
    chain = np.einsum("sa,saz->sz", policy, rows)
    return float(np.linalg.solve(np.eye(4) - DISCOUNT * chain, (policy * reward).sum(-1))[0])
