"""Positions drawn at random while training, so that a model cannot lean on absolute ones.

Shift      Kiyono, Kobayashi, Suzuki, Inui (2021), SHAPE: Shifted Absolute Position Embedding
Augment    Likhomanenko, Xu, Synnaeve, Collobert, Rogozhnikov (2021), CAPE: Encoding Relative
           Positions with Continuous Augmented Positional Embeddings
PoSE       Zhu, Yang, Wang, Song, Wu, Wei, Li (2023), PoSE: Efficient Context Window Extension of
           LLMs via Positional Skip-wise Training

Draws come from torch's global generator, anew in every training pass, independent for source and
target; queries and keys of a pass share them. Evaluation draws nothing. Cross-attention is left
out: it would draw other positions than the sentence had in its own stack.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from nmt.config.check import Between, NonNegativeFloat, NonNegativeInt, PositiveInt
from nmt.encodings.context import Context, Positions

SELF_ATTENTION = ("encoder", "decoder")  # sites that see one text alone


@dataclass(frozen=True)
class Shift(Positions):
    """t + k', k' uniform in 0 .. k - 1 for each sentence; t + test in evaluation."""

    sites: ClassVar[tuple[str, ...]] = SELF_ATTENTION
    consecutive: ClassVar[bool] = True  # all tokens of a sentence have the same shift
    k: PositiveInt = 500
    test: NonNegativeInt = 0

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Shift index [batch | 1, length] by one number per row: [batch, length]."""
        if not context.training:
            return index + self.test
        return index + torch.randint(self.k, (context.rows, 1), device=index.device)

    def position_range(self, length: int, training: bool) -> range:
        """That of all shifts."""
        if training:
            return range(self.k - 1 + length)
        return range(self.test, self.test + length)

    def max_distance(self, length: int, training: bool) -> int:
        """As without a shift: all tokens of a sentence have the same."""
        return length - 1


@dataclass(frozen=True)
class Augment(Positions):
    """(t + shift' + noise'_t) exp(z): a shift, jitter and scale for each sentence.

    Uniform shift' in [-shift, shift], noise'_t in [-noise, noise] for each token (to 0.5 they
    keep their order), z in [-log scale, log scale]. `center` subtracts the mean of the sentence's
    positions first, also in evaluation; this needs its length and so is only for encoders.
    """

    integer: ClassVar[bool] = False
    sites: ClassVar[tuple[str, ...]] = SELF_ATTENTION
    shift: NonNegativeFloat = 5.0
    noise: NonNegativeFloat = 0.5
    scale: Annotated[float, Between(1)] = 1.03
    center: bool = False

    def __post_init__(self) -> None:
        if self.center:
            object.__setattr__(self, "sites", ("encoder",))

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Float positions [batch | 1, length] of index [batch | 1, length]."""
        at = index.to(torch.float32)
        if self.center:
            n = context.lengths
            at = at - ((index.shape[1] if n is None else n[:, None]) - 1) / 2
        if not context.training:
            return at
        rows = context.rows
        at = (
            at
            + self.shift * _symmetric(rows, 1, at)
            + self.noise * _symmetric(rows, at.shape[1], at)
        )
        return at * (math.log(self.scale) * _symmetric(rows, 1, at)).exp()


@dataclass(frozen=True)
class PoSE(Positions):
    """Training text is cut into chunks, and positions are skipped before each but the first one.

    So short texts show all distances up to `longest`. Of n tokens, chunks - 1 borders are drawn
    from 1 .. n - 1, with repetition; of the longest - n positions to spare, each chunk skips a
    uniform number of those that are left. Evaluation skips none. In the authors' code the first of
    two chunks is at most half of the text.
    """

    sites: ClassVar[tuple[str, ...]] = SELF_ATTENTION
    longest: PositiveInt = 2048
    chunks: Annotated[int, Between(2)] = 2

    def max_length(self, training: bool) -> int | None:
        """A training text has no more tokens than there are positions."""
        return self.longest if training else None

    def position_range(self, length: int, training: bool) -> range:
        """All to which the last chunk may skip."""
        return range(self.longest if training else length)

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Positions [batch | 1, length] of index [batch | 1, length]."""
        if not context.training:
            return index
        if (longest := index.shape[1]) > self.longest:
            raise ValueError(
                f"at.pose.longest={self.longest}: too few positions for {longest} tokens"
            )
        n = index.new_full((context.rows,), longest) if context.lengths is None else context.lengths
        borders = 1 + _integers(n - 1, self.chunks - 1).sort(-1).values  # [rows, border]
        left, positions = self.longest - n, index.expand(context.rows, -1)
        for border in borders.unbind(-1):
            skipped = _integers(left + 1, 1)
            positions = positions + skipped * (index >= border[:, None])
            left = left - skipped[:, 0]
        return positions.clamp(max=self.longest - 1)  # as padding may be beyond


def _integers(below: Tensor, count: int) -> Tensor:
    """Uniform integers [rows, count] of 0 .. below - 1 for below [rows]; 0 where there is none."""
    draw = torch.rand(len(below), count, dtype=torch.float64, device=below.device)
    return (draw * below[:, None]).long()


def _symmetric(rows: int, length: int, like: Tensor) -> Tensor:
    """Uniform in [-1, 1): [rows, length]."""
    return 2 * torch.rand(rows, length, device=like.device) - 1
