"""Fixed histories of episodes, shared by the tests of the agents that learn from samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.experiments.rollout.time_loop import observe_block
from bayes_mdp.mdp import Episodic, Problem, StateActionSpace, Transitions

H, S, A = 3, 4, 2
LEGAL = np.array([[True, True], [True, False], [False, True], [True, True]])
LENGTH = 100
_observe = jax.jit(observe_block)  # one cache for the session


def problem(*, layered: bool) -> Problem:
    """Episodes of H steps that can end early, with illegal actions."""
    space = StateActionSpace(S, A, horizon=H if layered else None, ends=True, legal=LEGAL)
    return Problem(space, Episodic(H))


def history(seed: int) -> list[tuple[int, int, int, float, int, bool]]:
    """LENGTH times (step, state, action, reward, next state, terminated): a uniform policy in a random MDP."""
    rng = np.random.default_rng(seed)
    rows, rewards, seen = rng.dirichlet(np.ones(S), size=(S, A)), rng.uniform(size=(S, A)), []
    while len(seen) < LENGTH:
        state = int(rng.integers(S))
        for step in range(H):
            action = int(rng.choice(np.flatnonzero(LEGAL[state])))
            after, over = int(rng.choice(S, p=rows[state, action])), bool(rng.random() < 0.15)
            seen.append((step, state, action, float(rewards[state, action] + rng.normal(scale=0.1)), after, over))
            if over:
                break
            state = after
    return seen[:LENGTH]


def learn(agent: Any, task: Problem, state: Any, seen: list[Any]) -> Any:
    """The agent's state after the history (at most LENGTH transitions), as the loop of `run` learns.

    What is missing up to LENGTH has weight zero and a reward that is not a number: it must leave no trace.
    """
    filled = [*seen, *[(0, 0, 0, np.nan, 0, False)] * (LENGTH - len(seen))]
    step, at, action, reward, after, over = (np.array(x) for x in zip(*filled, strict=True))
    weight = jnp.asarray(np.arange(LENGTH) < len(seen), float)
    return _observe(agent, task, state, Transitions(at, action, jnp.asarray(reward), after, over, None, step), weight)
