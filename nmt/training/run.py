"""A run directory: one config, one process at a time, and records that outlive a kill.

How far a run has come follows from its checkpoints and config.json. Of all else, as status.json,
it is a record for people and scripts that nothing here relies on: see `nmt.training.records`.
"""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import Any, NamedTuple

from filelock import FileLock

from nmt import config, modeldir
from nmt.errors import Exit, UserError, exit_code
from nmt.storage import atomic, manifest, modelpath
from nmt.training.checkpoint import Checkpoints, Saved, newest
from nmt.training.directory import (
    CONFIG,
    HOLDER,
    LOG,
    STATUS,
    check,
    failed_only,
    locked,
    refuse_others,
)
from nmt.training.distributed import SINGLE, World
from nmt.training.records import LogFile, Record
from nmt.training.signals import Stop
from nmt.training.timetable import timetable

log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """How a run ended."""

    step: int
    perplexity: float | None  # the best on the dev set
    already: bool = False  # it was finished before, and nothing was done
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
        return f"{'already ' if self.already else ''}finished at step {self.step}{best}"


class Standing(NamedTuple):
    """How far a run has come."""

    step: int  # of its newest intact checkpoint
    last: int  # the final step

    @property
    def finished(self) -> bool:
        """Whether its whole budget is spent."""
        return self.step >= self.last


