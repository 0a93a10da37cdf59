"""A run's checkpoints: written whole, verified before use, the best and the newest kept.

What counts is the newest checkpoint that passes verification; the file `best` is a hint, which is
corrected at every start.
"""

import errno
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from nmt import modeldir
from nmt.config.settings import Training
from nmt.errors import Exit, UserError
from nmt.system import atomic, manifest
from nmt.system.manifest import OtherFormatError, VerifiedDirectory
from nmt.training.reports import warn_of_errors, write_hint
from nmt.training.schedule import DataCursor, is_finished

OPTIMIZER, STATE = "optim.safetensors", "state.json"
RAW = "raw.safetensors"  # with trainer.ema: the weights that training goes on from
CORRUPT = "corrupt."  # before the name of a damaged checkpoint
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # there may be room again later
MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # of each parameter, in the state of Adam

log = logging.getLogger(__name__)


class Saved(NamedTuple):
    """A verified checkpoint."""

    path: Path
    state: dict[str, Any]  # state.json

    @property
    def step(self) -> int:
        return int(self.state["step"])

    @property
    def cursor(self) -> DataCursor:
        """Where the next update begins in the data."""
        return DataCursor(*self.state["cursor"])

    @property
    def cost(self) -> list[float] | None:
        """[dev perplexity], or [-BLEU or -chrF, dev perplexity]; the lower, the better.

        None for a checkpoint that was saved on a signal, without measuring.
        """
        return self.state["cost"]

    def is_finished(self, trainer: Training) -> bool:
        """Whether training needs no further update."""
        return is_finished(self.step, self.cursor, self.state["stalls"]["stalled"], trainer)


class Checkpoints:
    """The directory RUN/checkpoints, and the pointer RUN/best."""

    def __init__(self, run: Path, keep: int, keep_best: int = 1) -> None:
        """Keep the `keep` newest and the `keep_best` best; one saved on a signal displaces none."""
        self.run, self.keep, self.keep_best = run, keep, keep_best
        self.directory = run / modeldir.CHECKPOINTS
        self.costs: dict[str, list[float]] = {}  # of all checkpoints that are kept, by name

    def recover(self) -> Saved | None:
        """Remove temporary files of a killed process, verify checkpoints, and return the newest.

        A damaged one is renamed `corrupt.NAME`. Raises UserError (exit 65) if none is left
        though there were some: training must not start from zero without a word.
        """
        self.directory.mkdir(exist_ok=True)
        atomic.sweep(self.run)
        atomic.sweep(self.directory)
        saved = list[Saved]()
        for path in modeldir.checkpoints(self.directory):
            try:
                saved.append(verify_checkpoint(path))
            except OtherFormatError:
                raise  # it is intact, and belongs to another version of nmt
            except UserError as error:
                aside = path.with_name(f"{CORRUPT}{path.name}")
                while os.path.lexists(aside):
                    aside = aside.with_name(f"{aside.name}.again")
                path.rename(aside)
                log.warning("%s; set aside as %s", error, aside.name)
        if not saved and any(self.directory.glob(f"{CORRUPT}*")):
            raise UserError(
                f"{self.directory}: no checkpoint is intact; "
                "restore one, or start anew in an empty directory with another name=",
                Exit.DATA,
            )
        self.costs = {s.path.name: s.cost for s in saved if s.cost is not None}
        self._update_pointer()
        return saved[-1] if saved else None

    @property
    def best(self) -> tuple[list[float], str] | None:
        """Cost and name of the best checkpoint, of equals the oldest; None: none was measured."""
        return min(((cost, name) for name, cost in self.costs.items()), default=None)

    def save(self, step: int, cost: list[float] | None, files: Iterable[tuple[str, bytes]]) -> None:
        """Write a checkpoint, let `best` name it if it is, and remove those no longer kept."""
        path = self.directory / f"step-{step:08d}"
        if not path.is_dir():
            manifest.write(path, files)
        if cost is not None:
            self.costs[path.name] = cost
        self._update_pointer()
        self.rotate()

    def _update_pointer(self) -> None:
        if (best := self.best) is not None:
            write_hint(self.run / modeldir.BEST, f"{best[1]}\n".encode())

    def rotate(self) -> None:
        """Remove checkpoints that are neither among the best nor among the newest."""
        best = sorted(self.costs, key=lambda name: (self.costs[name], name))[: self.keep_best]
        paths = modeldir.checkpoints(self.directory)
        measured = [path.name for path in paths if path.name in self.costs]
        kept = {*best, *measured[-self.keep :], *(path.name for path in paths[-self.keep :])}
        for path in paths:
            if path.name not in kept:
                with warn_of_errors(path):
                    atomic.discard(path)
                if not path.exists():
                    self.costs.pop(path.name, None)


def verify_checkpoint(path: Path) -> Saved:
    """Verify every byte of a checkpoint; raises UserError (exit 65) if it is not as written."""
    checkpoint = VerifiedDirectory(path)
    checkpoint.verify()
    modeldir.facts_of(checkpoint)  # of this step
    return Saved(path, checkpoint.json(STATE))


def newest(run: Path) -> Saved | None:
    """Return the newest intact checkpoint of a run, as `recover` does, but change nothing."""
    for path in reversed(modeldir.checkpoints(run / modeldir.CHECKPOINTS)):
        try:
            return verify_checkpoint(path)
        except OtherFormatError:
            raise
        except UserError as error:
            if not path.exists():  # rotated away: there are newer ones
                return newest(run)
            log.warning("%s; an earlier checkpoint counts", error)
    return None


def dump_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> bytes:
    """The content of OPTIMIZER: Adam's moments by parameter name, and torch's random states."""
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    tensors = {
        f"{trained[index]}/{key}": value.cpu().contiguous()
        for index, moments in optimizer.state_dict()["state"].items()
        for key, value in moments.items()
    }
    tensors["random/cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["random/cuda"] = torch.cuda.get_rng_state(device)
    return manifest.dump_tensors(tensors)


def restore_optimizer(
    checkpoint: VerifiedDirectory,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> None:
    """Restore Adam's moments and torch's random states from OPTIMIZER, as copies.

    A mapped file would stay open after the checkpoint is removed, which NFS does not allow.
    """
    tensors = modeldir.read_tensors(checkpoint, OPTIMIZER)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    state = {
        index: {key: tensors[f"{name}/{key}"].to(device, copy=True) for key in MOMENTS}
        for index, name in enumerate(trained)
        if f"{name}/step" in tensors  # else the parameter has had no gradient yet
    }
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    torch.set_rng_state(tensors["random/cpu"])
    if device.type == "cuda" and "random/cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random/cuda"], device)
