"""`ProcessExecutor`: new processes as a `concurrent.futures.Executor` that outlives the death of any of them.

`ProcessPoolExecutor` cannot be used again once a process of it dies, and does not say which task that was; its
processes stay when their parent is killed. Here every process has a thread of this process and a pipe of its own: the
task of a dead process fails, alone, with `WorkerDiedError`, and a new process takes the next one. Processes are started
from the command line of Python, not from the script that runs: no `if __name__ == "__main__"` is needed.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, TypeVar

import cloudpickle

from bayes_mdp.parallel.worker import READY, receive, send
from bayes_mdp.utils.validation import check_count

T = TypeVar("T")
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from bayes_mdp.parallel.worker import main; main()"


class WorkerDiedError(RuntimeError):
    """The process that computed a task ended before it answered."""


class ProcessExecutor(Executor):
    """So many worker processes, each started when it gets its first task.

    They do not get the Ctrl-C of the terminal, and exit when this process ends.

    Args:
        num_workers: number of processes.

    Raises:
        ValueError, TypeError: `num_workers` is no positive integer.
    """

    def __init__(self, num_workers: int) -> None:
        check_count("num_workers", num_workers)
        self._tasks: SimpleQueue[tuple[Future[Any], bytes] | None] = SimpleQueue()
        self._workers: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(num_workers)]
        for thread in self._threads:
            thread.start()

    @property
    def process_ids(self) -> list[int]:
        """Of the workers that are running."""
        with self._lock:
            return [worker.process.pid for worker in self._workers]

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":  # as that of `Executor`
        """Compute `fn(*args)` in a worker.

        Raises:
            RuntimeError: after `shutdown`. TypeError and others of pickle: a task that cannot be sent.
        """
        if self._closed:
            raise RuntimeError("the executor was shut down, expected one that takes tasks")
        assert not kwargs, "a task has positional arguments alone"
        future: Future[T] = Future()
        self._tasks.put((future, cloudpickle.dumps((fn, args))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the workers finish what was submitted, then end them.

        Args:
            wait: until then.
            cancel_futures: cancel the tasks that no worker has begun.
        """
        self._closed = True
        if cancel_futures:
            self._cancel_waiting()
        for _ in self._threads:
            self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def kill(self) -> None:
        """End all workers at once, whatever they compute."""
        self._closed = True
        self._cancel_waiting()
        for _ in self._threads:
            self._tasks.put(None)
        with self._lock:
            for worker in self._workers:
                worker.process.kill()

    def _cancel_waiting(self) -> None:
        try:
            while True:
                item = self._tasks.get_nowait()
                if item is not None:
                    item[0].cancel()
        except Empty:
            return

    def _serve(self) -> None:
        """The thread of one worker: it is started, asked, and replaced if it dies."""
        worker: _Worker | None = None
        while (item := self._tasks.get()) is not None:
            future, task = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._started()
                done, value = worker.ask(task)
            except Exception as error:  # the worker, not the task: it died, or could not be started
                worker = self._ended(worker)
                future.set_exception(error)
                continue
            if done:
                future.set_result(value)
            else:
                future.set_exception(value)
        self._ended(worker)

    def _started(self) -> "_Worker":
        with self._lock:
            worker = _Worker()
            self._workers.add(worker)
        if self._closed:  # `kill` may have been called since
            worker.process.kill()
        worker.wait_until_ready()
        return worker

    def _ended(self, worker: "_Worker | None") -> None:
        with self._lock:
            ended = [worker] if worker is not None else [one for one in self._workers if one.dead]
            self._workers.difference_update(ended)
        for one in ended:
            one.close()


class _Worker:
    """One process and the two ends of its pipes."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _PROGRAM, json.dumps([str(place) for place in sys.path])]
        # A session of its own: Ctrl-C of the terminal reaches this process alone, which then decides.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=os.name == "posix"
        )

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def wait_until_ready(self) -> None:
        """Wait for its first message.

        Raises:
            WorkerDiedError: it ended instead.
        """
        try:
            if receive(self._answers) == READY:
                return
        except EOFError:
            pass
        raise WorkerDiedError(f"a worker process {self._end()} before it was ready; its own message is on stderr")

    def ask(self, task: bytes) -> tuple[bool, Any]:
        """The answer to a task: (True, value) or (False, exception).

        Raises:
            WorkerDiedError: the process ended.
        """
        try:
            send(self._requests, task)
            return pickle.loads(receive(self._answers))
        except (EOFError, BrokenPipeError, ConnectionError):
            raise WorkerDiedError(f"the worker process {self._end()}") from None

    def close(self) -> None:
        """Let it end, and wait until it has."""
        for stream in (self._requests, self._answers):
            with suppress(OSError):  # what was not flushed has no reader
                stream.close()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _end(self) -> str:
        code = self.process.wait()
        if code < 0:
            return f"was ended by the signal {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    @property
    def _requests(self) -> BinaryIO:
        assert self.process.stdin is not None
        return self.process.stdin  # type: ignore[return-value] - Popen calls it IO[bytes]

    @property
    def _answers(self) -> BinaryIO:
        assert self.process.stdout is not None
        return self.process.stdout  # type: ignore[return-value]
