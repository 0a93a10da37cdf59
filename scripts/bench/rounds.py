"""Contestants that take turns: A B C, A B C, so that a disturbed minute disturbs them all alike."""

import json
import logging
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, NamedTuple, Protocol

log = logging.getLogger(__name__)
Answer = dict[str, Any]
PATIENCE = 600.0  # seconds for the set-up, or for one round


class Contestant(Protocol):
    """One that can be asked for rounds; `RunError` where it cannot."""

    name: str

    def launch(self) -> None:
        """Begin to set up, and do not wait: others do so meanwhile."""

    def start(self) -> Answer:
        """Wait until all is set up; returns facts such as versions."""

    def round(self) -> Answer:
        """Play one round; returns at least units and seconds."""

    def close(self) -> None:
        """Leave; called in any case, also when start was not."""


class RunError(Exception):
    """Why a contestant does not take part (any longer), in one line."""


@dataclass
class Entry:
    """What came of one contestant."""

    name: str
    facts: Answer = field(default_factory=dict)
    rounds: list[Answer] = field(default_factory=list)  # after the warm-up, in order
    failed: str | None = None  # why it is missing, or stopped

    @property
    def rates(self) -> list[float]:
        """Units per second of each round."""
        return [each["units"] / each["seconds"] for each in self.rounds]

    @property
    def seconds(self) -> list[float]:
        """Seconds of each round."""
        return [each["seconds"] for each in self.rounds]

    def last(self, key: str) -> Any:
        """A value of the last round, None where there is none."""
        return self.rounds[-1].get(key) if self.rounds else None

    def to_json(self) -> Answer:
        """Everything, every round included."""
        found: Answer = {"name": self.name, "facts": self.facts, "rounds": self.rounds}
        if self.failed is not None:
            found["failed"] = self.failed
        if self.rounds:
            found["rate"] = spread(self.rates)._asdict()
        return found


class Spread(NamedTuple):
    """Median, least and greatest of some figures."""

    median: float
    least: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    """Sum up one figure per round."""
    return Spread(median(values), min(values), max(values))


def ratio(entry: Entry, baseline: Entry) -> float | None:
    """How many times the baseline's rate: the median over rounds that both have played.

    Rounds are compared with the same round of the other, since the machine is not the same later.
    """
    pairs = list(zip(entry.rates, baseline.rates, strict=False))
    return median(own / other for own, other in pairs) if pairs else None


def race(contestants: Sequence[Contestant], rounds: int, warmup: int = 1) -> list[Entry]:
    """Let all contestants play `warmup` rounds that do not count and `rounds` that do.

    One that fails is left out from then on, and its entry says why.
    """
    entries = [Entry(each.name) for each in contestants]
    both = list(zip(contestants, entries, strict=True))
    try:
        for contestant in contestants:
            contestant.launch()
        for contestant, entry in both:
            try:
                entry.facts = contestant.start()
            except RunError as error:
                entry.failed = str(error)
        for number in range(warmup + rounds):
            for contestant, entry in both:
                if entry.failed is not None:
                    continue
                try:
                    answer = contestant.round()
                except RunError as error:
                    entry.failed = str(error)
                    continue
                if number >= warmup:
                    entry.rounds.append(answer)
            log.info("round %d of %d", number + 1, warmup + rounds)
    finally:
        for contestant in contestants:
            contestant.close()
    for entry in entries:
        if entry.failed is not None:
            log.info("%s: %s", entry.name, entry.failed)
    return entries


class Absent:
    """A contestant of whom it is known beforehand that it cannot take part."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason

    def launch(self) -> None:
        """There is nothing to launch."""

    def start(self) -> Answer:
        """Raise RunError with the reason."""
        raise RunError(self.reason)

    def round(self) -> Answer:
        """Raise RunError with the reason."""
        raise RunError(self.reason)

    def close(self) -> None:
        """Nothing is open."""


class Worker:
    """A process that sets itself up once and then answers rounds (see peers/protocol.py)."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        threads: int,
        environment: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`environment` is added to this process's own."""
        self.name, self.argv, self.patience = name, list(argv), patience
        self.environment = surroundings(threads, environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: BinaryIO | None = None
        self._failed: str | None = None  # why the process could not be started
        self._rest = b""

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
            self._failed = f"{self.argv[0]}: {error.strerror}"

    def start(self) -> Answer:
        """Wait until the process is ready."""
        if self._failed is not None:
            raise RunError(self._failed)
        facts = self._read().get("ready")
        if not isinstance(facts, dict):
            raise RunError("did not say that it is ready")
        return facts

    def round(self) -> Answer:
        """Ask for a round and wait for its figures."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(b"round\n")
            process.stdin.flush()
        except OSError:
            raise RunError(self._why()) from None
        answer = self._read()
        if not (_positive(answer.get("units")) and _positive(answer.get("seconds"))):
            raise RunError(f"answered {json.dumps(answer)[:80]}")
        return answer

    def close(self) -> None:
        """Close its stdin, which ends it; kill it where that does not."""
        if (process := self._process) is not None:
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.close()
            except OSError:
                process.kill()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
            self._process = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RunError("was not started")
        return self._process

    def _read(self) -> Answer:
        """The next line of JSON; RunError where the process ends, lingers or babbles."""
        stream = self._running().stdout
        assert stream is not None
        deadline = time.monotonic() + self.patience
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                self._running().kill()
                raise RunError(f"no answer within {self.patience:.0f} s")
            some = os.read(stream.fileno(), 1 << 16)
            if not some:
                raise RunError(self._why())
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RunError(f"said {line[:80]!r} instead of JSON")
        return answer

    def _why(self) -> str:
        """The last line that a dead process wrote on stderr, or its exit code."""
        code = self._running().wait()
        assert self._errors is not None
        self._errors.seek(0)
        return last_line(self._errors.read()) or f"exit {code}"


class Command:
    """A whole process for each round: its start-up counts."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        threads: int,
        units: float = 1.0,
        environment: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.name, self.argv, self.units, self.patience = name, list(argv), units, patience
        self.environment = surroundings(threads, environment)

    def launch(self) -> None:
        """Nothing is to be launched before a round."""

    def start(self) -> Answer:
        """Nothing is to be set up."""
        return {}

    def round(self) -> Answer:
        """Run the command to its end."""
        began = time.monotonic()
        try:
            done = subprocess.run(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=self.environment,
                timeout=self.patience,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"no end within {self.patience:.0f} s") from None
        except OSError as error:
            raise RunError(f"{self.argv[0]}: {error.strerror}") from None
        seconds = time.monotonic() - began
        if done.returncode:
            raise RunError(last_line(done.stderr) or f"exit {done.returncode}")
        return {"units": self.units, "seconds": seconds}

    def close(self) -> None:
        """Nothing is open."""


def surroundings(threads: int, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a contestant: as many threads as the others, nothing fetched."""
    held = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
        str(threads),
    )
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **held, **quiet, **(more or {})}


def write_job(path: Path, **job: Any) -> str:
    """Write what a worker is asked to do, and return the file's name for its argv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job), encoding="utf-8")
    return str(path)


def last_line(errors: bytes) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in errors.decode("utf-8", "replace").split("\n")]
    return next((line for line in reversed(lines) if line), "")


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
