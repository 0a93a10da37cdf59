"""What an output may not be: too short, of another length than is wanted, repeating itself.

Like `search.with_prefixes`, each is a step around a step: what it forbids has no probability, and
the rest keeps its own. So an output has the log-probability that it has without.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.decode.search import NEVER, Step
from nmt.machine.device import to_device


def with_lengths(
    step: Step, least: Sequence[int], forced: Sequence[bool], eos: int, device: torch.device
) -> Step:
    """A step in which the output of sentence i has `least[i]` ids or more before eos.

    Where `forced[i]`, it has exactly so many: only eos follows them.
    """
    if not any(least) and not any(forced):
        return step
    shortest = to_device(torch.tensor(least), device)  # [sentences]
    exactly = to_device(torch.tensor(forced), device)
    place = torch.arange(len(least), device=device)  # [rows] of the sentence
    length = 0

    def bounded(tokens: Tensor, parents: Tensor | None) -> Tensor:
        nonlocal place, length
        if parents is not None:
            place = place[parents.flatten()]
        log_probs = step(tokens, parents)  # [rows, vocab]
        is_eos = torch.arange(log_probs.shape[1], device=device) == eos
        early = length < shortest[place]  # [rows]
        over = exactly[place] & ~early
        length += 1
        return log_probs.masked_fill((early[:, None] & is_eos) | (over[:, None] & ~is_eos), NEVER)

    return bounded


def with_new_ngrams(step: Step, n: int) -> Step:
    """A step in which no id makes an n-gram that the output has already (Paulus et al. 2018).

    A row that would have no id left may repeat itself: where a prefix or a length leaves no other.
    """
    if not n:
        return step
    outputs: Tensor | None = None  # [rows, length]

    def renewing(tokens: Tensor, parents: Tensor | None) -> Tensor:
        nonlocal outputs
        if outputs is None:  # the first tokens are bos
            outputs = tokens.new_empty(len(tokens), 0)
        else:
            before = outputs if parents is None else outputs[parents.flatten()]
            outputs = torch.cat([before, tokens[:, None]], dim=1)
        log_probs = step(tokens, parents)  # [rows, vocab]
        length = outputs.shape[1]
        if length < n:
            return log_probs
        grams = outputs.unfold(1, n, 1)  # [rows, length - n + 1, n]
        end = outputs[:, length - n + 1 :]  # [rows, n - 1]
        again = (grams[:, :, :-1] == end[:, None]).all(dim=2)  # [rows, length - n + 1]
        banned = torch.zeros_like(log_probs).scatter_add_(1, grams[:, :, -1], again.to(log_probs))
        left = log_probs.masked_fill(banned > 0, NEVER)
        return torch.where(left.amax(1, keepdim=True) > NEVER, left, log_probs)

    return renewing
