"""What an output must be, or may not be: how it begins and ends, how long it is, no repetitions.

Each is a step around a step: what it forbids has no probability, and the rest keeps its own. So an
output has the log-probability that it has without.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.decode.search import NEVER, Step
from nmt.decode.sources import NOT_EOS
from nmt.system.device import to_device

ANY = -2  # in the place of an id, as NOT_EOS


def with_required(
    step: Step, places: Sequence[Sequence[int]], eos: int, device: torch.device
) -> Step:
    """A step in which the output of sentence i begins with `places[i]`, see `Source.required`.

    So it has a prefix, a length of so many ids or more, or one that an EOS ends.
    """
    if not any(places):
        return step
    rows = [torch.tensor([*of_output, ANY]) for of_output in places]  # ANY: so that none is empty
    table = to_device(pad_sequence(rows, batch_first=True, padding_value=ANY), device)
    sentence = torch.arange(len(places), device=device)  # [rows]
    length = 0

    def restricted(tokens: Tensor, parents: Tensor | None) -> Tensor:
        nonlocal sentence, length
        if parents is not None:
            sentence = sentence[parents.flatten()]
        log_probs = step(tokens, parents)  # [rows, vocab]
        if length < table.shape[1]:
            place = table[sentence, length][:, None]  # [rows, 1]
            ids = torch.arange(log_probs.shape[1], device=device)
            allowed = (place == ANY) | (place == ids) | ((place == NOT_EOS) & (ids != eos))
            log_probs = log_probs.masked_fill(~allowed, NEVER)
        length += 1
        return log_probs

    return restricted


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
