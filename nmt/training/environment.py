"""The number format of a training, and versions and devices on which its bits depend."""

import logging
from pathlib import Path

import torch

import nmt
from nmt.config.settings import Training
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.system.device import device_name, has_low_precision
from nmt.system.machine import this_machine
from nmt.training.distributed import World

ADVICE = "choose float32 (where the run has begun, with another name=)"

log = logging.getLogger(__name__)


def number_format(options: Training, device: torch.device, world: World) -> str:
    """Return trainer.precision, or float32 if that is faster here.

    `auto` is bfloat16 on a GPU that has units for it. Raises UserError (exit 2) for a format that a
    GPU has no units for, and for TF32 on a CPU.
    """
    precision, cuda = options.precision, device.type == "cuda"
    if precision == "float32" or (precision == "auto" and not cuda):
        return "float32"
    if precision == "tf32" and not cuda:
        raise UserError(f"trainer.precision=tf32: for GPUs only; on a CPU {ADVICE}")
    slow = not (has_low_precision(device) if cuda else this_machine().trains_in_bfloat16)
    if not world.all_reduce(torch.tensor(int(slow)), "MAX"):  # all ranks add to the same sums
        return "bfloat16" if precision == "auto" else precision
    if cuda and precision != "auto":
        raise UserError(
            f"trainer.precision={precision}: {device_name(device)} has no units for it; {ADVICE}"
        )
    why = "this GPU has no units for bfloat16" if cuda else "not faster than float32 on this CPU"
    log.warning("trainer.precision=%s: %s: float32 is used", precision, why)
    return "float32"


def describe(
    device: torch.device, number_format: str, options: Training, workers: int
) -> dict[str, str]:
    """Return versions, device, threads, ranks and number format, for checkpoints."""
    described = {
        "nmt": nmt.__version__,
        "torch": torch.__version__,
        "device": device_name(device),
        "threads": str(torch.get_num_threads()),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "format": number_format,
        "processor": this_machine().processor,
        "compiled": "yes" if options.compile else "no",
        "workers": str(workers),
    }
    if device.type == "cuda":
        described |= {
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
            "deterministic": "yes" if options.deterministic else "no",
        }
    return described


def warn_of_changes(saved: dict[str, str], current: dict[str, str]) -> None:
    """Warn that a resumed run will differ in its last digits from an uninterrupted one."""
    changes = [
        f"{key} {saved.get(key, '?')} -> {value}"
        for key, value in current.items()
        if saved.get(key) != value
    ]
    if current.get("deterministic") == "no":
        changes.append("sums on a GPU have no fixed order without trainer.deterministic=true")
    if changes:
        log.warning("not bit-identical to a run without a stop: %s", ", ".join(changes))


def announce(
    run: Path, model: Transformer, described: dict[str, str], last: int, updates: int, pairs: int
) -> None:
    """Log the size of the model, the device, the number of pairs and of updates."""
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    threads = "" if "cuda" in described else f", threads: {described['threads']}"
    ranks = "" if described["workers"] == "1" else f", ranks: {described['workers']}"
    log.info(
        f"{run}: training {size:,} parameters in {described['format']} on {described['device']}"
        f"{threads}{ranks}; {last:,} updates, {updates:,} to an epoch of {pairs:,} pairs"
    )
    log.info("processor: %s", described["processor"])
