"""A fixed number of transitions of a simulated environment: pairs at random, or what a policy meets."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.mdp import Environment, StateActionSpace, Transitions
from bayes_mdp.planning import policy_probs


def simulate(
    key: PRNGKeyArray, environment: Environment, space: StateActionSpace, num: int, behaviour: Any
) -> Transitions:
    """`num` transitions. Traceable.

    Args:
        behaviour: None: (step,) state and action are drawn uniformly over the legal pairs, each time anew. A policy
            (whatever `policy_probs` reads): it is followed from `environment.mdp.initial`, and starts again there after
            an end or the last step of an episode.
    """
    if behaviour is None:
        return _independent(key, environment, space, num)
    return _followed(key, environment, space, num, behaviour)


def uniform_policy(space: StateActionSpace) -> np.ndarray:
    """[S A], every legal action equally likely."""
    legal = np.ones(space.shape[-2:], bool) if space.legal is None else np.asarray(space.legal)
    return legal / legal.sum(-1, keepdims=True)


def _independent(key: PRNGKeyArray, environment: Environment, space: StateActionSpace, num: int) -> Transitions:
    key_pair, key_step = jax.random.split(key)
    cells = np.argwhere(np.broadcast_to(True if space.legal is None else space.legal, space.shape))
    chosen = jnp.asarray(cells)[jax.random.randint(key_pair, (num,), 0, len(cells))]
    *step, state, action = chosen.T
    step = step[0] if step else jnp.zeros_like(state)
    outcome = jax.vmap(environment.step)(jax.random.split(key_step, num), state, action, step)
    return _transitions(space, state, action, step, outcome)


def _followed(
    key: PRNGKeyArray, environment: Environment, space: StateActionSpace, num: int, behaviour: Any
) -> Transitions:
    key_start, key_steps = jax.random.split(key)
    log_probs = jnp.log(policy_probs(behaviour, environment.mdp, horizon=space.horizon))

    def advance(carry: Any, key: PRNGKeyArray) -> Any:
        state, step = carry
        key_action, key_step, key_reset = jax.random.split(key, 3)
        here = log_probs[state] if log_probs.ndim == 2 else log_probs[step, state]
        action = jax.random.categorical(key_action, here)
        outcome = environment.step(key_step, state, action, step)
        over = outcome[2] if space.horizon is None else outcome[2] | (step == space.horizon - 1)
        following = jnp.where(over, environment.reset(key_reset), outcome[0])
        later = jnp.where(over, 0, step + 1) if space.horizon is not None else step
        return (following, later), (state, action, step, outcome)

    start = (environment.reset(key_start), jnp.zeros((), int))
    _, (state, action, step, outcome) = jax.lax.scan(advance, start, jax.random.split(key_steps, num))
    return _transitions(space, state, action, step, outcome)


def _transitions(space: StateActionSpace, state: Any, action: Any, step: Any, outcome: Any) -> Transitions:
    next_state, reward, terminated = outcome
    return Transitions(
        state,
        action,
        reward,
        next_state,
        terminated if space.ends else None,
        step=None if space.horizon is None else step,
    )
