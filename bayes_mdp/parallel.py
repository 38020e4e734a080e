"""One function of many arguments, computed here, by worker processes, by a Dask cluster or by any executor.

All are executors of `concurrent.futures`. `run_tasks` adds what a long computation needs of each:

* A task that fails is tried again and then reported, and the other tasks go on. A process that dies (out of memory, a
  crash of a library) fails its own task alone: every process is a pool of its own, since a pool cannot be used again
  once one of its processes has died, and does not say whose task that was.
* The function is sent as bytes, the same for every task, and a worker that has read it keeps it: what the function has
  compiled serves the next task too.
* Tasks are computed under JAX's settings of the caller (its precision among them), by the same versions of the packages
  that decide numbers, so that where a task is computed does not matter.
"""

import logging
import os
import pickle
import platform
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import LifoQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import cloudpickle
import jax

from bayes_mdp.utils.memory import usable_cores
from bayes_mdp.utils.messages import install, version_of
from bayes_mdp.utils.validation import check_count, check_name, described

if TYPE_CHECKING:
    from distributed import Client  # pyright: ignore[reportMissingImports] - of the extra `cluster`
    from loky import ProcessPoolExecutor

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
ExecutorLike: TypeAlias = "str | Executor | Client | None"
"""Where tasks are computed.

* None or "serial": this process, one after the other.
* "processes", "processes:4": so many new processes (without a number: one for each core).
* "dask", "dask:4": a Dask cluster of so many processes on this machine. "tcp://host:8786": the Dask cluster with the
  scheduler at this address. A `distributed.Client`: its cluster. These need the extra `cluster`.
* An `Executor`: as it is; it is not shut down.
"""

RETRIES = 2
NAMES = ("serial", "processes", "dask")
PACKAGES = ("bayes-mdp", "jax", "jaxlib", "numpyro", "equinox", "numpy")
DASK_TIMEOUT = 10  # seconds until a scheduler that does not answer is given up
_WRONG_INPUT = (ValueError, TypeError)  # the same again, however often it is tried
_EXPECTED = (
    "expected one of serial, processes, processes:N, dask, dask:N, the address of a Dask scheduler, or an Executor"
)


# -------------------------------------------------------------------------------------------------------- run_tasks
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
    """An exception of the function, in a form that can be sent.

    Args:
        error: one sentence.
        final: not to be tried again.
        trace: of the worker.
    """

    error: str
    final: bool
    trace: str


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
    with open_executor(executor) as pool:
        submit, window = _submitter(function, pool, described(executor)), _window(pool)
        todo = deque((task, 1) for task in tasks)
        running: dict[Future[T | Failure], tuple[Task, int]] = {}
        while todo or running:
            while todo and len(running) < window:
                task, attempt = todo.popleft()
                running[submit(task)] = task, attempt
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task, attempt = running.pop(future)
                answer = _answer(future, pool)
                if not isinstance(answer, Failure):
                    yield Finished(task.name, answer, "", attempt)
                elif answer.final or attempt > retries:
                    _LOG.info("%s failed\n%s", task.name, answer.trace)
                    yield Finished(task.name, None, answer.error, attempt)
                else:
                    _LOG.warning("%s failed and is tried again: %s", task.name, answer.error)
                    todo.append((task, attempt + 1))


def _window(pool: Executor | None) -> int:
    """How many tasks it has at a time; the others stay here."""
    return 1 if pool is None else pool.num_workers if isinstance(pool, WorkerProcesses) else 256


def _submitter(function: Callable[..., T], pool: Executor | None, name: str) -> "Callable[[Task], Future[T | Failure]]":
    """How a task is given to the executor; None: it is computed at once."""
    if pool is None:

        def compute_here(task: Task) -> "Future[T | Failure]":
            future: Future[T | Failure] = Future()
            future.set_result(compute(function, task.arguments))  # Ctrl-C goes through
            return future

        return compute_here
    content, settings = _pickle(function, "the function", name), current_settings()

    def send(task: Task) -> "Future[T | Failure]":
        arguments = _pickle(task.arguments, f"task {task.name}", name)
        try:
            return pool.submit(compute_in_worker, content, settings, arguments)
        except RuntimeError as error:  # broken pools, closed executors and clients
            raise ConnectionError(
                f"executor {name} takes no more tasks ({error}), expected one that is open"
            ) from error

    return send


