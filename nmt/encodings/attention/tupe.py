"""Ke, He, Liu (2021), Rethinking Positional Encoding in Language Pre-training: TUPE.

e_ij = [q_i . k_j + (LN(p_i) U_Q) . (LN(p_j) U_K)] / sqrt(2 head_dim) (+ b_h[bucket(j - i)]).
Words and positions are correlated apart from each other, with projections of their own; p_i is
learned, and the term of positions is computed once and serves all layers. TUPE-A has no b; TUPE-R
adds T5's buckets. reset=true unties the first token: the term of positions (b included) becomes
theta_1 in its row and theta_2 in its column, as the paper does for [CLS].
"""

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.biases.bias_table import scalars
from nmt.encodings.biases.t5 import bucket, check_buckets, is_two_sided
from nmt.encodings.positions import check_ascending


class Tupe(Encoding):
    """Learns vectors for `longest` positions and how heads compare them, shared by all layers.

    longest x dim + 2 (dim^2 + dim) + 2 dim parameters, with buckets x heads more for TUPE-R and
    2 heads more with reset. The authors' code gives U_Q and U_K biases and normalises p.
    """

    position_type = "integer"

    def __init__(
        self,
        dims: Dims,
        longest: PositiveInt = 1024,
        buckets: int | None = None,
        max_distance: int | None = None,
        reset: bool = False,
    ) -> None:
        super().__init__(dims)
        self.score_scale = (2 * dims.head_dim) ** -0.5
        self.num_positions = longest
        if (buckets is None) != (max_distance is None):
            raise ValueError("buckets and max_distance: give both (TUPE-R), or none (TUPE-A)")
        if buckets is not None and max_distance is not None:
            check_buckets(buckets, max_distance, dims.site)
            check_ascending(self.positions, dims.site)
        self.longest = longest
        self.buckets = buckets
        self.max_distance = max_distance
        self.vectors = nn.Parameter(torch.randn(longest, dims.dim) * 0.02)  # as BERT's
        self.norm = nn.LayerNorm(dims.dim)
        self.to_query = self._linear()  # U_Q
        self.to_key = self._linear()  # U_K
        # [heads, buckets] b; [2, heads] theta
        self.distances = nn.Parameter(torch.randn(dims.heads, buckets) * 0.02) if buckets else None
        self.first = nn.Parameter(torch.zeros(2, dims.heads)) if reset else None

    def _linear(self) -> nn.Linear:
        linear = nn.Linear(self.dims.dim, self.dims.dim)
        nn.init.normal_(linear.weight, std=0.02)  # as BERT's
        nn.init.zeros_(linear.bias)
        return linear

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """The term of positions [batch | 1, heads, query, key], for all layers at once."""
        return context.once(("tupe", id(self)), lambda: self._make(context))

    def _make(self, context: Context) -> Tensor:
        with torch.autocast(context.key_positions.device.type, enabled=False):
            q = self._heads(self.to_query, context.query_positions)
            k = self._heads(self.to_key, context.key_positions)
            term: Tensor = (q * (2 * self.dims.head_dim) ** -0.5) @ k.mT
        if self.buckets is not None and self.max_distance is not None:
            sides = is_two_sided(context.site)
            index = bucket(context.delta, self.buckets, self.max_distance, sides)
            term = term + scalars(self.distances, index)  # type: ignore[arg-type]
        if self.first is not None:
            in_row, in_column = self.first[:, :, None, None]
            queries, keys = context.indices
            term = torch.where((keys == 0)[:, None, None, :], in_column, term)
            term = torch.where((queries == 0)[:, None, :, None], in_row, term)
        return term

    def _heads(self, linear: nn.Linear, positions: Tensor) -> Tensor:
        """Compared vectors of positions [batch | 1, n]: [batch | 1, heads, n, head_dim]."""
        x: Tensor = linear(self.norm(self.vectors[positions]))
        return x.unflatten(-1, (self.dims.heads, -1)).transpose(1, 2)
