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

from nmt.checks.example import Sentences
from nmt.encodings.base import HOOKS, Encoding
from nmt.encodings.positions import Scaled
from nmt.model.transformer import PAD, Transformer

CLOSE = 2**-16
"""Largest difference, as a share of the largest number, that is a matter of rounding.

Products of other shapes sum in another order: of all encodings, fire differed most, by 6e-7.
"""

PADDING = 2  # tokens that are added
SHIFT = 5  # positions


class Change(NamedTuple):
    """Two texts, the second no shorter: the same first tokens must get the same logits."""

    violation: str  # a hook that lets them differ
    advice: str
    before: Sentences
    after: Sentences
    target: int  # tokens that must not differ
    training: bool = False


def changes(model: Transformer, text: Sentences) -> list[Change]:
    """The changes of a text that must not matter to a model; `text` has no padding in its target.

    The last token of each target is another one; or it is missing, unless some encoding is to know
    the length. Padding is added on both sides, as far as the encodings allow.
    """
    source, n = text.source.shape[1], text.target.shape[1]
    violation, advice = "lets earlier tokens see later ones", "a token may depend on no later one"
    result: list[Change] = []
    if n > 1:
        last = text.target.clone()
        last[:, -1] = torch.where(last[:, -1] > 4, last[:, -1] - 1, last[:, -1] + 1)
        other = text._replace(target=last)
        result.append(Change(violation, advice, other, text, n - 1, training=True))
        if not model.needs_lengths:
            other = text._replace(target=text.target[:, :-1])
        result.append(Change(violation, advice, other, text, n - 1))
    limits = [
        PADDING if most is None else max(0, min(PADDING, most - length))
        for most, length in zip(model.limits(training=False), (source, n), strict=True)
    ]
    padded = Sentences(
        F.pad(text.source, (0, limits[0]), value=PAD),
        F.pad(text.target, (0, limits[1]), value=PAD),
        {
            name: F.pad(c, (0, limits[0])) if c.shape[1] == source > 1 else c
            for name, c in text.columns.items()
        },
    )
    violation = "lets padding change the tokens before it"
    advice = "read context.allowed and context.lengths, not the shape of the batch"
    return [*result, Change(violation, advice, text, padded, n)]


def fault(model: Transformer, text: Sentences) -> str | None:
    """The invariance that a model breaks, with the entry and the hook at fault; None: it has all.

    `text` has no padding in its target. Sets torch's global generator, and the model's mode.
    """
    for change in changes(model, text):
        if difference(model, change) > CLOSE and _repeats(model, change):
            return _first_at_fault(model, change)
    return _shift_fault(model, text)


def difference(model: Transformer, change: Change) -> float:
    """The largest difference of two logits that must be equal, as a share of the largest one."""
    before, after = (
        _logits(model, text, change.training)[:, : change.target]
        for text in (change.before, change.after)
    )
    return relative_difference(before, after)


def _repeats(model: Transformer, change: Change) -> bool:
    """Whether one text gets the same logits twice: not where random numbers are not torch's."""
    once, twice = (_logits(model, change.after, change.training) for _ in range(2))
    return relative_difference(once, twice) <= CLOSE


def _logits(model: Transformer, text: Sentences, training: bool = False) -> Tensor:
    """Logits [rows, target, vocab] of a pass that draws the same random numbers each time."""
    torch.default_generator.manual_seed(0)
    model.train(training)
    with torch.no_grad():
        logits: Tensor = model(*text)
    return logits


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


def _shift_fault(model: Transformer, text: Sentences) -> str | None:
    """Which entry says `relative`, though a common shift of its positions changes the logits."""
    before = _logits(model, text)

    def changes_logits(entries: Iterable[Encoding]) -> bool:
        with shifted(entries):
            return relative_difference(before, _logits(model, text)) > CLOSE

    relative_entries = [
        e
        for site in model.sites.values()
        if site.breaks_shift_invariance is None
        for e in site
        if e.relative and e.num_positions is None and not e.positions.distances_only
        # others read absolute positions, as shaw_absolute, of queries that these rotate
        if not ("project" in e.hooks and any(_reads_positions(o) for o in site))
    ]
    if not relative_entries or not changes_logits(relative_entries):
        return None
    name = next((e.name for e in relative_entries if changes_logits([e])), relative_entries[0].name)
    return (
        f"encoding.{name}: says `relative`, but a common shift of all positions changes what it "
        "does; read distances alone (context.delta), or leave `relative` false"
    )


def _reads_positions(e: Encoding) -> bool:
    """Whether an entry changes queries or scores by absolute positions."""
    return not e.relative and not {"project", "scores"}.isdisjoint(e.hooks)


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
                mask = "give no weight where context.allowed is false"
                advice = mask if hook == "normalise" else change.advice
                return (
                    f"encoding.{e.name}: its `{hook}` ({e.dims.site}) {change.violation}; {advice}"
                )
    names = ",".join(dict.fromkeys(e.name for e in model.entries))
    return f"encoding=[{names}]: one of these {change.violation}; {change.advice}"
