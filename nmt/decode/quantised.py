"""Linear layers in 8-bit integers, for CPUs that multiply them faster than floating point.

Each row of a weight has a scale of its own, so that its largest number becomes 127 (or 63, where
products are added in 16 bits), and so has each row of the input at the moment it comes (dynamic
quantisation, as in CTranslate2). Sums are exact; weights and inputs lose what is rounded.
"""

import copy
import logging
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.machine.precision import example
from nmt.machine.timing import is_faster, trial
from nmt.model.attention import Attention
from nmt.model.layers import FeedForward
from nmt.model.transformer import Transformer

LARGE: dict[type[nn.Module], tuple[str, ...]] = {
    Attention: ("query", "key", "value", "out"),
    FeedForward: ("inner", "outer"),
    Transformer: ("output",),
}  # the linear layers in which nearly all of the time is spent
LARGEST = 127  # of an input in 8 bits; -128 stays unused, so that signs are symmetric

log = logging.getLogger(__name__)


class Integers(NamedTuple):
    """How inputs and weights are rounded, for one of the kernels that oneDNN has."""

    zero: int  # added to inputs: 128 makes them unsigned
    largest: int  # of a weight: 127, or 63 in 7 bits


FORMATS = (
    Integers(zero=128, largest=127),  # x86 with VNNI or AMX, which add products in 32 bits
    Integers(zero=128, largest=63),  # AVX2, AVX-512: two products are added in 16 bits first
    Integers(zero=0, largest=127),  # ARM
)  # the first that is right and faster than float32 is used


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
    integers = fastest()
    if integers is None:
        log.warning("decode.precision=int8: not faster than float32 on this CPU: float32 is used")
        return model
    if integers.largest < LARGEST:
        log.info("decode.precision=int8: weights of 7 bits, as this CPU adds products in 16 bits")
    shared = {id(p): p for p in model.parameters()}
    copied = copy.deepcopy(model, shared)
    for module in list(copied.modules()):
        for name in next((n for kind, n in LARGE.items() if isinstance(module, kind)), ()):
            if isinstance(linear := getattr(module, name), nn.Linear):
                setattr(module, name, Int8(linear, integers))
    return copied


@trial(lambda plain: plain and Integers(*plain))
@torch.inference_mode()
def fastest() -> Integers | None:
    """Return the first of FORMATS that this CPU multiplies rightly, and faster than float32.

    Tried once per process, in milliseconds. None: there is none.
    """
    linear, x = example()
    for integers in FORMATS:
        if is_exact(integers) and is_faster(partial(Int8(linear, integers), x), partial(linear, x)):
            return integers
    return None


def is_exact(integers: Integers) -> bool:
    """Tell whether a product of the largest numbers is right, whose sums leave 16 bits."""
    x = torch.full((4, 64), LARGEST, dtype=torch.int)  # [rows, inputs]
    x[1::2] *= -1
    x[2:, ::2] = 0
    weight = torch.full((16, 64), integers.largest, dtype=torch.int8)  # [outputs, inputs]
    weight[1::2] *= -1
    ones = torch.ones(16)
    try:
        packed = torch.ops.onednn.qlinear_prepack(weight, None)
        products = _product(x + integers.zero, integers, packed, ones, ones.long() * 0)
    except (RuntimeError, AttributeError):  # this torch has no such kernel here
        return False
    return torch.equal(products, (x @ weight.int().T).float())


class Int8(nn.Module):
    """A linear layer whose weight is rounded to 8 bits (or 7); its output is float32."""

    scale: Tensor  # [outputs] of the rows of the weight
    zero: Tensor  # [outputs]
    bias: Tensor  # [outputs]

    def __init__(self, linear: nn.Linear, integers: Integers) -> None:
        super().__init__()
        self.integers = integers
        weight, bias = linear.weight.detach().float(), linear.bias.detach().float()
        tiny = torch.finfo(torch.float32).tiny
        scale = weight.abs().amax(1).clamp(min=tiny) / integers.largest
        rounded = (weight / scale[:, None]).round().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.register_buffer("scale", scale)
        self.register_buffer("zero", torch.zeros_like(scale, dtype=torch.long))
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        rows = x.reshape(-1, x.shape[-1])
        if not len(rows):
            return x.new_empty(*x.shape[:-1], len(self.scale))
        scale = rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        shifted = (rows * (LARGEST / scale)).round_().add_(self.integers.zero)
        products = _product(shifted, self.integers, self.packed, self.scale, self.zero)
        return torch.addcmul(self.bias, products, scale / LARGEST).view(*x.shape[:-1], -1)


def _product(x: Tensor, integers: Integers, packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Whole numbers [rows, inputs], shifted by integers.zero, times a packed weight, in float32."""
    kind = torch.uint8 if integers.zero else torch.int8
    return torch.ops.onednn.qlinear_pointwise(
        x.to(kind), 1.0, integers.zero, packed, scale, zero, None, 1.0, 0, torch.float32,
        "none", [], "",
    )  # fmt: skip
