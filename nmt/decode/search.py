"""Search over a function from tokens to log-probabilities; it knows no model and no text."""

from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from nmt.decode.engine import Hypothesis
from nmt.system.device import to_device, to_host

Step = Callable[[Tensor, Tensor | None], Tensor]
"""`step(tokens [rows], parents [sentences, width] or None) -> log_probs [rows, vocab]`.

Before it reads `tokens`, the state of row i becomes that of the former row `parents.flatten()[i]`
(None: rows stay as they are). That one call reorders the beams, and drops the rows of finished
sentences. The rows of one sentence are adjacent, and sentences keep their order.
"""

NEVER = float("-inf")
CPU = torch.device("cpu")

# Steps between two checks which sentences are done, where each check waits for a GPU, which then
# idles until the next operations reach it. Sentences that are done keep their rows until then, 3.5
# steps on average. On a CPU there is no such wait, and rows cost time: there it is 1.
CHECK_EVERY = 8


class Extension(NamedTuple):
    """What one step does to the open outputs of each sentence that has rows."""

    closes: Tensor  # [live, n] which outputs are closed
    finished: Tensor  # [live, n] and by eos
    log_probs: Tensor  # [live, n] their log-probability
    coverage: Tensor  # [live, n] their coverage penalty
    parent: Tensor  # [live, n] the open outputs that these are
    next_parent: Tensor  # [live, next width] the open outputs that go on
    token: Tensor  # [live, next width] and by which ids


class Method(Protocol):
    """How outputs are extended: `Beam`, or `sampling.Sampling`. Tensors are on its device."""

    limits: Tensor  # [live] the greatest length of each output, without eos
    longest: int  # the greatest of all limits

    @property
    def is_open(self) -> Tensor:
        """Which sentences go on [live]."""

    def penalty(self, length: int, /) -> float:
        """The divisor of log-probabilities; `length` counts eos."""

    def extend(self, log_probs: Tensor, length: int) -> tuple[Extension, Tensor | None]:
        """Extend outputs of `length` ids by log_probs [rows, vocab], with the next step's parents.

        At first there is one row, and one empty output, for each sentence.
        """

    def keep(self, places: Tensor) -> None:
        """Drop all sentences but these."""

    def rank(self, closed: Sequence[tuple[int, Hypothesis]]) -> list[Hypothesis]:
        """The hypotheses of a sentence, from those closed, each with its column of `closes`."""


def search(
    step: Step, method: Method, bos: int, check_every: int | None = None
) -> list[list[Hypothesis]]:
    """Extend outputs token by token until all are closed; the hypotheses of each sentence.

    The first call of `step` gets one row per sentence, later ones those of the method, on its
    device. Sentences that are done leave every `check_every` steps (None: the number that suits the
    device). The device is waited for only then; hypotheses are the same.
    """
    device, batch = method.limits.device, len(method.limits)
    steps = check_every or (1 if device.type == "cpu" else CHECK_EVERY)
    closed: list[list[tuple[int, Hypothesis]]] = [[] for _ in range(batch)]
    sentence = torch.arange(batch)  # [live] on the host, as ids
    ids = torch.empty(batch, 1, 0, dtype=torch.long)  # [live, width, length] of open outputs
    tokens, parents = torch.full((batch, 1), bos, device=device), None
    while len(sentence):
        lengths = range(ids.shape[2], min(ids.shape[2] + steps, method.longest + 1))
        extensions = []
        for length in lengths:
            extension, following = method.extend(step(tokens.flatten(), parents), length)
            tokens, parents = extension.token, following
            extensions.append(extension)
        is_open, *tensors = to_host([method.is_open, *chain.from_iterable(extensions)])
        values = iter(tensors)
        for _ in extensions:
            extension = Extension(*islice(values, len(Extension._fields)))
            _close(extension, method.penalty, sentence, ids, closed)
            of_sentence = torch.arange(len(ids))[:, None]
            parts = ids[of_sentence, extension.next_parent], extension.token[:, :, None]
            ids = torch.cat(parts, dim=2)
        places = is_open.nonzero()[:, 0]
        if len(places) < len(is_open):
            sentence, ids = sentence[places], ids[places]
            places = to_device(places, device)
            method.keep(places)
            if parents is None:  # all rows stayed in their places
                parents = torch.arange(tokens.numel(), device=device).view_as(tokens)
            tokens, parents = tokens[places], parents[places]
    return [method.rank(of_sentence) for of_sentence in closed]


