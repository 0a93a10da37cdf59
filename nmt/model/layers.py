"""The two kinds of layers, each a chain of sublayers with residual, norm and dropout."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.settings import Model
from nmt.encodings.context import Context
from nmt.encodings.site import Encodings
from nmt.machine.products import Linear, rounded
from nmt.model.attention import Attention
from nmt.model.dropout import dropout


class Residual(nn.Module):
    """x + dropout(f(norm(x))) for pre-norm, norm(x + dropout(f(x))) for post-norm.

    With keep=false the `x +` is left out, which frees the states from the order of the source
    (Liu et al. 2021, Improving Zero-Shot Translation by Disentangling Positional Information).
    """

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.dim)
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
        h = _times(self.real.inner, self.imaginary.inner, x)
        h = dropout(self.real.activation(h), self.dropout, self.training)
        return _times(self.real.outer, self.imaginary.outer, h)


def _times(real: nn.Linear, imaginary: nn.Linear, x: Tensor) -> Tensor:
    """(W_r + i W_p)(x_r + i x_p), each linear map with its own bias."""
    r, p = x[0::2], x[1::2]
    parts = [real(r) - imaginary(p), real(p) + imaginary(r)]
    return torch.stack(parts, dim=1).flatten(0, 1)


def _feedforward(config: Model) -> nn.Module:
    return FeedForward(config) if config.feedforward == "real" else ComplexFeedForward(config)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.attention = Attention(config.dim, config.heads, config.attention_dropout)
        self.around_attention = Residual(config)
        self.feedforward = _feedforward(config)
        self.around_feedforward = Residual(config)
        self.without_residual = frozenset(config.drop_residual)

    def forward(self, x: Tensor, layer: int, encodings: Encodings, context: Context) -> Tensor:
        """[batch, source, dim] -> the same shape.

        `layer` counts passes from 0, model.drop_residual from 1: a shared layer makes several.
        """
        x = self.around_attention(
            x,
            lambda y: self.attention(y, y, layer, encodings, context),
            keep=layer + 1 not in self.without_residual,
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
        self.feedforward = _feedforward(config)
        self.around_feedforward = Residual(config)

    def forward(
        self,
        x: Tensor,
        source: Tensor,
        layer: int,
        self_site: tuple[Encodings, Context],
        cross_site: tuple[Encodings, Context],
    ) -> Tensor:
        """x [batch, target, dim], source [batch, source, dim] -> [batch, target, dim]."""
        x = self.around_attention(x, lambda y: self.attention(y, y, layer, *self_site))
        x = self.around_cross(x, lambda y: self.cross(y, source, layer, *cross_site))
        return self.around_feedforward(x, self.feedforward)
