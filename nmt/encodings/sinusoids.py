"""Sinusoids of positions (Vaswani et al. 2017), shared by the encodings that are made of them."""

import math

import torch
from torch import Tensor

LAYOUTS = ("interleaved", "halves")
DENOMINATORS = ("paper", "tensor2tensor")


def frequencies(dim: int, denominator: str = "paper", base: float = 10000.0) -> Tensor:
    """The angular frequencies w_b in float64: [dim / 2].

    paper: w_b = base^(-2b / dim). tensor2tensor: w_b = base^(-b / (dim / 2 - 1)), the form of
    fairseq, Marian, CTranslate2 and RETURNN; the two are different sets of frequencies.
    Raises ValueError for an odd dim, or an unknown denominator.
    """
    if dim % 2 or dim < 2:
        raise ValueError(f"sinusoids need an even width, not {dim}")
    if denominator not in DENOMINATORS:
        raise ValueError(f"denominator={denominator}: choose one of {', '.join(DENOMINATORS)}")
    b = torch.arange(dim // 2, dtype=torch.float64)
    steps = dim / 2 if denominator == "paper" else max(dim / 2 - 1, 1)
    return torch.exp(b * (-math.log(base) / steps))


def angles(positions: Tensor, w: Tensor) -> Tensor:
    """Positions [...] times frequencies [f], in float64: [..., f].

    bfloat16 holds integers exactly only up to 256, so angles never see the model's precision.
    """
    return positions.to(torch.float64)[..., None] * w.to(positions.device)


def sinusoids(
    positions: Tensor, dim: int, layout: str = "interleaved", denominator: str = "paper"
) -> Tensor:
    """Rosendahl et al. 2019, eq. 1-2, for positions [...] of any sign: float32 [..., dim].

    interleaved: sin, cos, sin, cos, ... (the paper). halves: all sines, then all cosines.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout}: choose one of {', '.join(LAYOUTS)}")
    a = angles(positions, frequencies(dim, denominator))  # [..., dim / 2]
    pair = torch.stack([a.sin(), a.cos()], dim=-1 if layout == "interleaved" else -2)
    return pair.flatten(-2).to(torch.float32)
