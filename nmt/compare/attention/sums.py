"""Sums of attention over one batch: distances by head, and the coverage of the sources."""

from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.compare.report import REACH, SITES
from nmt.data.vocab import PAD
from nmt.decode.sources import ForcedPair, SourceReader
from nmt.decode.tensors import as_inputs
from nmt.model.attention import AttentionRecord
from nmt.model.watch import watching
from nmt.modeldir import Trained


def read_pairs(
    trained: Trained,
    sources: Iterable[str],
    hypotheses: Iterable[str],
    columns: Mapping[str, Iterable[str]],
) -> list[ForcedPair]:
    """Number both sides, each cut to what the encodings hold and ending in EOS."""
    reader = SourceReader(trained, trained.model)
    most = trained.model.limits(training=False)
    lines = reader.lines(sources, columns, hypotheses, "translations")
    return [reader.pair(line, most) for line in lines]


def attention_sums(trained: Trained, pairs: Sequence[ForcedPair]) -> "BatchSums":
    """One pass over a batch."""
    model = trained.model
    device = next(model.parameters()).device
    source, target, columns = as_inputs(pairs, device)  # [batch, source], [batch, target]
    sums = BatchSums(source != PAD, target != PAD, model.streams)
    with torch.inference_mode(), watching(model, sums.add):
        model.hidden(source, target, columns)
    return sums


class BatchSums:
    """Sums over one batch."""

    def __init__(self, source: Tensor, target: Tensor, streams: int) -> None:
        """Which tokens are no padding: source [batch, source], target [batch, target]."""
        self.streams = streams
        pieces = source & source.roll(-1, 1)  # all but the last token, which is <eos>
        pieces[:, -1] = False
        steps = target & target.roll(-1, 1)  # the last step produces <eos>
        steps[:, -1] = False
        target_keys = target.clone()
        target_keys[:, 0] = False  # <bos>
        self.queries = {"encoder": pieces, "decoder": steps, "cross": steps}
        self.keys = {"encoder": pieces, "decoder": target_keys, "cross": pieces}
        self.distances: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {s: [] for s in SITES}
        self._all = torch.zeros((), device=source.device)  # [batch, target, source], of all layers
        self._layers = 0

    @property
    def coverage(self) -> Tensor:
        """[batch, source], mean over layers."""
        return (self._all / self._layers).sum(1)

    def add(self, record: AttentionRecord) -> None:
        """Add up what one layer did."""
        p = record.probabilities.unflatten(0, (-1, self.streams)).float().mean(1)
        queries, keys = self.queries[record.site], self.keys[record.site]
        p = p[:, :, -queries.shape[1] :, -keys.shape[1] :]  # without pieces for languages
        p = p * (queries[:, :, None] & keys[:, None, :])[:, None]
        self.distances[record.site].append(_distances(p))
        if record.site == "cross":
            self._all = self._all + p.mean(1)  # [batch, query, key]
            self._layers += 1


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
