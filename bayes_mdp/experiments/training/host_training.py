"""Training and evaluation in environments on the host (Gymnasium, Atari): two compiled programs an iteration.

The same agents, random numbers, `TrainState` and `StepReport` as in the compiled loop. The state of a host environment
cannot be stored, so a checkpoint keeps how it was reached: at an anchor all environments are reset with a seed that
depends on (seed, number of the anchor), and the actions since are kept. `restore_host` plays them again.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.replay import Replay, Row, Stack, add, empty_replay, replay_bytes
from bayes_mdp.agents.neural.replay_learning import ActionOutput, NeuralAgent, Spec
from bayes_mdp.experiments.resume import fill
from bayes_mdp.experiments.training.training_loop import (
    Episode,
    Evaluation,
    StepReport,
    TrainOptions,
    TrainState,
    check_bytes_fit,
    choose,
    keys_of,
)
from bayes_mdp.experiments.training.vector_env import HostEnv
from bayes_mdp.utils.typing import AnyArray, IntScalar
from bayes_mdp.utils.validation import check_count

_ON_HOST = ("env_state", "observation", "started", "episode")  # fields of `TrainState` that are numpy arrays

ANCHOR_STEPS = 250_000
"""Environment steps from one anchor to the next by default: a million frames of Atari."""


class Played(NamedTuple):
    """How the environments reached their states: `TrainState.env_state`.

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
) -> TrainState:
    """The state before the first iteration, as `training_loop.begin` in JAX; it resets the environments.

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
    anchor_interval = max(ANCHOR_STEPS // num_envs, 1) if anchor_every is None else anchor_every
    check_count("anchor_every", anchor_interval)
    stack = env.rules.stack
    key_learner, key_memory, key_env = jax.random.split(key, 3)
    spec = env.spec

    def fresh() -> tuple[PyTree, PyTree, Replay]:
        learner, memory = agent.init(key_learner, spec), agent.begin(key_memory, spec)
        return learner, memory, empty_replay(num_rows, row_of(agent, spec, stack), stack)

    learner, memory, replay = jax.jit(fresh)()
    seed = np.asarray(jax.random.bits(key_env) >> 1).astype(np.int32)
    kind = np.uint8 if spec.n_actions <= 256 else np.int32
    yes = np.ones(num_envs, bool)
    env_state = Played(seed, np.zeros((), np.int32), np.zeros((anchor_interval, num_envs), kind), yes)
    zeros: Any = (np.zeros(num_envs, np.float32), np.zeros(num_envs, np.int32))
    start: Any = (learner, memory, replay, env_state, env.reset(anchor_seed(seed, 0)), yes, Episode(*zeros))
    return TrainState(*start)


def row_of(agent: NeuralAgent, spec: Spec, stack: Stack | None = None) -> Row:
    """Shapes and types of a row of the replay: `replay_bytes(num_rows, row_of(...), stack)` is its size."""
    num_envs = spec.num_envs

    def row() -> Row:
        learner, memory = agent.init(jax.random.key(0), spec), agent.begin(jax.random.key(0), spec)
        first = jnp.zeros((num_envs, *spec.observation_shape), spec.observation_dtype)
        no, iteration = jnp.zeros(num_envs, bool), jnp.zeros((), jnp.int32)
        extra = agent.act(jax.random.key(0), learner, memory, first, ~no, iteration).extra
        number = jnp.zeros(num_envs, jnp.float32)
        return Row(first, number.astype(jnp.int32), number, no, no, extra, no if stack is not None else None)

    return jax.eval_shape(row)


def anchor_seed(seed: IntScalar, number: int) -> int:
    """The seed that the environments are reset with at an anchor."""
    return int(np.random.SeedSequence((int(seed), number)).generate_state(1)[0] >> 2)


def run_chunk_host(
    key: PRNGKeyArray,
    agent: NeuralAgent,
    env: HostEnv,
    now: TrainState,
    iterations: Sequence[int] | Int[AnyArray, " T"],
) -> tuple[TrainState, StepReport]:
    """A loop over iterations, `training_loop.run_chunk` on the host; reports have a leading axis of iterations.

    An iteration is one step of every environment, and what is learnt from it. `now` is donated: the compiled programs
    write into its arrays.

    Raises:
        ValueError: `iterations` are not the next ones; rewards or observations are no numbers, or of another shape.
    """
    now = now._replace(**{name: jax.tree.map(np.array, getattr(now, name)) for name in _ON_HOST})
    rows: list[_Reported] = []
    for iteration in np.asarray(iterations).tolist():
        now, row = step_host(key, agent, env, now, iteration)
        rows.append(row)
    (names,) = rows[0].watched
    watched = np.stack([np.asarray(row.watched[names]) for row in rows])
    series: Any = {name: watched[:, i] for i, name in enumerate(names)}
    reports: Any = [np.stack(column) for column in list(zip(*rows, strict=True))[:3]]
    return now, StepReport(reports[0], reports[1], reports[2], series)


class _Reported(NamedTuple):
    """`StepReport` of one iteration; `watched` is one array under the names of its entries: one transfer a step."""

    ended: np.ndarray
    score: np.ndarray
    length: np.ndarray
    watched: dict[tuple[str, ...], Array]


def step_host(
    key: PRNGKeyArray, agent: NeuralAgent, env: HostEnv, now: TrainState, iteration: int
) -> tuple[TrainState, _Reported]:
    """One iteration, as `training_loop.iterate`. `env_state.actions` is written in place."""
    env_state: Played = now.env_state
    if iteration != env_state.iteration:
        raise ValueError(f"iteration is {iteration}, expected {env_state.iteration}, the next one of this state")
    count, anchor_interval = np.int32(iteration), len(env_state.actions)
    choice = _act(key, agent, now.learner, now.memory, now.observation, now.started, count)
    action = np.asarray(choice.action)
    step: Any = env.step(action)
    env_state.actions[iteration % anchor_interval] = action
    # At an anchor the environments are reset: episodes under way count as truncated for the learner.
    anchored = (iteration + 1) % anchor_interval == 0
    truncated = step.truncated | ~step.terminated if anchored else step.truncated
    fresh: Any = None if now.replay.stack is None else env_state.fresh
    row = Row(now.observation, choice.action, step.reward, step.terminated, truncated, choice.extra, fresh)
    learner, replay, watched = _learn(key, agent, now.learner, choice.memory, now.replay, row, count)
    score, length = now.episode.score + step.score, now.episode.length + step.happened.astype(np.int32)
    observation, started, fresh, ended = step.observation, step.started, step.fresh, step.ended
    if anchored:
        observation = env.reset(anchor_seed(env_state.seed, (iteration + 1) // anchor_interval))
        started = fresh = ended = np.ones(env.num_envs, bool)
    played = Played(env_state.seed, np.asarray(iteration + 1, np.int32), env_state.actions, fresh)
    running: Any = (np.where(ended, np.float32(0), score), np.where(ended, np.int32(0), length))
    later: Any = (learner, choice.memory, replay, played, observation, started, Episode(*running))
    return TrainState(*later), _Reported(step.ended, score, length, watched)


def restore_host(env: HostEnv, now: TrainState) -> None:
    """Bring the environments to where a restored state left them: the last anchor, and the actions since.

    Raises:
        ValueError: they reach other states.
    """
    env_state: Played = jax.tree.map(np.asarray, now.env_state)
    number, since = divmod(int(env_state.iteration), len(env_state.actions))
    observation, fresh = env.reset(anchor_seed(env_state.seed, number)), np.ones(env.num_envs, bool)
    # The reset has the seed of the anchor, so the same actions lead to the same states.
    for action in env_state.actions[:since]:
        step = env.step(action)
        observation, fresh = step.observation, step.fresh
    agrees = (observation == np.asarray(now.observation)).reshape(env.num_envs, -1).all(1) & (fresh == env_state.fresh)
    if not agrees.all():
        raise ValueError(
            f"environment {int(np.argmin(agrees))} of {env.name} reaches another state after the same seed and {since} "
            "actions: it is not deterministic given both, so the run cannot be resumed"
        )


@jax.jit
def _act(
    key: PRNGKeyArray,
    agent: NeuralAgent,
    learner: PyTree,
    memory: PyTree,
    observation: Array,
    started: Bool[Array, " E"],
    iteration: Int[Array, ""],
) -> ActionOutput:
    key_act = keys_of(key, iteration)[0]
    return agent.act(key_act, learner, memory, observation, started, iteration)


# Learner and replay are donated: they are nearly all of the memory, and are written in place.
@partial(jax.jit, donate_argnums=(2, 4))
def _learn(
    key: PRNGKeyArray,
    agent: NeuralAgent,
    learner: PyTree,
    memory: PyTree,
    replay: Replay,
    row: Row,
    iteration: Int[Array, ""],
) -> tuple[PyTree, Replay, dict[tuple[str, ...], Array]]:
    key_learn = keys_of(key, iteration)[3]
    replay = add(replay, iteration, row)
    learner, watched = agent.learn(key_learn, learner, memory, replay, iteration)
    names = tuple(sorted(watched))  # keys of a dictionary are static: the names pass through `jit`
    return learner, replay, {names: jnp.stack([watched[name] for name in names])}


def play_host(
    key: PRNGKeyArray, agent: NeuralAgent, learner: PyTree, env: HostEnv, epsilon: float | None, num_steps: int
) -> np.ndarray:
    """Scores of the episodes that ended in so many steps of all the environments together. Host side."""
    key_memory, key_env, key_steps = jax.random.split(key, 3)
    memory = agent.begin(key_memory, env.spec)
    observation = env.reset(int(jax.random.bits(key_env) >> 2))
    started, score, scores = np.ones(env.num_envs, bool), np.zeros(env.num_envs), []
    for t in range(-(-num_steps // env.num_envs)):
        chance = jax.random.fold_in(key_steps, t)
        action, memory = _choose(chance, agent, learner, memory, observation, started, epsilon)
        step = env.step(np.asarray(action))
        score = score + step.score
        scores.append(score[step.ended])
        score = np.where(step.ended, 0.0, score)
        observation, started = step.observation, step.started
    return np.concatenate(scores) if scores else np.zeros(0)


_choose = jax.jit(choose)


class HostEngine:
    """The loop that `train` runs in chunks, iterations one by one: environments on the host, the learning compiled.

    Args:
        agent: see `train`.
        env: where it learns.
        evaluation_env: where it is tried.
        options: see `train`; environments are those of `env`.
        key: of everything.
    """

    def __init__(
        self,
        agent: NeuralAgent,
        env: HostEnv,
        evaluation_env: HostEnv | None,
        options: TrainOptions,
        key: PRNGKeyArray,
    ) -> None:
        self._agent, self._env, self._evaluation_env, self._options = agent, env, evaluation_env, options
        self._begin_key, self._run_key, self._key_play = jax.random.split(key, 3)
        self._num_rows = options.replay_size // env.num_envs

    def begin(self) -> TrainState:
        """Everything before the first iteration; refuses a replay that does not fit."""
        stack = self._env.rules.stack
        row = row_of(self._agent, self._env.spec, stack)
        size = replay_bytes(self._num_rows, row, stack)
        check_bytes_fit(size, f"{self._num_rows * self._env.num_envs:,} transitions")
        return begin_host(self._begin_key, self._agent, self._env, self._num_rows)

    def chunk(self, state: TrainState, first: int, number: int) -> tuple[TrainState, StepReport]:
        """So many iterations, from `first` on."""
        state, report = run_chunk_host(self._run_key, self._agent, self._env, state, range(first, first + number))
        return state, jax.tree.map(lambda x: np.asarray(x)[None], report)

    def evaluate(self, state: TrainState, number: int) -> list[np.ndarray]:
        """The scores of the episodes of the evaluation with this number."""
        plan = self._options.evaluation
        assert isinstance(plan, Evaluation) and self._evaluation_env is not None
        key = jax.random.fold_in(self._key_play, number)
        return [play_host(key, self._agent, state.learner, self._evaluation_env, plan.epsilon, plan.steps)]

    def by_seed(self, state: TrainState) -> TrainState:
        """The state; what was learnt has an axis of seeds in front, as in `CompiledEngine`."""
        return state._replace(learner=jax.tree.map(lambda x: x[None], state.learner))

    def restore(self, arrays: Mapping[str, AnyArray], where: str) -> TrainState:
        """The state whose `by_seed` these are, by name; the environments are played to where they were."""
        fresh = begin_host(self._begin_key, self._agent, self._env, self._num_rows)
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), fresh)
        del fresh
        learner_shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), shapes.learner)
        filled: TrainState = fill(shapes._replace(learner=learner_shapes), arrays, where)
        state = filled._replace(
            learner=jax.tree.map(lambda x: x[0], filled.learner),
            **{name: jax.tree.map(np.array, getattr(filled, name)) for name in _ON_HOST},
        )
        restore_host(self._env, state)
        return state
