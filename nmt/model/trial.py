"""One step of training on made-up text: does a model run, and does all of it learn?"""

from collections.abc import Collection, Iterator

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.model import example
from nmt.model.transformer import PAD, Transformer

ROWS, LENGTH = 2, 7
VOCAB = 12  # word types that a model on trial needs


class TrialError(Exception):
    """What went wrong, with its place in the config."""


def step(model: Transformer, per_sentence: Collection[str] = ()) -> None:
    """Compute a loss and its gradients, from torch's global generator.

    `per_sentence` names the columns that have one integer for a sentence. Raises TrialError where
    something is not finite, or a parameter gets no gradient; what encodings raise passes through.
    """
    limits = (min(LENGTH, LENGTH if most is None else most) for most in model.limits(training=True))
    source, target = (example.ids(ROWS, n, VOCAB, seed=n) for n in limits)
    for ids in (source, target):
        ids[0, max(1, ids.shape[1] - 2) :] = PAD
    model.train()
    hidden = model.hidden(source, target, _columns(model, source, per_sentence))
    logits = model.logits(hidden.states)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
    if hidden.side_loss is not None:
        loss = loss + hidden.side_loss
    if not loss.isfinite():
        raise TrialError(f"encoding: the loss of a first step is {loss.item()}")
    loss.backward()
    for name, p in _named(model):
        if p.grad is not None and not p.grad.isfinite().all():
            raise TrialError(f"{name}: its gradient in a first step is not finite")
    if any(e.idle for site in model.sites.values() for e in site.each()):
        return
    for name, p in _named(model):
        if p.requires_grad and p.grad is None:
            raise TrialError(
                f"{name}: gets no gradient, so it would never learn; another entry may replace "
                "what it adds to: leave one out"
            )


def _columns(
    model: Transformer, source: Tensor, per_sentence: Collection[str]
) -> dict[str, Tensor]:
    """Made-up columns, their integers within what the encodings hold."""
    made = example.columns({n for n in model.columns if n not in per_sentence}, source)
    made |= {n: source.new_zeros(len(source), 1) for n in model.columns if n in per_sentence}
    for name, held in model.column_ranges.items():
        made[name] = made[name].clamp(held.start, held.stop - 1)
    return made


def _named(model: Transformer) -> Iterator[tuple[str, nn.Parameter]]:
    """Every parameter once; those of encodings by the names that a config has for them."""
    inside = set()
    for site, encodings in model.sites.items():
        for e in encodings.each():
            for name, p in e.named_parameters():
                inside.add(id(p))
                yield f"encoding.{e.name}: {name} ({site})", p
    yield from ((f"model: {n}", p) for n, p in model.named_parameters() if id(p) not in inside)


def numbers(model: nn.Module) -> int:
    """How many numbers a model holds, shared ones once."""
    held = [*model.parameters(), *model.buffers()]
    return sum(t.numel() for t in {id(t): t for t in held}.values())
