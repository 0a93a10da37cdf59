"""The number format of training (trainer.precision) on a device."""

import logging

import torch

from nmt.config.settings import Training
from nmt.errors import UserError
from nmt.machine.device import device_name, has_low_precision
from nmt.machine.machine import NO_BFLOAT16, NO_UNITS, this_machine
from nmt.training.distributed import World

ADVICE = "choose float32 (where the run has begun, with another name=)"

log = logging.getLogger(__name__)


def number_format(options: Training, device: torch.device, world: World) -> str:
    """Return float32, tf32 or bfloat16: that of trainer.precision, or float32 where it is faster.

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
    log.warning(NO_UNITS if cuda else NO_BFLOAT16, "trainer")
    return "float32"
