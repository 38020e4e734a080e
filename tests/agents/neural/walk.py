"""A world small enough to be followed by hand: five places on a line, noisy rewards, ends and cuts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.mdp import TimeStep

PLACES, ACTIONS, LIMIT = 5, 3, 9


class Walk(eqx.Module):
    """Left, stay, right; one step in five slips and stays. The right end ends an episode, nine steps cut it off.

    Seen is the place, one-hot. `score` is the reward without its noise.
    """

    @property
    def name(self) -> str:
        """For tables and files."""
        return "walk"

    @property
    def n_actions(self) -> int:
        """Three."""
        return ACTIONS

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(5,)."""
        return (PLACES,)

    @property
    def observation_dtype(self) -> np.dtype:
        """A byte each."""
        return np.dtype(np.uint8)

    def reset(self, key: Any) -> Any:
        """One of the two leftmost places."""
        state = (jax.random.bernoulli(key).astype(jnp.int32), jnp.zeros((), jnp.int32))
        return state, self._seen(state)

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        """See above."""
        place, time = state
        key_slip, key_noise = jax.random.split(key)
        move = jnp.where(jax.random.uniform(key_slip) < 0.2, 0, action - 1)
        over = (place == PLACES - 1) & (move == 1)
        later = (jnp.clip(place + move, 0, PLACES - 1).astype(jnp.int32), time + 1)
        score = over + 0.125 * place
        reward = score + jax.random.normal(key_noise)
        return TimeStep(later, self._seen(later), reward, over, ~over & (time + 1 == LIMIT), score)

    def _seen(self, state: Any) -> Any:
        return (jnp.arange(PLACES) == state[0]).astype(jnp.uint8)
