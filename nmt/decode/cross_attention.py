"""The cross-attention of models over given outputs, from which alignments are made."""

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from nmt.decode.engine import Weights
from nmt.decode.sources import ForcedPair
from nmt.decode.tensors import as_inputs
from nmt.model.attention import AttentionRecord
from nmt.model.transformer import Transformer
from nmt.model.watch import watching


def cross_attention(models: Sequence[Transformer], pairs: Sequence[ForcedPair]) -> list[Weights]:
    """[target, source] of each pair of a batch: of the steps that predict the ids of its target.

    It is the mean over heads of the last decoder layer but one, which aligns best (Garg et al.
    2019), and over models. A model of one layer has that of the layer; where tokens take steps of
    different number (halting), each has the mean over its own.
    """
    device = next(models[0].parameters()).device
    ids, prefixes, columns = as_inputs(pairs, device)  # [batch, source], [batch, target]
    total = torch.zeros(*prefixes.shape, ids.shape[1], device=device)
    for model in models:
        attention = CrossAttention(model)
        with torch.no_grad(), watching(model, attention.add):
            model.hidden(ids, prefixes, columns)
        layers = attention.layers
        chosen = attention.take() if attention.running else layers[max(0, len(layers) - 2)]
        # without pieces for languages
        total += chosen[:, -prefixes.shape[1] :, -ids.shape[1] :] / len(models)
    means = total.cpu()
    return [
        weights[: len(pair.target), : len(pair.source.ids)].numpy()
        for weights, pair in zip(means, pairs, strict=True)
    ]


class CrossAttention:
    """The cross-attention of one model in one pass, or in one step of a search."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.layers: list[Tensor] = []  # [sentence, query, source] of each layer, over heads
        self.running: list[Tensor] = []  # [sentence, query, 1]; none where nothing halts

    def add(self, record: AttentionRecord) -> None:
        """Keep what one layer did."""
        if record.site != "cross":
            return
        p = record.probabilities.unflatten(0, (-1, self.model.streams)).float().mean((1, 2))
        self.layers.append(p)
        if record.running is not None:  # a token that has halted attends no more
            self.running.append(record.running.to(p.dtype).reshape(*p.shape[:2], 1))

    def take(self) -> Tensor:
        """The mean over the layers that each token took [sentence, query, source]; begin anew."""
        running = self.running or [self.layers[0].new_ones(())] * len(self.layers)
        total = reduce(torch.add, map(torch.mul, self.layers, running))
        mean = total / reduce(torch.add, running)
        self.layers, self.running = [], []
        return mean
