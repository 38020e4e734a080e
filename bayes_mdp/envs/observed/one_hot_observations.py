"""A tabular environment as an `ObservedEnvironment`: the observation is one-hot."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from bayes_mdp.mdp import Environment, TimeStep
from bayes_mdp.utils.validation import check_count


class OneHotState(NamedTuple):
    """State of the table, and how many steps the episode has had."""

    state: Int[Array, ""]
    step: Int[Array, ""]


class OneHotObserved(eqx.Module):
    """An `Environment` whose observation is the state as a vector of zeros and a one; `one_hot` makes it.

    Args:
        env: with tables.
        num_steps: after which an episode is cut off.

    Example:
        >>> env = bm.envs.one_hot(bm.envs.chain(), num_steps=20)
        >>> env.observation_shape, env.n_actions
        ((5,), 2)
    """

    env: Environment
    num_steps: int = eqx.field(static=True)

    @property
    def name(self) -> str:
        """That of the table."""
        return self.env.name

    @property
    def n_actions(self) -> int:
        """A."""
        return self.env.mdp.n_actions

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(S,), or (H S,) where the table has a step axis."""
        return ((self.env.mdp.horizon or 1) * self.env.mdp.n_states,)

    @property
    def observation_dtype(self) -> np.dtype:
        """Zeros and a one, a byte each."""
        return np.dtype(np.uint8)

    def reset(self, key: PRNGKeyArray) -> tuple[OneHotState, UInt8[Array, " O"]]:
        """The first state of an episode."""
        state = OneHotState(self.env.reset(key), jnp.zeros((), jnp.int32))
        return state, self._observation(state)

    def step(self, key: PRNGKeyArray, state: OneHotState, action: Int[Array, ""]) -> TimeStep:
        """One transition; the last step of a table with a step axis ends, that of another is cut off."""
        next_state, reward, ends = self.env.step(key, state.state, action, state.step)
        over = state.step + 1 >= self.num_steps
        inhomogeneous = self.env.mdp.horizon is not None
        terminated, truncated = (ends | over, ends & False) if inhomogeneous else (ends, over & ~ends)
        later = OneHotState(next_state, state.step + 1)
        return TimeStep(later, self._observation(later), reward, terminated, truncated, reward)

    def _observation(self, state: OneHotState) -> UInt8[Array, " O"]:
        place = state.state
        if self.env.mdp.horizon is not None:
            place = place + self.env.mdp.n_states * jnp.minimum(state.step, self.env.mdp.horizon - 1)
        return (jnp.arange(self.observation_shape[0]) == place).astype(jnp.uint8)


def one_hot(env: Environment, num_steps: int | None = None) -> OneHotObserved:
    """A tabular environment as a deep agent sees it.

    Args:
        env: of `bayes_mdp.envs`, or your own. Where its table has a step axis [H S A], the step is observed too.
        num_steps: length of an episode: H there; else episodes are cut off (`truncated`) after so many, default 1000.

    Raises:
        ValueError: `num_steps` below 1, or another than H. TypeError: it is no integer, or `env` no `Environment`.

    Example:
        >>> env = bm.envs.one_hot(bm.envs.chain(), num_steps=20)
        >>> env.reset(jax.random.key(0))[1].tolist()  # the first of five states
        [1, 0, 0, 0, 0]
    """
    if not isinstance(env, Environment):
        raise TypeError(f"env is {type(env).__name__}, expected a tabular Environment")
    horizon = env.mdp.horizon
    length = num_steps if num_steps is not None else horizon or 1000
    check_count("num_steps", length)
    if horizon is not None and length != horizon:
        raise ValueError(f"num_steps is {length}, expected {horizon}, the number of steps of its table")
    return OneHotObserved(env, int(length))
