"""A run directory: one config, one process at a time, and records that outlive a kill."""

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from nmt import atomic, config, manifest, modeldir
from nmt.errors import Exit, UserError
from nmt.train.checkpoint import Checkpoints, Saved
from nmt.train.schedule import schedule
from nmt.train.signals import Stop
from nmt.train.timetable import timetable
from nmt.train.workers import ALONE, Workers

CONFIG, STATUS, LOG, HOLDER = "config.json", "status.json", "train.log", ".holder"
MAY_DIFFER = (
    *("trainer.max_epochs", "trainer.max_steps", "trainer.threads", "trainer.log_every"),
    *("trainer.keep_checkpoints", "trainer.tensorboard", "data.workers"),
    *("trainer.gradient_checkpointing", "decode"),
)  # keys (and groups) that a resumed run may have otherwise; paths, too: see `differences`

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


class Run:
    """A run directory that this process holds; leave it as a context manager or by `close`."""

    def __init__(
        self,
        path: Path,
        checkpoints: Checkpoints,
        saved: Saved | None,
        workers: Workers,
        lock: FileLock | None,
    ) -> None:
        self.path, self.checkpoints, self.saved, self.workers = path, checkpoints, saved, workers
        self.step = saved.step if saved else 0  # as last reported
        self._lock = lock

    def finished(self, settings: config.Settings) -> Outcome | None:
        """Return the outcome if nothing is left to do; needs no data, changes no file."""
        if self.saved is None:
            return None
        plan = timetable(self.saved.state["batches"], settings.trainer)
        if self.saved.step < plan.last:
            return None
        return Outcome(self.saved.step, self.perplexity, already=True)

    @property
    def perplexity(self) -> float | None:
        """The best dev perplexity of the checkpoints that are kept."""
        return None if self.checkpoints.best is None else self.checkpoints.best[0]

    def report(self, state: str, step: int, **more: Any) -> None:
        """Say in status.json how the run is: running, finished, stopped or failed."""
        self.step = step
        found = {"state": state, "step": step, "pid": os.getpid(), "host": socket.gethostname()}
        atomic.replace(self.path / STATUS, manifest.dump({**found, **more}))

    @contextmanager
    def records(self, settings: config.Settings) -> Iterator[None]:
        """Write config.json and, meanwhile, train.log; say in status.json if training fails."""
        frozen = manifest.dump(config.freeze(settings))
        where = self.path / CONFIG
        if not where.exists() or where.read_bytes() != frozen:
            atomic.replace(where, frozen)
        handler = logging.FileHandler(self.path / LOG, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logging.getLogger("nmt").addHandler(handler)
        try:
            yield
        except BaseException as error:
            log.error("failed: %s", error)
            code = error.code if isinstance(error, UserError) else 1
            # a full disk must not hide why training failed, and torchrun, which asks all workers
            # to stop when one has failed, must not keep it from the record
            with suppress(OSError), Stop():
                self.report("failed", self.step, code=int(code), message=str(error))
            raise
        finally:
            logging.getLogger("nmt").removeHandler(handler)
            handler.close()

    def close(self) -> None:
        """Let others have the directory."""
        if self._lock is not None:
            (self.path / HOLDER).unlink(missing_ok=True)
            self._lock.release()

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
            self.workers.barrier()  # where one worker ends, torchrun stops those that still write


class Visited(Run):
    """A run directory that worker 0 holds, as the other workers see it: they write nothing."""

    def report(self, state: str, step: int, **more: Any) -> None:
        """Do nothing: worker 0 reports."""

    @contextmanager
    def records(self, settings: config.Settings) -> Iterator[None]:
        """Do nothing: worker 0 records."""
        yield


def open_run(path: Path, settings: config.Settings, workers: Workers = ALONE) -> Run:
    """Make or take over a run directory, before any data is touched.

    With several workers, worker 0 does so, and the others see what it found.

    Raises UserError: exit 2 if it was trained with another config, or the config cannot be; 65
    if none of its checkpoints is intact; 73 if it cannot be written, is in use, or is no run.
    """
    schedule(settings.optim)  # these four refuse what they cannot serve
    workers.device(settings.trainer.device)
    workers.check(settings.trainer)
    timetable(1, settings.trainer)
    checkpoints = Checkpoints(path, settings.trainer.keep_checkpoints)
    if workers.rank:
        found = workers.hear()
        saved = None if found is None else Saved(checkpoints.directory / found[0], found[1])
        return Visited(path, checkpoints, saved, workers, None)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; choose another name=", Exit.CANT_CREATE
        ) from None
    try:
        _compare(path, settings)
        saved = checkpoints.recover()
        workers.tell(None if saved is None else [saved.path.name, saved.state])
        return Run(path, checkpoints, saved, workers, lock)
    except BaseException:
        (path / HOLDER).unlink(missing_ok=True)
        lock.release()
        raise


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """List what differs between two plain configs as `key: old -> new`, allowed keys left out.

    Paths may differ: the fingerprint of the data is compared instead.
    """
    before, after = dict(_flat(old)), dict(_flat(new))
    before["encoding"], after["encoding"] = (
        list(each.get("encoding") or ()) for each in (old, new)
    )
    return [
        f"{key}: {_show(before, key)} -> {_show(after, key)}"
        for key in sorted(set(before) | set(after))
        if before.get(key, ...) != after.get(key, ...)
        and key not in MAY_DIFFER
        and key.split(".")[0] not in MAY_DIFFER
        and not modeldir.is_path(key)
    ]


def _locked(path: Path) -> FileLock:
    lock = FileLock(path / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        try:
            holder = (path / HOLDER).read_bytes().decode("utf-8", "replace").strip()
        except OSError:
            holder = "another process"
        raise UserError(f"{path}: in use by {holder}; wait, or stop it", Exit.CANT_CREATE) from None
    (path / HOLDER).write_bytes(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return lock


def _compare(path: Path, settings: config.Settings) -> None:
    where = path / CONFIG
    if not where.exists():
        others = sorted(p.name for p in path.iterdir() if not p.name.startswith("."))
        if strange := [name for name in others if name not in (LOG, STATUS, "checkpoints")]:
            raise UserError(
                f"{path}: holds {strange[0]} but no {CONFIG}: it is no run; choose another name=",
                Exit.CANT_CREATE,
            )
        if (path / "checkpoints").is_dir() and modeldir.checkpoints(path / "checkpoints"):
            raise UserError(f"{where}: missing beside checkpoints; choose another name=", Exit.DATA)
        return
    old = manifest.parse(where.read_bytes(), where)
    if not isinstance(old, dict):
        raise UserError(f"{where}: expected a JSON object", Exit.DATA)
    if changes := differences(old, config.freeze(settings)):
        raise UserError(f"{where}: another config: {', '.join(changes)}; choose another name=")


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _show(values: dict[str, Any], key: str) -> str:
    value = values.get(key, ...)
    return "absent" if value is ... else value if isinstance(value, str) else json.dumps(value)
