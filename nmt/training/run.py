"""A run directory: one config, one process at a time, and records that outlive a kill.

How far a run has come follows from its checkpoints and config.json. Of all else, as status.json,
it is a record for people and scripts that nothing here relies on: see `nmt.training.records`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any, NamedTuple

from nmt import config, modeldir
from nmt.errors import Exit, UserError, exit_code
from nmt.storage import atomic, manifest, modelpath
from nmt.training.checkpoint import Checkpoints, Saved, newest
from nmt.training.directory import CONFIG, LOG, STATUS, has_checkpoints, held
from nmt.training.distributed import SINGLE, World
from nmt.training.records import Record, log_file
from nmt.training.run_config import read_config, refuse_other_config
from nmt.training.signals import stop_signals
from nmt.training.timetable import timetable

log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """How a run ended."""

    step: int
    perplexity: float | None  # the best on the dev set
    already_finished: bool = False  # it was finished before, and nothing was done
    signal: Signals | None = None  # what stopped it

    @property
    def code(self) -> Exit:
        """The exit code: 0, or 128 + the signal's number."""
        return Exit.OK if self.signal is None else Exit(128 + self.signal)

    def __str__(self) -> str:
        """Say in one line what to tell the user."""
        if self.signal is not None:
            return (
                f"stopped by {self.signal.name} at step {self.step}, saved; "
                "resume with the same command"
            )
        best = "" if self.perplexity is None else f", best dev perplexity {self.perplexity:.4g}"
        return f"{'already ' if self.already_finished else ''}finished at step {self.step}{best}"


@dataclass
class Run:
    """A run directory that this process has locked."""

    path: Path
    settings: config.Settings
    world: World
    checkpoints: Checkpoints
    saved: Saved | None  # the newest checkpoint, from which training is resumed
    elsewhere: str = "name="  # the option that names another directory

    def __post_init__(self) -> None:
        self.step = self.saved.step if self.saved else 0  # as last reported
        self.begun = False  # training began in this process
        self._status = Record(self.path / STATUS)

    @property
    def finished(self) -> bool:
        """Whether all updates were made, on this corpus or another."""
        return self.saved is not None and self.saved.step >= _last(self.saved, self.settings)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to resume from, and so the name belongs to this config."""
        return bool(modelpath.checkpoints(self.checkpoints.directory))

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

        They were read before the first step, so a start that is gone is no obstacle.
        """
        start = self.settings.trainer.init_from
        if start is None:
            return
        try:
            same = modeldir.weights_sha256(start) == saved.state.get("start")
        except UserError:
            log.warning("trainer.init_from=%s: cannot be read any more; nor need it be", start)
            return
        if not same:
            raise UserError(
                f"{saved.path}: started from other weights than those of "
                f"trainer.init_from={start} now; restore them, or choose another {self.elsewhere}",
                Exit.DATA,
            )

    def begin(self, step: int) -> None:
        """Record that training goes on from a step."""
        self.begun = True
        self._write_config()
        self.report("running", step)

    def outcome(self, signal: Signals | None = None) -> Outcome:
        """How the run stands at the step that was last reported."""
        best = self.checkpoints.best
        return Outcome(self.step, None if best is None else best[0], not self.begun, signal)

    def end(self, step: int, signal: Signals | None = None) -> Outcome:
        """Record that the run is finished, or was stopped by a signal."""
        self._write_config()  # its budget may have been changed to less than was trained
        state, self.step = "finished" if signal is None else "stopped", step
        outcome = self.outcome(signal)
        self.report(state, step, code=int(outcome.code))
        return outcome

    def report(self, state: str, step: int, **more: Any) -> None:
        """Write status.json, a hint: running, finished, stopped or failed; rank 0 alone does.

        After a kill it still says "running".
        """
        self.step = step
        if not self.world.rank:
            self._status.replace(manifest.dump({"state": state, "step": step, **more}))

    def _write_config(self) -> None:
        where, data = self.path / CONFIG, manifest.dump(config.freeze(self.settings))
        if not self.world.rank and not (where.exists() and where.read_bytes() == data):
            atomic.replace(where, data)

    @contextmanager
    def records(self) -> Iterator[None]:
        """Write train.log in this context; say in status.json if training fails."""
        if self.world.rank:
            yield
            return
        with log_file(self.path / LOG):
            try:
                yield
            except BaseException as error:
                log.error("failed: %s", error)
                if self.begun:
                    code, message = int(exit_code(error)), str(error)
                    with stop_signals():  # torchrun sends one to all ranks when one has failed
                        self.report("failed", self.step, code=code, message=message)
                raise


@contextmanager
def open_run(
    path: Path, settings: config.Settings, world: World = SINGLE, elsewhere: str = "name="
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
    checkpoints = Checkpoints(path, settings.trainer.keep_checkpoints)
    with nullcontext() if world.rank else held(path, elsewhere):
        if not world.rank and has_checkpoints(path):
            refuse_other_config(path, settings, elsewhere)
        saved = world.broadcast(checkpoints.recover)
        yield Run(path, settings, world, checkpoints, saved, elsewhere)
    world.barrier()  # where a rank is stopped, torchrun ends the others: not before all is written


def progress(path: Path) -> tuple[int, int]:
    """Return a run's newest step and its final one; asks for no lock and changes nothing.

    Raises UserError (exit 65) for a directory that is no run, or has no intact checkpoint yet.
    """
    settings, saved = read_config(path), newest(path)
    if saved is None:
        raise UserError(f"{path}: no checkpoint yet; train it to the end first", Exit.DATA)
    return saved.step, _last(saved, settings)


def _last(saved: Saved, settings: config.Settings) -> int:
    """The final step of a run."""
    return timetable(saved.state["batches"], settings.trainer).last
