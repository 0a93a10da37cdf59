"""Liutkus et al. (2021), Relative Positional Encoding for Transformers with Linear Complexity:
convSPE, by its expectation.

e_ij = (1 / sqrt(head_dim)) sum_d q_id k_jd [g_d + (1 - g_d) P_d(i - j)], where
P_d(x) = sum_m a_dm b_d,m+x is the cross-correlation of two learned filters of `kernel` taps: a
template that ends at distance kernel - 1. The paper filters white noise with a and b and takes
products of the two results; this is what they are on average, without noise. The order of the two
filters, the exact evaluation and the short default kernel are reconstructed from the authors'
code (200 taps there) for softmax attention; the paper's own text was not at hand.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding


class ConvSpe(Encoding):
    """Weighs each feature's product by a learned function of the distance, nothing far away.

    Layers share 2 kernel head_dim heads taps; each has head_dim heads gates. A pass needs
    memory for batch x heads x length x (2 kernel - 1) x head_dim numbers.
    """

    relative = True
    position_type = "integer"
    distances_only = True

    def __init__(self, dims: Dims, kernel: PositiveInt = 16, gated: bool = True) -> None:
        super().__init__(dims)
        self.kernel = kernel
        shape = (dims.heads, dims.head_dim, kernel)
        scale = (kernel / 2) ** -0.5  # as the authors' code starts
        self.query_filter = nn.Parameter(torch.rand(shape) * scale)  # a
        self.key_filter = nn.Parameter(torch.rand(shape) * scale)  # b
        self.gate = nn.Parameter(torch.randn(dims.layers, *shape[:2])) if gated else None

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add sum_d q_d k_d (1 - g_d) (P_d - 1) to s, which holds sum_d q_d k_d already."""
        template = context.once(("conv_spe", id(self)), self.template)  # [heads, head_dim, x]
        if self.gate is None:
            remaining = q.new_ones(1, 1, 1)
        else:
            remaining = (-self.gate[layer]).sigmoid()[:, None]  # 1 - g: [heads, 1, head_dim]
        weighted = q * remaining.to(q.dtype)
        return s - weighted @ k.mT + self._band(weighted, k, template, context)

    def template(self) -> Tensor:
        """P_d(x) for x = -(kernel - 1) .. kernel - 1: [heads, head_dim, 2 kernel - 1]."""
        a, b = self.query_filter.flatten(0, 1), self.key_filter.flatten(0, 1)  # [features, taps]
        with torch.autocast(a.device.type, enabled=False):
            padded = F.pad(b, (self.kernel - 1, self.kernel - 1))[None]
            template = F.conv1d(padded, a[:, None], groups=len(a))
        return template.view(*self.query_filter.shape[:2], -1)

    def _band(self, q: Tensor, k: Tensor, template: Tensor, context: Context) -> Tensor:
        """sum_d q_d k_d P_d(query - key) of all pairs within the kernel, 0 elsewhere."""
        distance = -context.delta  # [batch | 1, query, key]
        distance = distance.expand(len(q), -1, -1)
        row, i, j = self._pairs_in_reach(distance, context)  # [pairs] each
        index = distance[row, i, j] + self.kernel - 1
        p = template.movedim(-1, 0)[index]  # [pairs, heads, head_dim]
        sums = (q[row, :, i] * k[row, :, j] * p.to(q.dtype)).sum(-1)  # [pairs, heads]
        band = q.new_zeros(*distance.shape, q.shape[1])
        return band.index_put((row, i, j), sums).permute(0, 3, 1, 2)

    def _pairs_in_reach(self, distance: Tensor, context: Context) -> tuple[Tensor, ...]:
        """Row, query and key of all pairs within the kernel: [pairs] each.

        Where the host knows how many there are, it does not wait for a GPU to count them.
        """
        in_reach = distance.abs() < self.kernel
        if (end := context.consecutive_end) is None:
            return in_reach.nonzero(as_tuple=True)
        rows, queries, keys = distance.shape
        reach = range(1 - self.kernel, self.kernel)  # diagonals, key minus query
        pairs = sum(max(0, min(end, keys - d) - max(end - queries, -d)) for d in reach)
        return torch.nonzero_static(in_reach, size=rows * pairs).unbind(1)
