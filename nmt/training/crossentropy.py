"""Projection onto the vocabulary and its cross-entropy as one function, a few tokens at a time.

One after the other, they keep four or five tensors [tokens, vocab]; in a small model those are most
of the memory, and moving them is a third of a step. Here some tokens are projected, and their loss
and its gradients computed, before the next ones overwrite the logits.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from nmt.machine.products import add_gradient, product, product_format

# Numbers at once: as many as some caches hold, or half a gigabyte. On CPUs a quarter and four times
# as many cost the same within 15 % (AMD's Zen 5, with all it has, AVX2 alone, and without AVX).
LOGITS = {"cpu": 2**22, "cuda": 2**27}
FEWEST = 256  # tokens at once, however large the vocabulary: below, the products are slow
STEP = 64  # products have a multiple of so many: for each new shape, a CPU first compiles code

Gradients = tuple[Tensor, Tensor, Tensor]  # of states, weight and bias


class CrossEntropy(Function):
    """(states [n, dim], weight [vocab, dim], bias [vocab], labels [n], smoothing, learning)
    -> (smoothed loss [], negative log-likelihoods [n] without a gradient), both in float32.

    learning: whether gradients may be asked for; `forward` itself cannot see torch.no_grad.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        smoothing: float,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss and, where they may be asked for, its gradients."""
        low = product_format(states)
        needed = learning and any(ctx.needs_input_grad[:3])
        with torch.autocast(states.device.type, enabled=False):
            loss, nll, gradients = compute(states, weight, bias, labels, smoothing, low, needed)
        if gradients is not None:
            ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_loss: Tensor, by_nll: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that forward computed."""
        return (*(gradient * by_loss for gradient in ctx.saved_tensors), None, None, None)


def compute(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    smoothing: float,
    low: torch.dtype,
    needed: bool,
) -> tuple[Tensor, Tensor, Gradients | None]:
    """Loss [], likelihoods [n], and gradients if they are needed.

    Products are made in the number format `low`, sums in float32.

    With p the softmax and q = 1 - smoothing at the true token plus smoothing / vocab all over,
    the gradient of the logits is p - q. The part of q that all tokens of the vocabulary share is
    linear in sums over the weights, so it costs no pass over the logits.
    """
    w, share = weight.to(low), smoothing / len(weight)
    all_w, all_b = weight.sum(0), bias.sum()
    gradients = None
    if needed:
        gradients = torch.empty_like(states), torch.zeros_like(weight), torch.zeros_like(bias)
    nll = states.new_empty(len(states), dtype=torch.float32)
    size = _tokens_at_once(states, weight)
    ones = states.new_ones(min(size, len(states)), dtype=torch.float32)
    loss = states.new_zeros((), dtype=torch.float32)
    for start in range(0, len(states), size):
        some = slice(start, start + size)
        h, label = states[some].to(low), labels[some, None]
        n = len(h)
        h = F.pad(h, (0, 0, 0, -n % STEP)) if n % STEP else h
        logits = product(h, w)
        p = logits[:n].to(torch.float32)
        p += bias
        nll[some], log_sum = _softmax_(p, label)
        loss += (1 - smoothing) * nll[some].sum()
        if smoothing:
            summed = states[some].float() @ all_w + all_b  # of the logits over the vocabulary
            loss += smoothing * log_sum.sum() - share * summed.sum()
        if gradients is not None:
            by_states, by_weight, by_bias = gradients
            p.scatter_add_(1, label, p.new_full(label.shape, smoothing - 1))
            by_bias += ones[:n] @ p  # a sum over tokens, twice as fast
            if low != torch.float32:
                logits[:n] = p
            by_states[some] = product(logits, w.T)[:n]
            add_gradient(by_weight, logits, h)
    if gradients is not None:
        by_states, by_weight, by_bias = gradients
        by_states -= share * all_w
        by_weight -= share * states.sum(0)
        by_bias -= share * len(states)
    return loss, nll, gradients


def _tokens_at_once(states: Tensor, weight: Tensor) -> int:
    numbers = LOGITS.get(states.device.type, LOGITS["cpu"])
    return max(FEWEST, numbers // len(weight)) // STEP * STEP


def _softmax_(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Put the softmax in place of logits [n, vocab]; return -log p of labels [n, 1], log sum exp.

    Both are [n].
    """
    chosen = logits.gather(1, label)
    torch.log_softmax(logits, 1, out=logits)
    nll = -logits.gather(1, label)
    logits.exp_()
    return nll[:, 0], (chosen + nll)[:, 0]
