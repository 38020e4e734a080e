"""Statistics of a history, counted by a loop in numpy, and optima of tables by plain sweeps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents.model_based.empirical_planning import Split
from bayes_mdp.experiments.rollout.time_loop import observe_block
from bayes_mdp.mdp import Discounted, Problem, Transitions
from tests.agents.histories import LEGAL, LENGTH, A, H, S, history, problem

GAMMA = 0.9
KEY = jax.random.key(0)
SEEN = history(3)[:60]
FEW = history(3)[:8]
"""So few that some pairs were never tried."""
DISCOUNTED = Problem(problem(layered=False).space, Discounted(GAMMA))
EPISODIC = problem(layered=False)


class Looked(NamedTuple):
    """What an agent shows after a history."""

    split: Split
    policy: Any
    greedy: Any


def look(agent: Any, task: Problem, seen: list[Any]) -> Looked:
    """One compiled call an agent."""
    return _look(agent, task, *as_transitions(seen))


def as_transitions(seen: list[Any]) -> tuple[Transitions, Any]:
    """A history and its weights; what is missing up to LENGTH has weight zero and a reward that is no number."""
    filled = [*seen, *[(0, 0, 0, np.nan, 0, False)] * (LENGTH - len(seen))]
    step, at, action, reward, after, over = (np.array(x) for x in zip(*filled, strict=True))
    data = Transitions(at, action, reward, after, over, None, step)
    return jax.tree.map(jnp.asarray, data), jnp.asarray(np.arange(LENGTH) < len(seen), float)


@jax.jit
def _look(agent: Any, task: Problem, data: Transitions, weight: Any) -> Looked:
    state = observe_block(agent, task, agent.init(KEY, task), data, weight)
    return Looked(agent.split(task, state), agent.plan(KEY, task, state)[0], agent.greedy(task, state))


class Counted(NamedTuple):
    """n [S A], N [S A S], mean reward [S A], step of the last use [S A] (from 1 on, 0: never)."""

    n: np.ndarray
    following: np.ndarray
    reward: np.ndarray
    last: np.ndarray

    @property
    def rows(self):
        """Empirical rows, zero where nothing was observed; an end leads nowhere."""
        return self.following / np.maximum(self.n, 1)[..., None]


def counted(seen: Any) -> Counted:
    """By a loop."""
    n, following, total, last = np.zeros((S, A)), np.zeros((S, A, S)), np.zeros((S, A)), np.zeros((S, A))
    for t, (_, s, a, r, after, over) in enumerate(seen):
        n[s, a], last[s, a] = n[s, a] + 1, t + 1
        total[s, a] += r
        if not over:
            following[s, a, after] += 1
    return Counted(n, following, total / np.maximum(n, 1), last)


def optimum(reward: np.ndarray, rows: np.ndarray, discount: float, sweeps: int = 3000) -> np.ndarray:
    """Q [S A] by sweeps; -inf where an action is illegal."""
    return optima(reward, rows, discount, sweeps)[0]


def optima(reward: np.ndarray, rows: np.ndarray, discount: float = 1.0, sweeps: int = H) -> np.ndarray:
    """Q [sweeps S A] of the last so many steps, the first step first."""
    found, values = [], np.zeros(S)
    for _ in range(sweeps):
        found.append(np.where(LEGAL, reward + discount * rows @ values, -np.inf))
        values = found[-1].max(-1)
    return np.stack(found[::-1])
