"""What is measured: processes that set themselves up once and answer rounds."""

import json
import math
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO, Any

Answer = dict[str, Any]
PATIENCE = 600.0  # seconds for the set-up, or for one round


class RunError(Exception):
    """Why a candidate does not take part (any longer), in one line."""


class Candidate:
    """One that is asked for rounds. This one cannot take part, and says why; others override it."""

    def __init__(self, name: str, reason: str = "") -> None:
        self.name, self.reason = name, reason

    def launch(self) -> None:
        """Begin to set up, and do not wait: others do so meanwhile."""

    def start(self) -> Answer:
        """Wait until all is set up; returns facts such as versions, or raises RunError."""
        raise RunError(self.reason)

    def round(self) -> Answer:
        """Play one round; returns at least units and seconds, or raises RunError."""
        raise RunError(self.reason)

    def close(self) -> None:
        """Leave; called in any case, also when start was not."""


class Worker(Candidate):
    """A process that sets itself up once and then answers rounds (see peers/protocol.py).

    It is killed where an answer takes PATIENCE, or is not there at `ends` of time.monotonic.
    """

    def __init__(
        self, name: str, argv: Sequence[str], threads: int, ends: float = math.inf
    ) -> None:
        super().__init__(name)
        self.argv, self.threads, self.ends = list(argv), threads, ends
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)

    def launch(self) -> None:
        try:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                env=environment(self.threads),
            )
        except OSError as error:
            self.reason = f"{self.argv[0]}: {error.strerror}"

    def start(self) -> Answer:
        facts = self.answer().get("ready")
        if not isinstance(facts, dict):
            raise RunError("did not say that it is ready")
        return facts

    def round(self) -> Answer:
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(b"round\n")
            self.process.stdin.flush()
        except OSError:
            raise RunError(self.last_words()) from None
        answer = self.answer()
        if not (answer.get("units", 0) > 0 and answer.get("seconds", 0) > 0):
            raise RunError(f"answered {json.dumps(answer)[:80]}")
        return answer

    def answer(self) -> Answer:
        """The next line of JSON; RunError if the process ends, is late or writes something else."""
        if self.process is None or self.process.stdout is None:
            raise RunError(self.reason)
        began, seconds = time.monotonic(), seconds_left(self.ends)
        timer = threading.Timer(seconds, self.process.kill)
        timer.daemon = True  # no end of this process waits for it
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if time.monotonic() >= began + seconds:
            raise late(seconds, self.ends)
        if not line:
            raise RunError(self.last_words())
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RunError(f"said {line.rstrip()[:80]!r} instead of JSON")
        return answer

    def last_words(self) -> str:
        assert self.process is not None
        code = self.process.wait()
        self.errors.seek(0)
        return last_line(self.errors.read()) or f"exit {code}"

    def close(self) -> None:
        """Close its stdin, which ends it; kill it where that does not."""
        if self.process is not None:
            try:
                self.process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()
        self.errors.close()


def environment(threads: int) -> dict[str, str]:
    libraries = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **{f"{name}_NUM_THREADS": str(threads) for name in libraries}, **quiet}


def seconds_left(ends: float) -> float:
    return max(0.0, min(PATIENCE, ends - time.monotonic()))


def late(seconds: float, ends: float) -> RunError:
    over = time.monotonic() >= ends
    return RunError("killed: no time left" if over else f"no answer within {seconds:.0f} s")


def last_line(errors: bytes) -> str:
    return errors.decode("utf-8", "replace").strip().split("\n")[-1].strip()
