"""Liu, Winata, Cahyawijaya, Madotto, Lin, Fung (2021), On the Importance of Word Order Information
in Cross-lingual Sequence Labeling: a convolution instead of positions.

    x'_t = x_t + sum_o W_o x_{t + o},   o = -(width - 1) / 2 .. (width - 1) / 2 in the encoder,
                                        o = -(width - 1) .. 0 in the decoder

An embedding then knows the order of its neighbours and no position in the sentence ("reduced order
information"), which suits transfer between languages of different word order. Reconstructed from
a description; the paper's own text was not at hand, so width, the sum with x and the missing bias
are our choice. The paper tags sentences; the causal form for a decoder is our extension.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding


class Convolution(Encoding):
    """Adds a convolution of the embeddings to them, once per stack.

    width dim^2 parameters per stack; depthwise, a filter per component, only width dim.
    """

    relative = True
    position_type = "none"
    zeros = ("conv.weight",)

    def __init__(self, dims: Dims, width: int = 3, depthwise: bool = False) -> None:
        super().__init__(dims)
        if width < 3 or width % 2 == 0:
            raise ValueError(f"width={width}: must be odd, and at least 3 to see any neighbour")
        self.width = width
        groups = dims.dim if depthwise else 1
        self.conv = nn.Conv1d(dims.dim, dims.dim, width, groups=groups, bias=False)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the convolution to x [batch, query, dim]; what is not there counts as zero."""
        if context.site == "encoder":
            real = _without_padding(x, context.lengths)
            half = (self.width - 1) // 2
            window = F.pad(real, (0, 0, half, half))
        else:
            window = self._past(x, context.state)
        return x + self.conv(window.mT).mT

    def _past(self, x: Tensor, state: dict[str, Tensor] | None) -> Tensor:
        """x with the width - 1 inputs before it: [batch, width - 1 + query, dim]."""
        name, reach = f"{self.name}.inputs", self.width - 1
        if state is None or name not in state:
            window = F.pad(x, (0, 0, reach, 0))
        else:
            window = torch.cat([state[name].to(x.dtype), x], dim=1)
        if state is not None:
            state[name] = window[:, -reach:]
        return window


def _without_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x [batch, length, dim] with zeros behind each sentence's end."""
    if lengths is None:
        return x
    real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]  # [batch, length]
    return x * real[..., None]


def causal_convolution(x: Tensor, taps: Tensor) -> Tensor:
    """Sums of x [.., n, width] over the last tokens, weighted by taps [.., tokens, width].

    The last tap is of the token itself.
    """
    size = taps.shape[-2]
    windows = F.pad(x, (0, 0, size - 1, 0)).unfold(-2, size, 1)  # [.., n, width, tokens]
    return (windows * taps.mT.unsqueeze(-3)).sum(-1)
