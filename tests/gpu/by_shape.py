"""What a CUDA device does in one piece and a pretended one cannot, counted by shapes alone.

Attention of torch and of `nmt.kernels.relative`, dropout, and the loss of `nmt.kernels`: each is a
launch that reads every input and writes every output once, with the operations of its products.
Masks forbid pairs, but blocks of them are computed all the same: no pair is left out.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from nmt.kernels import choice

if TYPE_CHECKING:
    from tests.gpu.counting import Counting

Sizes = list[tuple[Tensor, int]]
ALIGNED = 8  # numbers: rows of a mask that are no multiple are copied into wider ones


def sizes(tensors: Iterable[Tensor | None]) -> Sizes:
    """Each with its bytes."""
    from tests.gpu.counting import size_of

    return [(t, size_of(t)) for t in tensors if t is not None]


def pairs(q: Tensor, k: Tensor) -> int:
    """Operations of one product over all pairs of q and k [batch, heads, n, head_dim]."""
    return 2 * q.numel() * k.shape[2]


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """A CUDA device draws, drops and scales in one kernel, and keeps a byte of each element."""
    return torch.native_dropout(x, p, training)[0]


class Attention:
    """`F.scaled_dot_product_attention`, by the fused kernels of torch."""

    def __init__(self, counting: "Counting") -> None:
        self.counting = counting

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill_(
                ~attn_mask, -float("inf")
            )  # in torch's C++, which needs what is added
            if attn_mask.shape[-1] % ALIGNED:
                more = ALIGNED - attn_mask.shape[-1] % ALIGNED
                attn_mask = torch.nn.functional.pad(attn_mask, (0, more))[..., :-more]
        out: Tensor = _Attention.apply(q, k, v, attn_mask, self.counting)
        return out


class _Attention(Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, counting: "Counting"
    ) -> Tensor:
        o, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
        reads, writes = sizes((q, k, v, mask)), sizes((o, lse))
        counting.add("attention", reads, writes, 2 * pairs(q, k))
        ctx.save_for_backward(q, k, v, mask, o, lse)
        ctx.counting = counting
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Three kernels: sums of g o, the gradients, and that of q out of float32."""
        q, k, v, mask, o, lse = ctx.saved_tensors
        by_q, by_k, by_v = (torch.empty_like(x) for x in (q, k, v))
        wide, delta = q.new_empty(q.shape, dtype=torch.float32), torch.empty_like(lse)
        add = ctx.counting.add
        add("attention backward, sums", sizes((g, o)), sizes((delta, wide)))
        reads = sizes((q, k, v, mask, g, lse, delta, wide))
        add("attention backward", reads, sizes((wide, by_k, by_v)), 5 * pairs(q, k))
        add("attention backward, format", sizes((wide,)), sizes((by_q,)))
        asked = mask is not None and mask.requires_grad
        return by_q, by_k, by_v, torch.empty_like(mask) if asked else None, None


class RelativeForward:
    """`nmt.kernels.relative._forward`: the band near the diagonal is gone over twice."""

    def __init__(self, counting: "Counting") -> None:
        self.counting = counting

    def __call__(self, given: Any, values: bool, call: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        q, k = given.q, given.k
        o, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
        sums = q.new_zeros(*q.shape[:3], call.width) if values else None
        band = min(k.shape[2], 2 * call.tau + choice.block(*k.shape[2:])) if values else 0
        operations = 2 * pairs(q, k) + pairs(q, k[:, :, :band])
        self.counting.add("relative attention", sizes(given), sizes((o, lse, sums)), operations)
        return o, lse, sums


class RelativeBackward:
    """`nmt.kernels.relative._backward`: three products by query, and four by key."""

    def __init__(self, counting: "Counting") -> None:
        self.counting = counting

    def __call__(
        self, given: Any, u: Tensor | None, g: Tensor, o: Tensor, lse: Tensor, call: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, k, v = given.q, given.k, given.v
        by_q, by_k, by_v = (torch.empty_like(x) for x in (q, k, v))
        by_t = None if given.t is None else torch.zeros_like(given.t)
        delta, add, one = torch.empty_like(lse), self.counting.add, pairs(q, k)
        reads, writes = (*given, u, g, o, lse), (by_q, by_t, delta)
        add("relative attention by query", sizes(reads), sizes(writes), 3 * one)
        reads = (*given, u, g, lse, delta)
        add("relative attention by key", sizes(reads), sizes((by_k, by_v)), 4 * one)
        return by_q, by_k, by_v, by_t


class Smoothed:
    """`nmt.kernels.crossentropy.smoothed_`: the second time, logits come from the cache."""

    def __init__(self, counting: "Counting") -> None:
        self.counting = counting

    def __call__(
        self, logits: Tensor, bias: Tensor, target: Tensor, smoothing: float, gradient: bool
    ) -> tuple[Tensor, Tensor]:
        loss = logits.new_empty(len(logits), dtype=torch.float32)
        nll = torch.empty_like(loss)
        changed: Iterator[Tensor] = (t for t in (loss, nll, *([logits] if gradient else [])))
        self.counting.add("smoothed loss", sizes((logits, bias, target)), sizes(changed))
        return loss, nll
