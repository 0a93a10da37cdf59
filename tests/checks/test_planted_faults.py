"""Encodings with one fault each, as authors make them: the checks find it where it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from nmt.checks.example import build_perturbed, small_settings
from nmt.checks.properties import CHECKS
from nmt.checks.run import Result, run_checks
from nmt.config.settings import Settings
from nmt.encodings.base import Context, Dims, Encoding, Projection, set_to_zero
from nmt.encodings.context import Positions

STEP = "training step"
LEAKS = "later tokens and padding"
FAR = "far positions"
ROWS = "rows with positions of their own"


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
        return set_to_zero(self.slopes)


class SoundVectors(Encoding):
    """Adds sines of positions to the embeddings."""

    def embed(self, x: Tensor, context: Context) -> Tensor:
        return x + self.angles(context.query_positions, x.shape[-1]).sin()

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
        return self.rotate(q, context.query_positions), self.rotate(k, context.new_key_positions), v

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        """Pairs of x [batch, heads, n, head_dim]."""
        angle = at[:, None, :, None] * 0.2
        a, b = x.float().chunk(2, -1)
        rotated = [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()]
        return torch.cat(rotated, -1).to(x.dtype)


class SeesTheFuture(Sound):
    """Distances as a share of the length."""

    def distances(self, context: Context) -> Tensor:
        return context.delta / context.key_positions.shape[1]


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


class RoundsWhileDecoding(Sound):
    """Right in float32; in bfloat16 it decodes with other numbers."""

    def distances(self, context: Context) -> Tensor:
        low = torch.is_autocast_enabled("cpu") and context.state is not None
        return context.delta.roll(1, -1) if low else context.delta


class OneMemoForAllLayers(Sound):
    def slope(self, layer: int, context: Context) -> Tensor:
        slope: Tensor = context.once("slope", lambda: self.slopes[layer])
        return slope


class WritesIntoKeys(SoundRotation):
    """What is added to the input of keys is in the residual path, queries and values, too."""

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        xk += 0.1
        return super().project(project, xq, xk, xv, layer, context)


class CountsTokens(SoundVectors):
    """Right while positions are counted from 0 and all tokens are read at once."""

    def angles(self, at: Tensor, dim: int) -> Tensor:
        return super().angles(torch.arange(at.shape[1])[None], dim)


class RoundsAngles(SoundVectors):
    def angles(self, at: Tensor, dim: int) -> Tensor:
        return super().angles(at.half(), dim)


class RoundsBeforeADecay(Sound):
    """Cosines of distances in bfloat16 where autocast is on; few see them, as a decay is added."""

    def bias(self, layer: int, context: Context) -> Tensor:
        low = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        at = context.key_positions.to(low)[:, None] - context.query_positions.to(low)[..., None]
        return super().bias(layer, context) * 20 + at.float().cos()[:, None]

    def zero_initialise(self) -> bool:
        return False


class KeepsATensorInAList(Sound):
    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.offsets = [nn.Parameter(torch.randn(())) for _ in range(dims.layers)]

    def slope(self, layer: int, context: Context) -> Tensor:
        return self.slopes[layer] + self.offsets[layer]


class SaysRelative(SoundVectors):
    relative = True


class SaysAbsolute(Sound):
    relative = False


class ReadsTheFirstRow(Sound):
    def distances(self, context: Context) -> Tensor:
        return context.delta[:1]


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
class DrawnAlways(Positions):
    """Random numbers in order, also in evaluation."""

    integer: ClassVar[bool] = False

    def assign(self, index: Tensor, context: Context) -> Tensor:
        return index + context.draw(lambda rows: torch.rand(rows, 1))


class AtDrawnAlways(SoundVectors):
    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.positions = DrawnAlways()


FAULTS: list[tuple[type[Encoding], str, str]] = [  # the check that fails, and words of its message
    (SeesTheFuture, LEAKS, "a later token changes"),
    (OneMemoForAllLayers, STEP, "slopes"),
    (KeepsATensorInAList, STEP, "offsets"),
    (WritesIntoKeys, STEP, "`project`"),
    (CachesWiderKeys, FAR, "`project`"),
    (RoundsAngles, FAR, ""),
    (RoundsBeforeADecay, FAR, ""),
    (ReadsTheFirstRow, ROWS, ""),
    (SaysRelative, "common shift of positions", "`relative`"),
    (SaysAbsolute, "common shift of positions", "`relative`"),
    (HardlySeesOthers, "order in the decoder", ""),
    (Reads, "kind of positions", "position_type is 'none', but positions times 2 change"),
    (ReadsSigns, "kind of positions", "position_type is 'real', but positions times 2048"),
    (CountsTokens, "kind of positions", "torch.arange"),
    (TellsNoOrderInTheEncoder, "order in the encoder", "the order of tokens changes nothing"),
    (EndsAtHundredTokens, "long and empty sequences", "NaN or infinity for 200 tokens"),
    (RoundsWhileDecoding, "decoding: token by token, bfloat16", ""),
    (CannotLearnFromZero, "zero initialised", ""),
    (ChangesWhenComputedTwice, "recomputation", ""),
    (AtDrawnAlways, "decoding: token by token, float32", "largest difference"),
]


@pytest.fixture(scope="module")
def small() -> Settings:
    """Composed once: Hydra takes longer than most checks."""
    return small_settings("none")


def results_of(
    settings: Settings, cls: type[Encoding], checks: Sequence[str], precisions: Sequence[str] = ()
) -> list[Result]:
    model = build_perturbed(replace(settings, encoding={"mine": {"use": cls}}))
    return list(run_checks(model, tokens=4, precisions=precisions, only=checks))


@pytest.mark.parametrize(
    ("cls", "check", "message"), FAULTS, ids=lambda v: getattr(v, "__name__", None)
)
def test_a_planted_fault_is_found_where_it_is(
    cls: type[Encoding], check: str, message: str, small: Settings
) -> None:
    if check in CHECKS:
        results = results_of(small, cls, [check])
    else:
        results = results_of(small, cls, [], [check.rpartition(", ")[2]])
    (result,) = (result for result in results if result.check == check)
    assert not result.passed and message in result.finding


@pytest.mark.parametrize("cls", [Sound, SoundVectors, SoundRotation])
def test_what_has_no_fault_passes(cls: type[Encoding], small: Settings) -> None:
    assert all(result.passed for result in results_of(small, cls, [*CHECKS]))
