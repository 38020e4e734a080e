"""`train`: a deep agent in an environment, many seeds, with checkpoints; the same call resumes from the last one."""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.contract import NeuralAgent, Values
from bayes_mdp.experiments.describe import Json, describe, describe_key, versions
from bayes_mdp.experiments.results import save_result
from bayes_mdp.experiments.resume import Checkpoints
from bayes_mdp.experiments.training.host_training import HostEngine
from bayes_mdp.experiments.training.train_options import TrainOptions
from bayes_mdp.experiments.training.training_log import Log
from bayes_mdp.experiments.training.training_loop import CompiledEngine, Engine
from bayes_mdp.experiments.training.vector_env import HostEnv
from bayes_mdp.mdp import ObservedEnvironment
from bayes_mdp.utils.files import check_folder
from bayes_mdp.utils.html_text import shown_as_html
from bayes_mdp.utils.progress import Progress
from bayes_mdp.utils.validation import check_count, check_key, check_type

if TYPE_CHECKING:
    import xarray as xr
    from jaxlib._jax import Device

CURVES = "curves.nc"


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None  # what `signal.signal` takes and returns


class StopSignals:
    """Context manager that records a stop signal; the second Ctrl-C interrupts at once.

    `received` is the signal, or None. Outside the main thread no handler is installed.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, _Handler] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number


LAST_EPISODES = 100
"""Of each seed, whose mean score is shown."""


@dataclass(frozen=True, repr=False)
class Training:
    """What `train` returns.

    Args:
        dataset: curves [seed, checkpoint] over environment steps: `score` and `length` of the episodes that ended
            since the checkpoint before, `loss` and the other numbers that the agent records; `episode_score`,
            `episode_step`, `episode_length` [seed, episode], padded with nan; `evaluation_score`
            [seed, evaluation]; `visits` [seed, frame, row, column] where the environment has a map. Attributes:
            configuration, versions, key.
        learner: parameters and posteriors, a tree of arrays [seed ...].
        agent: the agent that was trained.
        finished: False where SIGTERM stopped it; the same call resumes.

    Example:
        >>> from bayes_mdp.agents.neural import DQN
        >>> env = bm.envs.deep_sea_observed(4)
        >>> options = bm.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> training = bm.train(DQN(), env, num_steps=16, options=options)
        >>> training.values(jnp.zeros((3, *env.observation_shape))).q.shape  # of three observations
        (3, 2)
    """

    dataset: "xr.Dataset"
    learner: PyTree
    agent: NeuralAgent
    finished: bool

    def __str__(self) -> str:
        """What was trained, how far, and how well: a few lines, no weights."""
        data = self.dataset
        score, evaluated = data["episode_score"].values, data.get("evaluation_score")
        ended = np.isfinite(score).sum(1)
        state = "finished" if self.finished else "stopped before its end; the same call goes on"
        lines = [
            f"Training of {type(self.agent).__name__}, {len(score)} seeds, {state}",
            f"  environment steps of each seed       {_last_step(data)}",
            f"  episodes that ended, by seed         {_range(ended)}",
        ]
        if ended.any():
            last = [row[np.isfinite(row)][-LAST_EPISODES:] for row in score]
            means = np.array([row.mean() for row in last if row.size])
            lines.append(f"  mean score of the last {LAST_EPISODES}, by seed  {_range(means)}")
        if evaluated is not None:
            lines.append(f"  last evaluation, by seed             {_range(evaluated.values[:, -1])}")
        return "\n".join([*lines, "  curves: .dataset, plot_training; values: .values(observation)"])

    __repr__ = __str__
    _repr_html_ = shown_as_html

    def values(self, observation: Array, seed: int = 0) -> Values:
        """Q, its standard deviation and u at observations [B ...], for the learner of one seed.

        Args:
            observation: [B ...], what the agent sees.
            seed: index of the learner.
        """
        return self.agent.values(jax.tree.map(lambda x: x[seed], self.learner), observation)


def _last_step(data: "xr.Dataset") -> str:
    return f"{data['step'].values[-1]:,.0f}" if "step" in data.coords else "0"


def _range(numbers: np.ndarray) -> str:
    """One number, or the least and the largest of several."""
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def train(
    agent: NeuralAgent,
    env: "ObservedEnvironment | HostEnv",
    *,
    num_steps: int,
    num_seeds: int = 1,
    key: PRNGKeyArray | None = None,
    path: str | Path | None = None,
    options: TrainOptions | None = None,
    evaluation_env: HostEnv | None = None,
) -> Training:
    """Train a deep agent. Host side: compiled chunks, a progress bar, checkpoints between them.

    Every number depends on the key and the number of iterations alone: a training that was killed and goes on from its
    checkpoint ends bit for bit as one that was not. SIGTERM: the chunk under way is finished and kept, and `train`
    returns; Ctrl-C: likewise, then KeyboardInterrupt.

    Args:
        agent: of `bayes_mdp.agents.neural`, or your own (`NeuralAgent`).
        env: an `ObservedEnvironment` (`bayes_mdp.envs`), which is compiled with the agent; or what is stepped on the
            host: `bayes_mdp.experiments.training.host_env` (Gymnasium), `atari`. Its number of environments is its own.
        num_steps: environment steps of each seed, over all its environments (rounded up to whole iterations); with
            more of them, a training that was finished goes on.
        num_seeds: trained side by side; 1 on the host.
        key: a typed key; None: `jax.random.key(0)`.
        path: a folder for checkpoints and `curves.nc`; None: nothing is kept.
        options: environments, replay, evaluation, device: see `TrainOptions`.
        evaluation_env: on the host, the environments that are played in without learning.

    Returns:
        The learner of every seed, and the learning curves.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault; a reward that is not finite; a folder that
            holds another training; a replay larger than the free memory. OSError: a checkpoint cannot be written (the
            one before it stays).
        PermissionError: nothing can be written at `path`.

    Example:
        >>> from bayes_mdp.agents.neural import DQN
        >>> env = bm.envs.deep_sea_observed(4)
        >>> options = bm.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> training = bm.train(DQN(), env, num_steps=16, options=options)
        >>> training.finished
        True
    """
    options = TrainOptions() if options is None else options
    check_type("options", options, TrainOptions, "TrainOptions")
    check_type("path", path, (str, os.PathLike, type(None)), "the path of a folder or None")
    key = jax.random.key(0) if key is None else key
    _check(agent, env, num_steps, num_seeds, key)
    if path is not None:
        check_folder(path)
    if isinstance(env, HostEnv):
        _check_host(num_seeds, options, evaluation_env)
        options = replace(options, num_envs=env.num_envs)
    with jax.default_device(None if options.device is None else device_of(options.device)):
        if isinstance(env, HostEnv):
            engine: Engine = HostEngine(agent, env, evaluation_env, options, key)
        else:
            engine = CompiledEngine(agent, env, num_seeds, options, key)
        configuration = _configuration(agent, env, evaluation_env, num_seeds, options, key)
        return _Session(engine, agent, _Plan(num_steps, num_seeds, options), path, configuration).run()


def device_of(name: str) -> "Device":
    """The first device of that kind.

    Raises:
        ValueError: this JAX has none.
    """
    try:
        return jax.devices(name)[0]
    except RuntimeError as error:
        raise ValueError(f"device is {name!r}, expected one that this JAX has: {jax.default_backend()}") from error


def _check(agent: object, env: object, num_steps: int, num_seeds: int, key: object) -> None:
    if not isinstance(agent, NeuralAgent):
        raise TypeError(f"agent is {type(agent).__name__}, expected a deep agent (bayes_mdp.agents.neural)")
    if not isinstance(env, (ObservedEnvironment, HostEnv)):
        raise TypeError(
            f"env is {type(env).__name__}, expected an ObservedEnvironment (see bayes_mdp.envs.OBSERVED), or host_env "
            "of a Gymnasium environment"
        )
    check_count("num_steps", num_steps)
    check_count("num_seeds", num_seeds)
    check_key("key", key)


def _check_host(num_seeds: int, options: TrainOptions, evaluation_env: HostEnv | None) -> None:
    if num_seeds != 1:
        raise ValueError(f"num_seeds is {num_seeds}, expected 1 for an environment on the host: call once for each key")
    if options.evaluation is not None and evaluation_env is None:
        raise ValueError("evaluation_env is None, expected the environments to evaluate in")


def _configuration(
    agent: NeuralAgent,
    env: ObservedEnvironment | HostEnv,
    evaluation_env: HostEnv | None,
    num_seeds: int,
    options: TrainOptions,
    key: PRNGKeyArray,
) -> dict[str, object]:
    """JSON values of everything that the numbers depend on; the length of the training is not among them."""
    return {
        "agent": describe(agent, "agent"),
        "env": describe_env(env),
        "evaluation_env": None if evaluation_env is None else describe_env(evaluation_env),
        "num_seeds": num_seeds,
        "options": describe(options.identity_fields()),
        "key": describe_key(key),
        "versions": versions(),
    }


def describe_env(env: ObservedEnvironment | HostEnv) -> Json:
    """JSON values of an environment."""
    if not isinstance(env, HostEnv):
        return describe(env, "env")
    return {"name": env.name, "num_envs": env.num_envs, "rules": describe(env.rules._asdict()), "source": env.source}


@dataclass(frozen=True)
class _Plan:
    num_steps: int
    num_seeds: int
    options: TrainOptions

    @property
    def num_iterations(self) -> int:
        return -(-self.num_steps // self.options.num_envs)

    def evaluations_before(self, iteration: int) -> int:
        """How many evaluations are due before this iteration."""
        plan = self.options.evaluation
        return 0 if plan is None else iteration * self.options.num_envs // plan.every

    @property
    def chunk(self) -> int:
        """Iterations of a compiled call: a hundredth of the run at most, and where it can be a divisor of what has to
        be divided (each other length is another compilation)."""
        # `whole` divides both the run and the way from one evaluation to the next, so no shorter chunk is left over.
        longest = max(min(self.options.chunk, self.num_iterations // 100), 1)
        plan = self.options.evaluation
        whole = gcd(self.num_iterations, 0 if plan is None else plan.every // self.options.num_envs)
        best = next(size for size in range(longest, 0, -1) if whole % size == 0)
        return best if 4 * best >= longest else longest

    def next_stop(self, done: int) -> int:
        """Where the next chunk ends: it crosses no evaluation."""
        end = min(done + self.chunk, self.num_iterations)
        plan = self.options.evaluation
        if plan is None:
            return end
        due = -(-(self.evaluations_before(done) + 1) * plan.every // self.options.num_envs)
        return min(end, due)


class _Session:
    """One run of `train`: from the last checkpoint, or from the beginning, to the end or to a signal."""

    def __init__(
        self, engine: Engine, agent: NeuralAgent, plan: _Plan, path: str | Path | None, configuration: dict[str, object]
    ) -> None:
        self._engine, self._agent, self._plan = engine, agent, plan
        self._path, self._configuration = path, configuration
        self._checkpoints = None if path is None else Checkpoints(path, configuration)
        cells = 1
        for size in engine.map_shape or (0,):
            cells *= size
        self._log = Log(plan.num_seeds, engine.spec.num_envs, plan.num_iterations, cells)
        self._written = time.monotonic()

    def run(self) -> Training:
        total = self._plan.num_iterations
        per_row = self._plan.num_seeds * self._plan.options.num_envs
        bar = Progress(per_row, total, show=self._plan.options.progress)
        with StopSignals() as stops, bar:
            done, state = self._start()
            bar.advance(done)
            while done < total and stops.received is None:
                until = self._plan.next_stop(done)
                state, report = self._engine.chunk(state, done, until - done)
                self._log.add(report, done)
                self._evaluate(state, done, until)
                done = until
                bar.report(**self._log.latest())
                bar.advance(done)
                if time.monotonic() - self._written >= self._plan.options.checkpoint_seconds:
                    self._keep(state, done)
            self._keep(state, done)
        if stops.received == signal.SIGINT:
            raise KeyboardInterrupt
        return self._result(state, done == total)

    def _start(self) -> tuple[int, PyTree]:
        newest = None if self._checkpoints is None else self._checkpoints.newest()
        if self._checkpoints is None or newest is None:
            return 0, self._engine.begin()
        arrays = self._checkpoints.load(newest)
        self._log.restore({name[4:]: x for name, x in arrays.items() if name.startswith("log ")})
        return newest, self._engine.restore(arrays, str(self._path))

    def _evaluate(self, state: PyTree, before: int, now: int) -> None:
        number = self._plan.evaluations_before(now)
        if number > self._plan.evaluations_before(before):
            plan = self._plan.options.evaluation
            assert plan is not None
            self._log.evaluated(number * plan.every, self._engine.evaluate(state, number))

    def _keep(self, state: PyTree, done: int) -> None:
        if self._checkpoints is None or self._path is None:
            return
        log = {f"log {name}": x for name, x in self._log.arrays().items()}
        self._checkpoints.save(done, self._engine.arrays(state) | log)
        save_result(self._dataset(), Path(self._path) / CURVES)
        self._written = time.monotonic()

    def _dataset(self) -> "xr.Dataset":
        named = ("key", "versions")
        configuration = {name: x for name, x in self._configuration.items() if name not in named}
        attributes = {"configuration": configuration, **{name: self._configuration[name] for name in named}}
        return self._log.dataset(attributes, self._engine.map_shape)

    def _result(self, state: PyTree, finished: bool) -> Training:
        return Training(self._dataset(), self._engine.learner(state), self._agent, finished)
