"""Several trainings side by side, each a process with one thread and a log file."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tqdm import tqdm

from nmt.errors import Exit, UserError
from nmt.training.signals import handled

PAUSE = 0.1  # seconds between two polls of the processes
STOPPING = (signal.SIGTERM, signal.SIGUSR1)  # clusters send either; Ctrl-C raises by itself


class LoggedCommand(NamedTuple):
    """One process: its arguments, and the file that gets its output."""

    name: str
    arguments: Sequence[str]
    log: Path
    gpu: str | None = None  # the one that it may see; None: as this process does
    module: str = "nmt.cli.train"


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def start(command: LoggedCommand) -> subprocess.Popen[bytes]:
    """Begin a command as a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if command.gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = command.gpu
    with command.log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", command.module, *command.arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
        )


def run_all(
    commands: Sequence[LoggedCommand],
    at_once: int,
    state: Callable[[str], str],
    *,
    start: Callable[[LoggedCommand], Any] = start,
    every: float = 15,
) -> dict[str, int]:
    """Run all commands, `at_once` at a time, and return the exit code of each by name.

    One that fails does not stop the others. Where there are several GPUs, each of those that run
    at once sees another one, unless its arguments say which it wants. Every `every` seconds a line
    on stderr has the `state(name)` of those that run. On Ctrl-C, or SIGTERM and SIGUSR1 (which
    raise UserError, exit 143 and 138), what runs is asked to stop and waited for: nmt-train saves
    first, so that the same command resumes.
    """
    waiting, codes = list(commands), dict[str, int]()
    running: dict[int, tuple[str, Any]] = {}  # name and process by place: GPUs have one each
    began, reported = time.monotonic(), 0.0
    with stop_on_signals("; resume with the same command"):
        try:
            while waiting or running:
                for place in range(at_once):
                    if waiting and place not in running:
                        command = waiting.pop(0)
                        running[place] = command.name, start(_placed(command, place))
                for place, (name, process) in list(running.items()):
                    if (code := process.poll()) is not None:
                        codes[name] = code
                        del running[place]
                if time.monotonic() - reported > every or not (running or waiting):
                    reported = time.monotonic()
                    states = [f"{name}: {state(name)}" for name, _ in running.values()]
                    ended, left = len(codes), ""
                    if ended and running:
                        seconds = (reported - began) / ended * (len(commands) - ended)
                        left = f", about {tqdm.format_interval(seconds)} left"
                    line = "   ".join([f"{ended} of {len(commands)} ended{left}", *states])
                    sys.stderr.write(f"{reported - began:4.0f} s  {line}\n")
                if running:
                    time.sleep(PAUSE)
        finally:
            for _, process in running.values():
                process.terminate()
            for _, process in running.values():
                process.wait()
    return codes


def _placed(command: LoggedCommand, place: int) -> LoggedCommand:
    """The command with the GPU of its place; unchanged without a choice, or if it has chosen."""
    chosen = any("cuda:" in argument for argument in command.arguments)
    if chosen or len(available := gpus()) < 2:
        return command
    return command._replace(gpu=available[place % len(available)])


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_bytes().decode("utf-8", "replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def exit_reason(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def stop_on_signals(advice: str = "") -> AbstractContextManager[None]:
    """Let SIGTERM and SIGUSR1 end this process by an exception, so that no child is orphaned.

    A second one changes nothing: the children are being waited for. `advice` ends the message.
    """
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        if len(stopped) == 1:
            raise UserError(f"stopped by {signal.Signals(number).name}{advice}", Exit(128 + number))

    return handled(STOPPING, stop)
