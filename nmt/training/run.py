"""A run directory: one config, one process at a time, and records that outlive a kill.

How far a run has come follows from its checkpoints and config.json.
"""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any, NamedTuple

from nmt import modeldir
from nmt.config.settings import Settings, freeze, thaw
from nmt.errors import Exit, UserError
from nmt.storage import atomic, manifest
from nmt.training.checkpoint import DIRECTORY, Checkpoints, Saved, newest
from nmt.training.directory import CONFIG, config_is_settled, held
from nmt.training.distributed import SINGLE, World
from nmt.training.early_stopping import EarlyStopping
from nmt.training.reports import LOG, log_file
from nmt.training.run_config import differences, read_config
from nmt.training.timetable import is_over, last_step

log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """How a run ended."""

    step: int
    best: float | None  # the best score on the development text; None: none has been measured
    metric: str = "perplexity"  # of that score, or bleu, or chrf: trainer.dev_metric
    already_finished: bool = False  # it was finished before, and nothing was done
    code: Exit = Exit.OK  # else why it was stopped: 75, or 128 and the number of a signal
    early: bool = False  # it was finished by trainer.early_stopping

    def __str__(self) -> str:
        """Say in one line what to tell the user."""
        if self.code != Exit.OK:
            in_time = self.code != Exit.OUT_OF_TIME
            by = Signals(self.code - 128).name if in_time else "trainer.max_hours"
            return f"stopped by {by} at step {self.step}, saved; resume with the same command"
        finished = f"{'already ' if self.already_finished else ''}finished at step {self.step}"
        early = ", by trainer.early_stopping" if self.early else ""
        best = "" if self.best is None else f", best dev {self.metric} {self.best:.4g}"
        return f"{finished}{early}{best}"


