"""`ObservedEnvironment`: pure functions in JAX, an observation in place of a state: where a deep agent is trained."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree


class TimeStep(NamedTuple):
    """What one action leads to.

    Args:
        state: of the environment, any tree of arrays.
        observation: what the agent sees of it, an array of the same shape at every step.
        reward: what the agent learns from.
        terminated: values beyond are zero.
        truncated: the episode is cut off; values beyond count.
        score: what is reported: the reward without clipping or noise.
    """

    state: PyTree
    observation: Array
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    score: Float[Array, ""]


@runtime_checkable
class ObservedEnvironment(Protocol):
    """An environment with observations. Every function is pure and traceable; episodes are not restarted."""

    @property
    def name(self) -> str:
        """For tables and files."""
        ...

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        ...

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        ...

    @property
    def observation_dtype(self) -> np.dtype:
        """Type of its entries: the replay keeps them as they are."""
        ...

    def reset(self, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        """The state, any tree of arrays, and the observation, of one fixed shape, at the start of an episode.

        Args:
            key: of the first state.
        """
        ...

    def step(self, key: PRNGKeyArray, state: PyTree, action: Int[Array, ""]) -> TimeStep:
        """What the action leads to.

        Args:
            key: of the transition.
            state: of the environment, from `reset` or the last `step`.
            action: its index.
        """
        ...


@runtime_checkable
class HasCells(Protocol):
    """An environment with a map: where its visits can be drawn."""

    @property
    def map_shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        ...

    def cell(self, state: PyTree) -> Int[Array, ""]:
        """The number of the place, row after row.

        Args:
            state: of the environment.
        """
        ...
