"""Vectors that a model has learned for distances, and sinusoids of the same distances."""

from itertools import takewhile

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.sinusoids import sinusoids
from scripts.pictures.panels import DISTANCE, MatrixPanel

REACH = 32  # distances beyond are not shown


def learned_vectors(e: Encoding) -> dict[str, list[MatrixPanel]]:
    """How similar the vectors of two distances are, in each table that an encoding has learned.

    By role (keys, values, ...): cosines between sinusoids (Rosendahl et al. 2019, eq. 1-2) of the
    same distances and width, then those of each layer. Heads with vectors of their own are
    averaged. Distances run from -REACH to REACH, as far as they have vectors of their own: those
    that clipping gives the vector of a nearer one are left out. Self-attention of a decoder has
    never used vectors of distances above 0, so there they stop (unless positions count down).
    Distances in trees and graphs are left out, and so are tables that are zero or fixed.
    """
    rows: dict[str, list[MatrixPanel]] = {}
    if e.positions.distances_only or not list(e.parameters()):
        return rows
    last = 0 if e.dims.site == "decoder" and e.positions.ascending else REACH
    distances = list(range(-REACH, last + 1))
    for layer, number in enumerate(e.dims.served_layers or range(e.dims.layers)):
        for role, table in _tables(e, layer, distances).items():
            low, high = _unclipped_range(table, distances)
            vectors = table[:, low : high + 1]
            if vectors.any():
                heads = f", mean over {len(table)} heads" if len(table) > 1 else ""
                panels = rows.setdefault(role, [_sinusoids(distances[low : high + 1], vectors)])
                panels.append(_cosines(f"layer {number + 1}{heads}", distances[low], vectors))
    for panels in rows.values():
        panels[0] = panels[0]._replace(down=DISTANCE)
        panels[-1] = panels[-1]._replace(meaning="cosine")
    return rows


def _tables(e: Encoding, layer: int, distances: list[int]) -> dict[str, Tensor]:
    """Tables by role, [heads | 1, distance, width] in float64."""
    with torch.inference_mode():
        answers = e.by_distance(layer, torch.tensor(distances)) or {}
        return {role: table.double() for role, table in answers.items()}


def _unclipped_range(table: Tensor, distances: list[int]) -> tuple[int, int]:
    """Places of the outermost distances that do not merely repeat the one before them."""
    zero = distances.index(0)
    repeats = [bool((table[:, i] == table[:, i + 1]).all()) for i in range(len(distances) - 1)]
    low = sum(1 for _ in takewhile(bool, repeats[:zero]))
    high = len(distances) - 1 - sum(1 for _ in takewhile(bool, reversed(repeats[zero:])))
    return low, high


def _sinusoids(distances: list[int], vectors: Tensor) -> MatrixPanel:
    """Cosines of sinusoids of these distances, as wide as the vectors [any, distance, width]."""
    width = vectors.shape[2] + vectors.shape[2] % 2  # sinusoids come in pairs
    fixed = sinusoids(torch.tensor(distances), width)[None, :, : vectors.shape[2]]
    return _cosines("sinusoids", distances[0], fixed)


def _cosines(title: str, first: int, vectors: Tensor) -> MatrixPanel:
    """Cosines of any two vectors [heads, distance, width], mean over heads; 0 for a zero one."""
    unit = F.normalize(vectors.double(), dim=-1)
    cosines = (unit @ unit.mT).mean(0).numpy()
    return MatrixPanel(title, "", DISTANCE, "", cosines, signed=True, first=first)