def _close(
    extension: Extension,
    penalty: Callable[[int], float],
    sentence: Tensor,
    ids: Tensor,
    closed: list[list[tuple[int, Hypothesis]]],
) -> None:
    """Add the outputs that a step closes, each with its column; all tensors are on the host."""
    place, column = extension.closes.nonzero().unbind(1)
    if not len(place):
        return
    facts = (t[place, column].tolist() for t in extension[1:4])
    outputs = ids[place, extension.parent[place, column]].tolist()
    divisors = penalty(ids.shape[2]), penalty(ids.shape[2] + 1)  # without eos, and with it
    rows = zip(sentence[place].tolist(), column.tolist(), outputs, *facts, strict=True)
    for number, of_output, output, finished, log_prob, coverage in rows:
        score = log_prob / divisors[finished] + coverage
        hypothesis = Hypothesis(output, score, log_prob, finished, coverage)
        closed[number].append((of_output, hypothesis))


class Beam:
    """Finds the n_best best-scored outputs of each sentence, best first and all different.

    At each step an eos among the beam_size best continuations finishes a hypothesis; the best
    others form the next beam. A sentence is done when beam_size hypotheses are finished and no open
    one, scored at its present length, is better than all of them; else at its limit, where a
    hypothesis whose best continuation is not eos is closed as it is, without eos, and flagged. So
    beam_size 1 is greedy search. Among equal probabilities, the better parent comes first, then
    the lower id. Continuations without a finite log-probability (NaN too) are never followed; a
    sentence left with none is closed likewise.

    `shrinking` is Marian's rule instead: each finished hypothesis takes its place in the beam with
    it, and a sentence is done when none is left.

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
        shrinking: bool = False,
        coverage_penalty: Callable[[], Tensor] | None = None,
        device: torch.device = CPU,
    ) -> None:
        """`limits` [batch], on the CPU: the greatest length of each output, without eos.

        `penalty(length)` is the divisor of log-probabilities, as `length_penalty`.
        `coverage_penalty()` gives that of each row of the latest step if it ends there, 0 or less.
        """
        self.beam_size, self.penalty, self.n_best = beam_size, penalty, n_best
        self.eos, self.shrinking, self.coverage_penalty = eos, shrinking, coverage_penalty
        self.shortest = min(limits.tolist(), default=0)
        self.longest = max(limits.tolist(), default=0)
        self.limits = to_device(limits, device)  # [live]
        self.ended = torch.zeros_like(self.limits)  # [live] hypotheses finished so far
        self.best = torch.full((len(limits),), NEVER, device=device)  # [live] best score of these
        # [live, width] log_prob, best first; -inf where there are too few, and in a sentence that
        # is done. At first one empty output per sentence, so that all beams differ.
        self.total = torch.zeros(len(limits), 1, device=device)

    @property
    def is_open(self) -> Tensor:
        """Which sentences go on [live]."""
        return self.total[:, 0] > NEVER

    def extend(self, log_probs: Tensor, length: int) -> tuple[Extension, Tensor | None]:
        """Extend hypotheses of `length` ids by log_probs [live x width, vocab].

        Returns what `record` writes, and the parents of the rows of the next step.
        """
        before, k = self.total, self.beam_size
        width = before.shape[1]
        scores, parent, token = _continue(log_probs, before, 2 * k)  # [live, 2k] each
        if self.shrinking:
            rank = torch.arange(scores.shape[1], device=scores.device)
            scores = scores.masked_fill(rank >= k - self.ended[:, None], NEVER)
        is_eos, at_limit = token == self.eos, self.limits == length
        top, top_parent = scores[:, :k], parent[:, :k]
        ending = is_eos[:, :k] & (top > NEVER)
        if length >= self.shortest:  # at the limit a hypothesis ends only by its best continuation
            ending &= ~at_limit[:, None] | _first_of_parent(top_parent, width)
        closing = at_limit | (scores[:, 0] == NEVER)
        has_ended = torch.zeros_like(before).scatter_add_(1, top_parent, ending.to(before)) > 0
        cut = closing[:, None] & ~has_ended & (before > NEVER)  # [live, width]
        coverage = torch.zeros_like(before)  # [live, width]
        if self.coverage_penalty is not None:
            coverage = self.coverage_penalty().view_as(before)
        top_coverage = coverage.gather(1, top_parent)
        open_first = is_eos.byte().argsort(dim=1, stable=True)[:, :k]  # eos behind all others
        total = scores.masked_fill(is_eos, NEVER).gather(1, open_first)  # [live, next width]
        penalty = self.penalty(length + 1)
        score = (top / penalty + top_coverage).masked_fill(~ending, NEVER)
        self.ended = self.ended + ending.sum(1)
        self.best = torch.maximum(self.best, score.amax(1))
        done = self.ended >= k
        if not self.shrinking:
            # beam_size alone is not enough: where the model is sure, all other beams are poor, and
            # their early ends would stop the one good hypothesis midway
            done &= self.best >= total[:, 0] / penalty
        self.total = total.masked_fill((closing | done)[:, None], NEVER)

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

    def keep(self, places: Tensor) -> None:
        """Drop all sentences but these."""
        self.limits, self.ended = self.limits[places], self.ended[places]
        self.best, self.total = self.best[places], self.total[places]

    def rank(self, closed: Sequence[tuple[int, Hypothesis]]) -> list[Hypothesis]:
        """The n_best of a sentence; of equal ones the earlier closed first."""
        return sorted((h for _, h in closed), key=lambda h: -h.score)[: self.n_best]


def _continue(log_probs: Tensor, total: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best continuations of each sentence: log_prob, row of the parent, token."""
    live, width = total.shape
    vocab = log_probs.shape[1]
    scores = (total[:, :, None] + log_probs.view(live, width, vocab)).flatten(1)
    count = min(count, width * vocab)
    best = _top if scores.device.type == "cpu" else _top_on_gpu
    values, index = best(scores, count)
    return values, index // vocab, index % vocab  # [live, count] each