class Run:
    """A run directory that this process holds; leave it as a context manager or by `close`."""

    def __init__(
        self,
        path: Path,
        checkpoints: Checkpoints,
        saved: Saved | None,
        world: World,
        lock: FileLock | None,
        elsewhere: str = "name=",
        new: Path | None = None,
    ) -> None:
        self.path, self.checkpoints, self.saved, self.world = path, checkpoints, saved, world
        self.elsewhere = elsewhere  # the option that names another directory
        self.new = new  # the topmost directory that was made for it; None: it was there
        self.step = saved.step if saved else 0  # as last reported
        self.begun = False  # training goes on in this process
        self.status = Record(path / STATUS)
        self._lock = lock

    def finished(self, settings: config.Settings, fingerprint: Callable[[], str]) -> Outcome | None:
        """Return the outcome if nothing is left to do, and then say so in status.json.

        Only then `fingerprint` is called, which gives that of the corpus, since it may read all
        text. Raises what it does, and UserError (65) if the run was trained on another corpus.
        """
        if (outcome := self.trained(settings)) is not None:
            self.refuse_other_data(settings, fingerprint())
            self.refuse_other_start(settings)
            self._keep(CONFIG, config.freeze(settings))
            self.report("finished", outcome.step, code=int(Exit.OK))
        return outcome

    def trained(self, settings: config.Settings) -> Outcome | None:
        """Return the outcome if all updates are made, on whatever corpus; changes no file."""
        if self.saved is None:
            return None
        plan = timetable(self.saved.state["batches"], settings.trainer)
        if self.saved.step < plan.last:
            return None
        return Outcome(self.saved.step, self.perplexity, already=True)

    def refuse_other_data(self, settings: config.Settings, fingerprint: str) -> None:
        """Raise UserError (65) unless the newest checkpoint was trained on this very corpus."""
        if self.saved is not None and self.saved.state["fingerprint"] != fingerprint:
            raise UserError(
                f"{self.saved.path}: trained on other data than that of data={settings.data.name} "
                f"now; restore the data, or choose another {self.elsewhere}",
                Exit.DATA,
            )

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to go on from, and so the name belongs to this config."""
        return bool(modelpath.checkpoints(self.checkpoints.directory))

    def refuse_other_start(self, settings: config.Settings) -> None:
        """Raise UserError (65) if trainer.init_from has other weights than the run started from.

        They were read before the first step, so a start that is gone is no obstacle.
        """
        start = settings.trainer.init_from
        if self.saved is None or start is None:
            return
        try:
            same = modeldir.weights_sum(start) == self.saved.state.get("start")
        except UserError:
            log.warning("trainer.init_from=%s: cannot be read any more; nor need it be", start)
            return
        if not same:
            raise UserError(
                f"{self.saved.path}: started from other weights than those of "
                f"trainer.init_from={start} now; restore them, or choose another {self.elsewhere}",
                Exit.DATA,
            )

    @property
    def perplexity(self) -> float | None:
        """The best dev perplexity of the checkpoints that are kept."""
        return None if self.checkpoints.best is None else self.checkpoints.best[0]

    def begin(self, settings: config.Settings, step: int) -> None:
        """Put on record that nothing was refused, and training goes on from a step."""
        self.begun = True
        self._keep(CONFIG, config.freeze(settings))
        self.report("running", step)

    def report(self, state: str, step: int, **more: Any) -> None:
        """Say in status.json how the run is, a hint: running, finished, stopped or failed.

        After a kill it still says "running".
        """
        self.step = step
        with self.status.written():
            self.status.make_way()
            self._keep(STATUS, {"state": state, "step": step, **more})

    def _keep(self, name: str, values: dict[str, Any]) -> None:
        """Write a JSON file unless it holds the same; of several ranks only the first."""
        where, data = self.path / name, manifest.dump(values)
        if not self.world.rank and not (where.exists() and where.read_bytes() == data):
            atomic.replace(where, data)

    @contextmanager
    def records(self) -> Iterator[None]:
        """Write train.log meanwhile; say in status.json if training fails.

        A continuation that is refused before it begins leaves the run as it was.
        """
        if self.world.rank:
            yield
            return
        handler: logging.Handler = logging.NullHandler()
        with Record(self.path / LOG).written():
            handler = LogFile(self.path / LOG)
        logging.getLogger("nmt").addHandler(handler)
        try:
            yield
        except BaseException as error:
            log.error("failed: %s", error)
            # torchrun asks all ranks to stop when one has failed, and must not keep why from here
            if self.begun or self.saved is None:
                with Stop():
                    code, message = int(exit_code(error)), str(error)
                    self.report("failed", self.step, code=code, message=message)
            raise
        finally:
            logging.getLogger("nmt").removeHandler(handler)
            handler.close()

    def close(self) -> None:
        """Let others have the directory."""
        if self._lock is not None:
            _leave(self.path, self._lock, None if self.begun else self.new)

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()
        if error is None:
            self.world.barrier()  # where a rank is stopped, torchrun ends the others


def open_run(
    path: Path, settings: config.Settings, world: World = SINGLE, elsewhere: str = "name="
) -> Run:
    """Make or take over a run directory, before any data is touched.

    With several ranks, rank 0 does so, and the others see the same. `elsewhere` is the
    option that names another directory: what an error advises.

    Until there is a checkpoint, any config may take it over. Raises UserError: exit 2 if it was
    trained with another config, or the config cannot be; 65 if none of its checkpoints is intact;
    73 if it cannot be written, is in use, or holds other things than a run.
    """
    world.device(settings.trainer.device)  # these two refuse what they cannot serve
    world.check(settings.trainer)
    checkpoints = Checkpoints(path, settings.trainer.keep_checkpoints)
    if world.rank:
        saved = world.broadcast(checkpoints.recover)
        return Run(path, checkpoints, saved, world, None, elsewhere)
    try:
        new = next((p for p in reversed([path, *path.parents]) if not p.exists()), None)
        path.mkdir(parents=True, exist_ok=True)
        refuse_others(path, elsewhere)
        lock = locked(path)
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; choose another {elsewhere}", Exit.CANT_CREATE
        ) from None
    try:
        check(path, settings, elsewhere)
        saved = world.broadcast(checkpoints.recover)
        return Run(path, checkpoints, saved, world, lock, elsewhere, new)
    except BaseException:
        _leave(path, lock, new)
        raise


def _leave(path: Path, lock: FileLock, new: Path | None) -> None:
    """Let others have a run directory.

    One that was made for a run which was not to be goes, with those above it from `new` on.
    """
    with suppress(OSError):
        (path / HOLDER).unlink(missing_ok=True)
        if new is not None and failed_only(path):
            shutil.rmtree(path)
            while path != new:
                path = path.parent
                path.rmdir()
    lock.release()


def standing(path: Path) -> Standing:
    """Say how far the run of a directory has come; asks for no lock and changes nothing.

    Raises UserError (exit 65) for a directory that is no run, or has no intact checkpoint yet.
    """
    if not (path / CONFIG).is_file():
        raise UserError(
            f"{path}: no run (it has no {CONFIG}); name a directory of nmt-train", Exit.DATA
        )
    saved = newest(path)
    if saved is None:
        raise UserError(f"{path}: no checkpoint yet; train it to the end first", Exit.DATA)
    reached = _reached(path, saved)
    if reached is None:
        raise UserError(f"{path / CONFIG}: no config of this version of nmt", Exit.DATA)
    return reached


def _reached(path: Path, saved: Saved) -> Standing | None:
    """How far a run has come by its own config.json; None where that cannot be read."""
    try:
        trainer = config.thaw(manifest.read(path / CONFIG)).trainer
    except UserError:
        return None
    return Standing(saved.step, timetable(saved.state["batches"], trainer).last)
