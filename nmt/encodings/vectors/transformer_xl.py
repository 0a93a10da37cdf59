"""Dai et al. (2019), Transformer-XL: relative sinusoids, projected, and two learned queries.

e_ij = [q_i . k_j + q_i . (W_R R[i - j]) + u . k_j + v . (W_R R[i - j])] / sqrt(head_dim),
R[x] the sinusoids of the model's width at x: sines, then cosines.

Derived from absolute sinusoids: with x_j + PE(j) instead of x_j, the product has four terms; the
two in which the query's position stands become u and v, the same for all positions, and PE(j)
becomes R[i - j]. Distances have a sign (XLNet; in an encoder keys stand on both sides) and are not
clipped. The paper's memory of earlier segments is no encoding and not part of this.
"""

import torch
from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.sinusoids import frequencies
from nmt.encodings.vectors.distances import sinusoid_products


class TransformerXl(Encoding):
    """Adds products of queries with distances, and of learned vectors with keys and distances.

    W_R belongs to a layer; u and v belong to a head and are shared by the layers, unless untie:
    layers dim^2 + 2 dim, or layers (dim^2 + 2 dim), parameters per stack.
    """

    relative = True
    distances_only = True
    zeros = ("u", "v", "w_r")

    def __init__(self, dims: Dims, untie: bool = False) -> None:
        super().__init__(dims)
        frequencies(dims.dim)  # refuses an odd width at once
        self.w_r = self.make_table(dims.dim, dims.dim)  # [layers, 1, width, dim]
        self.u = self.make_table(1, dims.head_dim, per_layer=untie, per_head=True)
        self.v = self.make_table(1, dims.head_dim, per_layer=untie, per_head=True)
        with torch.no_grad():  # as in the authors' code
            self.u.normal_(0, 0.02)
            self.v.normal_(0, 0.02)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add the three terms to s [batch, heads, query, key]."""
        u, v = self.pick(self.u, layer).to(q.dtype), self.pick(self.v, layer).to(q.dtype)
        weight = self.pick(self.w_r, layer)[0].unflatten(0, (self.dims.heads, -1))
        w = frequencies(self.dims.dim, device=q.device)
        of_distance = sinusoid_products(q + v, weight, w, context)
        return s + u @ k.mT + of_distance
