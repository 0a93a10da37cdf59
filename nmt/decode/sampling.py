"""Sampling: at each step a token at random, by its probability."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.decode.beam import CPU, Extension
from nmt.system.device import to_device


class Sampling:
    """Draws outputs of each sentence token by token; some may be equal.

    A sample is closed without eos if its token at the limit is another, or if the step gives a NaN
    or nothing finite. `log_prob` and `score` of a hypothesis are its log-probability under the step
    function itself, regardless of temperature, top_k and top_p.
    """

    best_first = False  # hypotheses are in the order of their columns

    def __init__(
        self,
        limits: Tensor,
        numbers: Tensor,
        *,
        distribution: Callable[[Tensor], Tensor],
        eos: int,
        device: torch.device = CPU,
    ) -> None:
        """`limits` [batch]: the greatest length of each output, without eos.

        `numbers` [batch, samples, steps], of at least one step more, decide on the tokens, of which
        `distribution` makes probabilities, see `probabilities`. Both are on the CPU.
        """
        self.distribution, self.eos = distribution, eos
        self.last_limit = max(limits.tolist(), default=0)
        self.limits = to_device(limits, device)  # [live]
        self.numbers = to_device(numbers, device)  # [live, samples, steps]
        self.total = self.numbers.new_zeros(numbers.shape[:2])  # [live, samples] log_prob
        self.open = torch.ones_like(self.total, dtype=torch.bool)

    def length_norm(self, length: int) -> float:
        """Samples are not compared, so their scores are not normalised."""
        return 1.0

    @property
    def is_open(self) -> Tensor:
        """Which sentences have an open sample [live]."""
        return self.open.any(1)

    def extend(self, log_probs: Tensor, length: int) -> tuple[Extension, Tensor | None]:
        """Draw a token for each sample of `length` ids, from log_probs [live x width, vocab].

        At first there is one row for each sentence; its samples are copies of it.
        """
        live, samples = self.total.shape
        width = len(log_probs) // max(live, 1)
        log_probs = log_probs.view(live, width, -1).expand(-1, samples, -1)
        distribution = self.distribution(log_probs.flatten(0, 1))  # [live x samples, vocab]
        token = draw(distribution, self.numbers[:, :, length].flatten()).view(live, samples)
        total = self.total + log_probs.gather(2, token[:, :, None])[:, :, 0].double()
        impossible = ~(distribution.sum(1) > 0).view(live, samples)  # the sum may be NaN
        finished = (token == self.eos) & ~impossible
        closed = (finished | impossible | (self.limits == length)[:, None]) & self.open
        log_prob = torch.where(finished, total, self.total)
        parent = torch.arange(samples, device=token.device).expand_as(token) % max(width, 1)
        coverage = torch.zeros_like(log_prob)
        extension = Extension(closed, finished, log_prob, coverage, parent, parent, token)
        self.total, self.open = total, self.open & ~closed
        if width == samples:
            return extension, None
        return extension, torch.arange(live, device=token.device)[:, None].expand_as(token)

    def keep(self, sentences: Tensor) -> None:
        """Drop all other sentences."""
        self.limits, self.numbers = self.limits[sentences], self.numbers[sentences]
        self.total, self.open = self.total[sentences], self.open[sentences]


def random_numbers(
    seed: int, sentences: Sequence[tuple[int, int]], samples: int, steps: int
) -> Tensor:
    """Numbers from [0, 1) as [sentence, sample, step], float64.

    A sentence is a line number, from 1, and the number of a part of this line, from 0. Each number
    depends on seed, sentence, sample and step alone, since Philox 4x64-10 (Salmon et al. 2011)
    computes a random number from its counter.
    """
    numbers = np.empty((len(sentences), samples, steps))
    for row, (line, part) in enumerate(sentences):
        for sample in range(samples):
            counter = np.array([0, sample, part, 0], dtype=np.uint64)
            key = np.array([seed, line], dtype=np.uint64)
            raw = np.random.Philox(key=key, counter=counter).random_raw(steps)
            numbers[row, sample] = (raw >> np.uint64(11)) * 2.0**-53
    return torch.from_numpy(numbers)


def probabilities(
    log_probs: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> Tensor:
    """The probabilities [rows, vocab], in float64, by which tokens are drawn.

    Log-probabilities are divided by `temperature`; then the `top_k` most probable tokens are kept
    (0: all; Fan et al. 2018), and of these, the fewest most probable ones that hold a share of at
    least `top_p` (Holtzman et al. 2020; 1: all). Among equals the lower id is kept. The rest is
    normalised; a row with a NaN, or without any finite number, is NaN.
    """
    scaled = log_probs.double() / temperature
    distribution = scaled.softmax(dim=1)
    if not top_k and top_p == 1:
        return distribution
    descending, order = distribution.sort(dim=1, descending=True, stable=True)
    if top_k:
        descending[:, top_k:] = 0
    if top_p < 1:
        sums = descending.cumsum(1)
        enough = sums[:, :-1] >= top_p * sums[:, -1:]  # of all more probable tokens
        descending[:, 1:].masked_fill_(enough, 0)
    kept = torch.zeros_like(distribution).scatter_(1, order, descending)
    return kept / kept.sum(1, keepdim=True)


def draw(distribution: Tensor, numbers: Tensor) -> Tensor:
    """Draw the token [rows] of each row of probabilities for a number from [0, 1).

    The first, in the order of ids, up to which the probabilities add up to more than the number.
    """
    sums = distribution.cumsum(1)
    ids = torch.arange(distribution.shape[1], device=distribution.device)
    last = (distribution > 0).long().mul(ids).amax(1)
    token = torch.searchsorted(sums, (numbers * sums[:, -1])[:, None], right=True)[:, 0]
    return torch.minimum(token, last)
