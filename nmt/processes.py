"""Several trainings side by side, each a process with one thread and a log file."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt.training.signals import stop_by_error

PAUSE = 0.1  # seconds between two polls of the processes


class LoggedCommand(NamedTuple):
    """An nmt-train of its own: its arguments, and the file that gets its output."""

    name: str
    arguments: Sequence[str]
    log: Path


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def start(command: LoggedCommand, gpu: str | None = None) -> subprocess.Popen[bytes]:
    """Begin a command; `gpu`: the one that it may see, or None: as this process does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    with command.log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "nmt.cli.train", *command.arguments],
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
    start: Callable[[LoggedCommand, str | None], Any] = start,
    every: float = 15,
) -> dict[str, int]:
    """Run all commands, `at_once` at a time, and return the exit code of each by name.

    A failure stops no other command. With several GPUs, each command sees one of them, unless its
    arguments name one. Every `every` seconds a line on stderr shows the `state(name)` of running
    commands. On Ctrl-C, or SIGTERM and SIGUSR1 (UserError, exit 143 and 138), running commands are
    asked to stop and waited for: nmt-train saves first, so that the same command resumes.
    """
    waiting, codes = list(commands), dict[str, int]()
    running: dict[int, tuple[str, Any]] = {}  # name and process by slot: GPUs have one each
    began, reported = time.monotonic(), 0.0
    with stop_by_error("; resume with the same command"):
        try:
            while waiting or running:
                for slot in range(at_once):
                    if waiting and slot not in running:
                        command = waiting.pop(0)
                        running[slot] = command.name, start(command, _gpu_of(command, slot))
                for slot, (name, process) in list(running.items()):
                    if (code := process.poll()) is not None:
                        codes[name] = code
                        del running[slot]
                if time.monotonic() - reported > every or not (running or waiting):
                    reported = time.monotonic()
                    states = [f"{name}: {state(name)}" for name, _ in running.values()]
                    line = "   ".join([f"{len(codes)} of {len(commands)} ended", *states])
                    sys.stderr.write(f"{reported - began:4.0f} s  {line}\n")
                if running:
                    time.sleep(PAUSE)
        finally:
            for _, process in running.values():
                process.terminate()
            for _, process in running.values():
                process.wait()
    return codes


def _gpu_of(command: LoggedCommand, slot: int) -> str | None:
    """The GPU of a slot; None without a choice, or if the command has chosen."""
    if any("cuda:" in argument for argument in command.arguments) or len(gpus()) < 2:
        return None
    return gpus()[slot % len(gpus())]


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_bytes().decode("utf-8", "replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def exit_reason(code: int) -> str:
    """An exit code in words; it is negative where a signal ended the process."""
    if code >= 0:
        return f"exit {code}"
    has_name = -code in set(signal.Signals)
    return f"killed by {signal.Signals(-code).name if has_name else f'signal {-code}'}"
