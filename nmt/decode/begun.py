"""Outputs that begin as they must; for any search, it is but another function to search."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.decode.beam import NEVER, Step
from nmt.machine.device import sent

FREE = -1  # stands where any token may be


def begun(step: Step, prefixes: Sequence[Sequence[int]], device: torch.device) -> Step:
    """A function that gives its log-probability to the next token of a prefix, and none to others.

    `prefixes` are the ids with which the output of each sentence begins; after them the function
    is `step` itself. What begins so has the log-probability that it has under `step`.
    """
    longest = max(map(len, prefixes))
    if not longest:
        return step
    rows = [torch.tensor([*ids, FREE]) for ids in prefixes]  # FREE: so that none is empty
    forced = sent(pad_sequence(rows, batch_first=True, padding_value=FREE), device)
    sentence = torch.arange(len(prefixes), device=device)  # [rows]
    said = 0

    def begins(tokens: Tensor, parents: Tensor | None) -> Tensor:
        nonlocal sentence, said
        if parents is not None:
            sentence = sentence[parents.flatten()]
        log_probs = step(tokens, parents)  # [rows, vocab]
        if said < longest:
            token = forced[sentence, said][:, None]  # [rows, 1]
            place = token.clamp(min=0)
            alone = torch.full_like(log_probs, NEVER)
            alone.scatter_(1, place, log_probs.gather(1, place))
            log_probs = torch.where(token == FREE, log_probs, alone)
        said += 1
        return log_probs

    return begins
