"""Label-smoothed cross-entropy of a batch, and its compiled passes."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from nmt.model.transformer import Transformer
from nmt.system.products import add_gradient, product, product_format
from nmt.training.feed import DeviceBatch

# Numbers at once: as many as some caches hold, or half a gigabyte. On CPUs a quarter and four times
# as many cost the same within 15 % (AMD's Zen 5, with all it has, AVX2 alone, and without AVX).
LOGITS_AT_ONCE = {"cpu": 2**22, "cuda": 2**27}
LEAST_TOKENS = 256  # tokens at once, however large the vocabulary: below, the products are slow
MULTIPLE = 64  # of rows of a product: for each new shape, a CPU first compiles code

Gradients = tuple[Tensor, Tensor, Tensor]  # of states, weight and bias


class CrossEntropy(Function):
    """Projection onto the vocabulary and its cross-entropy, a few tokens at a time.

    One after the other, they keep four or five tensors [tokens, vocab]; in a small model those are
    most of the memory, and moving them is a third of a step. Here some tokens are projected, and
    their loss and its gradients computed, before the next ones overwrite the logits.

    (states [n, dim], weight [vocab, dim], bias [vocab], labels [n], smoothing, learning)
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
    the gradient of the logits is p - q. The uniform part of q needs only sums over the weights and
    the bias, not the logits.
    """
    w, uniform = weight.to(low), smoothing / len(weight)
    all_w, all_b = weight.sum(0), bias.sum()
    gradients = None
    if needed:
        gradients = torch.empty_like(states), torch.zeros_like(weight), torch.zeros_like(bias)
    nll = states.new_empty(len(states), dtype=torch.float32)
    numbers = LOGITS_AT_ONCE.get(states.device.type, LOGITS_AT_ONCE["cpu"])
    size = max(LEAST_TOKENS, numbers // len(weight)) // MULTIPLE * MULTIPLE
    ones = states.new_ones(min(size, len(states)), dtype=torch.float32)
    loss = states.new_zeros((), dtype=torch.float32)
    for start in range(0, len(states), size):
        some = slice(start, start + size)
        h, label = states[some].to(low), labels[some, None]
        n = len(h)
        h = F.pad(h, (0, 0, 0, -n % MULTIPLE)) if n % MULTIPLE else h
        logits = product(h, w)
        p = logits[:n].to(torch.float32)
        p += bias
        nll[some], log_sum = _softmax_(p, label)
        loss += (1 - smoothing) * nll[some].sum()
        if smoothing:
            summed = states[some].float() @ all_w + all_b  # of the logits over the vocabulary
            loss += smoothing * log_sum.sum() - uniform * summed.sum()
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
        by_states -= uniform * all_w
        by_weight -= uniform * states.sum(0)
        by_bias -= uniform * len(states)
    return loss, nll, gradients


def _softmax_(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Put the softmax in place of logits [n, vocab]; returns -log p of labels, log sum exp."""
    chosen = logits.gather(1, label)
    torch.log_softmax(logits, 1, out=logits)
    nll = -logits.gather(1, label)
    logits.exp_()
    return nll[:, 0], (chosen + nll)[:, 0]


def target_states(hidden: Callable[..., Tensor], batch: DeviceBatch) -> Tensor:
    """Return the states [tokens, dim] that predict a batch's labels, by a model's own `hidden`."""
    states = hidden(batch.source, batch.prefix, batch.columns)
    return states.flatten(0, 1)[batch.indices]


def smoothed_loss(
    states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Project states onto the vocabulary: (label-smoothed loss [], likelihoods [tokens]).

    states [tokens, dim], labels [tokens] without padding. Szegedy et al. 2016: the true token
    keeps 1 - smoothing, and every token of the vocabulary gets smoothing / vocab. The loss is a
    sum over tokens; the likelihoods are negative logarithms, for reports, and carry no gradient.
    """
    learning = torch.is_grad_enabled()
    return CrossEntropy.apply(states, output.weight, output.bias, labels, smoothing, learning)


class Objective(nn.Module):
    """The label-smoothed loss of a model as one module, so that torch can sum its gradients.

    It has no parameters of its own. compiled: torch compiles the pass through the model at its
    first batch, for all lengths and numbers of sentences; dropout then draws other random numbers.
    """

    def __init__(self, model: Transformer, smoothing: float, compiled: bool = False) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing
        self.hidden = compile_pass(model.hidden) if compiled else model.hidden

    def forward(self, batch: DeviceBatch, tokens: float) -> tuple[Tensor, Tensor]:
        """Return a batch's loss [] over `tokens`, and sums [2] of smoothed and unsmoothed loss."""
        states = target_states(self.hidden, batch)
        loss, likelihoods = smoothed_loss(states, self.model.output, batch.labels, self.smoothing)
        sums = torch.stack((loss.detach(), likelihoods.sum()))
        if not batch.counted:
            loss, sums = loss * 0, sums * 0
        return loss / tokens, sums


def compile_pass(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the function as torch compiles it at its first call, once for all shapes.

    With several ranks torch would split its graph wherever a bucket of gradients is complete, to
    send them earlier. With the embeddings' scale, which it keeps symbolic, that fails in torch
    2.13, and in 2.11 each shape adds graphs. So it does not split graphs in this process.
    """
    import torch._dynamo

    torch._dynamo.config.optimize_ddp = False
    return torch.compile(function, dynamic=True)
