"""Progress of what takes longer than two seconds, on a terminal or in a notebook: a bar, or what is being done.

`bar_of` and `Progress` count. `stage` names what cannot be counted, such as chains that run as one compiled program,
and shows for how long it has run; stages inside others are named together. While XLA compiles inside a stage, the line
says so and how long that will take.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from tqdm import tqdm

DELAY = 2.0
"""Seconds before anything is shown."""
PERIOD = 0.5
"""Seconds from one look at the clock to the next."""
COMPILE_RATIO = 10.0
"""Seconds that XLA compiles for each second that JAX takes to write the program: 8 to 14 for chains and planners."""
SMALL = 80, 24
"""Columns and rows: what is taken for the size of a terminal that says that it has none, as one in a container may."""
VARIABLE = "BAYES_MDP_PROGRESS"
"""Environment variable: "on" or "off" decides, anything else leaves it to the terminal."""


def is_shown() -> bool:
    """Whether progress is shown: the standard error output is a terminal, or belongs to a notebook."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen in ("on", "off"):
        return chosen == "on"
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")


def bar_of(
    total: int | None,
    unit: str,
    *,
    what: str | None = None,
    done: int = 0,
    delay: float | None = None,
    keep: bool = False,
    show: bool = True,
) -> "tqdm[NoReturn]":
    """A bar with rate and time left, as a context manager; call its `update(number)`.

    Args:
        total: of what is counted; None: not known.
        unit: what is counted, with a space before it.
        what: text before the bar.
        done: counted already.
        delay: seconds before it is shown; None: `DELAY`.
        keep: whether it stays when all is done.
        show: False: never.
    """
    from tqdm import tqdm

    columns, rows = _size()
    return tqdm(
        total=total,
        desc=what,
        unit=unit,
        unit_scale=True,
        initial=done,
        delay=DELAY if delay is None else delay,
        leave=keep,
        disable=not (show and is_shown()),
        ncols=columns,
        nrows=rows,
    )


def _size() -> tuple[int, int] | tuple[None, None]:
    """Columns and rows of a terminal that does not know them, where tqdm would write nothing; None: tqdm asks it."""
    try:
        known = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError, AttributeError):  # no terminal, or no file behind the stream
        return None, None
    return (None, None) if known else SMALL


class Progress:
    """Context manager around a run: a bar that stays, and may be switched off.

    Args:
        steps_per_row: steps of all seeds in one row.
        num_rows: rows of the run.
        show: False: never.
        unit: what is counted.
    """

    def __init__(self, steps_per_row: int, num_rows: int, *, show: bool = True, unit: str = " steps") -> None:
        self._steps, self._rows, self._show, self._unit = steps_per_row, num_rows, show, unit
        self._bar: tqdm | None = None
        self._done = 0

    def __enter__(self) -> "Progress":
        self._bar = bar_of(self._steps * self._rows, self._unit, keep=True, show=self._show)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tqdm.close()

    def describe(self, text: str) -> None:
        """Show a text before the bar."""
        self._tqdm.set_description(text, refresh=False)

    def report(self, **numbers: float) -> None:
        """Show numbers after the bar, each with its name, to three digits."""
        self._tqdm.set_postfix({name: f"{number:.3g}" for name, number in numbers.items()}, refresh=False)

    def advance(self, rows_done: int) -> None:
        """Set how many rows are done."""
        self._tqdm.update((rows_done - self._done) * self._steps)
        self._done = rows_done

    @property
    def _tqdm(self) -> "tqdm":
        assert self._bar is not None, "not inside the `with` statement"
        return self._bar


@contextmanager
def stage(text: str, *, show: bool = True) -> Iterator[None]:
    """Name what is being done, as context manager or decorator: "decide: chains of NUTS [00:12]".

    Args:
        text: a few words. Inside another stage they stand behind those of that one.
        show: False: never.
    """
    outer = _inside.get()
    if outer is not None:
        outer.append(text)
        try:
            yield
        finally:
            outer.pop()
        return
    if not (show and is_shown()):
        yield
        return
    _listen()
    names = [text]
    token, done = _inside.set(names), threading.Event()
    watch = threading.Thread(target=_show, args=(names, done), name="progress", daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()
        _inside.reset(token)


_inside: ContextVar[list[str] | None] = ContextVar("stages", default=None)
"""The stages that this thread is in, outermost first; None: in none."""


def _show(names: list[str], done: threading.Event) -> None:
    """Show the names and the time, from two seconds on or while a long program compiles; then leave no trace."""
    begun = time.monotonic()
    while (elapsed := time.monotonic() - begun) < DELAY and _COMPILATIONS.seconds() < DELAY:
        if done.wait(min(PERIOD, DELAY - elapsed)):
            return
    from tqdm import tqdm

    # A short delay: nothing is written before the clock is set.
    columns, rows = _size()
    with tqdm(bar_format="{desc} [{elapsed}]", leave=False, delay=1e-6, ncols=columns, nrows=rows) as line:
        line.start_t -= elapsed
        while True:
            seconds = _COMPILATIONS.seconds()
            compiling = [f"compiling, about {seconds:.0f} s"] if seconds >= DELAY else []
            # A bar has a line of its own: where one is shown, it says enough.
            if compiling or len(tqdm._instances) == 1:  # type: ignore[attr-defined]
                line.set_description_str(": ".join([*names, *compiling]))
            if done.wait(PERIOD):
                return


# What XLA is compiling, told by JAX's events. JAX first writes a program as a module (lowering), then XLA compiles it,
# in the same thread. Both take longer the longer the program is, so the first tells how long the second will take.


class _Compilations:
    """Listens to JAX: which threads compile now, and the ratio of the two times so far."""

    def __init__(self) -> None:
        self._now: dict[int, float] = {}
        # As if one second of lowering had been seen already: a session learns its own machine and options of XLA.
        self._lowered, self._compiled = 1.0, COMPILE_RATIO

    def __call__(self, event: str, duration_secs: float, **_: str | int) -> None:
        """What `jax.monitoring` calls at the end of each step, in the thread that took it."""
        thread, step = threading.get_ident(), event.rpartition("/")[2]
        if step == "jaxpr_to_mlir_module_duration":
            self._now[thread] = duration_secs
        elif step == "backend_compile_duration" and thread in self._now:
            self._lowered += self._now.pop(thread)
            self._compiled += duration_secs
        elif step == "jaxpr_trace_duration":  # the module was only looked at, or did not compile
            self._now.pop(thread, None)

    def seconds(self) -> float:
        """Of the longest compilation that goes on, as expected from its lowering; 0 where there is none."""
        return max(self._now.copy().values(), default=0.0) * self._compiled / self._lowered


_COMPILATIONS = _Compilations()


@cache
def _listen() -> None:
    from jax import monitoring

    monitoring.register_event_duration_secs_listener(_COMPILATIONS)
