"""Chen, Tsai, Bhojanapalli, Chung, Chang, Ferng (2021), A Simple and Effective Encoding (DIET).

Positions decoupled from words and added to every layer's scores:
DIET-ABS (reference=absolute): e_ij = q_i . k_j / sqrt(head_dim) + (P_Q P_K^T)_ij, with P_Q and P_K
[longest, rank] per head; DIET-REL (reference=relative): + R_h[j - i], a number per distance.
Reconstructed from summaries; the paper's own text was not at hand, nor was its initialisation.
"""

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.biases.bias_table import Reference, scalars


class Diet(Encoding):
    """Learns a table of pairs of positions as a product of two thin ones, or one of distances.

    2 longest x rank x heads parameters (absolute; longer sequences are refused), or
    (2 longest - 1) heads (relative; distances beyond longest - 1 count as longest - 1); shared by
    all layers unless per_layer.
    """

    position_type = "integer"
    to_query: nn.Parameter  # P_Q [layers | 1, heads, longest, rank]; R with rank 1 (relative)
    to_key: nn.Parameter | None  # P_K, the same shape

    def __init__(
        self,
        dims: Dims,
        reference: Reference = "absolute",
        longest: PositiveInt = 1024,
        rank: PositiveInt | None = None,
        per_layer: bool = False,
    ) -> None:
        super().__init__(dims)
        self.relative = self.distances_only = relative = reference == "relative"
        self.num_positions = None if relative else longest  # distances are clipped instead
        if relative and rank is not None:
            raise ValueError(f"rank={rank}: reference=relative learns one number per distance")
        if not relative and rank is None:
            raise ValueError("rank=null: reference=absolute needs at least 1")
        self.longest = longest
        self.zeros = ("to_query" if relative else "to_key",)  # both zero would not learn
        rows = 2 * longest - 1 if relative else longest
        self.to_query = self.make_table(rows, rank or 1, per_layer=per_layer, per_head=True)
        self.to_key = None
        if not relative:
            self.to_key = self.make_table(rows, rank or 1, per_layer=per_layer, per_head=True)

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """[batch | 1, heads, query, key]; computed once per pass where layers share it."""
        number = layer if self.to_query.shape[0] > 1 else 0
        return context.once(("diet", id(self), number), lambda: self._make(number, context))

    def _make(self, layer: int, context: Context) -> Tensor:
        by_query = self.pick(self.to_query, layer)
        if self.to_key is None:
            return scalars(by_query[..., 0], context.clipped(self.longest - 1))
        q = by_query[:, context.query_positions].transpose(0, 1)  # [batch | 1, heads, query, rank]
        k = self.pick(self.to_key, layer)[:, context.key_positions].transpose(0, 1)
        with torch.autocast(q.device.type, enabled=False):
            return q @ k.mT
