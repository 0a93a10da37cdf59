"""Beam search: at each step the best continuations of the best outputs."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.decode.hypothesis import Hypothesis
from nmt.decode.search import CPU, NEVER, Outputs, Strategy
from nmt.machine.device import to_device


class BeamExtension(NamedTuple):
    """One step of a beam search, for each sentence that has rows."""

    ending: Tensor  # [live, k] which of the best continuations finish a hypothesis
    scores: Tensor  # [live, k] their log_prob
    parent: Tensor  # [live, k] the hypotheses that they continue
    cut: Tensor  # [live, width] which hypotheses are closed without eos
    total: Tensor  # [live, width] their log_prob
    uncovered: Tensor  # [live, width] the coverage penalty of those that end here
    new_parent: Tensor  # [live, new width] the hypotheses that the next beam continues
    token: Tensor  # [live, new width] and by which ids


class Beam(Strategy):
    """Finds the n_best best-scored outputs of each sentence, best first and all different.

    At each step an eos among the beam_size best continuations finishes a hypothesis; the best
    others form the next beam. A sentence is done when beam_size hypotheses are finished and no open
    one, scored at its present length, is better than all of them; else at its limit, where a
    hypothesis whose best continuation is not eos is closed as it is, without eos, and flagged. So
    beam_size 1 is greedy search. Among equal probabilities, the better parent comes first, then
    the lower id. Continuations without a finite log-probability (NaN too) are never followed; a
    sentence left with none is closed likewise.

    A coverage penalty is added to the score of a hypothesis that ends. An open one may still cover
    all, so that it is compared with the best of the finished without it.
    """

    def __init__(
        self,
        limits: Tensor,
        *,
        beam_size: int,
        penalty: Callable[[int], float],
        eos: int,
        n_best: int = 1,
        coverage_penalty: Callable[[], Tensor] | None = None,
        device: torch.device = CPU,
    ) -> None:
        """`limits` [batch], on the CPU: the greatest length of each output, without eos.

        `penalty(length)` is the divisor of log-probabilities, as `length_penalty`.
        `coverage_penalty()` gives that of each row of the latest step if it ends there, 0 or less.
        """
        self.beam_size, self.penalty, self.n_best = beam_size, penalty, n_best
        self.eos, self.coverage_penalty = eos, coverage_penalty
        self.sentences = batch = limits.numel()
        self.longest = max(limits.tolist(), default=0)
        self.outputs = Outputs(batch)
        self.limits = to_device(limits, device)  # [live]
        self.ended = torch.zeros_like(self.limits)  # [live] hypotheses finished so far
        self.best = torch.full((batch,), NEVER, device=device)  # [live] the best score among them
        # [live, width] log_prob, best first; -inf where there are too few, and in a sentence that
        # is done. At first one empty output per sentence, so that all beams differ.
        self.total = torch.zeros(batch, 1, device=device)

    @property
    def is_open(self) -> Tensor:
        """Which sentences go on [live]."""
        return self.total[:, 0] > NEVER

    def extend(self, log_probs: Tensor, length: int) -> tuple[BeamExtension, Tensor, Tensor | None]:
        """Extend hypotheses of `length` ids, by log_probs [live x width, vocab]."""
        width, k = self.total.shape[1], self.beam_size
        penalty = self.penalty(length + 1)  # of all continuations
        scores, parent, token = _continue(log_probs, self.total, 2 * k)
        is_eos = token == self.eos  # [live, 2k], as scores, parent and token
        at_limit = self.limits == length  # [live]
        top, top_parent = scores[:, :k], parent[:, :k]  # [live, k]
        is_best = _first_of_parent(top_parent, self.total)
        ending = is_eos[:, :k] & (top > NEVER) & (~at_limit[:, None] | is_best)
        closing = at_limit | (scores[:, 0] == NEVER)
        endings = ending.to(self.total)
        has_ended = torch.zeros_like(self.total).scatter_add_(1, top_parent, endings) > 0
        cut = closing[:, None] & ~has_ended & (self.total > NEVER)

        open_first = is_eos.byte().argsort(dim=1, stable=True)[:, :k]  # eos behind all others
        total = scores.masked_fill(is_eos, NEVER).gather(1, open_first)  # [live, new width]
        uncovered = torch.zeros_like(self.total)  # [live, width] of those that end here
        if self.coverage_penalty is not None:
            uncovered = self.coverage_penalty().view_as(self.total)
        score = top / penalty + uncovered.gather(1, top_parent)
        self.ended = self.ended + ending.sum(1)
        self.best = torch.maximum(self.best, score.masked_fill(~ending, NEVER).amax(1))
        # beam_size alone is not enough: where the model is sure, all other beams are poor, and
        # their early ends would stop the one good hypothesis midway
        done = (self.ended >= k) & (self.best >= total[:, 0] / penalty)
        total = total.masked_fill((closing | done)[:, None], NEVER)

        new_parent, token = parent.gather(1, open_first), token.gather(1, open_first)
        extension = BeamExtension(
            ending, top, top_parent, cut, self.total, uncovered, new_parent, token
        )
        first = torch.arange(len(total), device=total.device)[:, None] * width  # row of a sentence
        rows = None if width == total.shape[1] == 1 else first + new_parent
        self.total = total
        return extension, token, rows

    def record(self, extension: BeamExtension) -> None:
        """Write what a step finished and cut, and the next beam."""
        e, length = extension, self.outputs.ids.shape[2]
        close = partial(self.outputs.close, uncovered=e.uncovered)
        close(e.ending, e.scores, self.penalty(length + 1), finished=True, parent=e.parent)
        close(e.cut, e.total, self.penalty(length), finished=False)
        self.outputs.append(e.token, e.new_parent)

    def keep(self, places: Tensor) -> None:
        """Drop all sentences but these."""
        self.limits, self.ended = self.limits[places], self.ended[places]
        self.best, self.total = self.best[places], self.total[places]

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The n_best of each sentence; of equal ones the earlier closed first."""
        return [sorted(all_, key=lambda h: -h.score)[: self.n_best] for all_ in self.outputs.closed]


