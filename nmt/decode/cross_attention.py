"""The cross-attention of models over given outputs, from which alignments are made."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.config import WORDS
from nmt.data.vocab import BOS
from nmt.decode.engine import Weights
from nmt.decode.sources import LENGTH, Source
from nmt.decode.tensors import as_tensors, padded
from nmt.model.attention import AttentionRecord
from nmt.model.transformer import Transformer
from nmt.model.watch import watching


def cross_attention(
    models: Sequence[Transformer], sources: Sequence[Source], outputs: Sequence[Sequence[int]]
) -> list[Weights]:
    """[output + 1, source] for each pair of a batch: of the steps that predict its ids, and EOS.

    It is the mean over heads of the last decoder layer but one, which aligns best (Garg et al.
    2019), and over models. A model of one layer has that of the layer; where tokens take steps of
    different number (halting), each has the mean over its own.
    """
    device = next(models[0].parameters()).device
    ids, columns = as_tensors(sources, device)  # [batch, source]
    columns.pop(LENGTH, None)  # the true one is known
    prefixes = padded([[BOS, *output] for output in outputs], device)  # [batch, target]
    total = torch.zeros(*prefixes.shape, ids.shape[1], device=device)
    for model in models:
        layers = _Layers(model.streams, prefixes.shape[1], ids.shape[1])
        known = {name: columns[name] for name in columns if name in {*model.columns, WORDS}}
        with torch.no_grad(), watching(model, layers.add):
            model.hidden(ids, prefixes, known)
        total += layers.chosen() / len(models)
    means = total.cpu()
    return [
        weights[: len(output) + 1, : len(source.ids)].numpy()
        for weights, output, source in zip(means, outputs, sources, strict=True)
    ]


class _Layers:
    """The cross-attention of each layer in one pass."""

    def __init__(self, streams: int, target: int, source: int) -> None:
        self.streams, self.target, self.source = streams, target, source
        self.means: list[Tensor] = []  # [batch, target, source], over heads
        self.running: list[Tensor] = []  # [batch, target]; none where nothing halts

    def add(self, record: AttentionRecord) -> None:
        """Keep what one layer did."""
        if record.site != "cross":
            return
        p = record.probabilities.unflatten(0, (-1, self.streams)).float().mean((1, 2))
        self.means.append(p[:, -self.target :, -self.source :])  # without pieces for languages
        if record.running is not None:
            self.running.append(record.running[:, -self.target :].float())

    def chosen(self) -> Tensor:
        """[batch, target, source] of the layer that `cross_attention` names."""
        if not self.running:
            return self.means[max(0, len(self.means) - 2)]
        running = torch.stack(self.running)[..., None]  # [step, batch, target, 1]
        return (torch.stack(self.means) * running).sum(0) / running.sum(0)
