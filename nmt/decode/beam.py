"""Beam search over a function from tokens to log-probabilities; it knows no model and no text."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor | None], Tensor]
"""`step(tokens [rows], parents [rows] or None) -> log_probs [rows, vocab]`.

Before it reads `tokens`, what is remembered for row i becomes that of the former row `parents[i]`
(None: as it is). That one call moves the beams about, and drops the rows of finished sentences.
"""

NEVER = float("-inf")


class Hypothesis(NamedTuple):
    """One output of the search."""

    ids: list[int]  # without bos and eos
    score: float  # log_prob / length_penalty
    log_prob: float  # sum over the ids, and over eos if finished
    finished: bool  # false: cut at the limit, or (if shorter) where no score was finite


def length_penalty(length: int, alpha: float, kind: str = "wu") -> float:
    """What log-probabilities are divided by; `length` counts eos.

    wu: ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14). power: length ** alpha, that of
    Marian (--normalize), transformers and CTranslate2; of no piece at all, that of one.
    """
    return ((5 + length) / 6 if kind == "wu" else max(1, length)) ** alpha


def search(
    step: Step,
    limits: Tensor,
    *,
    beam_size: int,
    alpha: float,
    penalised: str = "wu",
    bos: int,
    eos: int,
    forbidden: Sequence[int] = (),
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """Find the n_best best-scored outputs of each sentence, best first and all different.

    `limits` [batch] is the greatest length of each output, eos apart; it also says how many
    sentences there are, and on which device. The first call of `step` gets one row per sentence,
    later ones up to beam_size rows for each sentence that is not done, side by side.

    `alpha` and `penalised` are those of `length_penalty`.

    At each step an eos among the beam_size best continuations finishes a hypothesis; the best
    others form the next beam. A sentence is done when beam_size hypotheses are finished and no open
    one, scored at its present length, is better than all of them; else at its limit, where a
    hypothesis whose best continuation is not eos is closed as it is, without eos, and flagged. So
    beam_size 1 is greedy search. Among equal probabilities, the better parent comes first, then
    the lower id. Continuations without a finite log-probability (NaN too) are never taken; a
    sentence left with none is closed likewise.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best={n_best}: must be from 1 to beam_size={beam_size}")
    live = _Live.all_of(limits)
    hypotheses = _Hypotheses(limits.numel(), alpha, penalised)
    tokens, parents = torch.full_like(limits, bos), None
    while live.sentence.numel():
        log_probs = step(tokens, parents)  # [live * width, vocab]
        longer = live.prefix.shape[2] + 1
        penalty = length_penalty(longer, alpha, penalised)  # of all continuations
        scores, parent, token = _continue(log_probs, live.total, 2 * beam_size, forbidden)
        is_eos = token == eos  # [live, k], as scores, parent and token
        at_limit = live.limits == live.prefix.shape[2]  # [live]
        ending = is_eos & (scores > NEVER) & (~at_limit[:, None] | _leads(parent, live.total))
        ending[:, beam_size:] = False
        hypotheses.finished(live, scores, parent, ending)
        closing = at_limit | (scores[:, 0] == NEVER)
        hypotheses.cut(live, parent, ending, closing)

        chosen = is_eos.byte().argsort(dim=1, stable=True)[:, :beam_size]  # eos behind all others
        total = scores.masked_fill(is_eos, NEVER).gather(1, chosen)  # [live, new width]
        ended = live.ended + ending.sum(1)
        best = torch.maximum(live.best, scores.masked_fill(~ending, NEVER).amax(1) / penalty)
        # beam_size alone is not enough: where the model is sure, all other beams are poor, and
        # their early ends would stop the one good hypothesis midway
        enough = (ended >= beam_size) & (best >= total[:, 0] / penalty)
        done = closing | enough | (total[:, 0] == NEVER)
        live, tokens, parents = live.next(
            ~done, ended, best, total, parent.gather(1, chosen), token.gather(1, chosen)
        )
    return hypotheses.best(n_best)


