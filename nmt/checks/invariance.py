"""Three invariances: to later tokens, to padding, and to a common shift of positions.

An encoding that forgets `context.allowed` trains without an error, with a lower loss than any
other, because its decoder sees the tokens that it is to predict; only its translations are bad. So
a small model is tried on synthetic text beforehand, in a few passes. Where a pass differs, hooks
are left out, the last one first: the one without which nothing differs any more is at fault.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.checks import example
from nmt.checks.example import Sentences, full_pass
from nmt.checks.trial import CheckError, require
from nmt.encodings.base import HOOKS, Encoding
from nmt.encodings.positions import Scaled
from nmt.model.transformer import PAD, Transformer

# Largest difference, as a share of the largest number, that is a matter of rounding. Products of
# other shapes sum in another order: of all encodings, fire differed most, by 6e-7.
CLOSE = 2**-16
PADDING = 2  # tokens that are added
SHIFT = 5  # positions
LATER = "lets earlier tokens see later ones"
PADDED = "lets padding change the tokens before it"
ADVICE = {
    LATER: "a token may depend on no later one",
    PADDED: "read context.allowed and context.lengths, not the shape of the batch",
    "normalise": "give no weight where context.allowed is false",
}


class Change(NamedTuple):
    """Two texts, the second no shorter: the same first tokens must get the same logits."""

    violation: str  # a hook that lets them differ
    before: Sentences
    after: Sentences
    target: int  # tokens that must not differ
    training: bool = False


def changes(model: Transformer, text: Sentences) -> list[Change]:
    """The changes of a text that must not matter to a model; `text` has no padding in its target.

    The last token of each target is another one; or it is missing, unless some encoding is to know
    the length. Padding is added on both sides, as far as the encodings allow.
    """
    words, n, result = text.source.shape[1], text.target.shape[1], list[Change]()
    if n > 1:
        last = text.target.clone()
        last[:, -1] = torch.where(last[:, -1] > 4, last[:, -1] - 1, last[:, -1] + 1)
        other = text._replace(target=last)
        result.append(Change(LATER, other, text, n - 1, training=True))
        if not model.needs_lengths:
            other = text._replace(target=text.target[:, :-1])
        result.append(Change(LATER, other, text, n - 1))
    source, target = example.within(model, words + PADDING, n + PADDING)

    def pad(rows: Tensor, length: int) -> Tensor:
        return F.pad(rows, (0, max(0, length - rows.shape[1])), value=PAD)

    # a column may have one number for each sentence
    longer = {k: pad(c, source) if c.shape[1] == words > 1 else c for k, c in text.columns.items()}
    padded = Sentences(pad(text.source, source), pad(text.target, target), longer)
    return [*result, Change(PADDED, text, padded, n)]


def check(model: Transformer, text: Sentences) -> None:
    """Raise CheckError, with the entry and the hook at fault, unless a model has all invariances.

    `text` has no padding in its target. Sets torch's global generator, and the model's mode.
    """
    for change in changes(model, text):
        again = change._replace(before=change.after)  # differs if random numbers are not torch's
        if difference(model, change) > CLOSE and difference(model, again) <= CLOSE:
            raise CheckError(_first_at_fault(model, change))
    _check_shift(model, text)


def difference(model: Transformer, change: Change) -> float:
    """The largest difference of two logits that must be equal, as a share of the largest one."""
    texts = change.before, change.after
    return relative_difference(
        *(_logits(model, text, change.training)[:, : change.target] for text in texts)
    )


def _logits(model: Transformer, text: Sentences, training: bool = False) -> Tensor:
    """Logits [rows, target, vocab] of a pass that draws the same random numbers each time."""
    torch.default_generator.manual_seed(0)
    return full_pass(model.train(training), text)


def relative_difference(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of the largest number; infinite where one is NaN."""
    unequal = (a != b) & (a.isfinite() | b.isfinite())
    if not unequal.any():
        return 0.0
    most = float((a - b)[unequal].abs().max())
    largest = max(float(t.abs().nan_to_num(0, 0, 0).max()) for t in (a, b))
    return most / largest if most < math.inf else math.inf


@contextmanager
def shifted(encodings: Iterable[Encoding]) -> Iterator[None]:
    """All positions of these encodings are a few tokens later inside."""
    kept = [(e, e.positions) for e in encodings]
    for e, positions in kept:
        e.positions = Scaled(positions, 1, SHIFT)
    try:
        yield
    finally:
        for e, positions in kept:
            e.positions = positions


def _check_shift(model: Transformer, text: Sentences) -> None:
    """Refuse an entry that says `relative`, though a common shift of its positions matters."""
    before = _logits(model, text)

    def reads_positions(e: Encoding) -> bool:
        return not e.relative and not {"project", "scores"}.isdisjoint(e.hooks)

    for site in model.sites.values():
        for e in site if site.breaks_shift_invariance is None else ():
            fixed = not e.relative or e.num_positions is not None or e.positions.distances_only
            # others read absolute positions, as shaw_absolute, of queries that these rotate
            if fixed or ("project" in e.hooks and any(map(reads_positions, site))):
                continue
            with shifted([e]):
                require(
                    relative_difference(before, _logits(model, text)) <= CLOSE,
                    f"encoding.{e.name}: says `relative`, but a common shift of all positions "
                    "changes what it does; read distances alone (context.delta), or leave "
                    "`relative` false",
                )


def _first_at_fault(model: Transformer, change: Change) -> str:
    """The hook without which, and without all that come after it, nothing differs."""
    order = [(e, hook) for e in model.entries for hook in HOOKS if hook in e.hooks]
    with ExitStack() as after:
        for e, hook in reversed(order):
            fitting = e.hooks
            vars(e)["hooks"] = tuple(h for h in fitting if h != hook)
            after.callback(vars(e).pop, "hooks", None)
            try:
                same = difference(model, change) <= CLOSE
            except Exception:  # the rest does not fit together, as without complex embeddings
                vars(e)["hooks"] = fitting
                continue
            if same:
                advice = ADVICE[hook if hook in ADVICE else change.violation]
                place = f"encoding.{e.name}: its `{hook}` ({e.dims.site})"
                return f"{place} {change.violation}; {advice}"
    names = ",".join(dict.fromkeys(e.name for e in model.entries))
    return f"encoding=[{names}]: one of these {change.violation}; {ADVICE[change.violation]}"
