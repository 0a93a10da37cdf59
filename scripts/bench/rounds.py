"""Rounds taken in turn, A B C, A B C, so that a disturbed minute disturbs all candidates alike."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from time import monotonic
from typing import Any

from scripts.bench.candidates import Answer, Candidate, RunError

log = logging.getLogger(__name__)


@dataclass
class Measurement:
    """The rounds and figures of one candidate."""

    name: str
    facts: Answer = field(default_factory=dict)
    rounds: list[Answer] = field(default_factory=list)  # after the warm-up, in order
    failed: str | None = None  # why it is missing, or stopped
    figures: Answer = field(default_factory=dict)  # what a report says of it, by name

    @property
    def rates(self) -> list[float]:
        return [r["units"] / r["seconds"] for r in self.rounds]

    @property
    def seconds(self) -> list[float]:
        return [r["seconds"] for r in self.rounds]

    @property
    def memory(self) -> int | None:
        """The most bytes so far: of the GPU, if it computes there, else of the process."""
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


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": median(values), "least": min(values), "most": max(values)}


def middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def ratio(one: Measurement, baseline: Measurement | None) -> float | None:
    """How many times as fast as the baseline: the median over the rounds that both have played.

    Rounds are compared with the same round of the other, since the machine is not the same later.
    """
    rates = zip(one.rates, baseline.rates if baseline else [], strict=False)
    return middle([rate / other for rate, other in rates])


def fastest(measured: Sequence[Measurement]) -> Measurement | None:
    """The measurement of the highest median rate; None if no candidate ran."""
    ran = [m for m in measured if m.rounds]
    return max(ran, key=lambda m: median(m.rates), default=None)


def benchmark(
    rounds: int, *groups: Sequence[Candidate], warmup: int = 1, ends: float = math.inf
) -> list[list[Measurement]]:
    """Let all candidates play `warmup` rounds that do not count and `rounds` that do, in turn.

    One that fails is left out from then on, and its measurement, in its group's place, says why.
    No round begins after the time `ends` of time.monotonic; measurements say how many are left out.
    """
    measured = [[Measurement(candidate.name) for candidate in group] for group in groups]
    both = list(zip(chain(*groups), chain(*measured), strict=True))
    try:
        for candidate, _ in both:
            candidate.launch()
        for candidate, measurement in both:
            measurement.facts = ask(candidate.start, measurement) or {}
        for number in range(warmup + rounds):
            if monotonic() >= ends:
                left_out = f"{warmup + rounds - number} of {warmup + rounds} rounds left out"
                for _, measurement in both:
                    measurement.failed = measurement.failed or f"{left_out}: no time"
                break
            for candidate, measurement in both:
                answer = None if measurement.failed else ask(candidate.round, measurement)
                if answer is not None and number >= warmup:
                    measurement.rounds.append(answer)
            log.info("round %d of %d", number + 1, warmup + rounds)
    finally:
        for candidate, _ in both:
            candidate.close()
    return measured


def ask(play: Callable[[], Answer], measurement: Measurement) -> Answer | None:
    """What a candidate answers; where it fails, its measurement says why."""
    try:
        return play()
    except RunError as error:
        measurement.failed = str(error)
        log.info("%s: %s", measurement.name, error)
        return None