class _Live(NamedTuple):
    """The sentences that are not done, and their beams."""

    sentence: Tensor  # [live] which of the batch
    limits: Tensor  # [live]
    ended: Tensor  # [live] hypotheses finished so far
    best: Tensor  # [live] the best score among them
    total: Tensor  # [live, width] log_prob, best first; -inf where there are too few
    prefix: Tensor  # [live, width, length] ids so far

    @classmethod
    def all_of(cls, limits: Tensor) -> "_Live":
        """Before the first step: one empty row per sentence, so that no beams are alike."""
        batch = limits.numel()
        return cls(
            sentence=torch.arange(batch, device=limits.device),
            limits=limits,
            ended=torch.zeros_like(limits),
            best=torch.full((batch,), NEVER, device=limits.device),
            total=torch.zeros(batch, 1, device=limits.device),
            prefix=torch.empty(batch, 1, 0, dtype=torch.long, device=limits.device),
        )

    def next(
        self,
        going_on: Tensor,  # [live]
        ended: Tensor,
        best: Tensor,
        total: Tensor,  # [live, new width], as parent and token
        parent: Tensor,
        token: Tensor,
    ) -> tuple["_Live", Tensor, Tensor | None]:
        """Drop sentences that are done, lengthen the others; with it, what `step` is given."""
        place = going_on.nonzero().squeeze(1)  # [new live]
        parent, token = parent[place], token[place]  # [new live, new width]
        prefix = torch.cat([self.prefix[place[:, None], parent], token[:, :, None]], dim=2)
        rows = (place[:, None] * self.total.shape[1] + parent).flatten()
        unchanged = torch.arange(self.total.numel(), device=rows.device)
        live = _Live(
            self.sentence[place],
            self.limits[place],
            ended[place],
            best[place],
            total[place],
            prefix,
        )
        return live, token.flatten(), None if torch.equal(rows, unchanged) else rows


class _Hypotheses:
    """The hypotheses of each sentence, in the order in which they were found."""

    def __init__(self, batch: int, alpha: float, penalised: str) -> None:
        self.alpha, self.penalised = alpha, penalised
        self.of: list[list[Hypothesis]] = [[] for _ in range(batch)]

    def finished(self, live: _Live, scores: Tensor, parent: Tensor, ending: Tensor) -> None:
        """Add the continuations marked in ending [live, k]: prefixes of the parents, then eos."""
        place, rank = ending.nonzero().unbind(1)
        self._add(live, place, parent[place, rank], scores[place, rank], True)

    def cut(self, live: _Live, parent: Tensor, ending: Tensor, closing: Tensor) -> None:
        """Add the rows of the sentences in closing [live] as they are, but for those that ended."""
        ended = torch.zeros_like(live.total).scatter_add_(1, parent, ending.to(live.total)) > 0
        place, row = (closing[:, None] & ~ended & (live.total > NEVER)).nonzero().unbind(1)
        self._add(live, place, row, live.total[place, row], False)

    def _add(
        self, live: _Live, place: Tensor, row: Tensor, log_probs: Tensor, finished: bool
    ) -> None:
        if not place.numel():
            return
        length = live.prefix.shape[2] + finished
        penalty = length_penalty(length, self.alpha, self.penalised)
        every_ids = live.prefix[place, row].tolist()
        sentences = live.sentence[place].tolist()
        for sentence, ids, log_prob in zip(sentences, every_ids, log_probs.tolist(), strict=True):
            self.of[sentence].append(Hypothesis(ids, log_prob / penalty, log_prob, finished))

    def best(self, n_best: int) -> list[list[Hypothesis]]:
        """The best of each sentence; of equal ones the earlier found first."""
        return [sorted(some, key=lambda h: -h.score)[:n_best] for some in self.of]


def _continue(
    log_probs: Tensor, total: Tensor, count: int, forbidden: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best continuations of each sentence: log_prob, row of the parent, token.

    Looking first for the maxima of blocks of the vocabulary, and then into the best blocks alone,
    made the whole search 1 to 3 % faster: too little for what it took (docs/speed.md).
    """
    live, width = total.shape
    vocab = log_probs.shape[1]
    each = total[:, :, None] + log_probs.view(live, width, vocab)
    for token in forbidden:
        each[:, :, token] = NEVER
    scores = each.flatten(1)  # [live, width x vocab]
    count = min(count, width * vocab)
    values, index = _best(scores, count)
    if not (values < float("inf")).all():  # NaN is the greatest of all to topk
        scores = scores.nan_to_num(nan=NEVER, posinf=NEVER, neginf=NEVER)
        values, index = _best(scores, count)
    return values, index // vocab, index % vocab  # [live, count] each


def _leads(parent: Tensor, total: Tensor) -> Tensor:
    """Mark in parent [live, k] the first, that is best, continuation of each row of total."""
    rank = torch.arange(parent.shape[1], device=parent.device).expand_as(parent)
    first = torch.full_like(total, parent.shape[1], dtype=torch.long)
    return rank == first.scatter_reduce(1, parent, rank, "amin").gather(1, parent)


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` greatest of each row and where they stand; of equal ones the earlier first."""
    one_more = min(count + 1, scores.shape[1])
    values, index = scores.topk(one_more, dim=1)
    if one_more > count:
        # topk does not say which of several equal values it takes: where that matters, sort.
        tied = (values[:, count - 1] == values[:, count]) & (values[:, count] > NEVER)
        if tied.any():
            order = scores[tied].sort(dim=1, descending=True, stable=True).indices
            index[tied] = order[:, :one_more]
    index = index[:, :count].sort(dim=1).values
    values, order = scores.gather(1, index).sort(dim=1, descending=True, stable=True)
    return values, index.gather(1, order)
