"""Projection onto the vocabulary and its cross-entropy as one function, a few tokens at a time.

Made one after the other, they keep four or five tensors [tokens, vocab]; in a small model those
are most of the memory, and moving them is a third of a step. Here some tokens are projected,
their loss is taken, and their gradients as well, before the next ones overwrite the logits.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from nmt.kernels import choice
from nmt.kernels.crossentropy import smoothed_
from nmt.machine.products import add_gradient, product, product_format

# Numbers at once: as many as some caches hold, or half a gigabyte. On CPUs a quarter and four times
# as many cost the same within 15 % (AMD's Zen 5, with all it has, AVX2 alone, and without AVX).
LOGITS = {"cpu": 2**22, "cuda": 2**27}
FEWEST = 256  # tokens at once, however large the vocabulary: below, the products are slow
ALIGNED = 8  # columns beside the states for the bias, of which one is used: products stay fast
STEP = 64  # products have a multiple of so many: for each new shape, a CPU first compiles code


class CrossEntropy(Function):
    """(hidden [n, dim], weight [vocab, dim], bias [vocab], target [n], smoothing, learning)
    -> (smoothed loss [], negative log-likelihoods [n] without a gradient), both in float32.

    learning: whether gradients may be asked for; `forward` itself cannot see torch.no_grad.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        target: Tensor,
        smoothing: float,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        """Take the loss and, where one is asked for, its gradients with respect to the inputs."""
        low = product_format(hidden)
        with torch.autocast(hidden.device.type, enabled=False):
            needed = learning and any(ctx.needs_input_grad[:3])
            take = (
                taken_by_kernel
                if choice.serves(hidden.new_empty(0, dtype=low))
                else taken_by_formulas
            )
            loss, nll, *gradients = take(hidden, weight, bias, target, smoothing, needed, low)
        if needed:
            ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_loss: Tensor, by_nll: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that forward took."""
        hidden, weight, bias = ctx.saved_tensors
        return hidden * by_loss, weight * by_loss, bias * by_loss, None, None, None


class Taken(NamedTuple):
    """A loss [], likelihoods [n], and gradients where they are needed; else anything."""

    loss: Tensor
    nll: Tensor
    by_hidden: Tensor
    by_weight: Tensor
    by_bias: Tensor


def taken_by_formulas(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    target: Tensor,
    smoothing: float,
    needed: bool,
    low: torch.dtype,
) -> Taken:
    """Loss and gradients; products are made in the number format `low`, sums in float32.

    With p the softmax and q = 1 - smoothing at the true token plus smoothing / vocab all over,
    the gradient of the logits is p - q. What all tokens of the vocabulary share is taken by
    linearity from sums over the weights, so it costs no pass over the logits.
    """
    w, share = weight.to(low), smoothing / len(weight)
    all_w, all_b = weight.sum(0), bias.sum()
    by_hidden = torch.empty_like(hidden) if needed else hidden
    by_weight = torch.zeros_like(weight) if needed else weight
    by_bias = torch.zeros_like(bias) if needed else bias
    nll = hidden.new_empty(len(hidden), dtype=torch.float32)
    size = _at_once(hidden, weight)
    ones = hidden.new_ones(min(size, len(hidden)), dtype=torch.float32)
    loss = hidden.new_zeros((), dtype=torch.float32)
    for start in range(0, len(hidden), size):
        some = slice(start, start + size)
        h, expected = hidden[some].to(low), target[some, None]
        n, more = len(h), _stepped(len(h)) - len(h)
        h = F.pad(h, (0, 0, 0, more)) if more else h
        logits = product(h, w)
        p = logits[:n].to(torch.float32)
        p += bias
        nll[some], log_sum = _softmax_(p, expected)
        loss += (1 - smoothing) * nll[some].sum()
        if smoothing:
            summed = hidden[some].float() @ all_w + all_b  # of the logits over the vocabulary
            loss += smoothing * log_sum.sum() - share * summed.sum()
        if needed:
            p.scatter_add_(1, expected, p.new_full(expected.shape, smoothing - 1))
            by_bias += ones[:n] @ p  # a sum over tokens, twice as fast
            if low != torch.float32:
                logits[:n] = p
            by_hidden[some] = product(logits, w.T)[:n]
            add_gradient(by_weight, logits, h)
    if needed:
        by_hidden -= share * all_w
        by_weight -= share * hidden.sum(0)
        by_bias -= share * len(hidden)
    return Taken(loss, nll, by_hidden, by_weight, by_bias)


def taken_by_kernel(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    target: Tensor,
    smoothing: float,
    needed: bool,
    low: torch.dtype,
) -> Taken:
    """The same where a kernel makes loss and gradient of logits in two passes, on a GPU.

    The gradient of the bias is a column of the product that gives that of the weights.
    """
    w, (vocab, dim) = weight.to(low), weight.shape
    by_hidden = torch.empty_like(hidden) if needed else hidden
    by_both = weight.new_zeros(vocab, dim + ALIGNED) if needed else weight
    nll = hidden.new_empty(len(hidden), dtype=torch.float32)
    loss = hidden.new_zeros((), dtype=torch.float32)
    size = _at_once(hidden, weight)
    room = hidden.new_empty(min(size, len(hidden)), vocab, dtype=low)
    for start in range(0, len(hidden), size):
        some = slice(start, start + size)
        h = hidden[some].to(low)
        logits = room[: len(h)]
        torch.mm(h, w.T, out=logits)
        losses, nll[some] = smoothed_(logits, bias, target[some], smoothing, needed)
        loss += losses.sum()
        if needed:
            by_hidden[some] = logits @ w
            ones = F.pad(h.new_ones(len(h), 1), (0, ALIGNED - 1))
            add_gradient(by_both, logits, torch.cat((h, ones), 1))
    return Taken(loss, nll, by_hidden, by_both[:, :dim], by_both[:, dim] if needed else bias)


def _at_once(hidden: Tensor, weight: Tensor) -> int:
    """Tokens that are projected at once."""
    numbers = LOGITS.get(hidden.device.type, LOGITS["cpu"])
    return max(FEWEST, numbers // len(weight)) // STEP * STEP


def _stepped(tokens: int) -> int:
    return -(-tokens // STEP) * STEP


def _softmax_(logits: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Put the softmax in place of logits [n, vocab]; return -log p at [n, 1] and log sum exp."""
    chosen = logits.gather(1, at)
    torch.log_softmax(logits, 1, out=logits)
    nll = -logits.gather(1, at)
    logits.exp_()
    return nll[:, 0], (chosen + nll)[:, 0]
