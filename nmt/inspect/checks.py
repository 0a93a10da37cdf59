"""Whether an encoding works, and what changes it: tried on a small model, not believed."""

from typing import NamedTuple

import torch
from torch import Tensor

from nmt.inspect.specimen import Decoding, Specimen, entries, full
from nmt.model.invariance import shifted

CLOSE = 1e-5  # float32, logits of unit size


class Check(NamedTuple):
    """One thing that was tried."""

    holds: bool
    finding: str  # the largest difference, or what went wrong


def works(specimen: Specimen) -> Check:
    """Decoding runs, and at once and token by token it gives the same."""
    try:
        return cached(specimen)
    except Exception as e:  # whatever a broken encoding raises, it is the answer
        return Check(False, f"{type(e).__name__}: {e}".split("\n")[0])


def cached(specimen: Specimen) -> Check:
    """Decoding with cached keys against one causal pass."""
    with torch.inference_mode():
        decoding = Decoding(*specimen)
        decoding.grow(specimen.text.target.shape[1])
        return _equal(full(*specimen), decoding.logits)


def shift(specimen: Specimen) -> Check | None:
    """A common shift of all positions; None where only distances are given."""
    encodings = [e for _, e in entries(specimen.model)]
    if any(e.positions.pairs for e in encodings):
        return None
    with torch.inference_mode():
        before = full(*specimen)
        with shifted(encodings):
            return _equal(before, full(*specimen))


def permutation(specimen: Specimen) -> Check:
    """Reordering the source's tokens merely reorders the encoder's states."""
    source, _, columns = specimen.text.alone(-1)  # the row without padding
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
            finite = bool(full(*specimen).isfinite().all())
    except ValueError as e:
        return Check(False, str(e).split(", because ")[-1])
    return Check(finite, "positions may be any real numbers" if finite else "not finite")


def beyond(specimen: Specimen, limit: int | None) -> str:
    """What happens to a source one longer than the limit, or to one of 1,000 tokens."""
    length = 1000 if limit is None else limit + 1
    source, _, columns = specimen.text.alone(-1)
    columns = {n: c if c.shape[1] == 1 else _repeated(c, length) for n, c in columns.items()}
    try:
        with torch.inference_mode():
            states, _ = specimen.model.encode(_repeated(source, length), columns)
    except ValueError as e:
        return f"refused: {e}"
    finite = "finite states" if states.isfinite().all() else "NaN or infinity"
    return f"{length:,} tokens encode to {finite}"


def _repeated(ids: Tensor, length: int) -> Tensor:
    return ids.repeat(1, -(-length // ids.shape[1]))[:, :length]


def _equal(a: Tensor, b: Tensor) -> Check:
    most = float((a - b).abs().max())
    return Check(most < CLOSE, f"largest difference {most:.0e}" if most else "no difference at all")
