"""Sampling from a function from tokens to log-probabilities; it knows no model and no text."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt.decode.beam import CPU, NEVER, Hypothesis, Step, steps_between_looks
from nmt.machine.device import fetched, sent


class Draw(NamedTuple):
    """What decides on the random numbers of one sentence."""

    line: int  # its number, from 1
    part: int  # of a line that is translated in parts, from 0


def random_numbers(seed: int, draws: Sequence[Draw], samples: int, steps: int) -> Tensor:
    """Numbers from [0, 1) as [sentence, sample, step], float64.

    Each follows from the seed, the draw, and the numbers of sample and step alone: they are those
    of Philox 4x64-10 (Salmon et al. 2011), which computes the random number of a place from it.
    """
    numbers = np.empty((len(draws), samples, steps))
    for row, draw in enumerate(draws):
        for sample in range(samples):
            place = np.array([0, sample, draw.part, 0], dtype=np.uint64)
            key = np.array([seed, draw.line], dtype=np.uint64)
            raw = np.random.Philox(key=key, counter=place).random_raw(steps)
            numbers[row, sample] = (raw >> np.uint64(11)) * 2.0**-53
    return torch.from_numpy(numbers)


def sample(
    step: Step,
    limits: Tensor,
    numbers: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    bos: int,
    eos: int,
    forbidden: Sequence[int] = (),
    device: torch.device = CPU,
    look_every: int | None = None,
) -> list[list[Hypothesis]]:
    """Draw outputs of each sentence token by token, in the order of the samples; some may be equal.

    `limits` [batch] is the greatest length of each output, eos apart. `numbers` [batch, samples,
    steps], of at least one step more, decide on the tokens: `probabilities` tells of which number
    comes which. Both are on the CPU. The first call of `step` gets one row per sentence, later ones
    a row for each sample, on `device`. A sample whose token at the limit is not eos is closed as it
    is, without eos; so is one that is left without a finite log-probability.

    Samples that have ended leave every `look_every` steps, as in `beam.search`.

    `log_prob` and `score` of a hypothesis are its log-probability under the step function itself,
    whatever temperature, top_k and top_p made of it.
    """
    every = look_every or steps_between_looks(device)
    batch, each, _ = numbers.shape
    samples = _Samples(batch, each)
    live = _Live.all_of(limits, numbers, device)
    # [live] rows of log-probabilities, which are one for each sentence at first
    spread = sent(torch.arange(batch).repeat_interleave(each), device) if each > 1 else None
    tokens, parents = torch.full((batch,), bos, device=device), None
    longest, start = max(limits.tolist(), default=0), 0
    while samples.open:
        lengths = range(start, min(start + every, longest + 1))  # of the open samples
        drawn = []
        for length in lengths:
            log_probs = step(tokens, parents)
            if spread is not None:
                log_probs = log_probs[spread]
            parents, spread = spread, None
            known = log_probs.nan_to_num(nan=NEVER, posinf=NEVER, neginf=NEVER)
            chances = probabilities(known, temperature, top_k, top_p, forbidden)  # [live, vocab]
            live, last = live.after(known, chances, length, eos)
            tokens = last.token
            drawn.append(last)
        start = lengths.stop
        going_on = samples.add(drawn, live.open)
        if len(going_on) < len(tokens):
            place = sent(going_on, device)  # [new live]
            live, tokens = live.of(place), tokens[place]
            parents = place if parents is None else parents[place]
    return samples.made


class _Drawn(NamedTuple):
    """What one step did, for each sample that has a row."""

    closed: Tensor  # [live] which samples it closed
    ended: Tensor  # [live] and by eos
    total: Tensor  # [live] their log_prob
    token: Tensor  # [live] what the others go on with


class _Live(NamedTuple):
    """The samples that have rows."""

    limit: Tensor  # [live]
    numbers: Tensor  # [live, steps]
    total: Tensor  # [live] log_prob, float64
    open: Tensor  # [live] which have not ended

    @classmethod
    def all_of(cls, limits: Tensor, numbers: Tensor, device: torch.device) -> "_Live":
        """Before the first step."""
        limit = sent(limits.repeat_interleave(numbers.shape[1]), device)
        total = torch.zeros(len(limit), dtype=torch.float64, device=device)
        is_open = torch.ones(len(limit), dtype=torch.bool, device=device)
        return cls(limit, sent(numbers.flatten(0, 1), device), total, is_open)

    def of(self, place: Tensor) -> "_Live":
        """Some of the samples."""
        return _Live(*(part[place] for part in self))

    def after(
        self, known: Tensor, chances: Tensor, length: int, eos: int
    ) -> tuple["_Live", _Drawn]:
        """Draw a token for each sample of `length` ids; known: log-probabilities [live, vocab]."""
        token = chosen(chances, self.numbers[:, length])  # [live]
        total = self.total + known.gather(1, token[:, None])[:, 0].double()
        mute = ~(chances.sum(1) > 0)  # [live] without a finite log-probability
        ended = (token == eos) & ~mute
        closed = ended | mute | (self.limit == length)
        drawn = _Drawn(closed & self.open, ended, torch.where(ended, total, self.total), token)
        return self._replace(total=total, open=self.open & ~closed), drawn


class _Samples:
    """The ids of the samples that have rows, and the hypotheses of those that ended; on the CPU."""

    def __init__(self, batch: int, each: int) -> None:
        self.row = torch.arange(batch * each)  # [live] number of each among all
        self.ids = torch.empty(batch * each, 0, dtype=torch.long)  # [live, length]
        self.each = each
        self._made: list[Hypothesis | None] = [None] * (batch * each)

    @property
    def open(self) -> bool:
        """Whether any sample has a row."""
        return bool(self.row.numel())

    def add(self, drawn: Sequence[_Drawn], is_open: Tensor) -> Tensor:
        """Put down what steps did, and give the places of the samples that go on.

        This waits for the device, once.
        """
        is_open, *parts = fetched([is_open, *(part for one in drawn for part in one)])
        each = iter(parts)
        for _ in drawn:
            self._put_down(_Drawn(*islice(each, len(_Drawn._fields))))
        place = is_open.nonzero()[:, 0]
        self.row, self.ids = self.row[place], self.ids[place]
        return place

    def _put_down(self, drawn: _Drawn) -> None:
        place = drawn.closed.nonzero()[:, 0]
        columns = (self.row, self.ids, drawn.total, drawn.ended)
        for row, ids, log_prob, finished in zip(
            *(column[place].tolist() for column in columns), strict=True
        ):
            self._made[row] = Hypothesis(ids, log_prob, log_prob, finished)
        self.ids = torch.cat([self.ids, drawn.token[:, None]], dim=1)

    @property
    def made(self) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence, in the order of its samples; all have ended."""
        made = [hypothesis for hypothesis in self._made if hypothesis is not None]
        return [made[i : i + self.each] for i in range(0, len(made), self.each)]


