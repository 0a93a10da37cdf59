"""Processes that take turns, A B C, A B C, so that a disturbed minute disturbs all alike."""

import json
import logging
import math
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import monotonic
from typing import IO, Any

log = logging.getLogger(__name__)
Answer = dict[str, Any]
PATIENCE = 600.0  # seconds for the set-up, or for one round


class RunError(Exception):
    """Why a candidate does not take part (any longer), in one line."""


@dataclass(eq=False)
class Candidate:
    """A process that sets itself up once and then answers rounds (see peers/protocol.py).

    It is killed if an answer takes PATIENCE, or has not come at `ends` of time.monotonic.
    """

    name: str
    argv: Sequence[str] = ()
    threads: int = 1
    ends: float = math.inf
    failed: str | None = None  # why it cannot run, or stopped
    facts: Answer = field(default_factory=dict)  # such as versions
    rounds: list[Answer] = field(default_factory=list)  # after the warm-up, in order
    figures: Answer = field(default_factory=dict)  # computed from the rounds, by name
    process: subprocess.Popen[bytes] | None = None
    errors: IO[bytes] | None = None  # what it writes to stderr

    @property
    def rates(self) -> list[float]:
        return [r["units"] / r["seconds"] for r in self.rounds]

    @property
    def memory(self) -> int | None:
        """The most bytes so far: of the GPU if it computes there, otherwise of the process."""
        return self.last("gpu_bytes") or self.last("peak_bytes")

    def last(self, key: str) -> Any:
        return self.rounds[-1].get(key) if self.rounds else None

    def to_json(self) -> Answer:
        answer: Answer = {"name": self.name, "facts": self.facts, "rounds": self.rounds}
        if self.failed is not None:
            answer["failed"] = self.failed
        if self.rounds:
            answer["rate"] = spread(self.rates)
        return answer | self.figures

    def launch(self) -> None:
        """Start the process without waiting for its set-up, as others set up meanwhile."""
        if self.failed is not None:
            return
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        try:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                env=environment(self.threads),
            )
        except OSError as error:
            self.failed = f"{self.argv[0]}: {error.strerror}"

    def wait_until_ready(self) -> Answer:
        facts = self.read_answer().get("ready")
        if not isinstance(facts, dict):
            raise RunError("did not say that it is ready")
        return facts

    def play(self) -> Answer:
        """Play one round; returns at least units and seconds."""
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(b"round\n")
            self.process.stdin.flush()
        except OSError:
            raise RunError(self.say_why_ended()) from None
        answer = self.read_answer()
        if not (answer.get("units", 0) > 0 and answer.get("seconds", 0) > 0):
            raise RunError(f"answered {json.dumps(answer)[:80]}")
        return answer

    def attempt(self, step: Callable[[], Answer]) -> Answer | None:
        """Take a step unless an earlier one failed; None, with the reason in `failed`, if not."""
        if self.failed is not None:
            return None
        try:
            return step()
        except RunError as error:
            self.failed = str(error)
            log.info("%s: %s", self.name, error)
            return None

    def read_answer(self) -> Answer:
        """Read a line of JSON; RunError if the process ends, is late or writes something else."""
        assert self.process is not None and self.process.stdout is not None
        began = monotonic()
        seconds = max(0.0, min(PATIENCE, self.ends - began))
        timer = threading.Timer(seconds, self.process.kill)
        timer.daemon = True  # the bench can end without it
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if monotonic() >= self.ends:
            raise RunError("killed: no time left")
        if monotonic() >= began + seconds:
            raise RunError(f"no answer within {seconds:.0f} s")
        if not line:
            raise RunError(self.say_why_ended())
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RunError(f"said {line.rstrip()[:80]!r} instead of JSON")
        return answer

    def say_why_ended(self) -> str:
        """The last line that the process wrote to stderr, or its exit code."""
        assert self.process is not None and self.errors is not None
        code = self.process.wait()
        self.errors.seek(0)
        text = self.errors.read().decode("utf-8", "replace")
        return text.strip().split("\n")[-1].strip() or f"exit {code}"

    def close(self) -> None:
        """Close the process's stdin, which ends it; kill it if that does not."""
        if self.process is not None:
            try:
                self.process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()
        if self.errors is not None:
            self.errors.close()


def environment(threads: int) -> dict[str, str]:
    libraries = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **{f"{name}_NUM_THREADS": str(threads) for name in libraries}, **quiet}


def benchmark(
    candidates: Sequence[Candidate], rounds: int, warmup: int = 1, ends: float = math.inf
) -> None:
    """Let all candidates play `warmup` rounds that do not count and `rounds` that do, in turn.

    One that fails is left out from then on. No round begins after the time `ends` of
    time.monotonic; then the candidates say how many were left out.
    """
    try:
        for candidate in candidates:
            candidate.launch()
        for candidate in candidates:
            candidate.facts = candidate.attempt(candidate.wait_until_ready) or {}
        for number in range(warmup + rounds):
            if monotonic() >= ends:
                left_out = f"{warmup + rounds - number} of {warmup + rounds} rounds left out"
                for candidate in candidates:
                    candidate.failed = candidate.failed or f"{left_out}: no time"
                break
            for candidate in candidates:
                answer = candidate.attempt(candidate.play)
                if answer is not None and number >= warmup:
                    candidate.rounds.append(answer)
            log.info("round %d of %d", number + 1, warmup + rounds)
    finally:
        for candidate in candidates:
            candidate.close()


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": median(values), "least": min(values), "most": max(values)}


def ratio(one: Candidate, baseline: Candidate | None) -> float | None:
    """How many times as fast as the baseline: the median over the rounds that both have played.

    A round is compared with the same round of the other, as the machine changes with time.
    """
    rates = zip(one.rates, baseline.rates if baseline else [], strict=False)
    ratios = [rate / other for rate, other in rates]
    return median(ratios) if ratios else None


def fastest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The candidate of the highest median rate; None if none ran."""
    ran = [c for c in candidates if c.rounds]
    return max(ran, key=lambda c: median(c.rates), default=None)
