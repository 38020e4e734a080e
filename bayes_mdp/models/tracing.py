"""One program is traced at a time: NumPyro keeps its handlers in one stack for the whole process."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_LOCK = threading.RLock()


@contextmanager
def tracing() -> Iterator[None]:
    """Hold this while handlers of NumPyro are on the stack: other threads wait with programs, compiled code runs on."""
    with _LOCK, warnings.catch_warnings():
        # Arrays that a program holds in float32 stay what they are when it is traced in float64.
        warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)
        yield


def traced_alone(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`function`, which runs a NumPyro program, by one thread at a time."""

    @wraps(function)
    def alone(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with tracing():
            return function(*args, **kwargs)

    return alone
