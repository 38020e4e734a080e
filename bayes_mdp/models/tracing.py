"""One program is traced at a time: NumPyro keeps its handlers in one stack for the whole process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import jax

Function = TypeVar("Function", bound=Callable[..., Any])
_LOCK = threading.RLock()


@contextmanager
def tracing() -> Iterator[None]:
    """Hold this while handlers of NumPyro are on the stack: other threads wait with programs, compiled code runs on."""
    with _LOCK:
        yield


def traced_alone(function: Function) -> Function:
    """`function`, which runs a NumPyro program, by one thread at a time."""

    @wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with tracing():
            return function(*args, **kwargs)

    return alone  # type: ignore[return-value]


def jit_alone(function: Callable[..., Any], *, static_argnums: int | tuple[int, ...] = ()) -> Callable[..., Any]:
    """`jax.jit` of a function that runs a NumPyro program: traced by one thread at a time, run by any number."""
    compiled = jax.jit(function, static_argnums=static_argnums)

    @wraps(function)
    def call(*args: Any) -> Any:
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            with tracing():
                # JAX keeps the trace: the call below finds it, and only compiles and runs.
                compiled.trace(*args)
        return compiled(*args)

    return call
