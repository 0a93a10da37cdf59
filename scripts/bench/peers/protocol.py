"""How a contestant of the bench talks: a line on stdin asks for a round, a line on stdout answers.

This file imports nothing of nmt, so that scripts beside it run where nmt is not installed.
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


class Line:
    """The worker's end. What libraries write on stdout goes to stderr instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._cpu = 0.0

    def say(self, answer: Answer) -> None:
        """Send one line of JSON."""
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()

    def ready(self, **facts: Any) -> None:
        """Say that the set-up is done; facts such as versions, and how this differs from others."""
        self.say({"ready": facts})

    def asked(self) -> bool:
        """Wait for the next round; false when there is none."""
        line = sys.stdin.readline()
        self._cpu = cpu_seconds()
        return line.strip() == "round"

    def answer(self, units: float, seconds: float, **more: Any) -> None:
        """Tell what the round took, with its CPU seconds and the peak memory so far."""
        cpu = cpu_seconds() - self._cpu
        self.say(
            {
                "units": units,
                "seconds": seconds,
                "cpu_seconds": cpu,
                "peak_bytes": peak_bytes(),
                **more,
            }
        )


def cpu_seconds() -> float:
    """What this process, its threads and the children that have ended used of all cores."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def peak_bytes() -> int:
    """The most memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():  # there ru_maxrss begins with the memory of the process that started this
        found = [line.split() for line in status.read_text().split("\n") if "VmHWM" in line]
        if found:
            return int(found[0][1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def job() -> dict[str, Any]:
    """What the bench asks of this worker: the JSON file that is its only argument."""
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{sys.argv[1]}: expected a JSON object")
    return found


def serve(play: Callable[[], Answer], **facts: Any) -> None:
    """Answer rounds with `play() -> {"units": ..., ...}` until no more are asked for.

    `play` may give its own "seconds"; else all of it counts.
    """
    line = Line()
    line.ready(**facts)
    while line.asked():
        began = time.perf_counter()
        answer = play()
        spent = time.perf_counter() - began
        line.answer(answer.pop("units"), answer.pop("seconds", spent), **answer)
