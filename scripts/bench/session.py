"""One run of the bench: its options, and how it makes settings, files and candidates."""

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import torch

import nmt
from nmt.checks import preflight
from nmt.config.compose import experiment_of
from nmt.config.settings import Settings, freeze
from nmt.errors import UserError
from nmt.system.machine import processor
from nmt.system.resources import cores
from scripts.bench.rounds import Candidate

FIXED = (  # of every run that is measured
    *("data=toy", "trainer.tensorboard=false", "trainer.max_epochs=null"),
    *("trainer.max_steps=1000000000", "trainer.checkpoints_per_epoch=1"),
    "trainer.log_every=1000000000",  # a report resets the peak of a GPU's memory
)
TINY = ("model.dim=16", "model.feedforward_dim=32", "model.heads=2", "trainer.batch_tokens=400")


class Session(NamedTuple):
    """The options, directory, device and time that all parts of one bench share."""

    options: argparse.Namespace  # see scripts/bench/__main__.py
    directory: Path  # of files that live as long as the bench does
    device: str
    ends: float = math.inf  # when its time is over, on the clock of time.monotonic

    @property
    def is_over(self) -> bool:
        """Whether its time is over: what has not begun is left out."""
        return monotonic() >= self.ends

    @property
    def vocab(self) -> int:
        return 200 if self.options.quick else 8000

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

    def settings_or_reason(self, *overrides: str) -> Settings | str:
        """The settings, or the reason why they cannot be used here."""
        try:
            return self.settings(*overrides)
        except UserError as error:
            return str(error)

    def new_directory(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))

    def worker(
        self, name: str, kind: str, settings: Settings | str | None = None, **job: Any
    ) -> Candidate:
        """A worker of workers.py; if `settings` is a reason, one that cannot run."""
        if isinstance(settings, str):
            return Candidate(name, failed=settings)
        if settings is not None:
            job["settings"] = freeze(settings)
        argv = [sys.executable, "-m", "scripts.bench.workers", self.write_job(job | {"kind": kind})]
        return Candidate(name, argv, job.get("threads", self.options.threads), self.ends)

    def write_job(self, job: dict[str, Any]) -> str:
        path = self.new_directory("job") / "job.json"
        shared = {"threads": self.options.threads, "quick": self.options.quick}
        path.write_text(json.dumps({"device": self.device} | shared | job), encoding="utf-8")
        return str(path)

    def describe_machine(self) -> dict[str, Any]:
        on_gpu = self.device.startswith("cuda")
        return {
            "cpu": processor(),
            "cores": cores(),
            "load": list(os.getloadavg()),
            "threads": self.options.threads,
            "device": self.device,
            **({"gpu": torch.cuda.get_device_name(self.device)} if on_gpu else {}),
            "versions": {
                "nmt": nmt.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                **({"cuda": str(torch.version.cuda)} if on_gpu else {}),
            },
        }
