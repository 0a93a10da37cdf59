"""What is measured: processes that set themselves up once and answer rounds, and whole commands."""

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

    It is killed where an answer takes longer than `patience` seconds, or is not there at the time
    `ends` of time.monotonic.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        threads: int,
        patience: float = PATIENCE,
        ends: float = math.inf,
    ) -> None:
        super().__init__(name)
        self.argv, self.patience, self.ends = list(argv), patience, ends
        self.environment = environment(threads)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def launch(self) -> None:
        """Start the process."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        try:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=self.environment,
            )
        except OSError as error:
            self.reason = f"{self.argv[0]}: {error.strerror}"

    def start(self) -> Answer:
        """Wait until the process is ready."""
        if self._process is None:
            raise RunError(self.reason)
        facts = self._answer(self._process).get("ready")
        if not isinstance(facts, dict):
            raise RunError("did not say that it is ready")
        return facts

    def round(self) -> Answer:
        """Ask for a round and wait for its figures."""
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(b"round\n")
            process.stdin.flush()
        except OSError:
            raise RunError(self._reason(process)) from None
        answer = self._answer(process)
        if not (_positive(answer.get("units")) and _positive(answer.get("seconds"))):
            raise RunError(f"answered {json.dumps(answer)[:80]}")
        return answer

    def close(self) -> None:
        """Close its stdin, which ends it; kill it where that does not."""
        if (process := self._process) is not None:
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.close()
                process.wait(timeout=5)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
            process.stdout.close()
        if self._errors is not None:
            self._errors.close()
        self._process = self._errors = None

    def _answer(self, process: "subprocess.Popen[bytes]") -> Answer:
        """The next line of JSON; RunError if the process ends, is late or writes something else."""
        assert process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        seconds = _until(self.patience, self.ends)
        timer = threading.Timer(seconds, stop)
        timer.daemon = True  # no end of this process waits for it
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if late.is_set():
            raise _late("answer", seconds, self.ends)
        if not line:
            raise RunError(self._reason(process))
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RunError(f"said {line.rstrip()[:80]!r} instead of JSON")
        return answer

    def _reason(self, process: "subprocess.Popen[bytes]") -> str:
        """The last line that a dead process wrote on stderr, or its exit code."""
        code = process.wait()
        assert self._errors is not None
        self._errors.seek(0)
        return _last_line(self._errors.read()) or f"exit {code}"


class Command(Candidate):
    """A whole process for each round: its start-up counts. `patience` and `ends` as of Worker."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        threads: int,
        units: float = 1.0,
        patience: float = PATIENCE,
        ends: float = math.inf,
    ) -> None:
        super().__init__(name)
        self.argv, self.units, self.patience, self.ends = list(argv), units, patience, ends
        self.environment = environment(threads)

    def start(self) -> Answer:
        """Nothing is to be set up."""
        return {}

    def round(self) -> Answer:
        """Run the command to its end."""
        began, seconds = time.monotonic(), _until(self.patience, self.ends)
        try:
            done = subprocess.run(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=self.environment,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _late("end", seconds, self.ends) from None
        except OSError as error:
            raise RunError(f"{self.argv[0]}: {error.strerror}") from None
        seconds = time.monotonic() - began
        if done.returncode:
            raise RunError(_last_line(done.stderr) or f"exit {done.returncode}")
        return {"units": self.units, "seconds": seconds}


def environment(threads: int) -> dict[str, str]:
    """The environment of a candidate: as many threads as the others have, nothing fetched."""
    libraries = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **{f"{name}_NUM_THREADS": str(threads) for name in libraries}, **quiet}


def _until(patience: float, ends: float) -> float:
    """The seconds to wait for an answer."""
    return max(0.0, min(patience, ends - time.monotonic()))


def _late(what: str, seconds: float, ends: float) -> RunError:
    over = time.monotonic() >= ends
    return RunError("killed: no time left" if over else f"no {what} within {seconds:.0f} s")


def _last_line(errors: bytes) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in errors.decode("utf-8", "replace").split("\n")]
    return next((line for line in reversed(lines) if line), "")


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
