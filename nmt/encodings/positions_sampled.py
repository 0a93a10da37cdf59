"""Ruoss et al. (2023), Randomized Positional Encodings Boost Length Generalization.

Positions are drawn in order from a range much longer than the sentence, so that a model meets in
training all those that long sentences will have. Draws are made as in `positions_random.py`.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from nmt.config.check import PositiveInt
from nmt.encodings.context import Context, Positions
from nmt.encodings.positions_random import SELF_ATTENTION

SEED = 2023  # of the one sample that all evaluations share


@dataclass(frozen=True)
class Sample(Positions):
    """As many of the numbers 0 .. longest - 1 as there are tokens, without replacement, in order.

    For each sentence, or `per_batch` one sample for all rows, as in the authors' code. In
    evaluation the length of an output is not known in advance, so `test_length` positions are
    spread over the range, `even` or as one `sample` that is always the same, and the first ones
    are used; the authors draw anew for each test sentence. Longer sentences are refused.
    """

    sites: ClassVar[tuple[str, ...]] = SELF_ATTENTION
    longest: int = 2048
    test: Literal["even", "sample"] = "even"
    test_length: PositiveInt = 512
    per_batch: bool = False

    def __post_init__(self) -> None:
        if self.test_length > self.longest:
            raise ValueError(
                f"at.sample.test_length={self.test_length}: must be at most longest={self.longest}"
            )

    def max_length(self, training: bool) -> int:
        """As many tokens as there are positions to draw, or to use in evaluation."""
        return self.longest if training else self.test_length

    def position_range(self, length: int, training: bool) -> range:
        """The whole range, wherever any of it may be drawn; else its evenly spread beginning."""
        if training or self.test == "sample":
            return range(self.longest)
        return range((length - 1) * (self.longest // self.test_length) + 1)

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Positions [batch | 1, length] of index [batch | 1, length]."""
        n = self._tokens(index, context)
        available = self.longest if context.training else self.test_length
        if n > available:
            name = "longest" if context.training else "test_length"
            raise ValueError(f"at.sample.{name}={available}: too few positions for {n} tokens")
        drawn = self._drawn(n, context) if context.training else self._fixed(index.device)
        rows = max(len(drawn), len(index))
        return drawn.expand(rows, -1).gather(1, index.expand(rows, -1))

    @staticmethod
    def _tokens(index: Tensor, context: Context) -> int:
        if context.extent is not None:
            return max(context.extent.queries, context.extent.keys)
        return int(index.max()) + 1 if index.numel() else 0

    def _drawn(self, n: int, context: Context) -> Tensor:
        """[rows | 1, n]; padding gets the last position, so that no token loses one."""
        rows = 1 if self.per_batch else context.rows
        device = context.queries.device
        order = torch.rand(rows, self.longest, device=device).argsort(-1)[:, :n]
        if not self.per_batch and context.lengths is not None:
            padding = torch.arange(n, device=device) >= context.lengths[:, None]
            order = order.masked_fill(padding, self.longest - 1)
        return order.sort(-1).values

    def _fixed(self, device: torch.device) -> Tensor:
        """[1, test_length], the same in every pass."""
        if self.test == "even":
            step = self.longest // self.test_length
            return torch.arange(self.test_length, device=device)[None] * step
        draw = torch.Generator().manual_seed(SEED)
        order = torch.randperm(self.longest, generator=draw, device="cpu")
        return order[: self.test_length].sort().values[None].to(device)
