"""SIGTERM, SIGUSR1 and Ctrl-C as a wish to stop after the current update."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # clusters send either of the latter


class Stop:
    """A context in which the first signal is noted in `signal`, and later ones change nothing.

    An exception raised by a handler could strike inside a backward pass or a rename; a note
    cannot. A cluster sends SIGUSR1 and then SIGTERM, and a parent passes on a Ctrl-C that the
    terminal has sent already: the second must not undo what the first has begun. SIGQUIT, Ctrl-\\
    on a terminal, still ends the process at once. On leaving, the former handlers are back.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python forbids it
            self._former = {each: signal.signal(each, self._note) for each in STOPPING}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for each, handler in self._former.items():
            signal.signal(each, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            return
        self.signal = signal.Signals(number)
        # os.write, since logging may be in the middle of a line in this very thread
        os.write(2, b"\nstopping after this update; Ctrl-\\ stops at once, without saving\n")
