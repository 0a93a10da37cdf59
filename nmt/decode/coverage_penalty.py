"""The coverage penalty of Wu et al. (2016): outputs that left out some of the source rank lower."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from nmt.decode.cross_attention import CrossAttention
from nmt.decode.search import Step
from nmt.model.layers import watching
from nmt.model.transformer import Transformer

LEAST = 1e-4  # attention that counts for a source token without any, which would cost infinitely


class CoveragePenalty:
    """The cross-attention that each source token has got from each output so far.

    It is the mean over heads, layers and models, as in `nmt-evaluate --attention`.
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
