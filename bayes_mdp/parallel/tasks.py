"""`run_tasks`: one function of many arguments on an executor; failures are tried again, and do not touch the others.

The function is sent as bytes, the same for every task, and a worker that has read it keeps it: what the function has
compiled serves the next task too. Tasks are computed under JAX's settings of the caller (its precision among them), by
the same versions of the packages that decide numbers, so that where a task is computed does not matter.
"""

import logging
import pickle
import platform
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures import BrokenExecutor as BrokenPool
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, NamedTuple, TypeVar

import cloudpickle
import jax

from bayes_mdp.parallel.executors import ExecutorLike, OpenExecutor, open_executor
from bayes_mdp.utils.validation import check_count, described

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
RETRIES = 2
PACKAGES = ("bayes-mdp", "jax", "jaxlib", "numpyro", "equinox", "numpy")
_WRONG_INPUT = (ValueError, TypeError)  # the same again, however often it is tried


class Task(NamedTuple):
    """Arguments of the function.

    Args:
        name: of the task.
        arguments: positional.
    """

    name: str
    arguments: tuple[Any, ...]


class Finished(NamedTuple, Generic[T]):
    """What became of a task.

    Args:
        name: of the task.
        value: of the function; None where it failed.
        error: the sentence of its last failure; empty where it did not fail.
        attempts: how often it was tried.
    """

    name: str
    value: T | None
    error: str
    attempts: int


class Failure(NamedTuple):
    """An exception of the function, as what can be sent.

    Args:
        error: one sentence.
        final: not to be tried again.
        trace: of the worker.
    """

    error: str
    final: bool
    trace: str


class Settings(NamedTuple):
    """What a task is computed under: JAX's settings that change numbers, and versions."""

    x64: bool
    matmul_precision: str | None
    threefry_partitionable: bool
    versions: tuple[tuple[str, str], ...]


class _Waiting(NamedTuple):
    """A task that is to be tried."""

    task: Task
    attempt: int


def run_tasks(
    function: Callable[..., T], tasks: Sequence[Task], executor: ExecutorLike = None, *, retries: int = RETRIES
) -> "Iterator[Finished[T]]":
    """Compute `function(*task.arguments)` for every task; yields in the order in which they finish.

    A task that raises is tried again `retries` times, after all others have had their turn; ValueError and TypeError,
    which the same arguments would raise again, are final at once. A task whose worker process dies is tried again too.
    What fails to the end is yielded with its `error`, and the other tasks go on.

    Args:
        function: of the arguments of a task. Its value is a tree of arrays, numbers and texts that can be pickled; JAX
            arrays come back as numpy's. It is pickled once.
        tasks: their arguments.
        executor: see `ExecutorLike`.
        retries: see above.

    Raises:
        ValueError, TypeError: an argument at fault; a function or an argument that cannot be sent to another process.
        ConnectionError: no scheduler at the address; the executor takes no more tasks.
    """
    check_count("retries", retries, 0)
    with open_executor(executor) as opened:
        submit = _submitter(function, opened, described(executor))
        todo = deque(_Waiting(task, 1) for task in tasks)
        running: dict[Future[T | Failure], _Waiting] = {}
        while todo or running:
            while todo and len(running) < opened.window:
                waiting = todo.popleft()
                running[submit(waiting.task)] = waiting
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task, attempt = running.pop(future)
                answer = _answer(future)
                if not isinstance(answer, Failure):
                    yield Finished(task.name, answer, "", attempt)
                elif answer.final or attempt > retries:
                    _LOG.info("%s failed\n%s", task.name, answer.trace)
                    yield Finished(task.name, None, answer.error, attempt)
                else:
                    _LOG.warning("%s failed and is tried again: %s", task.name, answer.error)
                    todo.append(_Waiting(task, attempt + 1))


def _submitter(function: Callable[..., T], opened: OpenExecutor, name: str) -> "Callable[[Task], Future[T | Failure]]":
    """How a task is given to the executor."""
    if opened.same_process:
        return lambda task: opened.executor.submit(compute, function, task.arguments)
    content, settings = _pickled(function, "the function", name), settings_here()

    def submit(task: Task) -> "Future[T | Failure]":
        arguments = _pickled(task.arguments, f"task {task.name}", name)
        try:
            return opened.executor.submit(compute_there, content, settings, arguments)
        except RuntimeError as error:  # broken pools, closed executors and clients
            raise ConnectionError(
                f"executor {name} takes no more tasks ({error}), expected one that is open"
            ) from error

    return submit


def _answer(future: "Future[T | Failure]") -> T | Failure:
    """The answer; a failure too where the worker, not the function, is at fault.

    Raises:
        ConnectionError: the executor of the caller is broken for good.
    """
    try:
        return future.result()
    except BrokenPool as error:
        raise ConnectionError(
            f"the executor is broken ({error}), expected 'processes', where a worker that dies is replaced"
        ) from error
    except (Exception, CancelledError) as error:
        return Failure(f"{type(error).__name__}: {error}", isinstance(error, _WRONG_INPUT), traceback.format_exc())


def compute(function: Callable[..., T], arguments: tuple[Any, ...]) -> T | Failure:
    """The value of the function, or what it raised.

    Arrays as those of numpy: a JAX array of float64 that is read elsewhere, without x64, becomes float32 in silence.
    """
    try:
        return jax.device_get(function(*arguments))
    except _WRONG_INPUT as error:
        return Failure(str(error), True, traceback.format_exc())
    except (Exception, SystemExit) as error:
        return Failure(f"{type(error).__name__}: {error}", False, traceback.format_exc())


def compute_there(content: bytes, settings: Settings, arguments: bytes) -> Any:
    """`compute`, in a worker.

    Args:
        content: the pickled function.
        settings: of the caller.
        arguments: pickled.
    """
    here, asked = dict(versions()), dict(settings.versions)
    differs = [f"{name} {here[name]}, expected {there}" for name, there in asked.items() if here[name] != there]
    if differs:
        where = f"the worker on {platform.node()} has other versions than the caller"
        return Failure(f"{where}: {'; '.join(differs)}", True, "")
    with (
        jax.enable_x64(settings.x64),
        jax.default_matmul_precision(settings.matmul_precision),
        jax.threefry_partitionable(settings.threefry_partitionable),
    ):
        return compute(_loaded(content, settings), pickle.loads(arguments))


@lru_cache(maxsize=8)
def _loaded(content: bytes, settings: Settings) -> Callable[..., Any]:
    """The function: one object for all tasks of a worker, with all that it has compiled.

    Under other settings it is another object: reading arrays of float64 without x64 makes them float32.
    """
    del settings
    return pickle.loads(content)


def settings_here() -> Settings:
    """Those of this process (and thread)."""
    config: Any = jax.config
    return Settings(
        bool(config.jax_enable_x64),
        config.jax_default_matmul_precision,
        bool(config.jax_threefry_partitionable),
        versions(),
    )


@lru_cache(maxsize=1)
def versions() -> tuple[tuple[str, str], ...]:
    """Of Python and of the packages that decide numbers."""
    return ("python", platform.python_version()), *((name, _version(name)) for name in PACKAGES)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _pickled(thing: object, what: str, executor: str) -> bytes:
    try:
        return cloudpickle.dumps(thing)
    except Exception as error:  # pickle raises what it likes
        raise TypeError(
            f"executor is {executor}, to which {what} cannot be sent ({type(error).__name__}: {error}), expected "
            "'serial', or what can be pickled"
        ) from error
