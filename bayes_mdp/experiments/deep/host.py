"""The host-stepped loop of training, for Gymnasium's vector environments and Atari: two compiled programs an iteration.

The same agents, the same random numbers and the same `Now` and `Seen` as in `loop`; what an environment holds cannot be
stored, so the state keeps how it came about: at an anchor all environments are reset with a seed that hangs on (seed,
number of the anchor), and the actions since are kept. `restore_host` plays them again.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from bayes_mdp.agents.neural.contract import Choice, NeuralAgent, Spec
from bayes_mdp.agents.neural.replay import Replay, Row, Stack, add, empty_replay
from bayes_mdp.experiments.deep.loop import Episode, Now, Seen
from bayes_mdp.experiments.deep.vector_env import HostEnv
from bayes_mdp.mdp.validation import check_count

ANCHOR_STEPS = 250_000
"""Environment steps from one anchor to the next if nobody says: a million frames of Atari."""


class Played(NamedTuple):
    """How the environments came to where they are: `Now.world`.

    Args:
        seed: of the run.
        iteration: the next one.
        actions: of the iterations since the last anchor, then what an earlier anchor left.
        fresh: where the observation is the first of an episode of the environment.
    """

    seed: np.ndarray
    iteration: np.ndarray
    actions: np.ndarray
    fresh: np.ndarray


def begin_host(
    key: PRNGKeyArray, agent: NeuralAgent, env: HostEnv, num_rows: int, anchor_every: int | None = None
) -> Now:
    """Everything before the first iteration, as `loop.begin` for an environment in JAX; it resets the environments.

    Args:
        key: of the run.
        agent: that learns.
        env: that it learns in (`host_env`, `atari`).
        num_rows: of the replay.
        anchor_every: iterations from one anchor to the next; None: about `ANCHOR_STEPS` environment steps. At an anchor
            the episodes under way are cut off (as truncated, without a score).

    Raises:
        ValueError: a stack of frames that is not that of the observations.
    """
    num_envs = env.num_envs
    every = max(ANCHOR_STEPS // num_envs, 1) if anchor_every is None else anchor_every
    check_count("anchor_every", every)
    stack = env.rules.stack
    key_learner, key_memory, key_world = jax.random.split(key, 3)
    spec = env.spec

    def fresh() -> tuple[Any, Any, Replay]:
        learner, memory = agent.init(key_learner, spec), agent.begin(key_memory, spec)
        return learner, memory, empty_replay(num_rows, row_of(agent, spec, stack), stack)

    learner, memory, replay = jax.jit(fresh)()
    seed = np.asarray(jax.random.bits(key_world) >> 1).astype(np.int32)
    kind = np.uint8 if spec.n_actions <= 256 else np.int32
    yes = np.ones(num_envs, bool)
    world = Played(seed, np.zeros((), np.int32), np.zeros((every, num_envs), kind), yes)
    nought: Any = (np.zeros(num_envs, np.float32), np.zeros(num_envs, np.int32))
    start: Any = (learner, memory, replay, world, env.reset(anchor_seed(seed, 0)), yes, Episode(*nought))
    return Now(*start)


def row_of(agent: NeuralAgent, spec: Spec, stack: Stack | None = None) -> Row:
    """Shapes and types of a row of the replay: `replay_bytes(num_rows, row_of(...), stack)` is its size."""
    num_envs = spec.num_envs

    def row() -> Row:
        learner, memory = agent.init(jax.random.key(0), spec), agent.begin(jax.random.key(0), spec)
        seen = jnp.zeros((num_envs, *spec.observation_shape), spec.observation_dtype)
        no, iteration = jnp.zeros(num_envs, bool), jnp.zeros((), jnp.int32)
        extra = agent.act(jax.random.key(0), learner, memory, seen, ~no, iteration).extra
        number = jnp.zeros(num_envs, jnp.float32)
        return Row(seen, number.astype(jnp.int32), number, no, no, extra, no if stack is not None else None)

    return jax.eval_shape(row)


def anchor_seed(seed: Any, number: int) -> int:
    """The seed that the environments are reset with at an anchor."""
    return int(np.random.SeedSequence((int(seed), number)).generate_state(1)[0] >> 2)


def run_chunk_host(key: PRNGKeyArray, agent: NeuralAgent, env: HostEnv, now: Now, iterations: Any) -> tuple[Now, Seen]:
    """Iterations in turn; of what is seen, a row each: `loop.run_chunk` on the host.

    An iteration is one step of every environment, and what is learnt from it. `now` is used up: its arrays are given
    to the programs that write in place.

    Raises:
        ValueError: `iterations` are not the next ones; what the environment answers cannot be learnt from.
    """
    on_host = ("world", "observation", "started", "episode")
    now = now._replace(**{name: jax.tree.map(np.array, getattr(now, name)) for name in on_host})
    rows: list[_Reported] = []
    for iteration in np.asarray(iterations).tolist():
        now, row = step_host(key, agent, env, now, iteration)
        rows.append(row)
    (names,) = rows[0].watched
    watched = np.stack([np.asarray(row.watched[names]) for row in rows])
    series: Any = {name: watched[:, i] for i, name in enumerate(names)}
    seen: Any = [np.stack(column) for column in list(zip(*rows, strict=True))[:3]]
    return now, Seen(seen[0], seen[1], seen[2], series)


class _Reported(NamedTuple):
    """`Seen` of one iteration; what is watched is one array, its names are the key: one transfer from the device."""

    ended: np.ndarray
    score: np.ndarray
    length: np.ndarray
    watched: dict[tuple[str, ...], Array]


def step_host(key: PRNGKeyArray, agent: NeuralAgent, env: HostEnv, now: Any, iteration: int) -> tuple[Now, _Reported]:
    """One iteration, as `loop.iterate`; what the host keeps are numpy arrays, of which `world.actions` is written."""
    world: Played = now.world
    if iteration != world.iteration:
        raise ValueError(f"iteration is {iteration}, expected {world.iteration}, the next one of this state")
    count, every = np.int32(iteration), len(world.actions)
    choice = _act(key, agent, now.learner, now.memory, now.observation, now.started, count)
    action = np.asarray(choice.action)
    step: Any = env.step(action)
    world.actions[iteration % every] = action
    anchored = (iteration + 1) % every == 0
    truncated = step.truncated | ~step.terminated if anchored else step.truncated
    fresh: Any = None if now.replay.stack is None else world.fresh
    row = Row(now.observation, choice.action, step.reward, step.terminated, truncated, choice.extra, fresh)
    learner, replay, watched = _learn(key, agent, now.learner, choice.memory, now.replay, row, count)
    score, length = now.episode.score + step.score, now.episode.length + step.happened.astype(np.int32)
    observation, started, fresh, over = step.observation, step.started, step.fresh, step.ended
    if anchored:
        observation = env.reset(anchor_seed(world.seed, (iteration + 1) // every))
        started = fresh = over = np.ones(env.num_envs, bool)
    played = Played(world.seed, np.asarray(iteration + 1, np.int32), world.actions, fresh)
    running: Any = (np.where(over, np.float32(0), score), np.where(over, np.int32(0), length))
    later: Any = (learner, choice.memory, replay, played, observation, started, Episode(*running))
    return Now(*later), _Reported(step.ended, score, length, watched)


def restore_host(env: HostEnv, now: Now) -> None:
    """Bring the environments to where a restored state left them: the last anchor, and the actions since.

    Raises:
        ValueError: they come out elsewhere.
    """
    world: Played = jax.tree.map(np.asarray, now.world)
    number, since = divmod(int(world.iteration), len(world.actions))
    observation, fresh = env.reset(anchor_seed(world.seed, number)), np.ones(env.num_envs, bool)
    for action in world.actions[:since]:
        step = env.step(action)
        observation, fresh = step.observation, step.fresh
    same = (observation == np.asarray(now.observation)).reshape(env.num_envs, -1).all(1) & (fresh == world.fresh)
    if not same.all():
        raise ValueError(
            f"environment {int(np.argmin(same))} of {env.name} comes out elsewhere after the same seed and {since} "
            "actions: it is not deterministic given both, so the run cannot be resumed"
        )


@jax.jit
def _act(
    key: PRNGKeyArray,
    agent: NeuralAgent,
    learner: Any,
    memory: Any,
    observation: Array,
    started: Bool[Array, " E"],
    iteration: Int[Array, ""],
) -> Choice:
    key_act = _keys(key, iteration)[0]
    return agent.act(key_act, learner, memory, observation, started, iteration)


@partial(jax.jit, donate_argnums=(2, 4))
def _learn(
    key: PRNGKeyArray,
    agent: NeuralAgent,
    learner: Any,
    memory: Any,
    replay: Replay,
    row: Row,
    iteration: Int[Array, ""],
) -> tuple[Any, Replay, dict[tuple[str, ...], Array]]:
    key_learn = _keys(key, iteration)[3]
    replay = add(replay, iteration, row)
    learner, watched = agent.learn(key_learn, learner, memory, replay, iteration)
    names = tuple(sorted(watched))
    return learner, replay, {names: jnp.stack([watched[name] for name in names])}


def _keys(key: PRNGKeyArray, iteration: Int[Array, ""]) -> PRNGKeyArray:
    """Those of `loop.iterate`: to act, step, reset, learn."""
    return jax.random.split(jax.random.fold_in(key, iteration), 4)
