"""Commands in this process: the starts of Python that a test is not about take most of its time.

`nmt.sweep` starts its trainings as processes; `tests/cli/test_plug_in.py` and
`tests/experiments/test_processes.py` start real ones.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from typing import NamedTuple

import pytest

from nmt import processes
from nmt import sweep as run
from nmt.cli import train
from nmt.processes import LoggedCommand

RunAll = Callable[..., dict[str, int]]


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


def start(command: LoggedCommand, gpu: str | None = None) -> Ended:
    """Run a command here; its output goes to its log, as that of a process does."""
    handlers = logging.root.handlers[:]
    with command.log.open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            return Ended(train.main([*command.arguments]))
        finally:
            logging.root.handlers[:] = handlers  # the command's own write to its log


run_all: RunAll = partial(processes.run_all, start=start)


def start_by(patch: pytest.MonkeyPatch, run_all: RunAll = run_all) -> None:
    """Let this run the commands that train."""
    patch.setattr(run, "run_all", run_all)


def refuse_commands(*commands: object) -> dict[str, int]:
    """A `run_all` where none may be started."""
    raise AssertionError("a command was started")


def noting(started: list[LoggedCommand], code: int) -> RunAll:
    """A `run_all` that only notes the commands, each of which seems to end with `code`."""

    def run_all(commands: Sequence[LoggedCommand], *_: object) -> dict[str, int]:
        started.extend(commands)
        return {each.name: code for each in commands}

    return run_all