@dataclass
class Run:
    """A run directory that this process has locked."""

    path: Path
    settings: Settings
    world: World
    checkpoints: Checkpoints
    saved: Saved | None  # the newest checkpoint, from which training is resumed
    elsewhere: str = "name="  # the option that names another directory

    def __post_init__(self) -> None:
        self.step = self.saved.step if self.saved else 0  # at the begin or the end of this process
        self.begun = False  # training began in this process
        self._opened = time.monotonic()

    @property
    def finished(self) -> bool:
        """Whether all updates were made, on this corpus or another."""
        return self.saved is not None and _is_finished(self.saved, self.settings)

    def seconds_left(self) -> float:
        """Until trainer.max_hours are over, counted from the opening of the run."""
        hours = self.settings.trainer.max_hours
        return math.inf if hours is None else hours * 3600 - (time.monotonic() - self._opened)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to resume from, and so the name belongs to this config."""
        return bool(modeldir.checkpoints(self.checkpoints.directory))

    def refuse_other_data(self, fingerprint: str) -> None:
        """Raise UserError (65) if the run was trained on another corpus, or started otherwise."""
        if self.saved is None:
            return
        if self.saved.state["fingerprint"] != fingerprint:
            raise UserError(
                f"{self.saved.path}: trained on other data than that of "
                f"data={self.settings.data.name} now; restore the data, "
                f"or choose another {self.elsewhere}",
                Exit.DATA,
            )
        self._refuse_other_start(self.saved)

    def _refuse_other_start(self, saved: Saved) -> None:
        """Raise UserError (65) if trainer.init_from has other weights than the run started from.

        They were read before the first step, so a start that is gone is no obstacle, nor is a run
        that has another best checkpoint since.
        """
        start = self.settings.trainer.init_from
        try:
            if start is None or modeldir.weights_sha256(start) == saved.state.get("start"):
                return
            is_parent = _is_of_run(Path(start), saved.state.get("parent"))
        except UserError:
            log.warning("trainer.init_from=%s: cannot be read any more; nor need it be", start)
            return
        if not is_parent:
            raise UserError(
                f"{saved.path}: started from other weights than those of "
                f"trainer.init_from={start} now; restore them, or choose another {self.elsewhere}",
                Exit.DATA,
            )
        log.warning("trainer.init_from=%s: its best model is another than at the start", start)

    def begin(self, step: int) -> None:
        """Record that training goes on from a step."""
        self.begun, self.step = True, step
        self._write_config()

    def outcome(self, code: Exit = Exit.OK, early: bool = False) -> Outcome:
        """How the run stands at the step that was last reported."""
        best, metric = self.checkpoints.best, self.settings.trainer.dev_metric
        score = None if best is None else abs(best[0])  # the cost of a BLEU is its negative
        if self.saved is not None and not self.begun:  # finished before
            early = not is_over(self.step, self.saved.place, self.settings.trainer)
        return Outcome(self.step, score, metric, not self.begun, code, early)

    def end(self, step: int, code: Exit = Exit.OK, early: bool = False) -> Outcome:
        """Record that the run is finished, perhaps early, or was stopped, which `code` says."""
        self._write_config()  # its budget may have been changed to less than was trained
        self.step = step
        return self.outcome(code, early)

    def _write_config(self) -> None:
        where, data = self.path / CONFIG, manifest.dump(freeze(self.settings))
        if not self.world.rank and not (where.exists() and where.read_bytes() == data):
            atomic.replace(where, data)

    @contextmanager
    def records(self) -> Iterator[None]:
        """Write train.log in this context, with the error that ends it."""
        with nullcontext() if self.world.rank else log_file(self.path / LOG):
            try:
                yield
            except BaseException as error:
                log.error("failed: %s", error)
                raise


@contextmanager
def open_run(
    path: Path, settings: Settings, world: World = SINGLE, elsewhere: str = "name="
) -> Iterator[Run]:
    """Make or take over a run directory, before any data is touched.

    With several ranks, rank 0 does so, and the others see the same. `elsewhere` is the option that
    names another directory: what an error advises.

    Until there is a checkpoint, any config may take it over. Raises UserError: exit 2 if it was
    trained with another config, or the config cannot be; 65 if none of its checkpoints is intact;
    73 if it cannot be written, is in use, or holds other things than a run.
    """
    world.device(settings.trainer.device)  # these two refuse what they cannot serve
    world.check(settings.trainer)
    trainer = settings.trainer
    checkpoints = Checkpoints(path, trainer.keep_checkpoints, trainer.keep_best)
    with nullcontext() if world.rank else held(path, elsewhere):
        if not world.rank and config_is_settled(path):
            then, now = freeze(read_config(path)), freeze(settings)
            if changes := ", ".join(differences(then, now)):
                raise UserError(
                    f"{path / CONFIG}: another config: {changes}; choose another {elsewhere}"
                )
        saved = world.broadcast(checkpoints.recover)
        yield Run(path, settings, world, checkpoints, saved, elsewhere)
    world.barrier()  # where a rank is stopped, torchrun ends the others: not before all is written


def _is_of_run(path: Path, parent: dict[str, Any] | None) -> bool:
    """Whether a path is the run of which a parent was a model, as `surgery.origin_of` describes."""
    if parent is None or not (path / DIRECTORY).is_dir():
        return False
    config_then = freeze(thaw(parent["config"]))
    same_data = modeldir.read_facts(path).get("fingerprint") == parent["fingerprint"]
    return same_data and not differences(config_then, freeze(modeldir.read_settings(path)))


def progress(path: Path) -> tuple[int, int]:
    """Return a run's newest step and, about, its final one; asks for no lock and changes nothing.

    Raises UserError (exit 65) for a directory that is no run, or has no intact checkpoint yet.
    """
    settings, saved = read_config(path), newest(path)
    if saved is None:
        raise UserError(f"{path}: no checkpoint yet; train it to the end first", Exit.DATA)
    if _is_finished(saved, settings):
        return saved.step, saved.step
    return saved.step, max(saved.step + 1, last_step(saved.state["updates"], settings.trainer))


def _is_finished(saved: Saved, settings: Settings) -> bool:
    """Whether a run made all its updates, or was ended early."""
    stopping = EarlyStopping(settings.trainer.early_stopping, saved.state.get("early_stopping"))
    return stopping.is_over or is_over(saved.step, saved.place, settings.trainer)