def _pickle(thing: object, what: str, executor: str) -> bytes:
    try:
        return cloudpickle.dumps(thing)
    except Exception as error:  # pickle raises what it likes
        raise TypeError(
            f"executor is {executor}, to which {what} cannot be sent ({type(error).__name__}: {error}), expected "
            "'serial', or what can be pickled"
        ) from error


def _answer(future: "Future[T | Failure]", pool: Executor | None) -> T | Failure:
    """The answer; a failure too where the worker, not the function, is at fault.

    Raises:
        ConnectionError: the executor of the caller is broken for good.
    """
    try:
        return future.result()
    except BrokenExecutor as error:
        if isinstance(pool, WorkerProcesses):
            return Failure(" ".join(str(error).split()), False, "")
        raise ConnectionError(
            f"the executor is broken ({error}), expected 'processes', where a worker that dies is replaced"
        ) from error
    except (Exception, CancelledError) as error:
        return Failure(f"{type(error).__name__}: {error}", isinstance(error, _WRONG_INPUT), traceback.format_exc())


# ------------------------------------------------------------------------------------------------------ in a worker
class Settings(NamedTuple):
    """What a task is computed under: JAX's settings that change numbers, and versions."""

    x64: bool
    matmul_precision: str | None
    threefry_partitionable: bool
    versions: tuple[tuple[str, str], ...]


def current_settings() -> Settings:
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
    return ("python", platform.python_version()), *((name, version_of(name)) for name in PACKAGES)


def compute_in_worker(content: bytes, settings: Settings, arguments: bytes) -> Any:
    """`compute`, in a worker.

    Args:
        content: the pickled function.
        settings: of the caller.
        arguments: pickled.
    """
    of_worker, of_caller = dict(versions()), settings.versions
    differs = [f"{name} {of_worker[name]}, expected {known}" for name, known in of_caller if of_worker[name] != known]
    if differs:
        worker = f"the worker on {platform.node()} has other versions than the caller"
        return Failure(f"{worker}: {'; '.join(differs)}", True, "")
    with (
        jax.enable_x64(settings.x64),
        jax.default_matmul_precision(settings.matmul_precision),
        jax.threefry_partitionable(settings.threefry_partitionable),
    ):
        return compute(_load(content, settings), pickle.loads(arguments))


@lru_cache(maxsize=8)
def _load(content: bytes, settings: Settings) -> Callable[..., Any]:
    """The function: one object for all tasks of a worker, with all that it has compiled.

    Under other settings it is another object: reading arrays of float64 without x64 makes them float32.
    """
    del settings
    return pickle.loads(content)


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


# -------------------------------------------------------------------------------------------------------- executors
def check_executor(executor: object) -> None:
    """Refuse what is no executor, and a Dask executor where Dask is not installed. Connects to nothing.

    Raises:
        ValueError, TypeError, ImportError: one sentence.
    """
    if executor is None or isinstance(executor, Executor) or hasattr(executor, "get_executor"):
        return
    if not isinstance(executor, str):
        raise TypeError(f"executor is {described(executor)}, {_EXPECTED}")
    scheme, is_address, _ = executor.partition("://")
    if is_address and scheme.isalnum() and scheme not in ("http", "https"):
        _require_dask(executor)
        return
    kind, colon, number = executor.partition(":")
    if "/" in executor:
        raise ValueError(
            f"executor is {executor!r}, expected the address of a Dask scheduler, such as tcp://host:8786, or one of "
            f"{', '.join(NAMES)}"
        )
    check_name("executor", kind, NAMES, ", or the address of a Dask scheduler")
    if colon and (kind == "serial" or not number.isdecimal() or int(number) < 1):
        raise ValueError(f"executor is {executor!r}, {_EXPECTED}")
    if kind == "dask":
        _require_dask(executor)


def _require_dask(executor: str) -> None:
    if sys.modules.get("distributed") is None and find_spec("distributed") is None:
        raise ImportError(f"executor is {executor!r}, which needs Dask: {install('cluster')}")


