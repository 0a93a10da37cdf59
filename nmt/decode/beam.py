"""Beam search over a function from tokens to log-probabilities; it knows no model and no text."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.machine.device import fetched, sent

Step = Callable[[Tensor, Tensor | None], Tensor]
"""`step(tokens [rows], parents or None) -> log_probs [rows, vocab]`.

Before it reads `tokens`, what is remembered for row i becomes that of the former row `parents[i]`
(None: as it is). That one call moves the beams about, and drops the rows of finished sentences.
`parents` [sentences, width] says that the rows of a line are of one sentence, and that sentences
keep their order; of `parents` [rows] nothing is known.
"""

NEVER = float("-inf")
CPU = torch.device("cpu")

# Steps between two looks at what is done, where a GPU has to be waited for at each: it then idles
# until the next operations reach it. Sentences that are done keep their rows until then, 3.5 steps
# on the average. On a CPU, where nobody waits and rows cost time, it is 1.
LOOK_EVERY = 8


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


def steps_between_looks(device: torch.device) -> int:
    """How many steps pass until a search looks at what is done."""
    return 1 if device.type == "cpu" else LOOK_EVERY


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
    device: torch.device = CPU,
    look_every: int | None = None,
) -> list[list[Hypothesis]]:
    """Find the n_best best-scored outputs of each sentence, best first and all different.

    `limits` [batch], on the CPU, is the greatest length of each output, eos apart; it also says how
    many sentences there are. The first call of `step` gets one row per sentence, later ones up to
    beam_size rows for each sentence, side by side, on `device`.

    `alpha` and `penalised` are those of `length_penalty`.

    At each step an eos among the beam_size best continuations finishes a hypothesis; the best
    others form the next beam. A sentence is done when beam_size hypotheses are finished and no open
    one, scored at its present length, is better than all of them; else at its limit, where a
    hypothesis whose best continuation is not eos is closed as it is, without eos, and flagged. So
    beam_size 1 is greedy search. Among equal probabilities, the better parent comes first, then
    the lower id. Continuations without a finite log-probability (NaN too) are never taken; a
    sentence left with none is closed likewise.

    Sentences that are done leave every `look_every` steps (None: what suits the device). Only then
    is the device waited for; the hypotheses are the same.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best={n_best}: must be from 1 to beam_size={beam_size}")
    every = look_every or steps_between_looks(device)
    rules = _Rules(beam_size, alpha, penalised, eos, forbidden)
    found = _Found(limits.numel(), rules)
    live = _Live.all_of(sent(limits, device))
    tokens, parents = torch.full_like(live.limits, bos), None
    longest, start = max(limits.tolist(), default=0), 0
    while found.open:
        lengths = range(start, min(start + every, longest + 1))  # of the open hypotheses
        taken = []
        for length in lengths:
            log_probs = step(tokens.flatten(), parents)  # [live * width, vocab]
            live, last, parents = live.after(log_probs, length, rules)
            tokens = last.token
            taken.append(last)
        start = lengths.stop
        going_on = found.add(taken, live.total[:, 0] > NEVER)
        if len(going_on) < len(tokens):
            place = sent(going_on, device)  # [new live]
            live, tokens = live.of(place), tokens[place]
            parents = place[:, None] if parents is None else parents[place]
    return found.best(n_best)


class _Rules(NamedTuple):
    """What a search follows at each step."""

    beam_size: int
    alpha: float
    penalised: str
    eos: int
    forbidden: Sequence[int]

    def penalty(self, length: int) -> float:
        """What log-probabilities are divided by; `length` counts eos."""
        return length_penalty(length, self.alpha, self.penalised)


class _Taken(NamedTuple):
    """What one step did, for each sentence that has rows."""

    ending: Tensor  # [live, k] which of the best continuations finish a hypothesis
    scores: Tensor  # [live, k] their log_prob
    parent: Tensor  # [live, k] the hypotheses that they continue
    cut: Tensor  # [live, width] which hypotheses are closed as they are
    total: Tensor  # [live, width] their log_prob
    came: Tensor  # [live, new width] from which hypotheses the next beam comes
    token: Tensor  # [live, new width] and by which ids


