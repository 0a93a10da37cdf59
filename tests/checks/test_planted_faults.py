"""Encodings with one fault each, as authors make them: `check_encoding` finds it where it is."""

import random
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding, Projection, zeroed
from nmt.encodings.context import Positions
from nmt.testing import check_encoding

STEP = "training step"
LEAKS = "later tokens and padding"
FAR = "far positions"
ROWS = "rows with positions of their own"
POSITIONS = "positions as declared"
DECODING = "decoding: token by token, float32"


class Sound(Encoding):
    """Takes a learned multiple of the distance off."""

    relative = True

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.slopes = nn.Parameter(torch.full((dims.layers, dims.heads), 0.25))

    def bias(self, layer: int, context: Context) -> Tensor:
        distances = self.distances(context)[:, None].abs()
        return -self.slope(layer, context)[:, None, None] * distances

    def slope(self, layer: int, context: Context) -> Tensor:
        """[heads]"""
        return self.slopes[layer]

    def distances(self, context: Context) -> Tensor:
        """[batch | 1, query, key]"""
        return context.delta

    def zero_initialise(self) -> bool:
        return zeroed(self.slopes)


class SoundVectors(Encoding):
    """Adds sines of positions to the embeddings."""

    def embed(self, x: Tensor, context: Context) -> Tensor:
        return x + self.angles(context.queries, x.shape[-1]).sin()

    def angles(self, at: Tensor, dim: int) -> Tensor:
        """[batch | 1, query, dim]"""
        return at[..., None] * 0.1 ** torch.linspace(0, 3, dim)


class SoundRotation(Encoding):
    """Rotates pairs of components of queries and keys, one from each half, by their positions."""

    relative = True

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = project(xq, xk, xv)
        return self.rotate(q, context.queries), self.rotate(k, context.new_keys), v

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        """Pairs of x [batch, heads, n, head_dim]."""
        angle = at[:, None, :, None] * 0.2
        a, b = x.float().chunk(2, -1)
        rotated = [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()]
        return torch.cat(rotated, -1).to(x.dtype)


class SeesTheFuture(Sound):
    """Distances as a share of the length."""

    def distances(self, context: Context) -> Tensor:
        return context.delta / context.keys.shape[1]


class SeesPadding(SoundVectors):
    def embed(self, x: Tensor, context: Context) -> Tensor:
        return super().embed(x, context) + (x.mean(1, True) if context.site == "encoder" else 0)


class CountsFromTheNewToken(Sound):
    """The first of the new tokens is no first token."""

    def distances(self, context: Context) -> Tensor:
        queries = context.queries - context.queries[:, :1]
        return context.keys[:, None] - queries[..., None]


class HardlySeesOthers(Sound):
    def bias(self, layer: int, context: Context) -> Tensor:
        return super().bias(layer, context) - 20.0 * (context.delta != 0)[:, None]


class TellsNoOrderInTheEncoder(Sound):
    def distances(self, context: Context) -> Tensor:
        return context.delta if context.site == "decoder" else torch.ones_like(context.delta)


class EndsAtHundredTokens(Sound):
    def distances(self, context: Context) -> Tensor:
        return context.delta.where(context.delta.abs() < 100, torch.nan)


class ReadsSigns(Sound):
    """So real positions show nothing that whole ones do not."""

    def distances(self, context: Context) -> Tensor:
        return context.delta.sign()


class ReadsWholePositions(Sound):
    """Says real ones."""

    def distances(self, context: Context) -> Tensor:
        return torch.arange(300)[context.delta.abs()]


class RaisesAnError(Sound):
    def distances(self, context: Context) -> Tensor:
        raise KeyError("nothing here")


class RoundsWhileDecoding(Sound):
    """Right in float32; in bfloat16 it decodes with other numbers."""

    def distances(self, context: Context) -> Tensor:
        low = torch.is_autocast_enabled("cpu") and context.state is not None
        return context.delta.roll(1, -1) if low else context.delta


class OneMemoForAllLayers(Sound):
    def slope(self, layer: int, context: Context) -> Tensor:
        slope: Tensor = context.once("slope", lambda: self.slopes[layer])
        return slope


class FirstLayerForAll(Sound):
    def slope(self, layer: int, context: Context) -> Tensor:
        return self.slopes[0]


