"""Candidate and bench: a line on stdin asks for a round, a line of JSON on stdout answers.

This file imports nothing of nmt, so that the scripts next to it run without nmt.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


def read_job() -> dict[str, Any]:
    """Read the JSON file that is a worker's only argument; torch gets the threads that it names."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not isinstance(job, dict):
        raise ValueError(f"{sys.argv[1]}: expected a JSON object")
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(job["threads"])
    return job


class Channel:
    """The worker's end. What libraries write to stdout goes to stderr instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._cpu = 0.0

    def ready(self, **facts: Any) -> None:
        """Say that the set-up is done; facts such as versions, and how this differs from others."""
        if torch := sys.modules.get("torch"):
            facts = {"torch": torch.__version__, "threads": torch.get_num_threads()} | facts
        self._send({"ready": facts})

    def next_round(self) -> bool:
        line = sys.stdin.readline()
        self._cpu = _cpu_seconds()
        return line.strip() == "round"

    def answer(self, units: float, seconds: float, **more: Any) -> None:
        """Tell what the round took, with its CPU seconds and the peak memory so far."""
        took = {"units": units, "seconds": seconds, "cpu_seconds": _cpu_seconds() - self._cpu}
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_initialized():
            more["gpu_bytes"] = torch.cuda.max_memory_allocated()
        self._send(took | {"peak_bytes": _peak_bytes()} | more)

    def _send(self, answer: Answer) -> None:
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()


def serve(play: Callable[[], Answer], **facts: Any) -> None:
    """Answer rounds with `play() -> {"units": ..., ...}` until there are no more.

    `play` may give its own "seconds"; else all of it counts.
    """
    channel = Channel()
    channel.ready(**facts)
    while channel.next_round():
        began = time.perf_counter()
        answer = play()
        channel.answer(**{"seconds": time.perf_counter() - began} | answer)


def _cpu_seconds() -> float:
    """CPU seconds of this process, its threads and its ended children, on all cores."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # there ru_maxrss begins with the memory of the process that started this
        peak = [line.split() for line in status.read_text().split("\n") if "VmHWM" in line]
        if peak:
            return int(peak[0][1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