@contextmanager
def open_executor(executor: ExecutorLike) -> Iterator[Executor | None]:
    """The executor, ready for tasks; None: this process. What was started is ended with the block, at once if it fails.

    Raises:
        ValueError, TypeError: see `check_executor`. ImportError: Dask is not installed.
        ConnectionError: no scheduler answers at the address.
    """
    check_executor(executor)
    if executor is None or executor == "serial":
        yield None
    elif isinstance(executor, Executor):
        yield executor
    elif isinstance(executor, str) and executor.startswith("processes"):
        pool = WorkerProcesses(_number(executor))
        try:
            yield pool
        except BaseException:
            pool.shutdown(kill_workers=True)
            raise
        pool.shutdown()
    else:
        with _dask(executor) as client:
            pool = client.get_executor(pure=False)
            try:
                yield pool
            finally:
                pool.shutdown(wait=False)  # cancels what is left


def _number(executor: str) -> int:
    """Of the workers that a name asks for; without a number one for each core."""
    number = executor.partition(":")[2]
    return int(number) if number else usable_cores()


@contextmanager
def _dask(executor: Any) -> "Iterator[Client]":
    """A client: that of the caller, of a scheduler at an address, or of a new cluster on this machine."""
    if not isinstance(executor, str):
        yield executor
        return
    import dask  # pyright: ignore[reportMissingImports]

    # Read when it is first imported: Dask tells of every connection otherwise.
    with dask.config.set({"logging.distributed": "warning"}):  # pyright: ignore[reportPrivateImportUsage]
        from distributed import Client  # pyright: ignore[reportMissingImports]
    try:
        if "://" in executor:
            client = Client(executor, timeout=DASK_TIMEOUT)
        else:  # processes with one thread each: a task that ends its process takes no other with it; no open port
            client = Client(n_workers=_number(executor), threads_per_worker=1, processes=True, dashboard_address=None)
    except (OSError, RuntimeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        if "://" in executor:
            raise ConnectionError(
                f"executor is {executor!r}, where no Dask scheduler answered within {DASK_TIMEOUT} s, expected the "
                f"address of a running one ({reason})"
            ) from error
        raise ConnectionError(
            f"no Dask cluster could be started on this machine ({reason}); a script that starts one needs "
            'if __name__ == "__main__":'
        ) from error
    with client:
        yield client


# -------------------------------------------------------------------------------------------------------- processes
class WorkerProcesses(Executor):
    """Processes of loky, each a pool of its own: the death of one fails its own task alone, and a new one follows.

    They do not get the Ctrl-C of the terminal, which is for the caller to decide about, and exit when the caller's
    process ends, however that ends. The script that runs is not imported: it needs no `if __name__ == "__main__"`. What
    a task prints goes to stderr.

    Args:
        num_workers: number of processes, which is the number of tasks that they take at a time.
    """

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self._pools: list[ProcessPoolExecutor] = []
        self._idle: LifoQueue[ProcessPoolExecutor | None] = LifoQueue()  # first the one that computed last
        for _ in range(num_workers):
            self._idle.put(None)  # started when a task needs it
        self._parent, self._parent_end = Pipe(duplex=False)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Compute `fn(*args, **kwargs)` in a worker; waits for an idle one."""
        pool = self._idle.get() or self._new_pool()
        with _without_interrupts():
            try:
                future = pool.submit(fn, *args, **kwargs)
            except BrokenExecutor:  # its process died in the task before
                pool = self._new_pool()
                future = pool.submit(fn, *args, **kwargs)
        future.add_done_callback(lambda _: self._idle.put(pool))
        return future

    def _new_pool(self) -> "ProcessPoolExecutor":
        from loky import ProcessPoolExecutor

        # Loky replaces a process whose memory grew: what JAX has compiled is no leak.
        environment = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"}
        pool = ProcessPoolExecutor(1, initializer=_begin_worker, initargs=(self._parent,), env=environment)
        self._pools.append(pool)
        return pool

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, kill_workers: bool = False) -> None:
        """End the workers when they have finished what was submitted, or at once (see `Executor.shutdown`)."""
        for pool in self._pools:
            pool.shutdown(wait, kill_workers=kill_workers or cancel_futures)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process that is started inherits that Ctrl-C is blocked."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(parent: Connection) -> None:
    """What a process does before its first task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where no signal can be blocked
    sys.stdout.flush()
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    with suppress(EOFError):  # nothing is sent: the parent has ended
        parent.recv()
    os._exit(0)
