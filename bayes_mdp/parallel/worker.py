"""The program of a worker process (see `worker_processes`): tasks come in on stdin, answers leave on stdout.

A message is its length in eight bytes, then its bytes. A task is a pickled (function, arguments); an answer is a
pickled (True, value) or (False, exception). What a task prints goes to stderr. When the parent ends, however it does,
stdin ends, and the worker exits in the middle of what it computes.
"""

import os
import pickle
import threading
from queue import SimpleQueue
from typing import BinaryIO

import cloudpickle

READY = b"ready"
_LENGTH = 8


def send(stream: BinaryIO, message: bytes) -> None:
    """Write one message.

    Raises:
        OSError: the other side has ended.
    """
    stream.write(len(message).to_bytes(_LENGTH, "big"))
    stream.write(message)
    stream.flush()


def receive(stream: BinaryIO) -> bytes:
    """Read one message.

    Raises:
        EOFError: the other side has ended.
    """
    length = int.from_bytes(_exactly(stream, _LENGTH), "big")
    return _exactly(stream, length)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content


def main() -> None:
    """Serve until stdin ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # The two streams belong to the messages: tasks read nothing, and print to stderr.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(requests, tasks), daemon=True).start()
    send(answers, READY)
    while True:
        send(answers, _answer(tasks.get()))


def _read(requests: BinaryIO, tasks: "SimpleQueue[bytes]") -> None:
    """A thread of its own: the end of the parent is seen while a task is computed."""
    try:
        while True:
            tasks.put(receive(requests))
    except (EOFError, OSError):
        os._exit(0)


def _answer(task: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(task)
        return cloudpickle.dumps((True, function(*arguments)))
    except BaseException as error:  # also SystemExit: the task ends, not the worker
        return _pickled(error)


def _pickled(error: BaseException) -> bytes:
    try:
        message = cloudpickle.dumps((False, error))
        pickle.loads(message)  # some exceptions can be written and not read
    except Exception:
        message = cloudpickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    return message
