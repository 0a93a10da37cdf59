"""The two kinds of layers, each a chain of sublayers with residual, norm and dropout."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import Model
from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context
from nmt.model.attention import Attention, Cache, Memory


class Residual(nn.Module):
    """x + dropout(f(norm(x))) for pre-norm, norm(x + dropout(f(x))) for post-norm."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.dim)
        self.pre = config.norm == "pre"
        self.dropout = config.dropout

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        """Wrap the sublayer f: [batch, length, dim] -> the same shape."""
        y = F.dropout(f(self.norm(x) if self.pre else x), self.dropout, self.training)
        return x + y if self.pre else self.norm(x + y)


class FeedForward(nn.Module):
    """Two linear layers with a ReLU between them."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.inner = nn.Linear(config.dim, config.feedforward_dim)
        self.outer = nn.Linear(config.feedforward_dim, config.dim)
        self.dropout = config.feedforward_dropout

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, dim] -> the same shape."""
        return self.outer(F.dropout(F.relu(self.inner(x)), self.dropout, self.training))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.attention = Attention(config.dim, config.heads, config.attention_dropout)
        self.around_attention = Residual(config)
        self.feedforward = FeedForward(config)
        self.around_feedforward = Residual(config)

    def forward(self, x: Tensor, layer: int, encodings: Encodings, context: Context) -> Tensor:
        """[batch, source, dim] -> the same shape."""
        x = encodings.layer(x, layer, context)
        x = self.around_attention(
            x, lambda y: self.attention(y, Memory(y), layer, encodings, context)
        )
        return self.around_feedforward(x, self.feedforward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, feed-forward."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.attention = Attention(config.dim, config.heads, config.attention_dropout)
        self.around_attention = Residual(config)
        self.cross = Attention(config.dim, config.heads, config.attention_dropout)
        self.around_cross = Residual(config)
        self.feedforward = FeedForward(config)
        self.around_feedforward = Residual(config)

    def forward(
        self,
        x: Tensor,
        source: Tensor,
        layer: int,
        own: tuple[Encodings, Context, Cache | None],
        cross: tuple[Encodings, Context, Cache | None],
    ) -> Tensor:
        """x [batch, target, dim], source [batch, source, dim] -> [batch, target, dim]."""
        encodings, context, cache = own
        x = encodings.layer(x, layer, context)
        x = self.around_attention(
            x, lambda y: self.attention(y, Memory(y, cache), layer, encodings, context)
        )
        across, between, kept = cross
        x = self.around_cross(
            x, lambda y: self.cross(y, Memory(source, kept, True), layer, across, between)
        )
        return self.around_feedforward(x, self.feedforward)
