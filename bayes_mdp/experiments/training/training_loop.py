"""Training and evaluation, compiled: act, step, remember, learn; for environments in JAX, seeds side by side.

`iterate` is one step of every environment and what is learnt from it; a chunk is a scan of iterations; `CompiledEngine`
runs chunks for all seeds. All random numbers depend on (key, iteration) alone: a resumed training is bit-identical.
`TrainOptions` are what `train` takes; whether the replay that they ask for fits into the memory is checked before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.dqn import epsilon_greedy
from bayes_mdp.agents.neural.replay import Replay, Row, add, empty_replay, replay_bytes
from bayes_mdp.agents.neural.replay_learning import ActionOutput, NeuralAgent, Spec, Watched
from bayes_mdp.experiments.resume import fill
from bayes_mdp.mdp import ObservedEnvironment, TimeStep
from bayes_mdp.mdp.environment import HasCells
from bayes_mdp.utils.memory import device_bytes, free_bytes
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import check_bool, check_count, check_name, check_not_negative, check_number, check_type

if TYPE_CHECKING:
    from bayes_mdp.experiments.training.vector_env import HostEnv

_GIB = 2**30


@dataclass(frozen=True)
class Evaluation:
    """Play without learning, now and then, beside the training.

    [UBE18]: every 1M frames on 0.5M frames; Mnih et al. (2015): epsilon .05, up to 30 no-ops at the start of an episode
    (which the environment does).

    Args:
        every: environment steps of the training from one evaluation to the next.
        steps: environment steps of one evaluation, of all its environments together.
        epsilon: share of random actions beside the best one; None: the agent acts as it does in training.
        num_envs: environments that are played in side by side.

    Raises:
        ValueError: a number out of its range. TypeError: another type.

    Example:
        >>> how = bm.deep.Evaluation(every=10_000, steps=1_000, epsilon=0.05)
        >>> bm.deep.TrainOptions(evaluation=how).evaluation.steps
        1000
    """

    every: int
    steps: int
    epsilon: float | None = 0.05
    num_envs: int = 8

    def __post_init__(self) -> None:
        for name in ("every", "steps", "num_envs"):
            check_count(f"evaluation.{name}", getattr(self, name))
        if self.epsilon is not None:
            expected = "a share from 0 to 1, or None"
            check_number("evaluation.epsilon", self.epsilon, lambda x: 0 <= x <= 1, expected)


@dataclass(frozen=True)
class TrainOptions:
    """What can be chosen about a training beyond agent, environment and length.

    Args:
        num_envs: environments of each seed, stepped side by side; of a vector environment it is the number there.
        replay_size: transitions that are remembered, of each seed.
        evaluation: when and how the agent is tried; None: never.
        checkpoint_seconds: from one checkpoint to the next, where there is a path.
        chunk: the most iterations of one compiled call; the points of the curves lie that far apart, or a hundredth of
            the run. No other number depends on it.
        progress: whether a bar is shown (on a terminal only).
        device: "cpu", "gpu", or None for JAX's own choice.
        evaluation_env: where an agent is tried that learns in environments on the host: others of the same kind; None:
            it is not. An `ObservedEnvironment` needs none.

    Raises:
        ValueError: a number out of its range, another device, a replay of fewer than two rows. TypeError: another type.

    Example:
        >>> options = bm.deep.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> options.num_rows  # of the replay: transitions of each environment
        16
    """

    num_envs: int = 1
    replay_size: int = 100_000
    evaluation: Evaluation | None = None
    checkpoint_seconds: float = 300.0
    chunk: int = 1000
    progress: bool = True
    device: str | None = None
    evaluation_env: "HostEnv | None" = None

    def __post_init__(self) -> None:
        for name in ("num_envs", "replay_size", "chunk"):
            check_count(f"options.{name}", getattr(self, name))
        if self.replay_size < 2 * self.num_envs:
            raise ValueError(
                f"options.replay_size is {self.replay_size}, expected at least two transitions for each of "
                f"{self.num_envs} environments"
            )
        check_type("options.evaluation", self.evaluation, (Evaluation, type(None)), "an Evaluation or None")
        check_not_negative("options.checkpoint_seconds", self.checkpoint_seconds)
        check_bool("options.progress", self.progress)
        if self.device is not None:
            check_name("options.device", self.device, ("cpu", "gpu"))

    @property
    def num_rows(self) -> int:
        """Rows of the replay: a row holds a transition of every environment."""
        return self.replay_size // self.num_envs


def check_bytes_fit(needed: int, what: str) -> None:
    """Refuse a replay that is larger than the free memory; `what` follows its size in the message, in brackets.

    Raises:
        ValueError: it does not fit; the message gives its size.
    """
    # On a CPU the device does not say how much memory it has: what the machine has free counts.
    free = device_bytes(jax.devices()[0])
    free = free_bytes() if free is None else free
    if needed > free:
        raise ValueError(
            f"options.replay_size asks for {needed / _GIB:.1f} GiB ({what}), expected at most the "
            f"{free / _GIB:.1f} GiB that are free"
        )


def check_replay_fits(num_rows: int, row: Row, num_seeds: int) -> None:
    """Refuse the replays of all seeds if they are larger than the free memory together.

    Raises:
        ValueError: they do not fit.
    """
    seeds = count_of(num_seeds, "seed")
    check_bytes_fit(num_seeds * replay_bytes(num_rows, row), f"{num_rows * row.action.size:,} transitions, {seeds}")


class Episode(NamedTuple):
    """The episodes under way: score and length so far."""

    score: Float[Array, " E"]
    length: Int[Array, " E"]


class TrainState(NamedTuple):
    """All that training needs to go on: a tree of arrays, of one seed.

    Args:
        learner: what the agent has learnt (`NeuralAgent.init`).
        memory: what the agent needs to act (`NeuralAgent.begin`).
        replay: past transitions.
        env_state: state of every environment.
        observation: of every environment, [E ...].
        started: where an episode begins with this observation.
        episode: of every environment.
    """

    learner: PyTree
    memory: PyTree
    replay: Replay
    env_state: PyTree
    observation: Array
    started: Bool[Array, " E"]
    episode: Episode


class StepReport(NamedTuple):
    """What one iteration reports.

    Args:
        ended: where an episode ended.
        score, length: of the episodes so far, whole where they ended.
        watched: numbers of the learner (`NeuralAgent.learn`).
        cell: where the step began, in an environment that `HasCells`; else ().
    """

    ended: Bool[Array, " E"]
    score: Float[Array, " E"]
    length: Int[Array, " E"]
    watched: Watched
    cell: Int[Array, " E"] | tuple[()] = ()


def spec_of(env: ObservedEnvironment, num_envs: int) -> Spec:
    """Shapes and numbers of actions and environments."""
    return Spec(env.observation_shape, env.observation_dtype, env.n_actions, num_envs)


def begin(key: PRNGKeyArray, agent: NeuralAgent, env: ObservedEnvironment, num_envs: int, num_rows: int) -> TrainState:
    """Everything before the first iteration; the replay holds `num_rows` rows of `num_envs` environments.

    `key` must differ from that of `iterate`: the same key would give correlated random numbers.
    """
    key_learner, key_memory, key_env = jax.random.split(key, 3)
    spec = spec_of(env, num_envs)
    learner, memory = agent.init(key_learner, spec), agent.begin(key_memory, spec)
    env_state, observation = jax.vmap(env.reset)(jax.random.split(key_env, num_envs))
    nought, no = jnp.zeros(num_envs), jnp.zeros(num_envs, bool)
    extra = extra_of(agent, learner, memory, observation)
    row = Row(observation, jnp.zeros(num_envs, jnp.int32), nought, no, no, extra)
    episode = Episode(nought, jnp.zeros(num_envs, jnp.int32))
    return TrainState(learner, memory, empty_replay(num_rows, row), env_state, observation, ~no, episode)


def extra_of(agent: NeuralAgent, learner: PyTree, memory: PyTree, observation: Array) -> PyTree:
    """Shapes and types of `ActionOutput.extra`."""

    def choose() -> ActionOutput:
        started = jnp.ones(len(observation), bool)
        return agent.act(jax.random.key(0), learner, memory, observation, started, jnp.zeros((), jnp.int32))

    return jax.eval_shape(choose).extra


def iterate(
    key: PRNGKeyArray, agent: NeuralAgent, env: ObservedEnvironment, now: TrainState, iteration: Int[Array, ""]
) -> tuple[TrainState, StepReport]:
    """One step of every environment, and what is learnt from it; random numbers depend on (key, iteration) alone."""
    key_act, key_step, key_reset, key_learn = keys_of(key, iteration)
    choice = agent.act(key_act, now.learner, now.memory, now.observation, now.started, iteration)
    step, ended, env_state, observation = step_all((key_step, key_reset), env, now.env_state, choice.action)
    cut = step.truncated & ~step.terminated  # an end counts as an end, also in the last step of a time limit
    row = Row(now.observation, choice.action, step.reward, step.terminated, cut, choice.extra)
    # The row is added first: what is learnt may use this step (the belief about a last layer does).
    replay = add(now.replay, iteration, row)
    learner, watched = agent.learn(key_learn, now.learner, choice.memory, replay, iteration)
    score, length = now.episode.score + step.score, now.episode.length + 1
    episode = Episode(jnp.where(ended, 0.0, score), jnp.where(ended, 0, length))
    later = TrainState(learner, choice.memory, replay, env_state, observation, ended, episode)
    cell = jax.vmap(env.cell)(now.env_state) if isinstance(env, HasCells) else ()
    return later, StepReport(ended, score, length, watched, cell)


def keys_of(key: PRNGKeyArray, iteration: Int[Array, ""]) -> Key[Array, "4"]:
    """The keys of an iteration: to act, step, reset, learn."""
    # Keys follow from the number of the iteration, so that a run that was cut goes on with the same random numbers.
    return jax.random.split(jax.random.fold_in(key, iteration), 4)


def step_all(
    keys: tuple[PRNGKeyArray, PRNGKeyArray], env: ObservedEnvironment, env_state: PyTree, action: Int[Array, " E"]
) -> tuple[TimeStep, Bool[Array, " E"], PyTree, Array]:
    """One step of every environment, with a new episode where one ended.

    Args:
        keys: of the steps, of the new episodes.
        env: the environment.
        env_state: states, with an axis of environments.
        action: of each.

    Returns:
        What the steps led to; where an episode ended; states and observations to go on from.
    """
    num_envs = len(action)
    of_steps, of_resets = (jax.random.split(key, num_envs) for key in keys)
    # New episodes are computed everywhere and taken where one ended: `vmap` computes both branches anyway.
    step = jax.vmap(env.step)(of_steps, env_state, action)
    ended = step.terminated | step.truncated
    env_state, observation = jax.tree.map(
        lambda new, old: jnp.where(ended.reshape(-1, *(1,) * (new.ndim - 1)), new, old),
        jax.vmap(env.reset)(of_resets),
        (step.state, step.observation),
    )
    return step, ended, env_state, observation


def run_chunk(
    key: PRNGKeyArray, agent: NeuralAgent, env: ObservedEnvironment, now: TrainState, iterations: Int[Array, " T"]
) -> tuple[TrainState, StepReport]:
    """A scan over iterations; reports have a leading axis of iterations."""
    return jax.lax.scan(lambda carry, i: iterate(key, agent, env, carry, i), now, iterations)


def choose(
    key: PRNGKeyArray,
    agent: NeuralAgent,
    learner: PyTree,
    memory: PyTree,
    observation: Array,
    started: Bool[Array, " E"],
    epsilon: RealScalar | None,
) -> tuple[Int[Array, " E"], PyTree]:
    """Actions of an evaluation, and the memory of the agent; `epsilon` None: those that `act` takes."""
    if epsilon is not None:
        return epsilon_greedy(key, agent.values(learner, observation).q, epsilon), memory
    # An evaluation acts as at the end of training; the largest iteration whose number of steps fits an int32.
    late = jnp.asarray(jnp.iinfo(jnp.int32).max // max(len(started), 1))  # beyond the end of every schedule
    choice = agent.act(key, learner, memory, observation, started, late)
    return choice.action, choice.memory


PlayCarry: TypeAlias = tuple[PyTree, PyTree, Array, Bool[Array, " E"], Float[Array, " E"]]
"""Memory, states of the environments, observations, where an episode begins, its score so far."""


def play(
    key: PRNGKeyArray,
    agent: NeuralAgent,
    learner: PyTree,
    env: ObservedEnvironment,
    epsilon: RealScalar | None,
    shape: tuple[int, int],
) -> tuple[Bool[Array, "T E"], Float[Array, "T E"]]:
    """(where an episode ended, its score there) of T steps of E fresh environments, `shape` (T, E)."""
    # As in `iterate`, without learning: every step has keys of its own from (key, step).
    num_steps, num_envs = shape
    key_memory, key_env, key_steps = jax.random.split(key, 3)
    memory = agent.begin(key_memory, spec_of(env, num_envs))
    env_state, observation = jax.vmap(env.reset)(jax.random.split(key_env, num_envs))

    def step(carry: PlayCarry, t: Int[Array, ""]) -> tuple[PlayCarry, tuple[Array, Array]]:
        memory, env_state, observation, started, score = carry
        key_act, key_step, key_reset = jax.random.split(jax.random.fold_in(key_steps, t), 3)
        action, memory = choose(key_act, agent, learner, memory, observation, started, epsilon)
        moved, ended, env_state, observation = step_all((key_step, key_reset), env, env_state, action)
        score = score + moved.score
        return (memory, env_state, observation, ended, jnp.where(ended, 0.0, score)), (ended, score)

    start = (memory, env_state, observation, jnp.ones(num_envs, bool), jnp.zeros(num_envs))
    return jax.lax.scan(step, start, jnp.arange(num_steps))[1]


_play_seeds = jax.jit(jax.vmap(play, in_axes=(0, None, 0, None, None, None)), static_argnums=5)


def play_seeds(
    keys: Key[Array, " N"], agent: NeuralAgent, learner: PyTree, env: ObservedEnvironment, how: Evaluation
) -> list[np.ndarray]:
    """Scores of the episodes that ended, of each seed; keys and `learner` are [seed ...]. Compiled."""
    # Rounded up: at least as many steps as were asked for.
    shape = (-(-how.steps // how.num_envs), how.num_envs)
    played = _play_seeds(keys, agent, learner, env, how.epsilon, shape)
    ended, score = (np.asarray(x) for x in played)
    return [scores[is_end] for scores, is_end in zip(score, ended, strict=True)]


class CompiledEngine:
    """The loop that `train` runs in chunks, iterations in one compiled scan, seeds vmapped.

    The state is a tree of arrays [seed, ...].

    Args:
        agent, env: see `train`.
        num_seeds, options: see `train`.
        key: of everything.
    """

    def __init__(
        self, agent: NeuralAgent, env: ObservedEnvironment, num_seeds: int, options: TrainOptions, key: PRNGKeyArray
    ) -> None:
        self._agent, self._env, self._options = agent, env, options
        self._num_seeds = num_seeds
        # Three streams: what is evaluated, and how often, does not change the training.
        key_begin, key_run, self._key_play = jax.random.split(key, 3)
        self._begin_keys, self._run_keys = (jax.random.split(k, num_seeds) for k in (key_begin, key_run))
        self._chunk = jax.jit(jax.vmap(run_chunk, in_axes=(0, None, None, 0, None)), donate_argnums=3)

    def begin(self) -> TrainState:
        """Everything before the first iteration; refuses a replay that does not fit."""
        shapes = self._shapes()
        # Shapes alone, without the axes of seeds and rows: nothing is allocated before the check.
        row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), shapes.replay.rows)
        check_replay_fits(self._options.num_rows, row, self._num_seeds)
        return jax.jit(self._begin)(self._begin_keys)

    def chunk(self, state: TrainState, first: int, number: int) -> tuple[TrainState, StepReport]:
        """So many iterations, from `first` on; the report is [seed, iteration, ...]. `state` is donated."""
        return self._chunk(self._run_keys, self._agent, self._env, state, first + jnp.arange(number))

    def evaluate(self, state: TrainState, number: int) -> list[np.ndarray]:
        """The scores of the episodes of the evaluation with this number, of each seed."""
        plan = self._options.evaluation
        assert isinstance(plan, Evaluation)
        keys = jax.random.split(jax.random.fold_in(self._key_play, number), self._num_seeds)
        return play_seeds(keys, self._agent, state.learner, self._env, plan)

    def by_seed(self, state: TrainState) -> TrainState:
        """The state; what was learnt has an axis of seeds in front."""
        return state

    def restore(self, arrays: Mapping[str, AnyArray], where: str) -> TrainState:
        """The state that `arrays` gave; `where` is named in error messages."""
        return fill(self._shapes(), arrays, where)

    def _begin(self, keys: Key[Array, " N"]) -> TrainState:
        options = self._options
        return jax.vmap(lambda key: begin(key, self._agent, self._env, options.num_envs, options.num_rows))(keys)

    def _shapes(self) -> TrainState:
        return jax.eval_shape(self._begin, self._begin_keys)
