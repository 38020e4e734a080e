"""A progress bar with rate and time left: on a terminal, and only for what takes longer than two seconds."""

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tqdm import tqdm

DELAY = 2.0


class Progress:
    """Context manager around a run.

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
        from tqdm import tqdm

        self._bar = tqdm(
            total=self._steps * self._rows,
            unit=self._unit,
            unit_scale=True,
            delay=DELAY,
            disable=None if self._show else True,  # None: silent where the output is no terminal
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tqdm.close()

    def describe(self, text: str) -> None:
        """Show a text before the bar."""
        self._tqdm.set_description(text, refresh=False)

    def advance(self, rows_done: int) -> None:
        """Set how many rows are done."""
        self._tqdm.update((rows_done - self._done) * self._steps)
        self._done = rows_done

    @property
    def _tqdm(self) -> "tqdm":
        assert self._bar is not None, "not inside the `with` statement"
        return self._bar