def probabilities(
    log_probs: Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    forbidden: Sequence[int] = (),
) -> Tensor:
    """The probabilities [rows, vocab], in float64, by which tokens are drawn.

    Forbidden tokens get none. Of the others, log-probabilities are divided by `temperature`; then
    the `top_k` most probable tokens are kept (0: all; Fan et al. 2018), and of these, the fewest
    most probable ones that hold a share of at least `top_p` (Holtzman et al. 2020; 1: all). Among
    equals the lower id is kept. What is kept is normalised; a row without any finite number is 0.
    """
    scaled = log_probs.double() / temperature
    for token in forbidden:
        scaled[:, token] = NEVER
    chances = scaled.softmax(dim=1).nan_to_num(nan=0.0)
    if not top_k and top_p == 1:
        return chances
    descending, order = chances.sort(dim=1, descending=True, stable=True)
    if top_k:
        descending[:, top_k:] = 0
    if top_p < 1:
        sums = descending.cumsum(1)
        enough = sums[:, :-1] >= top_p * sums[:, -1:]  # what is more probable than the next
        descending[:, 1:].masked_fill_(enough, 0)
    kept = torch.zeros_like(chances).scatter_(1, order, descending)
    return (kept / kept.sum(1, keepdim=True)).nan_to_num(nan=0.0)


def chosen(chances: Tensor, numbers: Tensor) -> Tensor:
    """The token [rows] of each row of probabilities for a number from [0, 1).

    The first, in the order of ids, up to which the probabilities add up to more than the number.
    """
    sums = chances.cumsum(1)
    last = (chances > 0).long().mul(torch.arange(chances.shape[1], device=chances.device)).amax(1)
    found = torch.searchsorted(sums, (numbers * sums[:, -1])[:, None], right=True)[:, 0]
    return torch.minimum(found, last)