class _Live(NamedTuple):
    """The sentences that have rows, and their beams.

    One that is done has no log_prob but -inf from then on: so it finishes no further hypothesis.
    """

    limits: Tensor  # [live]
    ended: Tensor  # [live] hypotheses finished so far
    best: Tensor  # [live] the best score among them
    total: Tensor  # [live, width] log_prob, best first; -inf where there are too few

    @classmethod
    def all_of(cls, limits: Tensor) -> "_Live":
        """Before the first step: one empty row per sentence, so that no beams are alike."""
        batch, device = limits.numel(), limits.device
        return cls(
            limits=limits,
            ended=torch.zeros_like(limits),
            best=torch.full((batch,), NEVER, device=device),
            total=torch.zeros(batch, 1, device=device),
        )

    def of(self, place: Tensor) -> "_Live":
        """Some of the sentences."""
        return _Live(*(part[place] for part in self))

    def after(
        self, log_probs: Tensor, length: int, rules: _Rules
    ) -> tuple["_Live", _Taken, Tensor | None]:
        """Take a step from hypotheses of `length` ids; with the former row of each row.

        The rows [live, new width] are None where all are what they were.
        """
        width, front = self.total.shape[1], rules.beam_size
        penalty = rules.penalty(length + 1)  # of all continuations
        scores, parent, token = _continue(log_probs, self.total, 2 * front, rules.forbidden)
        is_eos = token == rules.eos  # [live, 2k], as scores, parent and token
        at_limit = self.limits == length  # [live]
        ahead, by = scores[:, :front], parent[:, :front]  # [live, k]
        ending = is_eos[:, :front] & (ahead > NEVER) & (~at_limit[:, None] | _leads(by, self.total))
        closing = at_limit | (scores[:, 0] == NEVER)
        has_ended = torch.zeros_like(self.total).scatter_add_(1, by, ending.to(self.total)) > 0
        cut = closing[:, None] & ~has_ended & (self.total > NEVER)

        chosen = is_eos.byte().argsort(dim=1, stable=True)[:, :front]  # eos behind all others
        total = scores.masked_fill(is_eos, NEVER).gather(1, chosen)  # [live, new width]
        ended = self.ended + ending.sum(1)
        best = torch.maximum(self.best, ahead.masked_fill(~ending, NEVER).amax(1) / penalty)
        # beam_size alone is not enough: where the model is sure, all other beams are poor, and
        # their early ends would stop the one good hypothesis midway
        enough = (ended >= rules.beam_size) & (best >= total[:, 0] / penalty)
        total = total.masked_fill((closing | enough)[:, None], NEVER)

        came, token = parent.gather(1, chosen), token.gather(1, chosen)
        taken = _Taken(ending, ahead, by, cut, self.total, came, token)
        first = torch.arange(len(came), device=came.device)[:, None] * width  # row of each sentence
        rows = None if width == came.shape[1] == 1 else first + came
        return _Live(self.limits, ended, best, total), taken, rows


class _Found:
    """The hypotheses of each sentence, in the order in which they were found; on the CPU."""

    def __init__(self, batch: int, rules: _Rules) -> None:
        self.rules = rules
        self.of: list[list[Hypothesis]] = [[] for _ in range(batch)]
        self.sentence = torch.arange(batch)  # [live] which of the batch
        self.prefix = torch.empty(batch, 1, 0, dtype=torch.long)  # [live, width, length] ids so far

    @property
    def open(self) -> bool:
        """Whether any sentence has rows."""
        return bool(self.sentence.numel())

    def add(self, taken: Sequence[_Taken], alive: Tensor) -> Tensor:
        """Put down what steps did, and give the places of the sentences that go on.

        This waits for the device, once.
        """
        alive, *parts = fetched([alive, *(part for one in taken for part in one)])
        each = iter(parts)
        for _ in taken:
            self._put_down(_Taken(*islice(each, len(_Taken._fields))))
        place = alive.nonzero()[:, 0]
        if len(place) < len(alive):
            self.sentence, self.prefix = self.sentence[place], self.prefix[place]
        return place

    def _put_down(self, taken: _Taken) -> None:
        self._close(taken.ending, taken.scores, taken.parent)
        self._close(taken.cut, taken.total, None)
        sentences = torch.arange(len(self.prefix))[:, None]
        self.prefix = torch.cat([self.prefix[sentences, taken.came], taken.token[:, :, None]], 2)

    def _close(self, which: Tensor, log_probs: Tensor, parent: Tensor | None) -> None:
        """Add what is marked in which [live, k]: by an eos after these parents, or as it is."""
        place, row = which.nonzero().unbind(1)
        if not place.numel():
            return
        ids = self.prefix[place, row if parent is None else parent[place, row]]
        penalty = self.rules.penalty(ids.shape[1] + (parent is not None))
        parts = (self.sentence[place], ids, log_probs[place, row])
        for sentence, said, log_prob in zip(*(part.tolist() for part in parts), strict=True):
            score = log_prob / penalty
            self.of[sentence].append(Hypothesis(said, score, log_prob, parent is not None))

    def best(self, n_best: int) -> list[list[Hypothesis]]:
        """The best of each sentence; of equal ones the earlier found first."""
        return [sorted(some, key=lambda h: -h.score)[:n_best] for some in self.of]


