"""A replay memory on the device: rows of E environments side by side, in a ring; an observation is kept once.

The observation that a transition leads to is that of the next row. So a transition can be drawn an iteration after it
happened, and one that was truncated cannot be learnt from (the next row begins another episode): its weight is 0.
Where an observation is a stack of frames, the newest frame alone is kept and the stack is rebuilt from the rows before
(Mnih et al. 2015: a million frames of 84 x 84 take 7 GB and not 28).
flashbax is the library for this; a ring of a hundred lines takes fewer kernels an iteration, which decides the speed on
a CPU, and keeps no observation twice.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from bayes_mdp.utils.typing import AnyArray


class Row(NamedTuple):
    """One step of E environments.

    Args:
        observation: before the action.
        action: what was done.
        reward: of the step.
        terminated, truncated: how the step ended the episode.
        extra: of the agent (`ActionOutput.extra`).
        fresh: where the observation is the first of an episode: no frame before it belongs to its stack. A replay of
            frames needs it, others do without.
    """

    observation: Shaped[Array, "E *O"]
    action: Int[Array, " E"]
    reward: Float[Array, " E"]
    terminated: Bool[Array, " E"]
    truncated: Bool[Array, " E"]
    extra: PyTree = ()
    fresh: Bool[Array, " E"] | None = None


class Stack(NamedTuple):
    """Observations are the last frames [size ...], the newest one last.

    Args:
        size: frames of an observation.
        fill: padding before the first frame of an episode: "zeros", or "first", copies of that frame.
    """

    size: int = 4
    fill: str = "zeros"


class Batch(NamedTuple):
    """Transitions that were drawn.

    Args:
        observation, action, reward, terminated: of the transition.
        next_observation, next_action: what followed; without meaning where it terminated.
        weight: factor of its loss, 0 where the transition cannot be learnt from, else 1.
        extra, next_extra: what the agent kept of both rows.
        place: (row, environment).
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
    place: tuple[Int[Array, " B"], Int[Array, " B"]]


class Replay(eqx.Module):
    """The rows of the last R iterations. Row i of the run lies at i modulo R.

    Args:
        rows: arrays [R E ...].
        stack: observations are stacks of frames, of which the rows hold the newest; None: they are not.
    """

    rows: Row
    stack: Stack | None = eqx.field(default=None, static=True)

    @property
    def shape(self) -> tuple[int, int]:
        """(R, E): rows, environments."""
        rows, envs = self.rows.action.shape
        return rows, envs


def empty_replay(num_rows: int, row: Row, stack: Stack | None = None) -> Replay:
    """A replay of `num_rows` rows like `row` (arrays, or shapes and types).

    Raises:
        ValueError: `stack` is not that of the observations, or does not fit into the rows.
    """
    return Replay(
        jax.tree.map(lambda x: jnp.zeros((num_rows, *x.shape), x.dtype), _row_shapes(num_rows, row, stack)), stack
    )


def replay_bytes(num_rows: int, row: Row, stack: Stack | None = None) -> int:
    """Size of the replay that `empty_replay` makes of these arguments, in bytes.

    Args:
        num_rows, row, stack: as of `empty_replay`.
    """
    return num_rows * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(_row_shapes(num_rows, row, stack)))


def add(replay: Replay, iteration: Int[Array, ""], row: Row) -> Replay:
    """The replay with the row of this iteration, in place of the oldest one.

    Args:
        replay: of the rows so far.
        iteration: from 0.
        row: of this iteration.
    """
    place = iteration % replay.shape[0]
    # Of a stack only the newest frame is stored; older ones stand in the rows before.
    if replay.stack is not None:
        row = row._replace(observation=row.observation[:, -1])
    rows = jax.tree.map(lambda ring, x: jax.lax.dynamic_update_index_in_dim(ring, x, place, 0), replay.rows, row)
    return Replay(rows, replay.stack)


