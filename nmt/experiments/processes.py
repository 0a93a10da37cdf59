"""Several commands of the house at once, each a process with one thread and a log file."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Protocol

from nmt.errors import Exit, UserError

PAUSE = 0.5  # seconds between two looks at the processes
SHOWN = 4  # names whose state fits one line; of more, only the running ones are shown

STOPPING = (signal.SIGTERM, signal.SIGUSR1)  # clusters send either; Ctrl-C raises by itself

State = Callable[[str], str]  # what a line says of the job of this name


class Job(NamedTuple):
    """One command: a module of nmt.cli, its words, and the file that its output is added to."""

    name: str
    module: str
    words: list[str]
    log: Path
    gpu: str | None = None  # the one that it may see; None: as this process does


class Process(Protocol):
    """What is asked of a process; `subprocess.Popen` is one."""

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""

    def terminate(self) -> None:
        """Ask it to stop."""

    def wait(self) -> int:
        """Return when it has ended."""


def cores() -> int:
    """How many processes run at full speed."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if (told := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name.strip() for name in told.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def start(job: Job) -> Process:
    """Begin a job as a process of its own."""
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    if job.gpu is not None:
        surroundings["CUDA_VISIBLE_DEVICES"] = job.gpu
    with job.log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", f"nmt.cli.{job.module}", *job.words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=surroundings,
        )


def run_all(
    jobs: Sequence[Job],
    at_once: int,
    state: State,
    *,
    start: Callable[[Job], Process] = start,
    every: float = 15,
) -> dict[str, int]:
    """Run all jobs, `at_once` at a time, and return the exit code of each by name.

    A job that fails does not stop the others. Where there are several GPUs, each of the jobs that
    run at once sees another one, unless its words say which it wants. Every `every` seconds a line
    on stderr tells `state(name)` of the jobs. On Ctrl-C, or SIGTERM and SIGUSR1 (which raise
    UserError, exit 143 and 138), the running jobs are asked to stop and waited for: nmt-train saves
    first, so that the same command resumes.
    """
    waiting, running, codes = list(jobs), dict[str, Process](), dict[str, int]()
    places = dict[str, int]()  # of the running jobs; a job takes the first that is free
    began, told = time.monotonic(), 0.0
    with terminable("; resume with the same command"):
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    job = waiting.pop(0)
                    place = min(set(range(at_once)) - set(places.values()))
                    running[job.name] = start(_placed(job, place))
                    places[job.name] = place
                for name, process in list(running.items()):
                    if (code := process.poll()) is not None:
                        codes[name] = code
                        del running[name], places[name]
                if time.monotonic() - told > every or not (running or waiting):
                    told = time.monotonic()
                    line = _line([job.name for job in jobs], len(codes), list(running), state)
                    sys.stderr.write(f"{told - began:4.0f} s  {line}\n")
                if running:
                    time.sleep(PAUSE)
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()
    return codes


def _placed(job: Job, place: int) -> Job:
    """The job with the GPU of its place; unchanged where there is no choice, or it has chosen."""
    if any("cuda:" in word for word in job.words) or len(there := gpus()) < 2:
        return job
    return job._replace(gpu=there[place % len(there)])


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_bytes().decode("utf-8", "replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def said(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _line(names: list[str], ended: int, running: Sequence[str], state: State) -> str:
    """The state of all jobs where they are few, else of the running ones."""
    few = len(names) <= SHOWN
    parts = [f"{name}: {state(name)}" for name in (names if few else running)]
    return "   ".join(parts if few else [f"{ended} of {len(names)} ended", *parts])


@contextmanager
def terminable(advice: str = "") -> Iterator[None]:
    """Let SIGTERM and SIGUSR1 end this process by an exception, so that no child is orphaned.

    A second one changes nothing: the children are being waited for. `advice` stands behind what
    is said then.
    """
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        if len(stopped) == 1:
            raise UserError(f"stopped by {signal.Signals(number).name}{advice}", Exit(128 + number))

    if threading.current_thread() is not threading.main_thread():  # Python forbids it elsewhere
        yield
        return
    former = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
