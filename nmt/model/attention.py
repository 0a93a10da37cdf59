"""Attention, one path for every encoding: project, score, weigh, sum."""

from collections.abc import Callable
from typing import NamedTuple, cast

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.encodings.base import at_least_float32, masked
from nmt.encodings.context import Context
from nmt.encodings.site import Encodings
from nmt.machine.machine import FUSED_FROM
from nmt.machine.products import Linear
from nmt.model.cache import Cache
from nmt.model.dropout import dropout


class AttentionRecord(NamedTuple):
    """Attention probabilities of one layer in one pass."""

    site: str  # "encoder", "decoder" or "cross"
    layer: int  # from 0; layers that are shared count anew in each pass
    probabilities: Tensor  # [batch, heads, query, key] before dropout; float32 at least
    allowed: Tensor | None  # [batch | 1, 1, query | 1, key] as in the context; None: all


Watcher = Callable[[AttentionRecord], None]


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017) with positional encodings."""

    key: nn.Module  # a linear map; nn.Identity() where keys are slices of the input

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.query, self.key, self.value = (Linear(dim, dim) for _ in range(3))
        self.out = Linear(dim, dim)
        self.dropout = dropout
        self.watcher: Watcher | None = None  # set by nmt.model.watch alone

    def forward(
        self, x: Tensor, memory: Tensor, layer: int, encodings: Encodings, context: Context
    ) -> Tensor:
        """Attend from x [batch, query, dim] to memory [batch, key, dim] where context.allowed.

        Adjacent rows of x may share a row of the memory; they are then queries of one row.
        """
        queries = x.reshape(len(memory), -1, x.shape[-1])
        q, k, v = self._project(queries, memory, layer, encodings, context)
        o, p = self._attend(q, k, v, layer, encodings, context)
        o = encodings.outputs(o, queries, p, layer, context)
        return self.out(o.transpose(1, 2).flatten(2)).view_as(x)

    def _project(
        self, x: Tensor, memory: Tensor, layer: int, encodings: Encodings, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x; keys and values of the memory, cached as the encodings return them.

        The source is cached in its first step, and later steps have no new keys of it.
        """
        if context.key_caches is None:
            return encodings.project(self._split, x, memory, memory, layer, context)
        cache = cast(Cache, context.key_caches[layer])
        if cache.fixed and cache.length:
            no_keys = memory[:, :0]
            q, _, _ = encodings.project(self._split, x, no_keys, no_keys, layer, context)
            return q, *cache.all()
        q, k, v = encodings.project(self._split, x, memory, memory, layer, context)
        return q, *cache.append(k, v)

    def _split(self, xq: Tensor, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project and split into heads: [batch, heads, n, head_dim] each.

        A GPU's kernels read heads where the projection put them; a CPU's products are faster with
        each head's rows side by side.
        """

        def heads(linear: nn.Module, x: Tensor) -> Tensor:
            split = linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            return split.contiguous() if x.device.type == "cpu" else split

        return heads(self.query, xq), heads(self.key, xk), heads(self.value, xv)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, layer: int, encodings: Encodings, context: Context
    ) -> tuple[Tensor, Tensor | None]:
        """p v [batch, heads, query, head_dim], and p after dropout; None if attention is fused."""
        rate = self.dropout if self.training else 0.0
        scale = encodings.scale(layer) or self.scale
        bias = encodings.bias(layer, context)  # [batch | 1, heads | 1, query, key]
        if self.watcher is None and encodings.fusible(layer) and _fusing_pays(k):
            causal = context.causal and bias is None  # for which a GPU has a faster kernel
            mask = None if causal else context.allowed
            mask = mask if bias is None else masked(bias, context.allowed).to(q.dtype)
            o = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=rate, is_causal=causal, scale=scale
            )
            return o, None
        s = encodings.scores(q, k, layer, context)  # [batch, heads, query, key], raw
        e = at_least_float32(s) * scale
        p = encodings.normalise(e if bias is None else e + bias, layer, context)
        if self.watcher is not None:
            self.watcher(AttentionRecord(context.site, layer, p, context.allowed))
        p = dropout(p, rate).to(v.dtype)
        return p @ v, p


def _fusing_pays(k: Tensor) -> bool:
    return k.is_cuda or k.shape[2] >= FUSED_FROM
