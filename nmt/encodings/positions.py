"""Positions that are counted, drawn at random or scaled, for any encoding that reads them.

Shift      Kiyono, Kobayashi, Suzuki, Inui (2021), SHAPE: Shifted Absolute Position Embedding
Augment    Likhomanenko, Xu, Synnaeve, Collobert, Rogozhnikov (2021), CAPE: Encoding Relative
           Positions with Continuous Augmented Positional Embeddings
Sample     Ruoss et al. (2023), Randomized Positional Encodings Boost Length Generalization
PoSE       Zhu, Yang, Wang, Song, Wu, Wei, Li (2023), PoSE: Efficient Context Window Extension of
           LLMs via Positional Skip-wise Training
Remaining  Takase and Okazaki (2019), Positional Encoding to Control Output Sequence Length; with
           noise Oka et al. (2020), Incorporating Noisy Length Constraint
Scaled     Chen et al. (2023), Extending Context Window of Large Language Models via Positional
           Interpolation

Draws come from torch's global generator, anew in every training pass, independent for source and
target; queries and keys of a pass share them, and so do the rows of a sentence (`Context.draw`).
Evaluation draws nothing. Cross-attention is left out: it would draw other positions than the
sentence had in its own stack.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from nmt.config.check import Between, NonNegativeFloat, NonNegativeInt, PositiveInt
from nmt.encodings.context import Context, Positions

SELF_ATTENTION = ("encoder", "decoder")  # sites that see one text alone
SEED = 2023  # of the one sample that all evaluations share


@dataclass(frozen=True)
class Index(Positions):
    """The token's index in its sentence, counted as start, start + step, start + 2 step, ..."""

    start: int = 0
    step: int = 1

    def __post_init__(self) -> None:
        if self.step == 0:
            raise ValueError("at.index.step=0: all tokens would have one position")

    @property
    def ascending(self) -> bool:
        return self.step >= 0

    @property
    def consecutive(self) -> bool:
        return self.step == 1

    def assign(self, index: Tensor, context: Context) -> Tensor:
        return index * self.step + self.start

    def position_range(self, length: int, training: bool) -> range:
        first, last = sorted((self.start, self.start + (length - 1) * self.step))
        return range(first, last + 1)


@dataclass(frozen=True)
class Shift(Positions):
    """t + k', k' uniform in 0 .. k - 1 for each sentence; t + test in evaluation."""

    sites: ClassVar[tuple[str, ...]] = SELF_ATTENTION
    consecutive: ClassVar[bool] = True  # all tokens of a sentence have the same shift
    k: PositiveInt = 500
    test: NonNegativeInt = 0

    def assign(self, index: Tensor, context: Context) -> Tensor:
        if not context.training:
            return index + self.test
        shifts = context.draw(lambda rows: torch.randint(self.k, (rows, 1), device=index.device))
        return index + shifts

    def position_range(self, length: int, training: bool) -> range:
        if training:
            return range(self.k - 1 + length)
        return range(self.test, self.test + length)

    def max_distance(self, length: int, training: bool) -> int:
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
        at = index.to(torch.float32)
        if self.center:
            n = context.lengths
            at = at - ((index.shape[1] if n is None else n[:, None]) - 1) / 2
        if not context.training:
            return at

        def draw(length: int) -> Tensor:
            """Uniform in [-1, 1): [rows, length]."""
            return 2 * context.draw(lambda rows: torch.rand(rows, length, device=at.device)) - 1

        at = at + self.shift * draw(1) + self.noise * draw(at.shape[1])
        return at * (math.log(self.scale) * draw(1)).exp()


