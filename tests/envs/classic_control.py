"""Ours against Gymnasium's own environment: the same states and actions, what comes out."""

from typing import Any

import jax
import numpy as np

from bayes_mdp.mdp import ObservedEnvironment


def stepped(env: ObservedEnvironment, states: Any, actions: np.ndarray) -> Any:
    """Steps from many states at once."""
    key = jax.random.key(0)  # not used: both are deterministic
    return jax.jit(jax.vmap(lambda state, action: env.step(key, state, action)))(states, actions)


def episode(env: ObservedEnvironment, first: Any, actions: np.ndarray) -> Any:
    """Time steps under these actions, on beyond an end."""

    def step(state, action):
        out = env.step(jax.random.key(0), state, action)
        return out.state, out

    return jax.jit(lambda state, a: jax.lax.scan(step, state, a)[1])(first, actions)
