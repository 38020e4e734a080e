"""`train`: a deep agent in an environment, many seeds, with checkpoints; the same call resumes from the last one.

`Log` keeps what a training reports: curves, episodes, evaluations, visits; as arrays while it runs, as a Dataset
afterwards. `load_training` reads what was learnt from the folder of a training; `evaluate_agent` how well it plays.
"""

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from bayes_mdp.agents.neural.replay_learning import NeuralAgent, Values
from bayes_mdp.experiments.describe import Json, describe, describe_key, first_difference, versions
from bayes_mdp.experiments.results import (
    EVALUATION_FORMAT,
    TRAIN_FORMAT,
    json_attributes,
    load_result,
)
from bayes_mdp.experiments.resume import (
    Checkpoints,
    arrays_by_name,
    checkpoint_path,
    fill,
    list_checkpoints,
    load_checkpoint,
    read_configuration,
)
from bayes_mdp.experiments.training.host_training import HostEngine, play_host
from bayes_mdp.experiments.training.training_loop import (
    CompiledEngine,
    Evaluation,
    StepReport,
    TrainOptions,
    play_seeds,
    spec_of,
)
from bayes_mdp.experiments.training.vector_env import HostEnv
from bayes_mdp.mdp import ObservedEnvironment
from bayes_mdp.mdp.environment import HasCells
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.files import check_folder, write_netcdf
from bayes_mdp.utils.layout import Facts, Section, as_html, as_text
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.progress import Progress, stage
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
        # Python lets no other thread install a handler.
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
        >>> options = bm.deep.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> training = bm.deep.train(DQN(), env, num_steps=16, options=options)
        >>> training.values(jnp.zeros((3, *env.observation_shape))).q.shape  # of three observations
        (3, 2)
    """

    dataset: "xr.Dataset"
    learner: PyTree
    agent: NeuralAgent
    finished: bool

    __str__ = as_text
    __repr__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """What was trained, how far, and how well: a few lines, no weights."""
        data = self.dataset
        score, evaluated = data["episode_score"].values, data.get("evaluation_score")
        ended = np.isfinite(score).sum(1)
        state = "finished" if self.finished else "stopped before its end; the same call goes on"
        facts = {
            "environment steps of each seed": f"{data['step'].values[-1]:,.0f}" if "step" in data.coords else "0",
            "episodes that ended, by seed": _range(ended),
        }
        if ended.any():
            last = [row[np.isfinite(row)][-LAST_EPISODES:] for row in score]
            means = np.array([row.mean() for row in last if row.size])
            facts[f"mean score of the last {LAST_EPISODES}, by seed"] = _range(means)
        if evaluated is not None:
            facts["last evaluation, by seed"] = _range(evaluated.values[:, -1])
        return Section(
            f"Training of {type(self.agent).__name__}, {count_of(len(score), 'seed')}, {state}",
            [Facts(facts), "curves: .dataset, plot_training; values: .values(observation)"],
        )

    def values(self, observation: Array, seed: int = 0) -> Values:
        """Q, its standard deviation and u at observations [B ...], for the learner of one seed.

        Args:
            observation: [B ...], what the agent sees.
            seed: index of the learner.
        """
        return self.agent.values(jax.tree.map(lambda x: x[seed], self.learner), observation)


def _range(numbers: np.ndarray) -> str:
    """One number, or the least and the largest of several."""
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


@accepts_moved("deep.train")
def train(
    agent: NeuralAgent,
    env: "ObservedEnvironment | HostEnv",
    *,
    num_steps: int,
    num_seeds: int = 1,
    key: PRNGKeyArray | None = None,
    path: str | Path | None = None,
    options: TrainOptions | None = None,
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
        >>> options = bm.deep.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> training = bm.deep.train(DQN(), env, num_steps=16, options=options)
        >>> training.finished
        True
    """
    options = TrainOptions() if options is None else options
    check_type("options", options, TrainOptions, "TrainOptions")
    check_type("path", path, (str, os.PathLike, type(None)), "the path of a folder or None")
    evaluation_env = options.evaluation_env
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
        map_shape = env.map_shape if isinstance(env, HasCells) else None
        return _Session(engine, agent, _Plan(num_steps, num_seeds, options), map_shape, path, configuration).run()


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
        raise ValueError("options.evaluation_env is None, expected the environments to evaluate in")


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
        "options": describe({name: getattr(options, name) for name in ("num_envs", "replay_size", "evaluation")}),
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
        # Rounded up: an iteration is a step of all environments.
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
        # A divisor that is far shorter would cost more calls than one more compilation saves.
        best = next(size for size in range(longest, 0, -1) if whole % size == 0)
        return best if 4 * best >= longest else longest

    def next_stop(self, done: int) -> int:
        """Where the next chunk ends: it crosses no evaluation."""
        end = min(done + self.chunk, self.num_iterations)
        plan = self.options.evaluation
        if plan is None:
            return end
        # Iterations at which the next evaluation is due, rounded up.
        due = -(-(self.evaluations_before(done) + 1) * plan.every // self.options.num_envs)
        return min(end, due)


Engine: TypeAlias = CompiledEngine | HostEngine


class _Session:
    """One run of `train`: from the last checkpoint, or from the beginning, to the end or to a signal."""

    def __init__(
        self,
        engine: Engine,
        agent: NeuralAgent,
        plan: _Plan,
        map_shape: tuple[int, ...] | None,
        path: str | Path | None,
        configuration: dict[str, object],
    ) -> None:
        self._engine, self._agent, self._plan = engine, agent, plan
        self._path, self._configuration = path, configuration
        self._checkpoints = None if path is None else Checkpoints(path, configuration)
        self._log = Log(plan.num_seeds, plan.options.num_envs, plan.num_iterations, map_shape)
        self._written = time.monotonic()

    def run(self) -> Training:
        total = self._plan.num_iterations
        per_row = self._plan.num_seeds * self._plan.options.num_envs
        show = self._plan.options.progress
        bar = Progress(per_row, total, show=show)
        with StopSignals() as stops, stage("train", show=show), bar:
            done, state = self._start()
            bar.advance(done)
            while done < total and stops.received is None:
                until = self._plan.next_stop(done)
                state, report = self._engine.chunk(state, done, until - done)
                # In this order: what is learnt is logged, then evaluated, then kept.
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
        return Training(self._dataset(), self._engine.by_seed(state).learner, self._agent, done == total)

    def _start(self) -> tuple[int, PyTree]:
        newest = None if self._checkpoints is None else self._checkpoints.newest()
        if self._checkpoints is None or newest is None:
            return 0, self._engine.begin()
        arrays = self._checkpoints.load(newest)
        # The log is kept beside the arrays of the engine, under a prefix.
        self._log.restore({name[4:]: x for name, x in arrays.items() if name.startswith("log ")})
        return newest, self._engine.restore(arrays, str(self._path))

    def _evaluate(self, state: PyTree, before: int, now: int) -> None:
        # Evaluations are numbered, so that each has random numbers of its own, after a restart too.
        number = self._plan.evaluations_before(now)
        if number > self._plan.evaluations_before(before):
            plan = self._plan.options.evaluation
            assert plan is not None
            self._log.note_scores(number * plan.every, self._engine.evaluate(state, number))

    def _keep(self, state: PyTree, done: int) -> None:
        if self._checkpoints is None or self._path is None:
            return
        log = {f"log {name}": x for name, x in self._log.arrays().items()}
        self._checkpoints.save(done, arrays_by_name(self._engine.by_seed(state)) | log)
        write_netcdf(self._dataset(), Path(self._path) / CURVES)
        self._written = time.monotonic()

    def _dataset(self) -> "xr.Dataset":
        named = ("key", "versions")
        configuration = {name: x for name, x in self._configuration.items() if name not in named}
        attributes = {"configuration": configuration, **{name: self._configuration[name] for name in named}}
        return self._log.dataset(attributes)


FRAMES = 8
_EPISODE = ("seed", "iteration", "env", "score", "length")


class Log:
    """The report so far.

    Args:
        num_seeds, num_envs: of the training.
        num_iterations: of the whole of it.
        map_shape: (rows, columns) of an environment that has a map (`HasCells`).
    """

    def __init__(
        self, num_seeds: int, num_envs: int, num_iterations: int, map_shape: tuple[int, ...] | None = None
    ) -> None:
        self._num_seeds, self._num_envs, self._num_iterations = num_seeds, num_envs, num_iterations
        self._rows: dict[str, list[np.ndarray]] = {}
        self._episodes: list[np.ndarray] = []
        self._evaluations: list[np.ndarray] = []
        self._map_shape = map_shape
        self.visits = None if map_shape is None else np.zeros((num_seeds, FRAMES, prod(map_shape)), np.int64)

    def add(self, report: StepReport, first: int) -> None:
        """A chunk: arrays [seed, iteration, ...] of the iterations from `first` on.

        Raises:
            ValueError: a reward was not finite; names seed, environment and step.
        """
        ended, score = np.asarray(report.ended), np.asarray(report.score)
        # The first in the order of seeds, then of iterations.
        bad = ~np.isfinite(score)
        if bad.any():
            seed, t, env = (int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))
            raise ValueError(
                f"reward of environment {env} is {score[seed, t, env]} at its step {first + t} (seed {seed}), "
                "expected a finite number"
            )
        length = np.asarray(report.length)
        ends = np.nonzero(ended)
        # Rows of numbers: seed, iteration, environment, score, length.
        events = np.stack([ends[0], ends[1] + first, ends[2], score[ends], length[ends]], 1).astype(np.float64)
        self._episodes.append(events)
        self._add_row(report, events, first + ended.shape[1])
        if self.visits is not None:
            self._count(np.asarray(report.cell), first)

    def _add_row(self, report: StepReport, events: np.ndarray, iteration: int) -> None:
        row = {"step": np.full(self._num_seeds, iteration * self._num_envs, float)}
        for name, column in (("score", 3), ("length", 4)):
            row[name] = _means(events[:, 0].astype(int), events[:, column], self._num_seeds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # all nan where these iterations trained nothing
            row |= {name: np.nanmean(np.asarray(x, np.float64), 1) for name, x in report.watched.items()}
        for name, value in row.items():
            self._rows.setdefault(name, []).append(value)

    def _count(self, cells: np.ndarray, first: int) -> None:
        assert self.visits is not None
        # The frame of an iteration: the whole training is cut into FRAMES parts of equal length.
        frame = (first + np.arange(cells.shape[1])) * FRAMES // self._num_iterations
        seed = np.arange(self._num_seeds)
        # `add.at`, since several environments of a seed may stand in one cell, which `+=` would count once.
        np.add.at(self.visits, (seed[:, None, None], frame[None, :, None], cells), 1)

    def note_scores(self, step: int, scores: list[np.ndarray]) -> None:
        """The scores of the episodes of an evaluation, of each seed."""
        rows = [(step, seed, x.mean() if x.size else np.nan, x.size) for seed, x in enumerate(scores)]
        self._evaluations.append(np.asarray(rows, np.float64))

    def latest(self) -> dict[str, float]:
        """The newest score and loss, means over the seeds that have one."""
        newest = {name: self._rows[name][-1] for name in ("score", "loss") if name in self._rows}
        known = {name: row[np.isfinite(row)] for name, row in newest.items()}
        return {name: float(row.mean()) for name, row in known.items() if row.size}

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        columns = {f"row {name}": np.stack(x) for name, x in self._rows.items()}
        columns["episodes"] = np.concatenate([np.zeros((0, len(_EPISODE))), *self._episodes])
        columns["num_iterations"] = np.asarray(self._num_iterations)
        columns["evaluations"] = np.reshape(self._evaluations, (-1, self._num_seeds, 4))
        return columns if self.visits is None else columns | {"visits": self.visits}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take up what `arrays` gave."""
        named = {name: np.asarray(x) for name, x in arrays.items()}
        self._rows = {name[4:]: list(x) for name, x in named.items() if name.startswith("row ")}
        self._episodes = [named["episodes"]]
        self._evaluations = list(named["evaluations"])
        if "visits" in named:
            self.visits = self._resample_frames(named["visits"], int(named["num_iterations"]))

    def _resample_frames(self, visits: np.ndarray, num_iterations: int) -> np.ndarray:
        """The frames of a training that was to be shorter or longer, as frames of this one."""
        frames = np.zeros_like(visits)
        for frame in range(FRAMES):
            # A frame goes whole to the one in which it began; what is beyond the new end goes to the last.
            frames[:, min(frame * num_iterations // self._num_iterations, FRAMES - 1)] += visits[:, frame]
        return frames

    def dataset(self, attributes: Mapping[str, object]) -> "xr.Dataset":
        """Curves [seed, checkpoint]; episodes [seed, episode], padded with nan; evaluations; visits."""
        import xarray as xr

        result = xr.Dataset(
            coords={"seed": np.arange(self._num_seeds)},
            attrs=json_attributes(TRAIN_FORMAT, attributes),
        )
        rows = {name: np.stack(x, 1) for name, x in self._rows.items()}
        if rows:
            result = result.assign_coords(step=("checkpoint", rows.pop("step")[0], {"long_name": "environment steps"}))
            result = result.assign({name: (("seed", "checkpoint"), x) for name, x in rows.items()})
        return self._with_visits(self._with_evaluations(self._with_episodes(result)))

    def _with_episodes(self, result: "xr.Dataset") -> "xr.Dataset":
        events = np.concatenate([np.zeros((0, len(_EPISODE))), *self._episodes])
        events_of_seed = [events[events[:, 0] == seed] for seed in range(self._num_seeds)]
        padded = _stack_padded(events_of_seed)
        # Counted in steps of all environments of the seed, after the iteration.
        step = (padded[..., 1] + 1) * self._num_envs
        columns = {"episode_score": padded[..., 3], "episode_length": padded[..., 4], "episode_step": step}
        return result.assign({name: (("seed", "episode"), x) for name, x in columns.items()})

    def _with_evaluations(self, result: "xr.Dataset") -> "xr.Dataset":
        if not self._evaluations:
            return result
        table = np.stack(self._evaluations)  # evaluation, seed, column
        result = result.assign_coords(evaluation_step=("evaluation", table[:, 0, 0]))
        return result.assign(
            evaluation_score=(("seed", "evaluation"), table[:, :, 2].T),
            evaluation_episodes=(("seed", "evaluation"), table[:, :, 3].T),
        )

    def _with_visits(self, result: "xr.Dataset") -> "xr.Dataset":
        if self.visits is None or self._map_shape is None:
            return result
        dims = ("seed", "frame", *("row", "column")[: len(self._map_shape)])
        return result.assign(visits=(dims, self.visits.reshape(*self.visits.shape[:2], *self._map_shape)))


def _stack_padded(parts: list[np.ndarray]) -> np.ndarray:
    """[part, ...], with nan behind the end of the shorter ones."""
    padded = np.full((len(parts), max(map(len, parts)), *parts[0].shape[1:]), np.nan)
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part
    return padded


def _means(group: np.ndarray, values: np.ndarray, number: int) -> np.ndarray:
    # Means by group; nan for a group without values.
    total = np.bincount(group, values, number)
    count = np.bincount(group, minlength=number)
    return np.where(count, total / np.maximum(count, 1), np.nan)


_LEARNER = ".learner"
_READ = ("agent", "env", "num_seeds", "options")


def load_training(path: str | Path, agent: NeuralAgent, env: ObservedEnvironment | HostEnv) -> Training:
    """What `train` has kept in a folder, from its newest checkpoint.

    Args:
        path: the folder.
        agent, env: those that were trained.

    Raises:
        FileNotFoundError: no training, or no checkpoint yet.
        ValueError: another agent or environment was trained there, by another version; a checkpoint of another
            architecture; a file that is cut or altered.
        TypeError: `path` is no path.

    Example:
        >>> from bayes_mdp.agents.neural import DQN
        >>> agent, env = DQN(), bm.envs.deep_sea_observed(4)
        >>> options = bm.deep.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> training = bm.deep.train(agent, env, num_steps=16, options=options, path="training")
        >>> bm.deep.load_training("training", agent, env).dataset.identical(training.dataset)
        True
    """
    check_type("path", path, (str, os.PathLike), "a path")
    configuration = read_configuration(path)
    missing = next((name for name in _READ if name not in configuration), None)
    if missing is not None:
        raise ValueError(f"{path} holds the training of another version, without {missing!r} in its configuration")
    # Through JSON, as what is kept: a tuple is then a list on both sides.
    for name, mine in (("agent", describe(agent, "agent")), ("env", describe_env(env))):
        difference = first_difference(configuration[name], json.loads(json.dumps(mine)), name)
        if difference is not None:
            raise ValueError(f"{path} holds another training: {difference}")
    folder = Path(path) / "checkpoints"
    # Shapes come from `agent.init` without running it; the checkpoint fills them.
    newest = max(list_checkpoints(folder), default=None)
    if newest is None:
        raise FileNotFoundError(f"{path} holds no checkpoint yet")
    arrays = load_checkpoint(folder, newest)
    learnt = {name[len(_LEARNER) :]: x for name, x in arrays.items() if name.startswith(_LEARNER)}
    num_envs = configuration["options"]["num_envs"]
    spec = env.spec if isinstance(env, HostEnv) else spec_of(env, num_envs)
    # The key does not matter: `eval_shape` draws nothing.
    keys = jax.random.split(jax.random.key(0), configuration["num_seeds"])
    shapes = jax.eval_shape(jax.vmap(lambda key: agent.init(key, spec)), keys)
    learner = fill(shapes, learnt, str(checkpoint_path(folder, newest)))
    return Training(load_result(Path(path) / CURVES), learner, agent, finished=False)


def evaluate_agent(
    training: Training, env: "ObservedEnvironment | HostEnv", *, how: Evaluation, key: PRNGKeyArray | None = None
) -> "xr.Dataset":
    """Play without learning.

    Args:
        training: of `train` or `load_training`.
        env: where to play.
        how: steps, epsilon, environments side by side (their number is that of `env` on the host; `every` has no
            meaning here).
        key: a typed key; None: `jax.random.key(0)`.

    Returns:
        `score` [seed, episode] of the episodes that ended, padded with nan; `mean_score` and `episodes` [seed].

    Raises:
        TypeError: `key` is no typed key.
        ValueError: `key` holds several keys. TypeError: no `Training`, no `Evaluation`.

    Example:
        >>> from bayes_mdp.agents.neural import DQN
        >>> env = bm.envs.deep_sea_observed(4)
        >>> options = bm.deep.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> training = bm.deep.train(DQN(), env, num_steps=16, options=options)
        >>> result = bm.deep.evaluate_agent(training, env, how=bm.deep.Evaluation(every=1, steps=8, num_envs=2))
        >>> sorted(result.sizes)
        ['episode', 'seed']
    """
    check_type("training", training, Training, "a Training")
    check_type("how", how, Evaluation, "an Evaluation")
    import xarray as xr

    key = jax.random.key(0) if key is None else key
    check_key("key", key)
    scores = _scores(training, env, how, key)
    padded = _stack_padded(scores)
    means = np.array([x.mean() if x.size else np.nan for x in scores])
    about = {"agent": training.agent, "how": how}
    described = {**describe(about), "env": describe_env(env)}
    attributes = {"configuration": described, "versions": versions(), "key": describe_key(key)}
    return xr.Dataset(
        {
            "score": (("seed", "episode"), padded),
            "mean_score": ("seed", means),
            "episodes": ("seed", np.array([x.size for x in scores])),
        },
        coords={"seed": np.arange(len(scores))},
        attrs=json_attributes(EVALUATION_FORMAT, attributes),
    )


def _scores(
    training: Training, env: ObservedEnvironment | HostEnv, how: Evaluation, key: PRNGKeyArray
) -> list[np.ndarray]:
    """Of the episodes that ended, of each seed."""
    keys = jax.random.split(key, training.dataset.sizes["seed"])
    if isinstance(env, HostEnv):
        # One seed after the other: a host environment has no axis of seeds.
        learners = [jax.tree.map(lambda x, i=i: x[i], training.learner) for i in range(len(keys))]
        return [
            play_host(key_of_seed, training.agent, learner, env, how.epsilon, how.steps)
            for key_of_seed, learner in zip(keys, learners, strict=True)
        ]
    return play_seeds(keys, training.agent, training.learner, env, how)