class ForgetsTheOrderOfBeams(SoundVectors):
    """Keeps the sum of earlier tokens on itself, where no search reorders it."""

    earlier: Tensor  # [row, 1, dim]

    def embed(self, x: Tensor, context: Context) -> Tensor:
        sums = x.cumsum(1)
        if context.state is not None:
            if int(context.indices[0][0, 0]):
                sums = sums + self.earlier
            self.earlier = sums[:, -1:]
        return super().embed(x, context) + sums / (1 + context.indices[0][..., None])


class WritesIntoKeys(SoundRotation):
    """What is added to the input of keys is in the residual path, queries and values, too."""

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        xk += 0.1
        return super().project(project, xq, xk, xv, layer, context)


class WritesIntoDistances(Sound):
    def distances(self, context: Context) -> Tensor:
        return context.delta.clamp_(-3, 3)


class RoundsPositions(Sound):
    def distances(self, context: Context) -> Tensor:
        return (context.keys.half()[:, None] - context.queries.half()[..., None]).float()


class RoundsAngles(SoundVectors):
    def angles(self, at: Tensor, dim: int) -> Tensor:
        return super().angles(at.half(), dim)


class RoundsBeforeADecay(Sound):
    """Cosines of distances in bfloat16 where autocast is on; few see them, as a decay is added."""

    def bias(self, layer: int, context: Context) -> Tensor:
        low = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        at = context.keys.to(low)[:, None] - context.queries.to(low)[..., None]
        return super().bias(layer, context) * 20 + at.float().cos()[:, None]

    def zero_initialise(self) -> bool:
        return False


class KeepsATensorInAList(Sound):
    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.offsets = [nn.Parameter(torch.randn(())) for _ in range(dims.layers)]

    def slope(self, layer: int, context: Context) -> Tensor:
        return self.slopes[layer] + self.offsets[layer]


class HasAParameterThatNothingReads(Sound):
    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.strength = nn.Parameter(torch.ones(dims.heads))


class LeavesOutTheHeads(Sound):
    """[batch, query, key], which torch broadcasts as if rows were heads."""

    def bias(self, layer: int, context: Context) -> Tensor:
        return context.delta * self.slopes[layer].mean()


class SaysRelative(SoundVectors):
    relative = True


class SaysAbsolute(Sound):
    relative = False


class DrawsInEvaluation(Sound):
    def slope(self, layer: int, context: Context) -> Tensor:
        return self.slopes[layer] * (1 + torch.rand(()))


class DrawsFromPython(Sound):
    def slope(self, layer: int, context: Context) -> Tensor:
        return self.slopes[layer] * (1 + random.random())


class ReadsTheFirstRow(Sound):
    def distances(self, context: Context) -> Tensor:
        return context.delta[:1]


class ReadsTheLengthOfTheBatch(SoundVectors):
    def embed(self, x: Tensor, context: Context) -> Tensor:
        left = x.shape[1] - context.queries if context.site == "encoder" else context.queries
        return x + self.angles(left, x.shape[-1]).sin()


class IsUndefinedForOneToken(SoundVectors):
    """Positions as a share of the source."""

    def embed(self, x: Tensor, context: Context) -> Tensor:
        at = context.queries
        if context.site == "encoder" and context.lengths is not None:
            at = at / (context.lengths[:, None] - 1)
        return x + self.angles(at, x.shape[-1]).sin()


class StartsWithAnEffect(Sound):
    def zero_initialise(self) -> bool:
        return True


class CannotLearnFromZero(Sound):
    """Zero times zero has no gradient."""

    def slope(self, layer: int, context: Context) -> Tensor:
        return self.slopes[layer] ** 2


class ChangesWhenComputedTwice(Sound):
    calls = 0

    def slope(self, layer: int, context: Context) -> Tensor:
        self.calls += context.training
        return self.slopes[layer] * (1 + self.calls)


class CachesWiderKeys(SoundRotation):
    """Keys in float32 take twice the room of those in bfloat16."""

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        return super().rotate(x.float(), at)


class Reads(Sound):
    """Says that it reads no positions."""

    position_type = "none"


@dataclass(frozen=True)
class Unsorted(Positions):
    """Random positions in the order of the draw."""

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def assign(self, index: Tensor, context: Context) -> Tensor:
        if not context.training:
            return index
        return context.draw(lambda rows: torch.rand(rows, 50).argsort()[:, : index.shape[1]])

    def position_range(self, length: int, training: bool) -> range:
        return range(50 if training else length)


@dataclass(frozen=True)
class Halves(Positions):
    """Says that positions are whole, as every class does unless it says otherwise."""

    def assign(self, index: Tensor, context: Context) -> Tensor:
        return index / 2


