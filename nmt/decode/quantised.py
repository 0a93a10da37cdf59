"""Linear layers in 8-bit integers, for CPUs that multiply them faster than floating point.

Each row of a weight has a scale of its own, so that its largest number becomes 127, and so has
each row of the input at the moment it comes (dynamic quantisation, as in CTranslate2). Sums are
32-bit integers, and so exact; what is lost is the rounding of weights and inputs to 8 bits.
"""

import copy

import torch
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.model.attention import Attention
from nmt.model.layers import FeedForward
from nmt.model.transformer import Transformer

LARGE: dict[type[nn.Module], tuple[str, ...]] = {
    Attention: ("query", "key", "value", "out"),
    FeedForward: ("inner", "outer"),
    Transformer: ("output",),
}  # the linear layers in which nearly all of the time is spent
LARGEST = 127  # of 8 bits; -128 stays unused, so that signs are symmetric


def quantised(model: Transformer) -> Transformer:
    """The model with its large matrices in 8 bits; all other parameters are shared with it.

    Raises UserError where the model is not on a CPU, or the CPU has no instructions for it.
    """
    device = model.output.weight.device
    if device.type != "cpu":
        raise UserError(
            f"decode.precision=int8: for CPUs only, not for {device}; there choose bfloat16"
        )
    if not (torch.backends.mkldnn.is_available() and torch.cpu.get_capabilities().get("avx2")):
        raise UserError("decode.precision=int8: this CPU or this torch has no kernels for it")
    shared = {id(p): p for p in model.parameters()}
    found = copy.deepcopy(model, shared)
    for module in list(found.modules()):
        for name in next((n for kind, n in LARGE.items() if isinstance(module, kind)), ()):
            if isinstance(linear := getattr(module, name), nn.Linear):
                setattr(module, name, Int8(linear))
    return found


class Int8(nn.Module):
    """A linear layer whose weight is rounded to 8 bits; its output is float32."""

    scale: Tensor  # [outputs] of the rows of the weight
    zero: Tensor  # [outputs]
    bias: Tensor  # [outputs]

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, bias = linear.weight.detach().float(), linear.bias.detach().float()
        scale = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / LARGEST
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
        rounded = (rows * (LARGEST / scale)).round_().to(torch.int8)
        products = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, 0, self.packed, self.scale, self.zero, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        return torch.addcmul(self.bias, products, scale / LARGEST).view(*x.shape[:-1], -1)
