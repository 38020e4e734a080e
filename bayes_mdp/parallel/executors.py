"""Executors by name: this process, worker processes, a Dask cluster; all behind `concurrent.futures.Executor`."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from bayes_mdp.parallel.worker_processes import ProcessExecutor
from bayes_mdp.utils.cores import usable_cores
from bayes_mdp.utils.extras import install
from bayes_mdp.utils.validation import check_name, described

if TYPE_CHECKING:
    from distributed import Client, LocalCluster  # pyright: ignore[reportMissingImports] - of the extra `cluster`

T = TypeVar("T")
ExecutorLike: TypeAlias = "str | Executor | Client | None"
"""Where tasks are computed.

* None or "serial": this process, one after the other.
* "processes", "processes:4": so many new processes (without a number: one for each core).
* "dask", "dask:4": a Dask cluster of so many processes on this machine. "tcp://host:8786": the Dask cluster with the
  scheduler at this address. A `distributed.Client`: its cluster. These need the extra `cluster`.
* An `Executor`: as it is; it is not shut down.
"""

NAMES = ("serial", "processes", "dask")
DASK_TIMEOUT = 10  # seconds until a scheduler that does not answer is given up
_EXPECTED = (
    "expected one of serial, processes, processes:N, dask, dask:N, the address of a Dask scheduler, or an Executor"
)


class SerialExecutor(Executor):
    """Every task is computed in this process, when it is submitted."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":  # as that of `Executor`
        """The finished task. Ctrl-C goes through."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class OpenExecutor(NamedTuple):
    """An executor that takes tasks.

    Args:
        executor: it.
        window: tasks that are submitted at a time. Enough to keep workers busy; the others stay here.
        same_process: tasks are computed here, and not sent anywhere.
    """

    executor: Executor
    window: int
    same_process: bool


def check_executor(executor: object, name: str = "executor") -> None:
    """Refuse what is no executor, and a Dask executor where Dask is not installed. Connects to nothing.

    Raises:
        ValueError, TypeError, ImportError: one sentence.
    """
    if executor is None or isinstance(executor, Executor) or hasattr(executor, "get_executor"):
        return
    if not isinstance(executor, str):
        raise TypeError(f"{name} is {described(executor)}, {_EXPECTED}")
    scheme, is_address, _ = executor.partition("://")
    if is_address and scheme.isalnum() and scheme not in ("http", "https"):
        _require_dask(executor)
        return
    kind, colon, number = executor.partition(":")
    if "/" in executor:
        raise ValueError(
            f"{name} is {executor!r}, expected the address of a Dask scheduler, such as tcp://host:8786, or one of "
            f"{', '.join(NAMES)}"
        )
    check_name(name, kind, NAMES, ", or the address of a Dask scheduler")
    if colon and (kind == "serial" or not number.isdecimal() or int(number) < 1):
        raise ValueError(f"{name} is {executor!r}, {_EXPECTED}")
    if kind == "dask":
        _require_dask(executor)


def _require_dask(executor: str) -> None:
    if sys.modules.get("distributed") is None and find_spec("distributed") is None:
        raise _without_dask(executor)


def _without_dask(executor: str) -> ImportError:
    return ImportError(f"executor is {executor!r}, which needs Dask: {install('cluster')}")


@contextmanager
def open_executor(executor: ExecutorLike) -> Iterator[OpenExecutor]:
    """The executor, ready for tasks. What was started for it is ended with the block: at once if the block fails.

    Raises:
        ValueError, TypeError: see `check_executor`. ImportError: Dask is not installed.
        ConnectionError: no scheduler answers at the address.
    """
    check_executor(executor)
    if executor is None or executor == "serial":
        yield OpenExecutor(SerialExecutor(), 1, True)
    elif isinstance(executor, Executor):
        yield OpenExecutor(executor, _DASK_WINDOW, isinstance(executor, SerialExecutor))
    elif isinstance(executor, str) and executor.startswith("processes"):
        with _processes(_number(executor)) as opened:
            yield opened
    else:
        with _dask(executor) as client:
            pool = client.get_executor(pure=False)
            try:
                yield OpenExecutor(pool, _DASK_WINDOW, False)
            finally:
                pool.shutdown(wait=False)  # cancels what is left


_DASK_WINDOW = 256


@contextmanager
def _processes(number: int) -> Iterator[OpenExecutor]:
    pool = ProcessExecutor(number)
    try:
        yield OpenExecutor(pool, 2 * number, False)
    except BaseException:
        pool.kill()
        raise
    finally:
        pool.shutdown(wait=True)


@contextmanager
def _dask(executor: Any) -> "Iterator[Client]":
    """A client: that of the caller, of a scheduler at an address, or of a new cluster on this machine."""
    if not isinstance(executor, str):
        yield executor
        return
    try:
        import dask  # pyright: ignore[reportMissingImports]

        # Read when it is first imported: Dask tells of every connection otherwise.
        with dask.config.set({"logging.distributed": "warning"}):  # pyright: ignore[reportPrivateImportUsage]
            from distributed import Client, LocalCluster  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise _without_dask(executor) from error
    if "://" in executor:
        with _connected(Client, executor) as client:
            yield client
        return
    # Processes with one thread each: a task that ends its process takes no other with it. No dashboard: no open port.
    options: dict[str, Any] = {"n_workers": _number(executor), "threads_per_worker": 1, "processes": True}
    with _started(LocalCluster, options | {"dashboard_address": None}) as cluster, Client(cluster) as client:
        yield client


def _started(cluster: "type[LocalCluster]", options: dict[str, Any]) -> "LocalCluster":
    try:
        return cluster(**options)
    except (OSError, RuntimeError) as error:
        raise ConnectionError(
            f"no Dask cluster could be started on this machine ({_first_line(error)}); a script that starts one needs "
            'if __name__ == "__main__":'
        ) from error


def _connected(client: "type[Client]", address: str) -> "Client":
    try:
        return client(address, timeout=DASK_TIMEOUT)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConnectionError(
            f"executor is {address!r}, where no Dask scheduler answered within {DASK_TIMEOUT} s, expected the address "
            f"of a running one ({_first_line(error)})"
        ) from error


def _number(executor: str) -> int:
    """Of the workers that a name asks for; without a number one for each core."""
    _, _, number = executor.partition(":")
    if number:
        return int(number)
    return usable_cores()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
