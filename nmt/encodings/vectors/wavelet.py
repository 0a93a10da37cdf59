"""Oka, Hasegawa, Nishida, Saito (2025), Wavelet-based Positional Representation for Long Context.

e_ij = q_i . (k_j + p[i - j]) / sqrt(head_dim), where each component of p is a wavelet of its own:

    p_ab[t] = psi((t - b) / a),   psi(x) = (1 - x^2) exp(-x^2 / 2),   (a, b) in
    {2^first, .., 2^(first + scales - 1)} x {0, 1, .., head_dim / scales - 1}

so that windows of many widths look at distances, and nothing is clipped. The paper has 8 scales
for 128 components; first is 0 there, and 2 in its large model.

Its models are decoders. In the encoder (our extension) shifts are 0, -1, 1, -2, 2, .., so that
words ahead are told apart as well as those behind; across (our extension) t is the distance of
positions, too.
"""

import torch
from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.vectors.by_row import query_products
from nmt.encodings.vectors.distances import distinct


class Wavelet(Encoding):
    """Adds products of queries with wavelets of the distance; learns nothing."""

    relative = True
    distances_only = True

    def __init__(self, dims: Dims, scales: int = 8, first: int = 0) -> None:
        super().__init__(dims)
        if scales < 1 or dims.head_dim % scales:
            raise ValueError(f"scales={scales}: must divide the {dims.head_dim} of a head")
        self.scales, self.first = scales, first

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add q_i . p[i - j] to s [batch, heads, query, key]."""
        if q.shape[2] == 1:  # as in decoding: all distances differ
            vectors = context.once(("wavelet", id(self)), lambda: self.vectors(context.delta[:, 0]))
            return s + q @ vectors[:, None].to(q.dtype).mT
        distances, index = distinct(context)
        rows = context.once(("wavelet", id(self)), lambda: self.vectors(distances)[None])
        return s + query_products(q, rows.to(q.dtype), index)

    def by_distance(self, layer: int, distances: Tensor) -> dict[str, Tensor]:
        """The wavelets, which all layers share."""
        return {"keys": self.vectors(distances)[None]}

    def vectors(self, delta: Tensor) -> Tensor:
        """p of distances [..], key minus query: float64 [.., head_dim], scale after scale."""
        shifts = torch.arange(self.dims.head_dim // self.scales, device=delta.device)
        if self.dims.site == "encoder":  # 0, -1, 1, -2, 2, ..
            shifts = (shifts + 1) // 2 * (1 - shifts % 2 * 2)
        exponents = torch.arange(self.first, self.first + self.scales, device=delta.device)
        a = 2.0 ** exponents.to(torch.float64)
        t = -delta.to(torch.float64)[..., None, None]
        x2 = ((t - shifts) / a[:, None]).square()  # [.., scale, shift]
        return ((1 - x2) * (-x2 / 2).exp()).flatten(-2)
