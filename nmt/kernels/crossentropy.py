"""Smoothed cross-entropy of logits and its gradient in their place, in two passes over them."""

import torch
from torch import Tensor

BLOCK = 4096  # logits at once
WARPS = 8


def smoothed_(
    logits: Tensor, bias: Tensor, target: Tensor, smoothing: float, gradient: bool
) -> tuple[Tensor, Tensor]:
    """(losses [n], negative log-likelihoods [n]) of logits [n, vocab] + bias, in float32.

    The true token `target` [n] keeps 1 - smoothing, and every token of the vocabulary gets
    smoothing / vocab. With `gradient` that of the losses' sum takes the place of the logits.
    """
    from nmt.kernels import crossentropy_triton as kernels

    loss = logits.new_empty(len(logits), dtype=torch.float32)
    nll, vocab = torch.empty_like(loss), logits.shape[1]
    with torch.cuda.device_of(logits):  # Triton asks which one is current
        kernels.smoothed[(len(logits),)](
            logits, bias, target, loss, nll, vocab, logits.stride(0), smoothing,
            GRADIENT=gradient, BLOCK=min(BLOCK, 1 << (vocab - 1).bit_length()), num_warps=WARPS,
        )  # fmt: skip
    return loss, nll