def _first_of_parent(parent: Tensor, width: int) -> Tensor:
    """Mark in parent [live, k] the first, that is best, continuation of each of `width` rows."""
    rank = torch.arange(parent.shape[1], device=parent.device).expand_as(parent)
    first = parent.new_full((len(parent), width), parent.shape[1])
    return rank == first.scatter_reduce(1, parent, rank, "amin").gather(1, parent)


def _top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` greatest of each row and their indices; of equal ones the earlier first.

    Values that are not finite count as -inf; where one comes first in a row, its place may be any.
    """
    one_more = min(count + 1, scores.shape[1])
    values, index = scores.topk(one_more, dim=1)
    if not (values < float("inf")).all():  # NaN is the greatest of all to topk
        return _top(scores.nan_to_num(NEVER, NEVER, NEVER), count)
    if one_more > count:
        # topk does not say which of several equal values it takes: where that matters, sort.
        tied = (values[:, count - 1] == values[:, count]) & (values[:, count] > NEVER)
        if tied.any():
            order = scores[tied].sort(dim=1, descending=True, stable=True).indices
            index[tied] = order[:, :one_more]
    return _sort_earlier_first(scores, index[:, :count])


def _top_on_gpu(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The same on a GPU, which is not waited for: no number is read by the host."""
    scores = scores.nan_to_num(NEVER, NEVER, NEVER)
    values, index = scores.topk(count, dim=1)
    least, size = values[:, -1:], scores.shape[1]
    # Which of several equal values topk takes, matters only for those that equal the last one: of
    # these come the earliest.
    place = torch.arange(size, device=scores.device, dtype=torch.int32)
    equal = torch.where(scores == least, place, size).topk(count, dim=1, largest=False, sorted=True)
    greater = values > least  # [live, count]: these come before the others
    rank = torch.arange(count, device=scores.device) - greater.sum(1, keepdim=True)
    index = torch.where(greater, index, equal.values.long().gather(1, rank.clamp(min=0)))
    return _sort_earlier_first(scores, index)


def _sort_earlier_first(scores: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The scores at index [live, count], the greatest first, of equal ones the earlier."""
    index = index.sort(dim=1).values
    values, order = scores.gather(1, index).sort(dim=1, descending=True, stable=True)
    return values, index.gather(1, order)
