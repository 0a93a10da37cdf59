"""Positions drawn at random while training, so that a model cannot lean on absolute ones.

Shift      Kiyono, Kobayashi, Suzuki, Inui (2021), SHAPE: Shifted Absolute Position Embedding
Augment    Likhomanenko, Xu, Synnaeve, Collobert, Rogozhnikov (2021), CAPE: Encoding Relative
           Positions with Continuous Augmented Positional Embeddings
Sample     Ruoss et al. (2023), Randomized Positional Encodings Boost Length Generalization

Draws come from torch's global generator, anew in every training pass, independent for source and
target; queries and keys of a pass share them. Evaluation draws nothing. Cross-attention is left
out: it would draw other positions than the sentence had in its own stack.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.encodings.context import Context, Positions

OWN = ("encoder", "decoder")
SEED = 2023  # of the one sample that all evaluations share


@dataclass(frozen=True)
class Shift(Positions):
    """t + k', k' uniform in 0 .. k - 1 for each sentence; t + test in evaluation."""

    sites: ClassVar[tuple[str, ...]] = OWN
    k: int = 500
    test: int = 0

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"at.shift.k={self.k}: must be at least 1")
        if self.test < 0:
            raise ValueError(f"at.shift.test={self.test}: must be at least 0")

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Shift index [batch | 1, length] by one number per row: [batch, length]."""
        if not context.training:
            return index + self.test
        return index + torch.randint(self.k, (context.rows, 1), device=index.device)


@dataclass(frozen=True)
class Augment(Positions):
    """(t + shift' + noise'_t) exp(z): a shift, jitter and scale for each sentence.

    Uniform shift' in [-shift, shift], noise'_t in [-noise, noise] for each token (to 0.5 they
    keep their order), z in [-log scale, log scale]. `center` subtracts the mean of the sentence's
    positions first, also in evaluation; this needs its length and so is only for encoders.
    """

    integer: ClassVar[bool] = False
    sites: ClassVar[tuple[str, ...]] = OWN
    shift: float = 5.0
    noise: float = 0.5
    scale: float = 1.03
    center: bool = False

    def __post_init__(self) -> None:
        for name, least in (("shift", 0), ("noise", 0), ("scale", 1)):
            if not least <= (value := getattr(self, name)) < math.inf:
                raise ValueError(f"at.augment.{name}={value}: must be at least {least}")
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


def _symmetric(rows: int, length: int, like: Tensor) -> Tensor:
    """Uniform in [-1, 1): [rows, length]."""
    return 2 * torch.rand(rows, length, device=like.device) - 1


@dataclass(frozen=True)
class Sample(Positions):
    """As many of the numbers 0 .. longest - 1 as there are tokens, without replacement, in order.

    For each sentence, or `per_batch` one sample for all rows, as in the authors' code. In
    evaluation the length of an output is not known in advance, so `test_length` positions are
    spread over the range, `even` or as one `sample` that is always the same, and the first ones
    are used; the authors draw anew for each test sentence. Longer sentences are refused.
    """

    sites: ClassVar[tuple[str, ...]] = OWN
    longest: int = 2048
    test: str = "even"
    test_length: int = 512
    per_batch: bool = False

    def __post_init__(self) -> None:
        if self.test not in ("even", "sample"):
            raise ValueError(f"at.sample.test={self.test}: choose even or sample")
        if not 1 <= self.test_length <= self.longest:
            raise ValueError(
                f"at.sample.test_length={self.test_length}: must be between 1 and "
                f"longest={self.longest}"
            )

    @property
    def limit(self) -> int:
        """The longest sentence that can be evaluated."""
        return self.test_length

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Positions [batch | 1, length] of index [batch | 1, length]."""
        n = int(index.max()) + 1 if index.numel() else 0
        room = self.longest if context.training else self.test_length
        if n > room:
            name = "longest" if context.training else "test_length"
            raise ValueError(f"at.sample.{name}={room}: too few positions for {n} tokens")
        drawn = self._drawn(n, context) if context.training else self._fixed()
        rows = max(len(drawn), len(index))
        return drawn.to(index.device).expand(rows, -1).gather(1, index.expand(rows, -1))

    def _drawn(self, n: int, context: Context) -> Tensor:
        """[rows | 1, n]; padding stands at the end of the range and takes no position away."""
        rows = 1 if self.per_batch else context.rows
        device = context.queries.device
        order = torch.rand(rows, self.longest, device=device).argsort(-1)[:, :n]
        if not self.per_batch and context.lengths is not None:
            padding = torch.arange(n, device=device) >= context.lengths[:, None]
            order = order.masked_fill(padding, self.longest - 1)
        return order.sort(-1).values

    def _fixed(self) -> Tensor:
        """[1, test_length], the same in every pass."""
        if self.test == "even":
            return torch.arange(self.test_length)[None] * (self.longest // self.test_length)
        draw = torch.Generator().manual_seed(SEED)
        order = torch.randperm(self.longest, generator=draw, device="cpu")
        return order[: self.test_length].sort().values[None]
