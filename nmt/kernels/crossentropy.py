"""Smoothed cross-entropy of logits and its gradient in their place, in two passes over them."""

import torch
from torch import Tensor

BLOCK = 4096  # logits at once
WARPS = 8
COLUMNS = 64  # logits have a multiple of so many, so that wide loads can read every row


def smoothed_(
    logits: Tensor, bias: Tensor, target: Tensor, vocab: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """(losses [n], negative log-likelihoods [n]) of logits + bias, in float32.

    logits [n, wide], bias [wide] in float32, wide a multiple of COLUMNS: beyond vocab, the bias is
    -inf and the logits are finite. The true token `target` [n] keeps 1 - smoothing, and every
    token of the vocabulary gets smoothing / vocab. The gradient of the losses' sum takes the place
    of the logits.
    """
    from nmt.kernels import crossentropy_triton as kernels

    loss = logits.new_empty(len(logits), dtype=torch.float32)
    nll, wide = torch.empty_like(loss), logits.shape[1]
    with torch.cuda.device_of(logits):  # Triton asks which one is current
        kernels.smoothed[(len(logits),)](
            logits, bias, target, loss, nll, vocab, wide, smoothing,
            BLOCK=min(BLOCK, 1 << (wide - 1).bit_length()), num_warps=WARPS,
        )  # fmt: skip
    return loss, nll
