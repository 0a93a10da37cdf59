"""Search over a function from tokens to log-probabilities; it knows no model.

Constraints on outputs wrap `step`: forbidden tokens get no probability, and all other tokens keep
their probabilities. So an output has the same log-probability as without constraints.
"""

from collections.abc import Callable, Sequence
from itertools import chain, islice

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.decode.beam import NEVER, Beam, Extension
from nmt.decode.engine import NOT_EOS, Hypothesis
from nmt.decode.sampling import Sampling
from nmt.system.device import to_device, to_host

Step = Callable[[Tensor, Tensor | None], Tensor]
"""`step(tokens [rows], parents [sentences, width] or None) -> log_probs [rows, vocab]`.

Before it reads `tokens`, the state of row i becomes that of the former row `parents.flatten()[i]`
(None: rows stay as they are). That one call reorders the beams, and drops the rows of finished
sentences. The rows of one sentence are adjacent, and sentences keep their order.
"""

ANY = -2  # where an output may have any id, as NOT_EOS

# Steps between two checks for sentences that are done. Each check waits for the GPU, which then
# idles until the next operations reach it; until a check, finished sentences keep their rows, for
# 3.5 steps on average. On a CPU there is no such wait, and rows cost time: there it is 1.
CHECK_EVERY = 8


def search(
    step: Step, method: Beam | Sampling, bos: int, check_every: int | None = None
) -> list[list[Hypothesis]]:
    """Extend outputs token by token until all are closed; the hypotheses of each sentence.

    The first call of `step` gets one row per sentence, later calls get the rows of the method, on
    its device. Finished sentences leave every `check_every` steps, and only then the host waits for
    the device (None: the number that suits the device). Hypotheses do not depend on this number.
    """
    device, batch = method.limits.device, len(method.limits)
    steps = check_every or (1 if device.type == "cpu" else CHECK_EVERY)
    closed: list[list[tuple[float, Hypothesis]]] = [[] for _ in range(batch)]
    sentence = torch.arange(batch)  # [sentences not yet done], on the host, as ids
    ids = torch.empty(batch, 1, 0, dtype=torch.long)  # [live, width, length] of open outputs
    tokens, parents = torch.full((batch, 1), bos, device=device), None
    while len(sentence):
        lengths = range(ids.shape[2], min(ids.shape[2] + steps, method.last_limit + 1))
        extensions = []
        for length in lengths:
            extension, parents = method.extend(step(tokens.flatten(), parents), length)
            tokens = extension.token
            extensions.append(extension)
        is_open, *tensors = to_host([method.is_open, *chain.from_iterable(extensions)])
        values = iter(tensors)
        for _ in extensions:
            extension = Extension(*islice(values, len(Extension._fields)))
            _close(extension, method, sentence, ids, closed)
            rows = torch.arange(len(ids))[:, None]
            before = ids[rows, extension.next_parent]  # [live, next width, length]
            ids = torch.cat([before, extension.token[:, :, None]], dim=2)
        going_on = is_open.nonzero()[:, 0]
        if len(going_on) < len(is_open):
            sentence, ids = sentence[going_on], ids[going_on]
            going_on = to_device(going_on, device)
            method.keep(going_on)
            if parents is None:  # all rows stayed where they were
                parents = torch.arange(tokens.numel(), device=device).view_as(tokens)
            tokens, parents = tokens[going_on], parents[going_on]
    return [[h for _, h in sorted(ranked, key=lambda pair: pair[0])] for ranked in closed]


def _close(
    extension: Extension,
    method: Beam | Sampling,
    sentence: Tensor,
    ids: Tensor,
    closed: list[list[tuple[float, Hypothesis]]],
) -> None:
    """Add the outputs that a step closes, each with its rank; all tensors are on the host."""
    rows, columns = extension.closed.nonzero().unbind(1)
    if not len(rows):
        return
    length = ids.shape[2]
    norms = method.length_norm(length), method.length_norm(length + 1)  # without eos, and with it
    outcomes = zip(
        sentence[rows].tolist(),
        columns.tolist(),
        ids[rows, extension.parent[rows, columns]].tolist(),
        extension.finished[rows, columns].tolist(),
        extension.log_probs[rows, columns].tolist(),
        extension.coverage[rows, columns].tolist(),
        strict=True,
    )
    for number, column, output, finished, log_prob, coverage in outcomes:
        score = log_prob / norms[finished] + coverage
        hypothesis = Hypothesis(output, score, log_prob, finished, coverage)
        closed[number].append((-score if method.best_first else column, hypothesis))


def with_required(
    step: Step, prefixes: Sequence[Sequence[int]], eos: int, device: torch.device
) -> Step:
    """A step in which the output of sentence i begins with `prefixes[i]`, see `Source.required`.

    This can force a prefix, a minimum length or an exact length.
    """
    if not any(prefixes):
        return step
    rows = [torch.tensor([*prefix, ANY]) for prefix in prefixes]  # ANY: so that none is empty
    table = to_device(pad_sequence(rows, batch_first=True, padding_value=ANY), device)
    sentence = torch.arange(len(prefixes), device=device)  # [rows]
    length = 0

    def restricted(tokens: Tensor, parents: Tensor | None) -> Tensor:
        nonlocal sentence, length
        if parents is not None:
            sentence = sentence[parents.flatten()]
        log_probs = step(tokens, parents)  # [rows, vocab]
        if length < table.shape[1]:
            next_id = table[sentence, length][:, None]  # [rows, 1]
            ids = torch.arange(log_probs.shape[1], device=device)
            allowed = (next_id == ANY) | (next_id == ids) | ((next_id == NOT_EOS) & (ids != eos))
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
