"""The cross-attention of models over given outputs, from which alignments are made."""

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from nmt.decode.engine import Weights
from nmt.decode.sources import ForcedPair
from nmt.decode.tensors import as_inputs
from nmt.model.layers import AttentionRecord, watching
from nmt.model.transformer import Transformer


def cross_attention(models: Sequence[Transformer], pairs: Sequence[ForcedPair]) -> list[Weights]:
    """[target, source] of each pair of a batch: of the steps that predict the ids of its target.

    It is the mean over heads of the last decoder layer but one, which aligns best (Garg et al.
    2019), and over models. A model of one layer has that of the layer.
    """
    device = next(models[0].parameters()).device
    ids, prefixes, columns = as_inputs(pairs, device)  # [batch, source], [batch, target]
    total = torch.zeros(*prefixes.shape, ids.shape[1], device=device)
    for model in models:
        attention = CrossAttention(model)
        with torch.no_grad(), watching(model, attention.add):
            model.hidden(ids, prefixes, columns)
        layers = attention.layers
        chosen = layers[max(0, len(layers) - 2)]
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

    def add(self, record: AttentionRecord) -> None:
        """Keep what one layer did."""
        if record.site == "cross":
            p = record.probabilities.unflatten(0, (-1, self.model.streams))
            self.layers.append(p.float().mean((1, 2)))

    def take(self) -> Tensor:
        """The mean over layers [sentence, query, source]; begin anew."""
        mean = reduce(torch.add, self.layers) / len(self.layers)
        self.layers = []
        return mean
