"""Sinusoids of positions (Vaswani et al. 2017), shared by the encodings that use them."""

import math
from typing import Literal

import torch
from torch import Tensor

Layout = Literal["interleaved", "halves"]
Denominator = Literal["paper", "tensor2tensor"]


def frequencies(
    dim: int,
    denominator: Denominator = "paper",
    base: float = 10000.0,
    device: torch.device | None = None,
) -> Tensor:
    """The angular frequencies w_b in float64: [dim / 2], computed on the device.

    A copy from the CPU would make it wait for the GPU at every step.

    paper: w_b = base^(-2b / dim). tensor2tensor: w_b = base^(-b / (dim / 2 - 1)), the form of
    fairseq, Marian, CTranslate2 and RETURNN; the two are different sets of frequencies.
    Raises ValueError for an odd dim.
    """
    if dim % 2 or dim < 2:
        raise ValueError(f"sinusoids need an even width, not {dim}")
    b = torch.arange(dim // 2, dtype=torch.float64, device=device)
    steps = dim / 2 if denominator == "paper" else max(dim / 2 - 1, 1)
    return torch.exp(b * (-math.log(base) / steps))


def angles(positions: Tensor, w: Tensor) -> Tensor:
    """Positions [...] times frequencies [f] on the same device, in float64: [..., f].

    bfloat16 holds integers exactly only up to 256, so angles never see the model's precision.
    """
    return positions.to(torch.float64)[..., None] * w


def sinusoids(
    positions: Tensor, dim: int, layout: Layout = "interleaved", denominator: Denominator = "paper"
) -> Tensor:
    """Rosendahl et al. 2019, eq. 1-2, for positions [...] of any sign: float32 [..., dim].

    interleaved: sin, cos, sin, cos, ... (the paper). halves: all sines, then all cosines.
    """
    w = frequencies(dim, denominator, device=positions.device)
    a = angles(positions, w)  # [..., dim / 2]
    pair = torch.stack([a.sin(), a.cos()], dim=-1 if layout == "interleaved" else -2)
    return pair.flatten(-2).to(torch.float32)
