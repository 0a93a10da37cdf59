"""Beam search: the best outputs of each sentence go on, and some of them end."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.system.device import to_device

NEVER = float("-inf")
CPU = torch.device("cpu")


class Extension(NamedTuple):
    """The effect of one step on the open outputs of each sentence that has rows."""

    closed: Tensor  # [live, n] which outputs do not go on
    finished: Tensor  # [live, n] which of these have ended by eos
    log_probs: Tensor  # [live, n] their log-probability
    coverage: Tensor  # [live, n] their coverage penalty
    parent: Tensor  # [live, n] the open outputs that these are
    next_parent: Tensor  # [live, next width] the open outputs that go on
    token: Tensor  # [live, next width] and by which ids


class Beam:
    """Finds the best-scored outputs of each sentence, all different; of equal ones the earlier.

    At each step, an eos among the beam_size best continuations finishes a hypothesis, and the best
    continuations by other tokens form the next beam. A sentence is done when beam_size hypotheses
    are finished and no open one, scored at its present length, is better than the best of them. At
    its length limit, an open hypothesis is closed without eos (finished=False), unless eos is its
    best continuation. So beam_size 1 is greedy search. Among equal probabilities, the better parent
    comes first, then the lower id. A continuation whose log-probability is not finite is never
    followed; a sentence with no other one is closed.

    `shrinking` is Marian's rule: each finished hypothesis makes the beam one smaller, and a
    sentence is done when its beam is empty.

    A coverage penalty is added to the score of a hypothesis that ends. An open one is compared
    without it, as it may still cover the whole source.
    """

    best_first = True  # so hypotheses are ordered

    def __init__(
        self,
        limits: Tensor,
        *,
        beam_size: int,
        length_norm: Callable[[int], float],
        eos: int,
        shrinking: bool = False,
        coverage_penalty: Callable[[], Tensor] | None = None,
        device: torch.device = CPU,
    ) -> None:
        """`limits` [batch], on the CPU: the greatest length of each output, without eos.

        `length_norm(length)` divides the log-probability of an output of so many ids, with eos.
        `coverage_penalty()` is what each row of the latest step gets if it ends there, 0 or less.
        """
        self.beam_size, self.length_norm, self.eos = beam_size, length_norm, eos
        self.shrinking, self.coverage_penalty = shrinking, coverage_penalty
        self.first_limit = min(limits.tolist(), default=0)
        self.last_limit = max(limits.tolist(), default=0)
        self.limits = to_device(limits, device)  # [live]
        self.finished = torch.zeros_like(self.limits)  # [live] hypotheses finished so far
        self.best = torch.full((len(limits),), NEVER, device=device)  # [live] best score of these
        # [live, width] log_prob, best first; -inf where there are too few, and in a sentence that
        # is done. At first one empty output per sentence, so that all beams differ.
        self.total = torch.zeros(len(limits), 1, device=device)

    @property
    def is_open(self) -> Tensor:
        """Which sentences go on [live]."""
        return self.total[:, 0] > NEVER

    def extend(self, log_probs: Tensor, length: int) -> tuple[Extension, Tensor | None]:
        """Extend outputs of `length` ids by log_probs [rows, vocab], with the next step's parents.

        At first there is one row, and one empty output, for each sentence.
        """
        before, k = self.total, self.beam_size
        width = before.shape[1]
        scores, parent, token = _continue(log_probs, before, 2 * k)  # [live, 2k] each
        if self.shrinking:
            rank = torch.arange(scores.shape[1], device=scores.device)
            scores = scores.masked_fill(rank >= k - self.finished[:, None], NEVER)
        is_eos, at_limit = token == self.eos, self.limits == length

        # outputs that end: by an eos among the k best continuations, or because none can follow
        top, top_parent = scores[:, :k], parent[:, :k]  # [live, k]
        ending = is_eos[:, :k] & (top > NEVER)
        if length >= self.first_limit:  # at its limit, an output ends only by its best continuation
            ending &= ~at_limit[:, None] | _first_of_parent(top_parent, width)
        must_close = at_limit | (scores[:, 0] == NEVER)
        has_finished = torch.zeros_like(before).scatter_add_(1, top_parent, ending.to(before)) > 0
        cut = must_close[:, None] & ~has_finished & (before > NEVER)  # [live, width]
        coverage = torch.zeros_like(before)  # [live, width]
        if self.coverage_penalty is not None:
            coverage = self.coverage_penalty().view_as(before)
        top_coverage = coverage.gather(1, top_parent)
        norm = self.length_norm(length + 1)
        score = (top / norm + top_coverage).masked_fill(~ending, NEVER)

        # outputs that go on: by the k best continuations that are no eos
        open_first = is_eos.byte().argsort(dim=1, stable=True)[:, :k]
        total = scores.masked_fill(is_eos, NEVER).gather(1, open_first)  # [live, next width]

        # sentences that are done
        self.finished = self.finished + ending.sum(1)
        self.best = torch.maximum(self.best, score.amax(1))
        done = self.finished >= k
        if not self.shrinking:
            # beam_size alone is not enough: where the model is sure, the other outputs are poor,
            # and their early ends would stop the one good hypothesis midway
            done &= self.best >= total[:, 0] / norm
        self.total = total.masked_fill((must_close | done)[:, None], NEVER)

        next_parent = parent.gather(1, open_first)
        every = torch.arange(width, device=parent.device).expand_as(before)
        extension = Extension(
            torch.cat([ending, cut], 1),
            torch.cat([ending, torch.zeros_like(cut)], 1),
            torch.cat([top, before], 1),
            torch.cat([top_coverage, coverage], 1),
            torch.cat([top_parent, every], 1),
            next_parent,
            token.gather(1, open_first),
        )
        rows = torch.arange(len(total), device=total.device)[:, None] * width + next_parent
        return extension, None if width == total.shape[1] == 1 else rows

    def keep(self, sentences: Tensor) -> None:
        """Drop all other sentences."""
        self.limits, self.finished = self.limits[sentences], self.finished[sentences]
        self.best, self.total = self.best[sentences], self.total[sentences]


def _continue(log_probs: Tensor, total: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best continuations of each sentence: log_prob, row of the parent, token."""
    live, width = total.shape
    vocab = log_probs.shape[1]
    scores = (total[:, :, None] + log_probs.view(live, width, vocab)).flatten(1)
    may_wait = scores.device.type == "cpu"
    values, index = _top(scores, min(count, width * vocab), may_wait)
    return values, index // vocab, index % vocab  # [live, count] each


