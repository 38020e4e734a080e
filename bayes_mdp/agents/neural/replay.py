"""A replay memory on the device: rows of E environments side by side, in a ring; an observation is kept once.

The observation that a transition leads to is that of the next row. So a transition can be drawn an iteration after it
happened, and one that was truncated cannot be learnt from (the next row begins another episode): its weight is 0.
flashbax is the library for this; a ring of a hundred lines takes fewer kernels an iteration, which decides the speed on
a CPU, and keeps no observation twice.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped


class Row(NamedTuple):
    """One step of E environments.

    Args:
        observation: before the action.
        action: what was done.
        reward: of the step.
        terminated, truncated: how the step ended the episode.
        extra: of the agent (`Choice.extra`).
    """

    observation: Shaped[Array, "E *O"]
    action: Int[Array, " E"]
    reward: Float[Array, " E"]
    terminated: Bool[Array, " E"]
    truncated: Bool[Array, " E"]
    extra: PyTree = ()


class Batch(NamedTuple):
    """Transitions that were drawn.

    Args:
        observation, action, reward, terminated: of the transition.
        next_observation, next_action: what followed; without meaning where it terminated.
        weight: 0 where the transition cannot be learnt from, else 1.
        extra, next_extra: what the agent kept of both rows.
        index: (row, environment).
    """

    observation: Shaped[Array, "B *O"]
    action: Int[Array, " B"]
    reward: Float[Array, " B"]
    terminated: Bool[Array, " B"]
    next_observation: Shaped[Array, "B *O"]
    next_action: Int[Array, " B"]
    weight: Float[Array, " B"]
    extra: PyTree
    next_extra: PyTree
    index: tuple[Int[Array, " B"], Int[Array, " B"]]


class Replay(eqx.Module):
    """The rows of the last iterations: arrays [R E ...] of a `Row`. Row i of the run lies at i modulo R."""

    rows: Row

    @property
    def shape(self) -> tuple[int, int]:
        """(R, E): rows, environments."""
        rows, envs = self.rows.action.shape
        return rows, envs


def empty_replay(num_rows: int, row: Row) -> Replay:
    """A replay of `num_rows` rows like `row` (arrays, or shapes and types)."""
    return Replay(jax.tree.map(lambda x: jnp.zeros((num_rows, *x.shape), x.dtype), row))


def replay_bytes(num_rows: int, row: Row) -> int:
    """Size of that replay."""
    return num_rows * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(row))


def add(replay: Replay, iteration: Int[Array, ""], row: Row) -> Replay:
    """The replay with the row of this iteration, in place of the oldest one."""
    place = iteration % replay.shape[0]
    return Replay(
        jax.tree.map(lambda ring, x: jax.lax.dynamic_update_index_in_dim(ring, x, place, 0), replay.rows, row)
    )


def sample(key: PRNGKeyArray, replay: Replay, iteration: Int[Array, ""], batch_size: int) -> Batch:
    """Transitions drawn uniformly, with replacement, from those whose next row is there. `iteration` is at least 1."""
    num_rows, num_envs = replay.shape
    known = jnp.minimum(iteration, num_rows - 1)  # transitions of each environment
    drawn = jax.random.randint(key, (batch_size,), 0, known * num_envs)
    age, env = drawn // num_envs + 1, drawn % num_envs
    return transitions_at(replay, (iteration - age) % num_rows, env)


def transitions_at(replay: Replay, row: Int[Array, " B"], env: Int[Array, " B"]) -> Batch:
    """The transitions of these places."""
    rows = replay.rows
    following = (row + 1) % replay.shape[0]
    taken: Row = jax.tree.map(lambda ring: ring[row, env], rows)
    return Batch(
        taken.observation,
        taken.action,
        taken.reward,
        taken.terminated,
        rows.observation[following, env],
        rows.action[following, env],
        1.0 - taken.truncated,
        taken.extra,
        jax.tree.map(lambda ring: ring[following, env], rows.extra),
        (row, env),
    )


def last_transitions(replay: Replay, iteration: Int[Array, ""]) -> Batch:
    """The newest transition of every environment whose next row is there: that of the iteration before."""
    num_rows, num_envs = replay.shape
    row = jnp.broadcast_to((iteration - 1) % num_rows, (num_envs,))
    return transitions_at(replay, row, jnp.arange(num_envs))
