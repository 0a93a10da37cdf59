"""The one place that says where a kernel serves, and in which blocks it works.

No GPU was there to measure. The blocks are those with which the compiler for an A100
and an H100 needs few registers beyond the 255 of a thread (`python -m scripts.kernels compile`);
`python -m scripts.kernels time` measures the kernels and the formulas that they replace.
"""

import torch
from torch import Tensor

from nmt.machine.machine import this_machine

FORMATS = (torch.float32, torch.bfloat16)
WIDTHS = (16, 32, 64, 128)  # of a head, in numbers
MOST_TAU = 128  # beyond, what is kept by distance outgrows queries and keys


def serves(x: Tensor) -> bool:
    """Whether kernels run where x is, in its number format."""
    return x.is_cuda and x.dtype in FORMATS and this_machine().triton


def serves_relative(q: Tensor, k: Tensor, v: Tensor, tau: int) -> bool:
    """Whether `nmt.kernels.relative` computes attention of q, k and v [.., n, head_dim].

    With one vector for each distance, clipped to tau. Where it does not, plain products, a gather
    and a sum by row do (`nmt.encodings.by_row`); so in exact float32, whose products no GPU makes
    fast, and for which the compiler needs minutes and memory instead of registers.
    """
    alike = q.dtype == k.dtype == v.dtype and q.shape[-1] == k.shape[-1] == v.shape[-1]
    fast = q.dtype == torch.bfloat16 or precision() == "tf32"
    return alike and fast and serves(q) and q.shape[-1] in WIDTHS and 1 <= tau <= MOST_TAU


def precision() -> str:
    """How kernels multiply float32: in TF32 where torch does, else exactly."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def block(n: int, width: int) -> int:
    """How many of n queries or keys of a head's width a program takes: a power of two from 16."""
    return min(max(16, 1 << (n - 1).bit_length()), 64 if width <= 64 else 32)


def warps(queries: int, keys: int) -> int:
    """Warps of 32 threads for a program with blocks of these sizes."""
    pairs = queries * keys
    return 8 if pairs > 2048 else 4 if pairs > 256 else 2
