"""Asked to stop: SIGTERM and Ctrl-C let the chunk under way finish, so that everything can be kept."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stops:
    """Context manager. `asked` is the signal that came, or None; the second Ctrl-C interrupts at once.

    Outside the main thread signals are none of its business.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stops":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.asked == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = number