@dataclass(frozen=True)
class Sample(Positions):
    """As many of the numbers 0 .. longest - 1 as there are tokens, without replacement, in order.

    So a model meets in training all positions that long sentences will have. Drawn for each
    sentence, or `per_batch` one sample for all rows, as in the authors' code. In evaluation the
    length of an output is unknown in advance, so `test_length` positions are spread over the
    range, `even` or as one `sample` that is always the same, and the first ones are used; the
    authors draw anew for each test sentence. Longer sentences are refused.
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
        return self.longest if training else self.test_length

    def position_range(self, length: int, training: bool) -> range:
        if training or self.test == "sample":
            return range(self.longest)
        return range((length - 1) * (self.longest // self.test_length) + 1)

    def assign(self, index: Tensor, context: Context) -> Tensor:
        n = context.key_positions.shape[1]  # in both kinds of sites all tokens so far
        available = self.longest if context.training else self.test_length
        if n > available:
            name = "longest" if context.training else "test_length"
            raise ValueError(f"at.sample.{name}={available}: too few positions for {n} tokens")
        positions = self._draw(n, context) if context.training else self._fixed(index.device)
        rows = max(len(positions), len(index))
        return positions.expand(rows, -1).gather(1, index.expand(rows, -1))

    def _draw(self, n: int, context: Context) -> Tensor:
        """[rows | 1, n]; padding gets the last position, so that no token loses one."""
        device = context.query_positions.device

        def make(rows: int) -> Tensor:
            return torch.rand(rows, self.longest, device=device)

        numbers = make(1) if self.per_batch else context.draw(make)
        order = numbers.argsort(-1)[:, :n]
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
        return self.longest if training else None

    def position_range(self, length: int, training: bool) -> range:
        return range(self.longest if training else length)

    def assign(self, index: Tensor, context: Context) -> Tensor:
        if not context.training:
            return index
        if (longest := index.shape[1]) > self.longest:
            raise ValueError(
                f"at.pose.longest={self.longest}: too few positions for {longest} tokens"
            )
        n = index.new_full((context.rows,), longest) if context.lengths is None else context.lengths

        def draw(below: Tensor, count: int) -> Tensor:
            """Uniform integers [rows, count] of 0 .. below - 1 for below [rows]; 0 for none."""
            fractions = context.draw(
                lambda rows: torch.rand(rows, count, dtype=torch.float64, device=below.device)
            )
            return (fractions * below[:, None]).long()

        borders = 1 + draw(n - 1, self.chunks - 1).sort(-1).values  # [rows, border]
        left, positions = self.longest - n, index.expand(context.rows, -1)
        for border in borders.unbind(-1):
            skipped = draw(left + 1, 1)
            positions = positions + skipped * (index >= border[:, None])
            left = left - skipped[:, 0]
        return positions.clamp(max=self.longest - 1)  # as padding may be beyond


@dataclass(frozen=True)
class Remaining(Positions):
    """length - index: the first of n tokens has n, the last one (eos) 1.

    So a decoder that gets another length writes a text of that length; with sinusoids this is
    the length-difference encoding (LDPE). With noise > 0 the length is off in training by a number
    drawn evenly from -noise..noise for each sentence.
    """

    noise: NonNegativeInt = 0
    integer: ClassVar[bool] = False  # whole, but below 0 where an output is longer than desired
    sites: ClassVar[tuple[str, ...]] = SELF_ATTENTION
    needs_lengths: ClassVar[bool] = True
    ascending: ClassVar[bool] = False

    def assign(self, index: Tensor, context: Context) -> Tensor:
        return draw_lengths(context, self.noise)[:, None] - index


def draw_lengths(context: Context, noise: int) -> Tensor:
    """The lengths [batch] of the context, in training off by up to `noise`, once per pass."""
    lengths = context.lengths
    if lengths is None:
        raise ValueError("the encoding needs the desired length of each output")
    if not (noise and context.training):
        return lengths

    def make(rows: int) -> Tensor:
        return torch.randint(-noise, noise + 1, (rows,), device=lengths.device)

    return context.once(("length", noise), lambda: lengths + context.draw(make))


@dataclass(frozen=True)
class Scaled(Positions):
    """The positions of `inner`, times a factor, plus a shift."""

    inner: Positions
    factor: float
    shift: int = 0
    integer: ClassVar[bool] = False

    @property
    def ascending(self) -> bool:
        return self.inner.ascending

    def max_length(self, training: bool) -> int | None:
        return self.inner.max_length(training)

    def position_range(self, length: int, training: bool) -> range | None:
        inner = self.inner.position_range(length, training)
        if inner is None or self.factor != 1:
            return None
        return range(inner.start + self.shift, inner.stop + self.shift)

    def max_distance(self, length: int, training: bool) -> int | None:
        return self.inner.max_distance(length, training) if self.factor == 1 else None

    def assign(self, index: Tensor, context: Context) -> Tensor:
        return self.inner.assign(index, context) * self.factor + self.shift


def check_ascending(positions: Positions, site: str) -> None:
    """Raise ValueError for encodings whose decoder has no distances to keys ahead of a query."""
    if site == "decoder" and not positions.ascending:
        raise ValueError(
            "positions that count down: they put a decoder's past ahead of it, where this encoding "
            "knows no distances; choose ascending ones, or where=encoder"
        )
