"""SIGTERM, SIGUSR1 and Ctrl-C: a wish to stop after the current update, or an error.

A cluster sends SIGUSR1 and then SIGTERM, and a parent passes on a Ctrl-C that the terminal has
sent already: the second must not undo what the first has begun, so only the first counts. SIGQUIT,
Ctrl-\\ on a terminal, still ends the process at once.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

from nmt.errors import Exit, UserError

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # clusters send either of the latter


class Stop:
    """The first signal that asks to stop, if one has come."""

    code = 0  # exit code of the command that is to stop, 128 + the signal; 0: it goes on


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Note signals: an error could strike inside a backward pass or a rename; a note cannot."""
    stop = Stop()

    def note(number: int) -> None:
        stop.code = 128 + number
        # os.write, since logging may be in the middle of a line in this very thread
        with suppress(OSError):  # a pipe that nobody reads; to save is more than to say so
            os.write(2, b"\nstopping after this update; Ctrl-\\ stops at once, without saving\n")

    with _handled(STOPPING, note):
        yield stop


def stop_by_error(advice: str = "") -> AbstractContextManager[None]:
    """Let SIGTERM and SIGUSR1, too, raise an error, so that no child process is left behind."""

    def stop(number: int) -> None:
        raise UserError(f"stopped by {signal.Signals(number).name}{advice}", Exit(128 + number))

    return _handled(STOPPING[1:], stop)


@contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handle: Callable[[int], None]) -> Iterator[None]:
    """Handle the first of these signals; Python's former handlers are restored afterwards.

    Handlers in C, as of faulthandler, are not. Outside of the main thread, where Python allows no
    handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def first(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) == 1:
            handle(number)

    former = {number: signal.signal(number, first) for number in numbers}
    try:
        yield
    finally:
        for number, before in former.items():
            signal.signal(number, before)
