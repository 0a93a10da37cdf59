"""SIGTERM, SIGUSR1 and Ctrl-C as a wish to stop after the current update."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # clusters send either of the latter

Handler = Callable[[int, FrameType | None], None]


class Stop:
    """The first signal that asks to stop, if one has come."""

    code = 0  # exit code of the command that is to stop, 128 + the signal; 0: it goes on

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; later ones change nothing."""
        if self.code:
            return
        self.code = 128 + number
        # os.write, since logging may be in the middle of a line in this very thread
        with suppress(OSError):  # a pipe that nobody reads; to save is more than to say so
            os.write(2, b"\nstopping after this update; Ctrl-\\ stops at once, without saving\n")


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Note signals in this context.

    An exception raised by a handler could strike inside a backward pass or a rename; a note cannot.
    A cluster sends SIGUSR1 and then SIGTERM, and a parent passes on a Ctrl-C that the terminal has
    sent already: the second must not undo what the first has begun. SIGQUIT, Ctrl-\\ on a terminal,
    still ends the process at once.
    """
    stop = Stop()
    with handled(STOPPING, stop.note):
        yield stop


@contextmanager
def handled(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    """Handle signals in this context, and have the former handlers of Python back afterwards.

    Those of C, as of faulthandler, do not come back. In other threads than the main one, where
    Python forbids handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in former.items():
            signal.signal(number, before)
