"""Cross-attention: of given outputs, for alignments, and of a search, for its coverage penalty."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce

import torch
from torch import Tensor

from nmt.decode.engine import Weights
from nmt.decode.models import as_inputs
from nmt.decode.search import Step
from nmt.decode.sources import Source
from nmt.model.layers import AttentionRecord, watching
from nmt.model.transformer import Transformer

LEAST = 1e-4  # attention that counts for a source token without any, which would cost infinitely


def cross_attention(models: Sequence[Transformer], pairs: Sequence[Source]) -> list[Weights]:
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
        weights[: len(pair.target), : len(pair.ids)].numpy()
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


class CoveragePenalty:
    """The coverage penalty of Wu et al. (2016): outputs that leave something out rank lower.

    It follows the cross-attention that each source token has got from each output so far, the mean
    over heads, layers and models.
    """

    def __init__(self, weight: float, pieces: Tensor, models: Sequence[Transformer]) -> None:
        """`pieces` [sentences, source]: the tokens that shall be covered; not padding, not eos."""
        self.weight = weight
        self._pieces = pieces  # [row, source]
        self._attended = torch.zeros(pieces.shape, device=pieces.device)  # [row, source]
        self._of_models = [CrossAttention(model) for model in models]

    def of_rows(self) -> Tensor:
        """Of each output [row] if it ends now: weight x sum log min(attention, 1); eq. 14."""
        logs = self._attended.clamp(LEAST, 1).log()
        return self.weight * torch.where(self._pieces, logs, 0).sum(1)

    @contextmanager
    def following(self, step: Step) -> Iterator[Step]:
        """Give the same step, whose attention is added up; the models serve no other meanwhile."""

        def followed(tokens: Tensor, parents: Tensor | None) -> Tensor:
            if parents is not None:
                rows = parents.flatten()
                self._pieces, self._attended = self._pieces[rows], self._attended[rows]
            log_probs = step(tokens, parents)
            # hypotheses of one sentence are its queries
            means = [attention.take().flatten(0, 1) for attention in self._of_models]
            self._attended = self._attended + torch.stack(means).mean(0)
            return log_probs

        with ExitStack() as watched:
            for attention in self._of_models:
                watched.enter_context(watching(attention.model, attention.add))
            yield followed