def _continue(log_probs: Tensor, total: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best continuations of each sentence: log_prob, row of the parent, token."""
    live, width = total.shape
    vocab = log_probs.shape[1]
    scores = (total[:, :, None] + log_probs.view(live, width, vocab)).flatten(1)
    count = min(count, width * vocab)
    best = _top if scores.device.type == "cpu" else _top_on_gpu
    values, index = best(scores, count)
    return values, index // vocab, index % vocab  # [live, count] each


def _first_of_parent(parent: Tensor, total: Tensor) -> Tensor:
    """Mark in parent [live, k] the first, that is best, continuation of each row of total."""
    rank = torch.arange(parent.shape[1], device=parent.device).expand_as(parent)
    first = torch.full_like(total, parent.shape[1], dtype=torch.long)
    return rank == first.scatter_reduce(1, parent, rank, "amin").gather(1, parent)


def _top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` greatest of each row and their indices; of equal ones the earlier first.

    Values that are not finite count as -inf; where one comes first in a row, its place may be any.
    """
    one_more = min(count + 1, scores.shape[1])
    values, index = scores.topk(one_more, dim=1)
    if not (values < float("inf")).all():  # NaN is the greatest of all to topk
        return _top(_finite(scores), count)
    if one_more > count:
        # topk does not say which of several equal values it takes: where that matters, sort.
        tied = (values[:, count - 1] == values[:, count]) & (values[:, count] > NEVER)
        if tied.any():
            order = scores[tied].sort(dim=1, descending=True, stable=True).indices
            index[tied] = order[:, :one_more]
    return _sorted(scores, index[:, :count])


def _top_on_gpu(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The same on a GPU, which is not waited for: no number is read by the host."""
    scores = _finite(scores)
    values, index = scores.topk(count, dim=1)
    least, size = values[:, -1:], scores.shape[1]
    # Which of several equal values topk takes, matters only for those that equal the last one: of
    # these come the earliest.
    place = torch.arange(size, device=scores.device, dtype=torch.int32)
    equal = torch.where(scores == least, place, size).topk(count, dim=1, largest=False, sorted=True)
    greater = values > least  # [live, count]: these come before the others
    rank = torch.arange(count, device=scores.device) - greater.sum(1, keepdim=True)
    index = torch.where(greater, index, equal.values.long().gather(1, rank.clamp(min=0)))
    return _sorted(scores, index)


def _finite(scores: Tensor) -> Tensor:
    return scores.nan_to_num(nan=NEVER, posinf=NEVER, neginf=NEVER)


def _sorted(scores: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The scores at index [live, count], the greatest first, of equal ones the earlier."""
    index = index.sort(dim=1).values
    values, order = scores.gather(1, index).sort(dim=1, descending=True, stable=True)
    return values, index.gather(1, order)
