"""Learned vectors of distances beside the sinusoids of the same distances."""

from itertools import takewhile

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.compare.report import DistanceCosines
from nmt.encodings.base import Encoding
from nmt.encodings.sinusoids import sinusoids
from nmt.modeldir import Trained

REACH = 32  # distances beyond are not shown
DIGITS = 4  # of a cosine


def learned(trained: Trained, system: int) -> list[DistanceCosines]:
    """How alike the vectors of two distances are, in each table that a model has learned.

    One for each site, layer and role (keys, values, ...) of every encoding that answers
    `Encoding.by_distance`. Heads with vectors of their own have a cosine each, of which the mean
    is shown. Distances run from -REACH to REACH, as far as they have vectors of their own: those
    that clipping gives the vector of a nearer one are left out. Self-attention of a decoder has
    never used vectors of distances above 0, so there they stop (unless positions count down).
    Distances in trees and graphs are left out, and so are tables that are zero.

    `sinusoids`: cosines between the paper's sinusoids (Rosendahl et al. 2019, eq. 1-2) of these
    distances, of the vectors' width.
    """
    tables = []
    for site, encodings in trained.model.sites.items():
        several = sum(bool(_tables(e, 0, [0])) for e in encodings.each()) > 1
        for e in encodings.each():
            if e.positions.pairs:
                continue
            for layer in range(e.dims.layers):
                where = f"{site}, layer {layer + 1}"
                tables += _of_layer(e, layer, f"{where}, {e.name}" if several else where, system)
    return tables


def _of_layer(e: Encoding, layer: int, where: str, system: int) -> list[DistanceCosines]:
    """One for each table of a layer."""
    backwards = e.positions.lengths  # positions count down to the desired length
    last = 0 if e.dims.site == "decoder" and not backwards else REACH
    all_distances = list(range(-REACH, last + 1))
    tables = []
    for role, table in _tables(e, layer, all_distances).items():
        low, high = _distinct(table, all_distances)
        distances, vectors = all_distances[low : high + 1], table[:, low : high + 1]
        if not bool(vectors.any()):
            continue
        heads = f", mean over {len(table)} heads" if len(table) > 1 else ""
        width = vectors.shape[2] + vectors.shape[2] % 2  # sinusoids come in pairs
        fixed = sinusoids(torch.tensor(distances), width)[None, :, : vectors.shape[2]]
        title = f"{where}, {role}{heads}"
        tables.append(DistanceCosines(system, title, distances, _cosines(vectors), _cosines(fixed)))
    return tables


def _tables(e: Encoding, layer: int, distances: list[int]) -> dict[str, Tensor]:
    """What the encoding answers, [heads | 1, distance, width] in float64 on the CPU."""
    device = next((p.device for p in e.parameters()), torch.device("cpu"))
    with torch.inference_mode():
        answers = e.by_distance(layer, torch.tensor(distances, device=device))
        return {role: table.double().cpu() for role, table in answers.items()}


def _distinct(table: Tensor, distances: list[int]) -> tuple[int, int]:
    """Places of the outermost distances that do not merely repeat the one before them."""
    zero = distances.index(0)
    again = [bool((table[:, i] == table[:, i + 1]).all()) for i in range(len(distances) - 1)]
    low = sum(1 for _ in takewhile(bool, again[:zero]))
    high = len(distances) - 1 - sum(1 for _ in takewhile(bool, reversed(again[zero:])))
    return low, high


def _cosines(vectors: Tensor) -> list[list[float]]:
    """Cosines of any two vectors [heads, distance, width], mean over heads; 0 for a zero one."""
    unit = F.normalize(vectors.double(), dim=-1)
    alike = (unit @ unit.mT).mean(0)
    return [[round(value, DIGITS) for value in row] for row in alike.tolist()]