def _first_of_parent(parent: Tensor, width: int) -> Tensor:
    """Mark in parent [live, k] the first, that is the best, continuation of each parent."""
    rank = torch.arange(parent.shape[1], device=parent.device).expand_as(parent)
    first = parent.new_full((len(parent), width), parent.shape[1])
    return rank == first.scatter_reduce(1, parent, rank, "amin").gather(1, parent)


def _top(scores: Tensor, count: int, may_wait: bool) -> tuple[Tensor, Tensor]:
    """The `count` greatest of each row and their indices; of equal ones the earlier first.

    Values that are not finite count as -inf; if one comes first in a row, its index may be any.
    With a GPU, for which the host must not wait, all is computed that might be needed.
    """
    if not may_wait:
        scores = scores.nan_to_num(NEVER, NEVER, NEVER)
    size = scores.shape[1]
    values, index = scores.topk(min(count + 1, size), dim=1)
    if may_wait and not (values < float("inf")).all():  # NaN is the greatest of all to topk
        return _top(scores.nan_to_num(NEVER, NEVER, NEVER), count, may_wait)
    least, index = values[:, count - 1 : count], index[:, :count]
    if not may_wait or ((values[:, count:] == least) & (least > NEVER)).any():
        # topk takes any of several equal values. That matters only for values equal to the last
        # one: of these, take the earliest.
        column = torch.arange(size, device=scores.device, dtype=torch.int32)
        equal = torch.where(scores == least, column, size).topk(count, dim=1, largest=False)
        greater = values[:, :count] > least  # [live, count]: these come first
        rank = torch.arange(count, device=scores.device) - greater.sum(1, keepdim=True)
        earliest = equal.values.long().gather(1, rank.clamp(min=0))
        index = torch.where(greater, index, earliest)
    index = index.sort(dim=1).values
    values, order = scores.gather(1, index).sort(dim=1, descending=True, stable=True)
    return values, index.gather(1, order)
