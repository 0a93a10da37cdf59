"""Where trained models look: coverage of the source, and distances by site, layer and head.

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
- Encodings that ask for the desired length are told that of the translation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.compare.study import Profile
from nmt.config import WORDS, columns_of
from nmt.data.columns import ColumnLine, expand, missing
from nmt.data.grouping import by_length
from nmt.data.seams import pieces_of
from nmt.data.vocab import BOS, EOS, PAD
from nmt.errors import Exit, UserError
from nmt.model.attention import AttentionRecord
from nmt.model.watch import watching
from nmt.modeldir import Trained

SITES = ("encoder", "decoder", "cross")
REACH = 32  # distances beyond count as the last ones
TOKENS = 4096  # of a batch, padding included
UNATTENDED = 0.2
"""Coverage below which a source piece counts as not attended to.

Coverage is the sum over all pieces of the translation, so this is a fifth of what one piece of it
gives away. Pieces have about 1 on average where both sides are equally long.
"""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """What a translation saw of its source, by cross-attention."""

    pieces: list[str]  # of the source, without <eos>
    outputs: int  # pieces of the translation, without <eos>
    coverage: list[float]  # by source piece: summed over the outputs, mean over heads and layers
    by_layer: list[list[float]]  # [layer][source piece], mean over heads


@dataclass(frozen=True)
class Distances:
    """How far heads look, summed over all sentences of a bucket, at one site."""

    weight: Array  # [layer, head] attention from pieces to pieces
    moved: Array  # [layer, head] the same times |key - query|
    histogram: Array  # [layer, head, 2 REACH + 1] the same by key - query, from -REACH to REACH


class Looked(NamedTuple):
    """What `look` has seen."""

    sentences: list[Seen]  # in the order of the sources
    distances: dict[str, dict[str, Distances]]  # by bucket and site


class _Row(NamedTuple):
    """A sentence as the model reads it."""

    source: list[int]  # ends in EOS
    target: list[int]  # BOS and the pieces
    columns: dict[str, list[int]]


def look(
    trained: Trained,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    columns: Mapping[str, Sequence[str]] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    tokens: int = TOKENS,
) -> Looked:
    """Watch a model read its own translations, as the head of this file says.

    `columns`: the integers beside the sources, line by line, as for translation; those that the
    model does not read are ignored. `buckets`: name -> places of the sentences whose distances
    are added up together (they may share sentences); None: all in one, `all`. Distances are kept
    per bucket only, so memory does not grow with them. A batch holds at most `tokens` tokens of
    the longer side. An empty source was not translated by the model and is not looked at.
    Raises UserError (65) where sides or columns are not parallel, (2) where a column is missing.
    """
    if len(sources) != len(hypotheses):
        raise UserError(
            f"{len(hypotheses)} translations, but {len(sources)} sources; the two must be parallel",
            Exit.DATA,
        )
    buckets = {"all": range(len(sources))} if buckets is None else buckets
    beside = _Beside(trained, columns or {}, len(sources))
    pieces = [pieces_of(trained.source.segmenter, source) for source in sources]
    rows = [
        _row(trained, source, pieces[place], hypothesis, beside.of(place))
        for place, (source, hypothesis) in enumerate(zip(sources, hypotheses, strict=True))
    ]
    outputs = [len(row.target) - 1 for row in rows]
    layers = trained.model.decoder.count
    seen = [
        Seen(some, n, [0.0] * len(some), [[0.0] * len(some) for _ in range(layers)])
        for some, n in zip(pieces, outputs, strict=True)
    ]
    sums: dict[str, dict[str, Distances]] = {name: {} for name in buckets}
    inside = {name: set(places) for name, places in buckets.items()}
    for batch in _batches(rows, tokens):
        tally = _watch(trained, [rows[place] for place in batch])
        for i, place in enumerate(batch):
            seen[place] = _seen(pieces[place], outputs[place], tally, i)
        for name, members in inside.items():
            if chosen := [i for i, place in enumerate(batch) if place in members]:
                _add(sums[name], tally, chosen)
    return Looked(seen, sums)


def coverage(seen: Seen) -> list[float]:
    """Attention that each source piece got over all pieces of the translation."""
    return seen.coverage


def unattended(seens: Iterable[Seen], threshold: float = UNATTENDED) -> float | None:
    """The share of source pieces whose coverage is below the threshold; None: no pieces.

    An empty translation attends to nothing.
    """
    values = [value for seen in seens for value in seen.coverage]
    return sum(value < threshold for value in values) / len(values) if values else None


def profiles(looked: Looked, system: int, test: str) -> list[Profile]:
    """Each head's distances in each bucket; heads that met no pair of pieces are left out.

    Distances that no pair of the bucket has are left out at both ends.
    """
    return [
        profile
        for bucket, sites in looked.distances.items()
        for site, found in sites.items()
        for profile in _profiles(found, system, test, bucket, site)
    ]


def _profiles(
    found: Distances, system: int, test: str, bucket: str, site: str
) -> Iterator[Profile]:
    there = np.flatnonzero(found.histogram.sum(axis=(0, 1)))
    for layer, head in np.ndindex(found.weight.shape):
        weight = found.weight[layer, head]
        if not weight > 0:
            continue
        low, high = there[0], there[-1]
        shares = found.histogram[layer, head, low : high + 1]
        yield Profile(
            system,
            test,
            bucket,
            site,
            layer + 1,
            head + 1,
            float(found.moved[layer, head] / weight),
            list(range(int(low) - REACH, int(high) - REACH + 1)),
            (shares / shares.sum()).tolist(),
        )


class _Beside:
    """The columns beside the sources that the model reads."""

    def __init__(self, trained: Trained, columns: Mapping[str, Sequence[str]], lines: int) -> None:
        wanted = trained.model.columns
        if absent := missing(wanted, columns):
            raise UserError(
                f"column {absent[0]}: this model reads it beside the text, and needs it to look "
                "at its translations; give its file"
            )
        self.columns = {name: columns[name] for name in sorted(wanted - {WORDS})}
        for name, column in self.columns.items():
            if len(column) != lines:
                raise UserError(
                    f"column {name}: {len(column)} lines, but the text has {lines}; "
                    "the two must be parallel",
                    Exit.DATA,
                )
        known = columns_of(trained.settings.data) if self.columns else {}
        self.per = {name: known[name] for name in self.columns}

    def of(self, place: int) -> dict[str, ColumnLine]:
        """What stands beside one source."""
        return {
            name: ColumnLine(self.per[name], column[place], f"column {name}, line {place + 1}")
            for name, column in self.columns.items()
        }


def _row(
    trained: Trained, source: str, pieces: list[str], hypothesis: str, beside: dict[str, ColumnLine]
) -> _Row:
    """Number both sides, cut to what the encodings hold, and the columns of the source."""
    model, ids = trained.model, trained.source.vocabulary.ids(pieces)
    target = [BOS, *trained.target.ids(hypothesis)[:-1]]
    if model.source_limit is not None and len(ids) > model.source_limit:
        ids = [*ids[: model.source_limit - 1], EOS]
    found: dict[str, list[int]] = {}
    words = WORDS in model.columns
    if beside or words:
        segmenter, most = trained.source.segmenter, len(ids) - 1
        found = expand(source, beside, segmenter, f"source {source!r}", most=most, words=words)
    return _Row(ids, target[: model.target_limit], found)


def _batches(rows: Sequence[_Row], tokens: int) -> Iterator[list[int]]:
    """Places of sentences that are not empty, alike in length, the longest first."""
    places = [place for place, row in enumerate(rows) if len(row.source) > 1]
    lengths = [max(len(rows[place].source), len(rows[place].target)) for place in places]
    for group in by_length(lengths, tokens):
        yield [places[i] for i in group]


def _watch(trained: Trained, rows: Sequence[_Row]) -> "_Tally":
    """One pass over a batch."""
    model = trained.model
    device = next(model.parameters()).device

    def padded(lists: Iterable[list[int]]) -> Tensor:
        tensors = [torch.tensor(ids) for ids in lists]
        return pad_sequence(tensors, batch_first=True, padding_value=PAD).to(device)

    source = padded(row.source for row in rows)  # [batch, source]
    target = padded(row.target for row in rows)  # [batch, target]
    names = [name for name in rows[0].columns if name in model.columns]
    columns = {name: padded(row.columns[name] for row in rows) for name in names}
    tally = _Tally(source != PAD, target != PAD, model.streams)
    with torch.inference_mode(), watching(model, tally.add):
        model.hidden(source, target, columns)
    return tally


class _Tally:
    """Sums over one batch."""

    def __init__(self, source: Tensor, target: Tensor, streams: int) -> None:
        """Which tokens are no padding: source [batch, source], target [batch, target]."""
        self.streams = streams
        pieces = source & source.roll(-1, 1)  # all but the last token, which is <eos>
        pieces[:, -1] = False
        steps = target & target.roll(-1, 1)  # the last step produces <eos>
        steps[:, -1] = False
        read = target.clone()
        read[:, 0] = False  # <bos>
        self.queries = {"encoder": pieces, "decoder": steps, "cross": steps}
        self.keys = {"encoder": pieces, "decoder": read, "cross": pieces}
        self.distances: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {s: [] for s in SITES}
        self.by_layer: list[Tensor] = []  # [batch, source] each
        self._all = torch.zeros((), device=source.device)  # [batch, target, source], of all layers
        self._passes = torch.zeros((), device=source.device)  # [batch, target] that a step took

    @property
    def coverage(self) -> Tensor:
        """[batch, source], mean over the passes that each step took."""
        return (self._all / self._passes[..., None]).sum(1)

    def add(self, look: AttentionRecord) -> None:
        """Add up what one layer did."""
        p = look.probabilities.unflatten(0, (-1, self.streams)).float().mean(1)
        running = p.new_ones(len(p), p.shape[2])  # [batch, query]
        if look.running is not None:
            running = look.running.to(p.dtype)
        p = p * running[:, None, :, None]  # [batch, heads, query, key]
        queries, keys = self.queries[look.site], self.keys[look.site]
        p = p * (queries[:, :, None] & keys[:, None, :])[:, None]
        self.distances[look.site].append(_distances(p))
        if look.site == "cross":
            mean = p.mean(1)  # [batch, query, key]
            self.by_layer.append(mean.sum(1))
            self._all, self._passes = self._all + mean, self._passes + running


def _distances(p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weight [batch, heads], weight times distance, and histogram [batch, heads, distance]."""
    queries, keys = p.shape[2:]
    # Row i from below, moved right by i, has the distance key - query = c - (queries - 1) in
    # column c; rows of queries + keys numbers, read as rows of one less, are moved just so.
    skewed = F.pad(p.flip(2), (0, queries)).flatten(2)[..., :-queries]
    by_distance = skewed.unflatten(2, (queries, -1)).sum(2)  # [batch, heads, queries + keys - 1]
    distances = torch.arange(1 - queries, keys, device=p.device)
    histogram = p.new_zeros(*p.shape[:2], 2 * REACH + 1)
    histogram.index_add_(2, distances.clamp(-REACH, REACH) + REACH, by_distance)
    return by_distance.sum(2), (by_distance * distances.abs()).sum(2), histogram


def _seen(pieces: list[str], outputs: int, tally: _Tally, row: int) -> Seen:
    """What one sentence of a batch saw; pieces that were cut off got nothing."""

    def values(summed: Tensor) -> list[float]:
        found = summed[row, : len(pieces)].tolist()  # zero at <eos> and in padding
        return found + [0.0] * (len(pieces) - len(found))

    return Seen(pieces, outputs, values(tally.coverage), [values(t) for t in tally.by_layer])


def _add(sums: dict[str, Distances], tally: _Tally, chosen: list[int]) -> None:
    """Add the distances of some sentences of a batch to a bucket's."""
    for site, layers in tally.distances.items():
        weight, moved, histogram = (
            np.stack([t[chosen].double().sum(0).cpu().numpy() for t in parts])
            for parts in zip(*layers, strict=True)
        )
        old = sums.get(site)
        sums[site] = (
            Distances(weight, moved, histogram)
            if old is None
            else Distances(old.weight + weight, old.moved + moved, old.histogram + histogram)
        )
