"""SIGTERM and Ctrl-C as a wish to stop after the current update."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """A context in which the first signal is noted in `signal`; the second ends the process.

    An exception raised by a handler could strike inside a backward pass or a rename; a note
    cannot. On leaving, the former handlers are back.
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
            os._exit(128 + number)  # safe at any moment: checkpoints are whole or absent
        self.signal = signal.Signals(number)
        # os.write, since logging may be in the middle of a line in this very thread
        os.write(2, b"\nstopping after this update; once more: stop at once\n")
