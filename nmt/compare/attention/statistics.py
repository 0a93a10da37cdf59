"""Attention statistics: coverage of the source, and distances by site, layer and head.

The model reads each source again together with its own translation (teacher forcing), and the
probabilities of all attention are added up while they are made. What counts, and how:

- The translation is cut into pieces anew from its text. That need not give the very pieces that
  the search found, and a piece that the vocabulary lacks is read as <unk>.
- The queries of the encoder are the pieces of the source. Those of the decoder and of
  cross-attention are the decoder's steps that produce the pieces of the translation: the step that
  produces piece i (from 0) has read <bos> and the pieces before i. The step that produces <eos> is
  left out, and so is padding.
- Keys are pieces, too: what goes to <eos> of the source and to <bos> of the target is no distance
  (heads rest there when they have nothing to do) and covers nothing. Distances are weighted by
  what goes to pieces.
- A distance is key - query, in pieces. In the decoder a query stands where the last piece that it
  has read stands; in cross-attention, query i is the step that produces piece i of the
  translation, and key j is piece j of the source.
- Where tokens halt early, a token counts in the passes that it took.
- Complex embeddings have two streams for each token, each with its own attention: their mean.
- A source longer than the encoding's table is cut, as decode.too_long=truncate does; the pieces
  that were cut off have no attention. So is a translation that its table cannot hold.
- Encodings that need the desired length get that of the translation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.compare.attention.sums import BatchSums, attention_sums, read_pairs
from nmt.compare.report import REACH, UNATTENDED, AttentionProfile
from nmt.data.grouping import by_length
from nmt.data.segmenter import pieces_of
from nmt.modeldir import Trained

TOKENS = 4096  # of a batch, padding included

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SentenceCoverage:
    """How much cross-attention each source piece got from a translation."""

    pieces: list[str]  # of the source, without <eos>
    coverage: list[float]  # by source piece: summed over the outputs, mean over heads and layers


class DistanceSums(NamedTuple):
    """How far heads attend, summed over all sentences of a bucket, at one site."""

    weight: Array  # [layer, head] attention from pieces to pieces
    moved: Array  # [layer, head] the same times |key - query|
    histogram: Array  # [layer, head, 2 REACH + 1] the same by key - query, from -REACH to REACH


class AttentionStatistics(NamedTuple):
    """Attention statistics of a model on a test set."""

    sentences: list[SentenceCoverage]  # in the order of the sources
    distances: dict[str, dict[str, DistanceSums]]  # by bucket and site


def attention_statistics(
    trained: Trained,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    columns: Mapping[str, Sequence[str]] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    tokens: int = TOKENS,
) -> AttentionStatistics:
    """Add up a model's attention over its own translations, as the head of this file says.

    `columns`: the integers parallel to the sources, line by line, as for translation. `buckets`:
    name -> places of the sentences whose distances are added up together (they may share
    sentences); None: all in one, `all`. Distances are kept per bucket only, so memory does not
    grow with them. A batch holds at most `tokens` tokens of the longer side. An empty source was
    not translated by the model and has no attention. Raises UserError (65) where sides or columns
    are not parallel, (2) where a column is missing or unknown.
    """
    buckets = {"all": range(len(sources))} if buckets is None else buckets
    pairs = read_pairs(trained, sources, hypotheses, columns or {})
    texts = [trained.source.protection.pair(*p)[0] for p in zip(sources, hypotheses, strict=True)]
    pieces = [pieces_of(trained.source.segmenter, text) for text in texts]
    coverage = [[0.0] * len(of_source) for of_source in pieces]
    distances: dict[str, dict[str, DistanceSums]] = {name: {} for name in buckets}
    inside = {name: set(places) for name, places in buckets.items()}
    filled = [place for place, pair in enumerate(pairs) if len(pair.source.ids) > 1]
    lengths = [max(len(pairs[place].source.ids), len(pairs[place].target)) for place in filled]
    for group in by_length(lengths, tokens):
        batch = [filled[i] for i in group]
        sums = attention_sums(trained, [pairs[place] for place in batch])
        for place, row in zip(batch, sums.coverage.tolist(), strict=True):
            # pieces that were cut off got nothing, nor did <eos> and padding
            coverage[place] = (row + coverage[place])[: len(pieces[place])]
        for name, members in inside.items():
            if rows := [i for i, place in enumerate(batch) if place in members]:
                _accumulate(distances[name], sums, rows)
    return AttentionStatistics(list(map(SentenceCoverage, pieces, coverage)), distances)


def _accumulate(distances: dict[str, DistanceSums], sums: BatchSums, rows: list[int]) -> None:
    """Add the distances of some sentences of a batch to a bucket's."""
    for site, layers in sums.distances.items():
        sums_of_rows = (
            np.stack([t[rows].double().sum(0).cpu().numpy() for t in parts])
            for parts in zip(*layers, strict=True)
        )
        new = DistanceSums(*sums_of_rows)
        known = distances.get(site)
        distances[site] = new if known is None else DistanceSums(*map(np.add, known, new))


def unattended(sentences: Iterable[SentenceCoverage]) -> float | None:
    """The share of source pieces whose coverage is below UNATTENDED; None: no pieces.

    An empty translation attends to nothing.
    """
    values = [value for sentence in sentences for value in sentence.coverage]
    return sum(value < UNATTENDED for value in values) / len(values) if values else None


def profiles(statistics: AttentionStatistics, system: int, test: str) -> Iterator[AttentionProfile]:
    """Each head's distances in each bucket; heads that met no pair of pieces are left out.

    Distances that no pair of the bucket has are left out at both ends.
    """
    for bucket, sites in statistics.distances.items():
        for site, sums in sites.items():
            present = np.flatnonzero(sums.histogram.sum(axis=(0, 1)))
            for layer, head in np.argwhere(sums.weight > 0).tolist():
                low, high = int(present[0]), int(present[-1])
                shares = sums.histogram[layer, head, low : high + 1]
                yield AttentionProfile(
                    system=system,
                    test=test,
                    bucket=bucket,
                    site=site,
                    layer=layer + 1,
                    head=head + 1,
                    distance=float(sums.moved[layer, head] / sums.weight[layer, head]),
                    distances=list(range(low - REACH, high - REACH + 1)),
                    weights=(shares / shares.sum()).tolist(),
                )