def sample(key: PRNGKeyArray, replay: Replay, iteration: Int[Array, ""], batch_size: int) -> Batch:
    """Transitions drawn uniformly, with replacement, from those whose next row exists. `iteration` is at least 1.

    Args:
        key: of the draws.
        replay: that holds the row of this iteration.
        batch_size: B.
    """
    num_rows, num_envs = replay.shape
    # A transition needs its next row and, for stacks, the frames before it: fewer rows than the ring can start one.
    reach = 1 if replay.stack is None else replay.stack.size
    known = jnp.minimum(iteration, num_rows - reach)  # transitions of each environment
    drawn = jax.random.randint(key, (batch_size,), 0, known * num_envs)
    # Ages from 1: the newest row has no next one yet.
    age, env = drawn // num_envs + 1, drawn % num_envs
    return transitions_at(replay, (iteration - age) % num_rows, env)


def transitions_at(replay: Replay, row: Int[AnyArray, " B"], env: Int[AnyArray, " B"]) -> Batch:
    """The transitions of these rows and environments.

    Args:
        replay: that holds them.
        row: places of the rows in the replay.
        env: indices of the environments.
    """
    rows = replay.rows
    next_row = (row + 1) % replay.shape[0]
    taken: Row = jax.tree.map(lambda ring: ring[row, env], rows)
    # A stack is rebuilt from frames; a plain observation is stored whole.
    return Batch(
        taken.observation if replay.stack is None else observations_at(replay, row, env),
        taken.action,
        taken.reward,
        taken.terminated,
        observations_at(replay, next_row, env),
        rows.action[next_row, env],
        # A truncated transition has no successor in the replay: it weighs nothing in the loss.
        1.0 - taken.truncated,
        taken.extra,
        jax.tree.map(lambda ring: ring[next_row, env], rows.extra),
        (jnp.asarray(row), jnp.asarray(env)),
    )


def observations_at(replay: Replay, row: Int[AnyArray, " B"], env: Int[AnyArray, " B"]) -> Shaped[Array, "B *O"]:
    """The observations of these rows and environments; stacks are rebuilt.

    Args:
        replay, row, env: as of `transitions_at`.
    """
    rows, stack = replay.rows, replay.stack
    if stack is None:
        return rows.observation[row, env]
    # Frames backwards from the newest, up to the first one of the episode.
    back = jnp.arange(stack.size)
    before = (row[:, None] - back) % replay.shape[0]
    first = rows.fresh[before, env[:, None]]  # pyright: ignore[reportOptionalSubscript]
    ours = jnp.cumsum(first, 1) - first == 0  # no episode began later than this frame
    if stack.fill == "first":
        before = (row[:, None] - jnp.minimum(back, jnp.sum(ours, 1, keepdims=True) - 1)) % replay.shape[0]
    frames = rows.observation[before[:, ::-1], env[:, None]]
    if stack.fill == "first":
        return frames
    in_episode = ours[:, ::-1].reshape(*ours.shape, *(1,) * (frames.ndim - 2))
    return jnp.where(in_episode, frames, jnp.zeros((), frames.dtype))


def _row_shapes(num_rows: int, row: Row, stack: Stack | None) -> Row:
    """Shapes and types of what is kept of a row."""
    shapes: Row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), row)
    if stack is None:
        return shapes
    shape = shapes.observation.shape
    if len(shape) < 3 or shape[1] != stack.size:
        raise ValueError(f"an observation has shape {shape[1:]}, expected {stack.size} frames along its first axis")
    if stack.fill not in ("zeros", "first"):
        raise ValueError(f"stack.fill is {stack.fill!r}, expected 'zeros' or 'first'")
    if num_rows <= stack.size:
        raise ValueError(f"num_rows is {num_rows}, expected more than the {stack.size} frames of an observation")
    if shapes.fresh is None:
        raise ValueError("row.fresh is None, expected where episodes begin: a replay of frames needs it")
    # One frame of the stack is kept.
    newest = jax.ShapeDtypeStruct((shape[0], *shape[2:]), shapes.observation.dtype)
    return shapes._replace(observation=newest)
