"""Facts of an encoding, verified on a small model."""

from typing import NamedTuple

import torch
from torch import Tensor

from nmt.checks.invariance import relative_difference, shifted
from nmt.inspect import parity
from nmt.inspect.parity import Deviation
from nmt.inspect.specimen import Specimen, full_pass
from nmt.model.transformer import Transformer

TOKENS = 20  # of the target that is decoded
CLOSE = 1e-5  # float32, as a share of the largest number


class Observation(NamedTuple):
    """The result of one trial."""

    holds: bool
    finding: str  # the largest difference, or what went wrong


def cached(model: Transformer) -> Deviation:
    """Decoding with cached keys, token by token, compared with one causal pass."""
    (deviation,) = parity.measure(model, TOKENS, ["float32"], conditions=parity.CONDITIONS[:1])
    return deviation


def shift(specimen: Specimen) -> Observation | None:
    """Whether a common shift of all positions changes nothing; None where only distances exist."""
    encodings = specimen.model.entries
    if any(e.positions.distances_only for e in encodings):
        return None
    before = full_pass(*specimen)
    with shifted(encodings):
        return _equal(before, full_pass(*specimen))


def permutation(specimen: Specimen) -> Observation:
    """Whether reordering the source's tokens merely reorders the encoder's states."""
    source, _, columns = specimen.text.single(-1)  # the row without padding
    order = torch.randperm(source.shape[1], generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        straight, *_ = specimen.model.encode(source, columns)
        turned, *_ = specimen.model.encode(source[:, order], columns)
    return _equal(straight[:, order], turned)


def interpolation(specimen: Specimen) -> Observation:
    """Position interpolation; changes the specimen."""
    try:
        specimen.model.scale_positions(0.5)
        finite = bool(full_pass(*specimen).isfinite().all())
    except ValueError as e:
        return Observation(False, str(e).split(", because ")[-1])
    return Observation(finite, "positions may be any real numbers" if finite else "not finite")


def longer_source(specimen: Specimen, limit: int | None) -> str:
    """Whether a source one longer than the limit, or one of 1,000 tokens, is encoded."""
    length = 1000 if limit is None else limit + 1
    source, _, columns = specimen.text.single(-1)
    columns = {n: c if c.shape[1] == 1 else _repeated(c, length) for n, c in columns.items()}
    try:
        with torch.inference_mode():
            states, *_ = specimen.model.encode(_repeated(source, length), columns)
    except ValueError as e:
        return f"refused: {e}"
    finite = "finite states" if states.isfinite().all() else "NaN or infinity"
    return f"{length:,} tokens encode to {finite}"


def _repeated(ids: Tensor, length: int) -> Tensor:
    return ids.repeat(1, -(-length // ids.shape[1]))[:, :length]


def _equal(a: Tensor, b: Tensor) -> Observation:
    most = relative_difference(a, b)
    return Observation(most < CLOSE, f"largest difference {most:.2g}")
