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
from nmt.config.compose import experiment_of
from nmt.config.settings import Settings, freeze
from nmt.errors import UserError
from scripts.bench.candidates import Candidate, Command, Worker
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

    directory: Path  # of files that live as long as the bench does
    threads: int  # of each candidate
    device: str
    rounds: int
    quick: bool  # tiny sizes, to see that it runs
    peers: str | None  # a Python, or the directory of their environments; None: no peers
    chosen: list[str] | None  # which of the peers; None: all
    steady: bool  # decoding in running processes alone
    model: str  # NAME of model=NAME, where no override chooses one
    overrides: list[str]
    precisions: list[str]  # of training
    encodings: list[str] | None  # None: all that there are
    ends: float = math.inf  # when its time is over, on the clock of time.monotonic

    @classmethod
    def of(cls, options: argparse.Namespace, directory: Path, device: str) -> "Session":
        """That of the command line."""
        return cls(
            directory=directory,
            threads=options.threads,
            device=device,
            rounds=options.rounds,
            quick=options.quick,
            peers=None if options.peers == "none" else options.peers,
            chosen=options.peer,
            steady=options.steady,
            model=options.model,
            overrides=options.overrides,
            precisions=options.precision.split(","),
            encodings=options.encodings.split(",") if options.encodings else None,
        )

    @property
    def is_over(self) -> bool:
        """Whether its time is over: what has not begun is left out."""
        return monotonic() >= self.ends

    def within(self, seconds: float) -> "Session":
        """The same with so much time from now."""
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
        """Pieces of a vocabulary, where it does not grow."""
        return 200 if self.quick else 8000

    def settings(self, *overrides: str) -> Settings:
        """The settings that nmt-train would use with the overrides, for `threads` threads."""
        chosen = [*self.overrides, *overrides]
        model = () if any(o.startswith("model=") for o in chosen) else (f"model={self.model}",)
        place = f"trainer.device={self.device}", f"trainer.threads={self.threads}"
        settings = experiment_of(
            [*place, *model, *FIXED, *(TINY if self.quick else ()), *chosen]
        ).settings
        preflight.check(settings)
        return settings

    def attempt(self, *overrides: str) -> Settings | str:
        """Settings, or why there are none: others may still be measured."""
        try:
            return self.settings(*overrides)
        except UserError as error:
            return str(error)

    def place(self, name: str) -> Path:
        """A new directory, empty."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))

    def worker(
        self, name: str, module: str, settings: Settings | str | None = None, **job: Any
    ) -> Candidate:
        """A worker beside this file; where `settings` is a reason, one that cannot run."""
        if isinstance(settings, str):
            return Candidate(name, settings)
        if settings is not None:
            job["settings"] = freeze(settings)
        argv = [sys.executable, "-m", f"scripts.bench.{module}", self._job(job)]
        return Worker(name, argv, job.get("threads", self.threads), ends=self.ends)

    def peer(
        self,
        peer: str,
        precision: str,
        settings: Settings,
        units: int | None = None,
        **job: Any,
    ) -> Candidate:
        """Another library with a model of the same size; absent where it is not installed.

        With `units`, its whole process for each round, which makes so many of them.
        """
        name, python = f"{peer} {precision}", self._python(peer)
        if python is None:
            place = self.peers or "DIR"
            return Candidate(name, f"not installed; the argument peers {place} installs it")
        job |= {"precision": precision, "model": asdict(settings.model), "vocab": self.vocab}
        job |= {"longest": LONGEST + 28, "once": units is not None}
        argv = [str(python), str(PEERS / f"{peer}.py"), self._job(job)]
        if units is None:
            return Worker(name, argv, self.threads, ends=self.ends)
        return Command(name, argv, self.threads, units, ends=self.ends)

    def peers_among(self, names: Iterable[str]) -> list[str]:
        """Those of some peers that are to be measured."""
        if self.peers is None:
            return []
        return [n for n in names if self.chosen is None or n.rstrip("_") in self.chosen]

    def _python(self, peer: str) -> Path | None:
        """The Python of a peer's environment below a directory, or the one that `peers` names."""
        if self.peers is None:
            return None
        given = Path(self.peers)
        python = given / peer / "bin" / "python" if given.is_dir() else given
        return python if python.exists() else None

    def _job(self, job: dict[str, Any]) -> str:
        """Write what a worker is asked to do; returns the file's name for its argv."""
        path = self.place("job") / "job.json"
        job = {"threads": self.threads, "device": self.device, "quick": self.quick} | job
        path.write_text(json.dumps(job), encoding="utf-8")
        return str(path)
