"""Raffel et al. (2020), Exploring the Limits of Transfer Learning (T5): bucketed biases.

e_ij = q_i . k_j / sqrt(head_dim) + b_h[bucket(j - i)]. Short distances have a bucket each, longer
ones share buckets that grow logarithmically up to max_distance; all beyond share the last. In an
encoder half of the buckets are for keys ahead; in a decoder all are for the past. T5 itself does
not divide by sqrt(head_dim) (it absorbs the factor in its initial weights): scaled=false.
"""

import math

import torch
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding, set_to_zero
from nmt.encodings.biases.bias_table import scalars
from nmt.encodings.positions import check_ascending


class T5(Encoding):
    """Learns a number per bucket of distances and head, shared by all layers: buckets x heads."""

    relative = True
    position_type = "integer"
    distances_only = True
    weight: nn.Parameter  # [heads, buckets]

    def __init__(
        self, dims: Dims, buckets: int = 32, max_distance: int = 128, scaled: bool = True
    ) -> None:
        super().__init__(dims)
        self.score_scale = None if scaled else 1.0
        check_buckets(buckets, max_distance, dims.site)
        check_ascending(self.positions, dims.site)
        self.buckets = buckets
        self.max_distance = max_distance
        self.weight = nn.Parameter(torch.randn(dims.heads, buckets) * dims.dim**-0.5)

    def zero_initialise(self) -> bool:
        """Set all numbers to zero; without the usual scale, attention changes nevertheless."""
        return set_to_zero(self.weight) and self.score_scale is None

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """b_h of each distance's bucket: [batch | 1, heads, query, key], for all layers at once."""

        def make() -> Tensor:
            sides = is_two_sided(context.site)
            index = bucket(context.delta, self.buckets, self.max_distance, sides)
            return scalars(self.weight, index)

        return context.once(("t5", id(self)), make)


def is_two_sided(site: str) -> bool:
    """Whether keys ahead of the query are visible, and need buckets."""
    return site != "decoder"


def check_buckets(buckets: int, max_distance: int, site: str) -> None:
    """Raises ValueError for numbers that leave no bucket for some distance."""
    least = 4 if is_two_sided(site) else 2
    if buckets < least or buckets % least:
        raise ValueError(f"buckets={buckets}: must be a multiple of {least}")
    exact = buckets // least
    if max_distance <= exact:
        raise ValueError(f"max_distance={max_distance}: must be above {exact} for these buckets")


def bucket(delta: Tensor, buckets: int, max_distance: int, both_sides: bool) -> Tensor:
    """The bucket 0..buckets - 1 of each distance, key minus query, in the same shape.

    With n buckets for a side, distances a < n / 2 have one each; beyond, bucket
    n/2 + floor(log(2a / n) / log(2 max_distance / n) n/2), at most n - 1.
    """
    if both_sides:
        buckets //= 2
        ahead = (delta > 0).long() * buckets
        a = delta.abs()
    else:
        ahead = torch.zeros_like(delta)
        a = (-delta).clamp(min=0)
    exact = buckets // 2
    # float32 on purpose: released models were trained with its rounding
    grown = torch.log(a.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = exact + (grown * (buckets - exact)).long()
    return ahead + torch.where(a < exact, a, far.clamp(max=buckets - 1))
