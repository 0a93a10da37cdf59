"""Whether an encoding works, and what changes it: tried on a small model, not believed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from nmt.config import Settings
from nmt.encodings.context import Context, Positions
from nmt.errors import UserError
from nmt.inspect.specimen import Specimen, entries, small

CLOSE = 1e-5  # float32, logits of unit size
BY = 5  # tokens of the common shift


class Check(NamedTuple):
    """One thing that was tried."""

    holds: bool
    said: str  # the largest difference, or what went wrong


class Shifted(Positions):
    """Other positions, all of them a few tokens later."""

    integer: ClassVar[bool] = True

    def __init__(self, inner: Positions) -> None:
        self.inner = inner

    @property
    def columns(self) -> frozenset[str]:
        """Those of the positions inside."""
        return self.inner.columns

    @property
    def lengths(self) -> bool:
        """As the positions inside."""
        return self.inner.lengths

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Shift what the positions inside say."""
        return self.inner.assign(index, context) + BY


def works(settings: Settings) -> Check:
    """Build a small model, translate at once and token by token: both must agree."""
    try:
        specimen = small(settings)
    except UserError as e:
        return Check(False, str(e))
    try:
        return cached(specimen)
    except Exception as e:  # whatever a broken encoding raises, it is the answer
        return Check(False, f"{type(e).__name__}: {e}".split("\n")[0])


def cached(specimen: Specimen) -> Check:
    """Decoding with cached keys against one causal pass."""
    with torch.inference_mode():
        return _equal(specimen.full(), specimen.cached())


def shift(specimen: Specimen) -> Check | None:
    """A common shift of all positions; None where only distances are given."""
    if any(e.positions.pairs for _, e in entries(specimen.model)):
        return None
    with torch.inference_mode():
        before = specimen.full()
        with _shifted(specimen):
            return _equal(before, specimen.full())


def permutation(specimen: Specimen) -> Check:
    """Reordering the source's tokens merely reorders the encoder's states."""
    source = specimen.source[1:]  # the row without padding
    columns = {name: c[1:] for name, c in specimen.columns.items()}
    order = torch.randperm(source.shape[1], generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        straight, _ = specimen.model.encode(source, columns)
        turned, _ = specimen.model.encode(source[:, order], columns)
    return _equal(straight[:, order], turned)


def interpolation(specimen: Specimen) -> Check:
    """Position interpolation; changes the specimen."""
    try:
        for site in specimen.model.sites.values():
            site.scale_positions(0.5)
        with torch.inference_mode():
            finite = bool(specimen.full().isfinite().all())
    except ValueError as e:
        return Check(False, str(e).split(", because ")[-1])
    return Check(finite, "positions may be any real numbers" if finite else "not finite")


def beyond(specimen: Specimen, limit: int | None) -> str:
    """What happens to a source one longer than the limit, or to one of 1,000 tokens."""
    model = specimen.model
    length = 1000 if limit is None else limit + 1
    many = specimen.source[1:].repeat(1, -(-length // specimen.source.shape[1]))[:, :length]
    columns = {
        name: c[1:] if c.shape[1] == 1 else c[1:].repeat(1, many.shape[1])[:, :length]
        for name, c in specimen.columns.items()
    }
    try:
        with torch.inference_mode():
            finite = bool(model.encode(many, columns)[0].isfinite().all())
    except ValueError as e:
        return f"refused: {e}"
    return f"{length:,} tokens encode to " + ("finite states" if finite else "NaN or infinity")


def _equal(a: Tensor, b: Tensor) -> Check:
    most = float((a - b).abs().max())
    return Check(most < CLOSE, f"largest difference {most:.0e}" if most else "no difference at all")


@contextmanager
def _shifted(specimen: Specimen) -> Iterator[None]:
    kept = [(e, e.positions) for _, e in entries(specimen.model)]
    for e, positions in kept:
        e.positions = Shifted(positions)
    try:
        yield
    finally:
        for e, positions in kept:
            e.positions = positions
