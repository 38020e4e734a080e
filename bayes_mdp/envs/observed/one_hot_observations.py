"""`ObservedEnvironment`s whose observation is one-hot: DeepSea of bsuite [BSUITE20], a plane of zeros with a one at the
position, and any tabular environment.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from bayes_mdp.envs.papers.chain_mdps import COST, action_right
from bayes_mdp.mdp import Environment, TimeStep
from bayes_mdp.utils.validation import check_bool, check_count


class DeepSeaState(NamedTuple):
    """Position of the diver."""

    row: Int[Array, ""]
    column: Int[Array, ""]


class DeepSeaObserved(eqx.Module):
    """See `deep_sea_observed`.

    Args:
        right: the action that means right, by (row, column).
        stochastic: whether right may fail.

    Example:
        >>> env = bm.envs.deep_sea_observed(4)
        >>> env.size, env.n_actions
        (4, 2)
    """

    right: Int[Array, "N N"]
    stochastic: bool = eqx.field(static=True)
    n_actions = 2
    observation_dtype = np.dtype(np.uint8)

    @property
    def size(self) -> int:
        """N: rows, columns, steps of an episode."""
        return self.right.shape[-1]

    @property
    def name(self) -> str:
        """For tables and files."""
        return f"deep_sea{'_stochastic' if self.stochastic else ''}:{self.size}"

    @property
    def observation_shape(self) -> tuple[int, int]:
        """(N, N)."""
        return (self.size, self.size)

    map_shape = observation_shape  # the place in the map is what is seen

    def cell(self, state: DeepSeaState) -> Int[Array, ""]:
        """Row after row."""
        return state.row * self.size + state.column

    def reset(self, key: PRNGKeyArray) -> tuple[DeepSeaState, UInt8[Array, "N N"]]:
        """The top left corner."""
        del key
        state = DeepSeaState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return state, self._observation(state)

    def step(self, key: PRNGKeyArray, state: DeepSeaState, action: Int[Array, ""]) -> TimeStep:
        """Down a row, and left or right. `score`: 1 where the treasure is found, else 0 (bsuite's good episode)."""
        row, column = state
        last = self.size - 1
        right = action == self.right[row, column]
        key_slip, key_noise = jax.random.split(key)
        slips = jax.random.uniform(key_slip) < 1 / self.size if self.stochastic else jnp.zeros((), bool)
        moved = jnp.where(right, jnp.where(slips, column, jnp.minimum(column + 1, last)), jnp.maximum(column - 1, 0))
        ended, treasure = row == last, right & (column == last)
        reward = jnp.where(right, treasure - COST / self.size, 0.0)
        if self.stochastic:
            noisy = ended & ((column == 0) | (column == last))
            reward = reward + jnp.where(noisy, jax.random.normal(key_noise), 0.0)
        next_state = DeepSeaState(jnp.minimum(row + 1, last), jnp.where(ended, column, moved))
        cut = jnp.zeros((), bool)
        return TimeStep(next_state, self._observation(next_state), reward, ended, cut, treasure.astype(reward.dtype))

    def _observation(self, state: DeepSeaState) -> UInt8[Array, "N N"]:
        cells = jnp.arange(self.size)
        return ((cells[:, None] == state.row) & (cells == state.column)).astype(jnp.uint8)


def deep_sea_observed(size: int = 10, *, stochastic: bool = False, mapping_seed: int | None = 42) -> DeepSeaObserved:
    """DeepSea of bsuite as a deep agent sees it; rules and arguments of `bsuite_deep_sea`, which is its table.

    From [BSUITE20]. The observation is an N x N plane, one at the diver's place, as in bsuite. `TimeStep.score` of
    an episode sums to 1 where it found the treasure, else to 0: what bsuite counts, without cost and noise.

    Args:
        size: N.
        stochastic: right fails with probability 1/N; noise N(0, 1) on the rewards of the last row's two corners.
        mapping_seed: of the meaning of the actions, bsuite's default 42; None: action 1 is right everywhere.

    Raises:
        ValueError: `size` below 2, `mapping_seed` negative. TypeError: one of them is no integer.

    Example:
        >>> env = bm.envs.deep_sea_observed(4)
        >>> state, observation = env.reset(jax.random.key(0))
        >>> observation.shape, int(observation.sum())
        ((4, 4), 1)
    """
    check_count("size", size, 2)
    check_bool("stochastic", stochastic)
    return DeepSeaObserved(jnp.asarray(action_right(size, mapping_seed), jnp.int32), bool(stochastic))


def deep_sea_stochastic_observed(size: int = 10, *, mapping_seed: int | None = 42) -> DeepSeaObserved:
    """DeepSea of bsuite [BSUITE20] as a deep agent sees it, stochastic: `deep_sea_observed(stochastic=True)`.

    Args:
        size, mapping_seed: as of `deep_sea_observed`.

    Example:
        >>> from bayes_mdp.envs.observed.one_hot_observations import deep_sea_stochastic_observed
        >>> env = deep_sea_stochastic_observed(4)
        >>> env.name, env.observation_shape
        ('deep_sea_stochastic:4', (4, 4))
    """
    return deep_sea_observed(size, stochastic=True, mapping_seed=mapping_seed)


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
    observation_dtype = np.dtype(np.uint8)

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

    def reset(self, key: PRNGKeyArray) -> tuple[OneHotState, UInt8[Array, " O"]]:
        """The first state of an episode."""
        state = OneHotState(self.env.reset(key), jnp.zeros((), jnp.int32))
        return state, self._observation(state)

    def step(self, key: PRNGKeyArray, state: OneHotState, action: Int[Array, ""]) -> TimeStep:
        """One transition; the last step of a table with a step axis ends, that of another is cut off."""
        next_state, reward, ends = self.env.step(key, state.state, action, state.step)
        ended = state.step + 1 >= self.num_steps
        inhomogeneous = self.env.mdp.horizon is not None
        terminated, truncated = (ends | ended, ends & False) if inhomogeneous else (ends, ended & ~ends)
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
