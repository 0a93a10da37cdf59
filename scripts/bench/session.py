"""One run of the bench: its options, and how it makes settings, files and candidates."""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from nmt.checks import preflight
from nmt.config.catalog import folders_in, options_of
from nmt.config.compose import experiment_of
from nmt.config.hydra_conf import parse
from nmt.config.settings import Settings, freeze
from nmt.errors import UserError
from scripts.bench.candidates import Candidate, Worker
from scripts.bench.corpus import LONGEST

PEERS = Path(__file__).parent / "peers"
FIXED = (  # of every run that is measured
    *("data=toy", "trainer.tensorboard=false", "trainer.max_epochs=null"),
    *("trainer.max_steps=1000000000", "trainer.checkpoints_per_epoch=1"),
    "trainer.log_every=1000000000",  # a report would begin the peak of a GPU's memory anew
)
TINY = ("model.dim=16", "model.feedforward_dim=32", "model.heads=2", "trainer.batch_tokens=400")


class Session(NamedTuple):
    """What all parts of one bench share."""

    options: argparse.Namespace  # see scripts/bench/__main__.py
    directory: Path  # of files that live as long as the bench does
    device: str
    ends: float = math.inf  # when its time is over, on the clock of time.monotonic

    @property
    def is_over(self) -> bool:
        """Whether its time is over: what has not begun is left out."""
        return monotonic() >= self.ends

    def within(self, seconds: float) -> "Session":
        return self._replace(ends=monotonic() + seconds)

    def shares(self, count: int) -> Iterator["Session"]:
        """The same for each of `count` parts, with an equal share of the time that is left then.

        So a part that needs less leaves more to those after it, and one that needs more has no
        other's time.
        """
        for parts in range(count, 0, -1):
            yield self.within((self.ends - monotonic()) / parts)

    @property
    def vocab(self) -> int:
        return 200 if self.options.quick else 8000

    def encodings(self) -> list[str]:
        every = options_of("encoding", folders_in(parse(self.options.overrides)))
        return self.options.encodings or every

    def settings(self, *overrides: str) -> Settings:
        """The settings that nmt-train would use with the overrides, for `threads` threads."""
        typed = self.options.overrides
        device = f"trainer.device={self.device}", f"trainer.threads={self.options.threads}"
        tiny = TINY if self.options.quick else ()
        words = [*device, f"model={self.options.model}", *FIXED, *tiny, *typed, *overrides]
        if any(word.startswith("model=") for word in (*typed, *overrides)):
            words.remove(f"model={self.options.model}")
        settings = experiment_of(words).settings
        preflight.check(settings)
        return settings

    def attempt(self, *overrides: str) -> Settings | str:
        try:
            return self.settings(*overrides)
        except UserError as error:
            return str(error)

    def new_directory(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))

    def worker(
        self, name: str, kind: str, settings: Settings | str | None = None, **job: Any
    ) -> Candidate:
        """A worker of workers.py; where `settings` is a reason, one that cannot run."""
        if isinstance(settings, str):
            return Candidate(name, settings)
        if settings is not None:
            job["settings"] = freeze(settings)
        argv = [sys.executable, "-m", "scripts.bench.workers", self.write_job(job | {"kind": kind})]
        return Worker(name, argv, job.get("threads", self.options.threads), self.ends)

    def peer(self, peer: str, precision: str, settings: Settings, **job: Any) -> Candidate:
        """Another library with a model of the same size; absent where it is not installed."""
        name, given = f"{peer} {precision}", Path(self.options.peers)
        python = given / peer / "bin" / "python" if given.is_dir() else given
        if not python.exists():
            return Candidate(name, f"not installed; the argument peers {given} installs it")
        job |= {"precision": precision, "model": asdict(settings.model), "vocab": self.vocab}
        argv = [
            str(python),
            str(PEERS / f"{peer}.py"),
            self.write_job(job | {"longest": LONGEST + 28}),
        ]
        return Worker(name, argv, self.options.threads, self.ends)

    def choose_peers(self, names: Iterable[str]) -> list[str]:
        if self.options.peers == "none":
            return []
        chosen = self.options.peer
        return [name for name in names if chosen is None or name.rstrip("_") in chosen]

    def write_job(self, job: dict[str, Any]) -> str:
        path = self.new_directory("job") / "job.json"
        shared = {"threads": self.options.threads, "quick": self.options.quick}
        path.write_text(json.dumps({"device": self.device} | shared | job), encoding="utf-8")
        return str(path)
