"""Zheng et al. (2024), DAPE: Data-Adaptive Positional Encoding for Length Extrapolation.

    e'_ij = e_ij + B_ij + f([e_ij; B_ij]),   e_ij = q_i . k_j / sqrt(head_dim)

with B another encoding's biases, and f an MLP of each layer from the scores and biases of all heads
for a pair of words to a number for each: 2 heads -> width -> LeakyReLU -> heads. So the bias of a
distance depends on the words, and heads see each other.

Follows the authors' code (chuanyang-Zheng/DAPE), but layers share one KERPLE as in `kerple_log`,
where their layers have one each. Their models are decoders; in the encoder B is symmetric, and
across it goes by the distance of positions as well (both are our extensions).
"""

from typing import Literal

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding, at_least_float32
from nmt.encodings.biases.alibi import Alibi
from nmt.encodings.biases.fire import Fire
from nmt.encodings.biases.kerple import Kerple

BIASES = {"alibi": Alibi, "kerple_log": Kerple, "fire": Fire}


class Dape(Encoding):
    """Learns an MLP for every layer: (3 heads + 1) width + heads, in addition to those of B."""

    relative = True
    reads_queries_or_keys = False

    def __init__(
        self,
        dims: Dims,
        bias: Literal["alibi", "kerple_log", "fire"] = "kerple_log",
        width: PositiveInt = 32,
    ) -> None:
        super().__init__(dims)
        self.score_scale = dims.head_dim**-0.5  # which f relies on
        self.inner: Encoding = BIASES[bias](dims)
        self.mixers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(2 * dims.heads, width), nn.LeakyReLU(), nn.Linear(width, dims.heads)
            )
            for _ in range(dims.layers)
        )

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """B: [batch | 1, heads, query, key]."""
        return self.inner.bias(layer, context)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add sqrt(head_dim) f, which becomes f by the scaling."""
        scale = self.dims.head_dim**-0.5
        e = at_least_float32(s) * scale
        bias = self.inner.bias(layer, context)
        assert bias is not None  # each of BIASES has one
        both = torch.cat([e, bias.to(e.dtype).expand_as(e)], dim=1).movedim(1, -1)
        mixer = self.mixers[layer]
        f = mixer(both.to(next(mixer.parameters()).dtype)).movedim(-1, 1)
        return s + (f / scale).to(s.dtype)
