"""Models whose large linear layers compute in 8-bit integers."""

import logging

from torch import nn

from nmt import build
from nmt.errors import UserError
from nmt.machine.int8 import LARGEST, Int8
from nmt.machine.machine import this_machine
from nmt.model.layers import Attention, FeedForward
from nmt.model.transformer import Transformer

LARGE: dict[type[nn.Module], tuple[str, ...]] = {
    Attention: ("query", "key", "value", "out"),
    FeedForward: ("inner", "outer"),
    Transformer: ("output",),
}  # the linear layers in which nearly all of the time is spent

log = logging.getLogger(__name__)


def quantised(model: Transformer) -> Transformer:
    """The model with its large matrices in 8 bits; all other parameters are shared with it.

    The model itself, with a warning, where this CPU is not faster so. Raises UserError where the
    model is not on a CPU.
    """
    device = model.output.weight.device
    if device.type != "cpu":
        raise UserError(
            f"decode.precision=int8: for CPUs only, not for {device}; there choose bfloat16"
        )
    integers = this_machine().integers
    if integers is None:
        log.warning("decode.precision=int8: not faster than float32 on this CPU: float32 is used")
        return model
    if integers.largest < LARGEST:
        log.info("decode.precision=int8: weights of 7 bits, as this CPU adds products in 16 bits")
    copied = build.shallow(model)
    for module in list(copied.modules()):
        for name in next((n for kind, n in LARGE.items() if isinstance(module, kind)), ()):
            if isinstance(linear := getattr(module, name), nn.Linear):
                setattr(module, name, Int8(linear, integers))
    return copied
