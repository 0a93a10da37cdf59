"""Sampling from a function from tokens to log-probabilities; it knows no model and no text."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt.decode.beam import NEVER, Hypothesis, Step


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
) -> list[list[Hypothesis]]:
    """Draw outputs of each sentence token by token, in the order of the samples; some may be equal.

    `limits` [batch] is the greatest length of each output, eos apart. `numbers` [batch, samples,
    steps], of at least one step more, decide on the tokens: `probabilities` tells of which number
    comes which. The first call of `step` gets one row per sentence, later ones a row for each
    sample that has not ended. A sample whose token at the limit is not eos is closed as it is,
    without eos; so is one that is left without a finite log-probability.

    `log_prob` and `score` of a hypothesis are its log-probability under the step function itself,
    whatever temperature, top_k and top_p made of it.
    """
    samples = _Samples(limits, numbers.shape[1])
    numbers = numbers.to(limits.device).flatten(0, 1)  # [batch x samples, steps]
    log_probs = step(torch.full_like(limits, bos), None)  # [batch, vocab]
    parents = samples.row // samples.each  # [live] rows of log_probs
    while True:
        known = log_probs[parents].nan_to_num(nan=NEVER, posinf=NEVER, neginf=NEVER)
        chances = probabilities(known, temperature, top_k, top_p, forbidden)  # [live, vocab]
        token = chosen(chances, numbers[samples.row, samples.length])  # [live]
        gain = known.gather(1, token[:, None])[:, 0].double()
        mute = ~(chances.sum(1) > 0)  # [live] without a finite log-probability
        ended = (token == eos) & ~mute
        closed = ended | mute | (samples.limit == samples.length)
        samples.close(closed, ended, torch.where(ended, samples.total + gain, samples.total))
        live = (~closed).nonzero().squeeze(1)
        samples.lengthen(live, token[live], gain[live])
        if not live.numel():
            break
        before = parents[live]
        unchanged = len(before) == len(log_probs) and bool((before.diff() == 1).all())
        log_probs = step(token[live], None if unchanged else before)
        parents = torch.arange(len(live), device=live.device)
    return samples.made


class _Samples:
    """The samples that have not ended, and the hypotheses of those that have."""

    def __init__(self, limits: Tensor, each: int) -> None:
        batch, device = limits.numel(), limits.device
        self.row = torch.arange(batch * each, device=device)  # [live] number of each among all
        self.limit = limits.repeat_interleave(each)  # [live]
        self.ids = torch.empty(batch * each, 0, dtype=torch.long, device=device)  # [live, length]
        self.total = torch.zeros(batch * each, dtype=torch.float64, device=device)  # [live]
        self.each = each
        self._made: list[Hypothesis | None] = [None] * (batch * each)

    @property
    def length(self) -> int:
        """Ids of each live sample."""
        return self.ids.shape[1]

    def close(self, closed: Tensor, ended: Tensor, log_probs: Tensor) -> None:
        """Keep those marked in closed [live] as hypotheses; those in ended [live] are finished."""
        place = closed.nonzero().squeeze(1)
        columns = (self.row, self.ids, log_probs, ended)
        for row, ids, log_prob, finished in zip(
            *(column[place].tolist() for column in columns), strict=True
        ):
            self._made[row] = Hypothesis(ids, log_prob, log_prob, finished)

    def lengthen(self, live: Tensor, token: Tensor, gain: Tensor) -> None:
        """Go on with the live ones alone, by a token [new live] and its log-probability."""
        self.row, self.limit = self.row[live], self.limit[live]
        self.total = self.total[live] + gain
        self.ids = torch.cat([self.ids[live], token[:, None]], dim=1)

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
    scaled[:, list(forbidden)] = NEVER
    chances = scaled.softmax(dim=1).nan_to_num(nan=0.0)
    if not top_k and top_p == 1:
        return chances
    descending, order = chances.sort(dim=1, descending=True, stable=True)
    if top_k:
        descending[:, top_k:] = 0
    if top_p < 1:
        sums = descending.cumsum(1)
        enough = sums[:, :-1] >= top_p * sums[:, -1:]  # what is more probable than the next
        descending[:, 1:][enough] = 0
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
