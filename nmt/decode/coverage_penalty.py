"""The coverage penalty of Wu et al. (2016): outputs that left out some of the source rank lower."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from nmt.decode.search import Step
from nmt.model.attention import AttentionRecord
from nmt.model.transformer import Transformer
from nmt.model.watch import watching

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
        self._steps = [_StepAttention(model) for model in dict.fromkeys(models)]

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
            means = [one.take() for one in self._steps]
            self._attended = self._attended + torch.stack(means).mean(0)
            return log_probs

        with ExitStack() as watched:
            for one in self._steps:
                watched.enter_context(watching(one.model, one.add))
            yield followed


class _StepAttention:
    """Cross-attention of one model in one step."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self._sum: Tensor | int = 0  # [row, source], mean over heads, of all layers
        self._passes: Tensor | int = 0  # [row, 1] that the step took

    def add(self, record: AttentionRecord) -> None:
        """Add what one layer did."""
        if record.site != "cross":
            return
        p = record.probabilities.unflatten(0, (-1, self.model.streams)).float().mean((1, 2))
        rows = p.flatten(0, 1)  # hypotheses of one sentence are queries of one row
        running = rows.new_ones(len(rows), 1)
        if record.running is not None:  # a token that has halted attends no more
            running = record.running.to(rows.dtype).reshape(-1, 1)
        self._sum, self._passes = self._sum + rows * running, self._passes + running

    def take(self) -> Tensor:
        """The mean over the passes of this step [row, source]; then begin anew."""
        assert isinstance(self._sum, Tensor), "a decoder attends to the source"
        mean = self._sum / self._passes
        self._sum = self._passes = 0
        return mean