@dataclass(frozen=True)
class Beyond(Positions):
    """Says that positions are those of 0 to length - 1, and draws farther ones."""

    def assign(self, index: Tensor, context: Context) -> Tensor:
        return index + context.draw(lambda rows: torch.randint(9, (rows, 1))) * context.training


@dataclass(frozen=True)
class DrawnAlways(Positions):
    """Random numbers in order, also in evaluation."""

    integer: ClassVar[bool] = False

    def assign(self, index: Tensor, context: Context) -> Tensor:
        return index + context.draw(lambda rows: torch.rand(rows, 1))


class AtPositions(SoundVectors):
    positions_of: Positions

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.positions = self.positions_of


class AtUnsorted(AtPositions):
    positions_of = Unsorted()


class AtHalves(AtPositions):
    positions_of = Halves()


class AtBeyond(AtPositions):
    positions_of = Beyond()


class AtDrawnAlways(AtPositions):
    positions_of = DrawnAlways()


FAULTS: list[tuple[type[Encoding], str, str]] = [  # the check that fails, and what it names
    (SeesTheFuture, LEAKS, "`bias`"),
    (SeesPadding, LEAKS, "`embed`"),
    (ReadsTheLengthOfTheBatch, LEAKS, "`embed`"),
    (CountsFromTheNewToken, DECODING, ""),
    (ForgetsTheOrderOfBeams, "decoding: beams, float32", ""),
    (DrawsInEvaluation, DECODING, ""),
    (DrawsFromPython, DECODING, ""),
    (OneMemoForAllLayers, STEP, "slopes"),
    (FirstLayerForAll, STEP, "slopes"),
    (KeepsATensorInAList, STEP, "offsets"),
    (HasAParameterThatNothingReads, STEP, "strength"),
    (LeavesOutTheHeads, STEP, "`bias`"),
    (WritesIntoKeys, STEP, "`project`"),
    (WritesIntoDistances, STEP, "`bias`"),
    (CachesWiderKeys, FAR, "`project`"),
    (RoundsPositions, FAR, ""),
    (RoundsAngles, FAR, ""),
    (RoundsBeforeADecay, FAR, ""),
    (ReadsTheFirstRow, ROWS, ""),
    (SaysRelative, "common shift of positions", "`relative`"),
    (SaysAbsolute, "common shift of positions", "`relative`"),
    (HardlySeesOthers, "order in the decoder", ""),
    (Reads, "kind of positions", "position_type none, but positions times 2 show"),
    (ReadsSigns, "kind of positions", "position_type real, but positions times 2048 show 0"),
    (ReadsWholePositions, "kind of positions", "IndexError at test_planted_faults.py:"),
    (TellsNoOrderInTheEncoder, "order in the encoder", "the order of tokens has no effect"),
    (EndsAtHundredTokens, "long and empty sequences", "NaN or infinity for 200 tokens"),
    (RaisesAnError, STEP, "KeyError at test_planted_faults.py:"),
    (RoundsWhileDecoding, "decoding: token by token, bfloat16", "look at: what is computed in bf"),
    (IsUndefinedForOneToken, "long and empty sequences", ""),
    (StartsWithAnEffect, "zero initialised", ""),
    (CannotLearnFromZero, "zero initialised", ""),
    (ChangesWhenComputedTwice, "recomputation", ""),
    (AtUnsorted, POSITIONS, "Unsorted (decoder) does not keep to its `ascending`"),
    (AtHalves, POSITIONS, "Halves (encoder) does not keep to its `integer`"),
    (AtBeyond, POSITIONS, "Beyond (encoder) does not keep to its `position_range`"),
    (AtDrawnAlways, POSITIONS, "DrawnAlways (encoder) does not keep to its `training`"),
]


@pytest.mark.parametrize(
    ("cls", "check", "named"), FAULTS, ids=lambda v: getattr(v, "__name__", None)
)
def test_a_planted_fault_is_found_where_it_is(cls: type[Encoding], check: str, named: str) -> None:
    precisions = [check.rpartition(", ")[2]] if check.startswith("decoding") else []
    with pytest.raises(AssertionError) as raised:
        check_encoding(cls, tokens=8, precisions=precisions)
    failing = [line for line in str(raised.value).split("\n")[1:] if check in line]
    assert failing and named in failing[0], str(raised.value)


@pytest.mark.parametrize("cls", [Sound, SoundVectors, SoundRotation])
def test_what_has_no_fault_passes(cls: type[Encoding]) -> None:
    assert all(result.passed for result in check_encoding(cls, tokens=8, precisions=["float32"]))