def _continue(
    log_probs: Tensor, total: Tensor, count: int, forbidden: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best continuations of each sentence: log_prob, row of the parent, token.

    Looking first for the maxima of blocks of the vocabulary, and then into the best blocks alone,
    made the whole search 1 to 3 % faster: too little for what it took (docs/log.md).
    """
    live, width = total.shape
    vocab = log_probs.shape[1]
    each = total[:, :, None] + log_probs.view(live, width, vocab)
    for token in forbidden:
        each[:, :, token] = NEVER
    scores = each.flatten(1)  # [live, width x vocab]
    count = min(count, width * vocab)
    best = _best if scores.device.type == "cpu" else _best_unseen
    values, index = best(scores, count)
    return values, index // vocab, index % vocab  # [live, count] each


def _leads(parent: Tensor, total: Tensor) -> Tensor:
    """Mark in parent [live, k] the first, that is best, continuation of each row of total."""
    rank = torch.arange(parent.shape[1], device=parent.device).expand_as(parent)
    first = torch.full_like(total, parent.shape[1], dtype=torch.long)
    return rank == first.scatter_reduce(1, parent, rank, "amin").gather(1, parent)


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` greatest of each row and where they stand; of equal ones the earlier first.

    What is not finite counts as -inf; where that comes first in a row, its place may be any.
    """
    one_more = min(count + 1, scores.shape[1])
    values, index = scores.topk(one_more, dim=1)
    if not (values < float("inf")).all():  # NaN is the greatest of all to topk
        return _best(_finite(scores), count)
    if one_more > count:
        # topk does not say which of several equal values it takes: where that matters, sort.
        tied = (values[:, count - 1] == values[:, count]) & (values[:, count] > NEVER)
        if tied.any():
            order = scores[tied].sort(dim=1, descending=True, stable=True).indices
            index[tied] = order[:, :one_more]
    return _in_order(scores, index[:, :count])


def _best_unseen(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The same without a look at the numbers, for which a GPU would have to be waited for."""
    scores = _finite(scores)
    values, index = scores.topk(count, dim=1)
    least, size = values[:, -1:], scores.shape[1]
    # Which of several equal values topk takes, matters only for those that equal the last one: of
    # these come the earliest.
    place = torch.arange(size, device=scores.device, dtype=torch.int32)
    equal = torch.where(scores == least, place, size).topk(count, dim=1, largest=False, sorted=True)
    greater = values > least  # [live, count]: these stand before the others
    rank = torch.arange(count, device=scores.device) - greater.sum(1, keepdim=True)
    index = torch.where(greater, index, equal.values.long().gather(1, rank.clamp(min=0)))
    return _in_order(scores, index)


def _finite(scores: Tensor) -> Tensor:
    return scores.nan_to_num(nan=NEVER, posinf=NEVER, neginf=NEVER)


def _in_order(scores: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The scores at index [live, count], the greatest first, of equal ones the earlier."""
    index = index.sort(dim=1).values
    values, order = scores.gather(1, index).sort(dim=1, descending=True, stable=True)
    return values, index.gather(1, order)
