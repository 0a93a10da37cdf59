"""Commands in this process: the starts of Python that a test is not about take most of its time.

`nmt.sweep` starts its trainings as processes; `tests/cli/test_plug_in.py` and
`tests/test_sweep_processes.py` start real ones.
"""

import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from nmt.cli import train


class LoggedCommand(NamedTuple):
    """A call of nmt-train: its arguments, and the file that gets its output."""

    name: str
    arguments: Sequence[str]
    log: Path


Start = Callable[[LoggedCommand], int]


class Ended(NamedTuple):
    """A command that has run to its end; in the place of a `subprocess.Popen`."""

    code: int

    def poll(self) -> int:
        """Return the exit code."""
        return self.code

    def terminate(self) -> None:
        """There is nothing left to stop."""

    def wait(self) -> int:
        """Return the exit code."""
        return self.code


def start(command: LoggedCommand) -> int:
    """Run a command here; its output goes to its log, as that of a process does."""
    handlers = logging.root.handlers[:]
    with command.log.open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            return train.main([*command.arguments])
        finally:
            logging.root.handlers[:] = handlers  # the command's own write to its log


def start_by(patch: pytest.MonkeyPatch, start: Start = start) -> None:
    """Let this run the commands that train, and return their exit codes."""

    def begin(words: Sequence[str], *, stdout: IO[bytes], **_: Any) -> Ended:
        assert words[:3] == [sys.executable, "-m", "nmt.cli.train"]
        log = Path(stdout.name)
        return Ended(start(LoggedCommand(log.stem, words[3:], log)))

    patch.setattr(subprocess, "Popen", begin)


def refuse_commands(command: LoggedCommand) -> int:
    """A `start` where no command may be started."""
    raise AssertionError("a command was started")


def noting(started: list[LoggedCommand], code: int) -> Start:
    """A `start` that only notes the commands, each of which seems to end with `code`."""
    return lambda command: started.append(command) or code  # type: ignore[func-returns-value]
