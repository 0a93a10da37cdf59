"""Layers of the Transformer: attention with its encodings, residuals, and the stacks of both.

A stack may compute its layers a second time in the backward pass, to save memory (Chen, Xu, Zhang,
Guestrin 2016, Training Deep Nets with Sublinear Memory Cost, with one segment per layer).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt.config.settings import Model
from nmt.encodings.base import at_least_float32, mask_scores
from nmt.encodings.context import Context, copy_pass
from nmt.encodings.site import SiteEncodings
from nmt.model.cache import Cache
from nmt.system.machine import FUSED_FROM
from nmt.system.products import Linear, rounded

STEPS = 2**16  # a probability of dropout is a whole number of these parts

Site = tuple[SiteEncodings, Context]  # the encodings of one attention site, and their pass


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Set each element to zero with probability p, and scale the remaining ones to keep the mean.

    Srivastava et al. 2014. On a CPU one draw of 64 bits decides four elements, where torch's
    kernel draws anew for each and takes 1.7 (without AVX) to 2.6 times as long; p is rounded to a
    multiple of 1/65,536. `torch.manual_seed` makes it repeatable.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():  # torch cannot compile what follows
        return F.dropout(x, p)
    dropped = round(p * STEPS)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    parts = draws.view(torch.int16)[: x.numel()].view(x.shape)  # uniform from -STEPS / 2
    kept = parts >= dropped - STEPS // 2
    return x * kept.to(x.dtype).mul_(STEPS / (STEPS - dropped))


class AttentionRecord(NamedTuple):
    """Attention probabilities of one layer in one pass."""

    site: str  # "encoder", "decoder" or "cross"
    layer: int  # from 0; layers that are shared count anew in each pass
    probabilities: Tensor  # [batch, heads, query, key] before dropout; float32 at least
    allowed: Tensor | None  # [batch | 1, 1, query | 1, key] as in the context; None: all


Watcher = Callable[[AttentionRecord], None]


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017) with positional encodings."""

    query: nn.Module  # a linear map; nn.Identity() where queries are not read
    key: nn.Module  # as queries; or keys are slices of the input

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.score_scale = self.head_dim**-0.5
        self.query, self.key, self.value = (Linear(dim, dim) for _ in range(3))
        self.out = Linear(dim, dim)
        self.dropout = dropout
        self.watcher: Watcher | None = None  # set by `watching` alone

    def forward(self, x: Tensor, memory: Tensor, layer: int, site: Site) -> Tensor:
        """Attend from x [batch, query, dim] to memory [batch, key, dim] where it is allowed.

        x may have several rows (beams) for each row of memory: they are more queries of that row.
        """
        encodings, context = site
        queries = x.reshape(len(memory), -1, x.shape[-1])
        q, k, v = self._project(queries, memory, layer, site)
        o, p = self._attend(q, k, v, layer, site)
        o = encodings.outputs(o, queries, p, layer, context)
        return self.out(o.transpose(1, 2).flatten(2)).view_as(x)

    def _project(
        self, x: Tensor, memory: Tensor, layer: int, site: Site
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x; keys and values of the memory, cached as the encodings return them.

        The source is cached in its first step, and later steps have no new keys of it.
        """
        encodings, context = site
        if context.key_caches is None:
            return encodings.project(self._split, x, memory, memory, layer, context)
        cache = cast(Cache, context.key_caches[layer])
        if cache.fixed and cache.length:
            no_keys = memory[:, :0]
            q, _, _ = encodings.project(self._split_queries, x, no_keys, no_keys, layer, context)
            return q, *cache.all()
        q, k, v = encodings.project(self._split, x, memory, memory, layer, context)
        return q, *cache.append(k, v)

    def _split(self, xq: Tensor, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project and split into heads: [batch, heads, n, head_dim] each."""
        return self._heads(self.query, xq), self._heads(self.key, xk), self._heads(self.value, xv)

    def _split_queries(self, xq: Tensor, xk: Tensor, _xv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same without products for keys and values, of which there are none."""
        none = xq.new_empty(len(xk), self.heads, 0, self.head_dim)
        return self._heads(self.query, xq), none, none

    def _heads(self, linear: nn.Module, x: Tensor) -> Tensor:
        """[batch, n, dim] -> [batch, heads, n, head_dim].

        A GPU's kernels read heads where the projection put them; a CPU's products are faster with
        each head's rows side by side.
        """
        split = linear(x).view(*x.shape[:-1], self.heads, self.head_dim).transpose(1, 2)
        return split.contiguous() if x.device.type == "cpu" else split

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, layer: int, site: Site
    ) -> tuple[Tensor, Tensor | None]:
        """p v [batch, heads, query, head_dim], and p after dropout; None if attention is fused."""
        encodings, context = site
        rate = self.dropout if self.training else 0.0
        scale = encodings.score_scale(layer) or self.score_scale
        bias = encodings.bias(layer, context)  # [batch | 1, heads | 1, query, key]
        fusing_pays = k.is_cuda or k.shape[2] >= FUSED_FROM
        if self.watcher is None and fusing_pays and encodings.fusible(layer):
            causal = context.causal and bias is None  # for which a GPU has a faster kernel
            mask = None if causal else context.allowed
            mask = mask if bias is None else mask_scores(bias, context.allowed).to(q.dtype)
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


class Residual(nn.Module):
    """x + dropout(f(norm(x))) for pre-norm, norm(x + dropout(f(x))) for post-norm.

    With keep=false the `x +` is left out, which frees the states from the order of the source
    (Liu et al. 2021, Improving Zero-Shot Translation by Disentangling Positional Information).
    """

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.dim, config.norm_epsilon)
        self.pre = config.norm == "pre"
        self.dropout = config.dropout

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], keep: bool = True) -> Tensor:
        """Wrap the sublayer f: [batch, length, dim] -> the same shape."""
        y = f(rounded(self.norm(x) if self.pre else x))
        y = dropout(y, self.dropout, self.training)
        y = x + y if keep else y
        return y if self.pre else self.norm(y)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,  # by the error function, not its approximation by tanh
    "swish": F.silu,
}


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.inner = Linear(config.dim, config.feedforward_dim)
        self.outer = Linear(config.feedforward_dim, config.dim)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = config.feedforward_dropout

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, dim] -> the same shape."""
        return self.outer(dropout(self.activation(self.inner(x)), self.dropout, self.training))


class ComplexFeedForward(nn.Module):
    """Two complex linear layers, the activation on each part (Wang et al. 2020, complex order).

    Rows hold the real and the imaginary stream of each sentence side by side.
    """

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.real, self.imaginary = FeedForward(config), FeedForward(config)
        self.dropout = config.feedforward_dropout

    def forward(self, x: Tensor) -> Tensor:
        """[batch x 2, length, dim] -> the same shape."""
        h = _multiply(self.real.inner, self.imaginary.inner, x)
        h = dropout(self.real.activation(h), self.dropout, self.training)
        return _multiply(self.real.outer, self.imaginary.outer, h)


def _multiply(real: nn.Linear, imaginary: nn.Linear, x: Tensor) -> Tensor:
    """(W_r + i W_p)(x_r + i x_p) for rows x_r and x_p in turns; each map has its own bias."""
    r, p = x[0::2], x[1::2]
    parts = [real(r) - imaginary(p), real(p) + imaginary(r)]
    return torch.stack(parts, dim=1).flatten(0, 1)


class Layer(nn.Module):
    """Self-attention, attention to the source in a decoder, and feed-forward."""

    def __init__(self, config: Model, decoder: bool) -> None:
        super().__init__()
        size = (config.dim, config.heads, config.attention_dropout)
        self.attention = Attention(*size)
        self.around_attention = Residual(config)
        if decoder:
            self.cross = Attention(*size)
            self.around_cross = Residual(config)
        real = config.feedforward == "real"
        self.feedforward = FeedForward(config) if real else ComplexFeedForward(config)
        self.around_feedforward = Residual(config)
        self.without_residual = frozenset(() if decoder else config.drop_residual)

    def forward(self, x: Tensor, number: int, sites: Sequence[Site], *memory: Tensor) -> Tensor:
        """x [batch, length, dim] -> the same shape; a decoder gets the memory [batch, source, dim].

        `number`: of the layer, from 0; a shared layer has one for each pass. drop_residual counts
        from 1.
        """
        x = self.around_attention(
            x,
            lambda y: self.attention(y, y, number, sites[0]),
            keep=number + 1 not in self.without_residual,
        )
        if memory:
            x = self.around_cross(x, lambda y: self.cross(y, *memory, number, sites[1]))
        return self.around_feedforward(x, self.feedforward)


class Stack(nn.Module):
    """`layers` passes through layers, and the norm after the last one."""

    def __init__(self, config: Model, layers: int, decoder: bool) -> None:
        super().__init__()
        self.count = layers
        count = 1 if config.share_layers else layers
        self.layers = nn.ModuleList(Layer(config, decoder) for _ in range(count))
        final = config.norm == "pre"  # after post-norm layers nothing is left to normalise
        self.norm = nn.LayerNorm(config.dim, config.norm_epsilon) if final else nn.Identity()
        self.recompute = False  # layers in the backward pass, to save memory in training

    def forward(self, x: Tensor, sites: Sequence[Site], *memory: Tensor) -> Tensor:
        """x [batch x streams, length, dim] -> the same; a decoder's readout merges the streams.

        `sites`: all that the layers attend at, their self-attention first; a decoder's also get the
        memory [batch x streams, source, dim].
        """
        encodings, context = sites[0]
        twice = self.recompute and context.training and torch.is_grad_enabled()
        for number in range(self.count):
            layer = self.layers[number % len(self.layers)]
            x = encodings.layer_input(x, number, context)
            if twice:
                x = compute_twice(layer, x, number, sites, *memory)
            else:
                x = layer(x, number, sites, *memory)
        return encodings.readout(self.norm(x), context)


def compute_twice(
    layer: nn.Module, x: Tensor, number: int, sites: Sequence[Site], *memory: Tensor
) -> Tensor:
    """Run a layer, but keep only its input x for the backward pass (gradient checkpointing).

    In the backward pass the layer is computed again, to the same bits: torch restores the random
    state from before it, and the contexts are copies from before it. So values that a layer is the
    first to compute or to draw (`Context.once`) are computed again, in the same order, and no
    encoding has to care.
    """

    def copy_sites(sites: Sequence[Site]) -> list[Site]:
        return [(encodings, copy_pass(context)) for encodings, context in sites]

    saved = copy_sites(sites)
    # The first call fills the contexts that later layers read, and then drops them: they hold
    # tensors of this layer's graph, and the graph must not hold them in turn.
    originals = [sites]

    def call(x: Tensor) -> Tensor:
        return layer(x, number, originals.pop() if originals else copy_sites(saved), *memory)

    return checkpoint(call, x, use_reentrant=False)


@contextmanager
def watching(model: nn.Module, watcher: Watcher) -> Iterator[None]:
    """Call `watcher` with an `AttentionRecord` after each softmax within the block.

    Each layer comes once per pass, or once per step while decoding, in the order of computing;
    attention then uses the plain formulas, as the fused kernel does not return probabilities.
    Probabilities of a row without allowed keys are equal for all keys, and rows of padding attend
    like any row: `allowed` and the ids tell which rows are valid.
    Models with complex embeddings have `model.streams` rows for each sentence, side by side.
    Keep sums rather than the tensors. Nothing is computed a second time in the backward pass: it
    would be seen twice. Raises RuntimeError where the model is being watched already.
    """
    modules = [module for module in model.modules() if isinstance(module, Attention)]
    if any(attention.watcher is not None for attention in modules):
        raise RuntimeError("this model is being watched already")
    with ExitStack() as cleanup:
        for stack in (module for module in model.modules() if isinstance(module, Stack)):
            cleanup.callback(setattr, stack, "recompute", stack.recompute)
            stack.recompute = False
        for attention in modules:
            attention.watcher = watcher
            cleanup.callback(setattr, attention, "watcher", None)
        yield
