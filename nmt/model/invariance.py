"""Three invariances: to later tokens, to padding, and to a common shift of positions.

An encoding that forgets `context.allowed` trains without an error, with a lower loss than any
other, because its decoder sees the tokens that it is to predict; only its translations are bad. So
a small model is tried on made-up text beforehand, in a few passes. Where a pass differs, two more
record the result of every hook: the first that differs for the same tokens is at fault, because
all its inputs were equal.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.encodings.base import Encoding, Projection
from nmt.encodings.positions import Scaled
from nmt.model.example import Sentences
from nmt.model.transformer import PAD, Transformer

CLOSE = 2**-16
"""Largest difference, as a share of the largest number, that is a matter of rounding.

Products of other shapes sum in another order: of all encodings, fire differed most, by 6e-7.
"""

PADDING = 2  # tokens that are added
SHIFT = 5  # positions


class Change(NamedTuple):
    """Two texts, the second no shorter: the same first tokens must get the same logits."""

    does: str  # a hook that lets them differ
    advice: str
    before: Sentences
    after: Sentences
    source: int  # tokens that must not differ
    target: int
    training: bool = False


def changes(model: Transformer, text: Sentences) -> list[Change]:
    """The changes of a text that must not matter to a model; `text` has no padding in its target.

    The last token of each target is another one; or it is missing, unless some encoding is to know
    the length. Padding is added on both sides, as far as the encodings hold so many tokens.
    """
    source, n = text.source.shape[1], text.target.shape[1]
    does, advice = "lets earlier tokens see later ones", "a token may depend on no later one"
    tried: list[Change] = []
    if n > 1:
        last = text.target.clone()
        last[:, -1] = torch.where(last[:, -1] > 4, last[:, -1] - 1, last[:, -1] + 1)
        other = text._replace(target=last)
        tried.append(Change(does, advice, other, text, source, n - 1, training=True))
        if not model.needs_lengths:
            other = text._replace(target=text.target[:, :-1])
        tried.append(Change(does, advice, other, text, source, n - 1))
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
    does = "lets padding change the tokens before it"
    advice = "read context.allowed and context.lengths, not the shape of the batch"
    return [*tried, Change(does, advice, text, padded, source, n)]


def fault(model: Transformer, text: Sentences) -> str | None:
    """The invariance that a model breaks, with the entry and the hook at fault; None: it has all.

    `text` has no padding in its target. Sets torch's global generator, and the model's mode.
    """
    passes: dict[tuple[int, bool], Tensor] = {}

    def logits(read: Sentences, training: bool = False) -> Tensor:
        if (key := (id(read), training)) not in passes:  # several changes have a text in common
            passes[key] = _logits(model, read, training)
        return passes[key]

    tried = changes(model, text)
    for change in tried:
        if difference(change, logits) > CLOSE and _repeats(model, change):
            return _first_difference(model, change)
    return _shift_fault(model, text, logits(text))


def difference(change: Change, logits: Callable[[Sentences, bool], Tensor]) -> float:
    """The largest difference of two logits that must be equal, as a share of the largest one.

    `logits`: those of a text [rows, target, vocab], in training or otherwise.
    """
    before, after = (logits(text, change.training) for text in (change.before, change.after))
    return relative_difference(before[:, : change.target], after[:, : change.target])


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


def _shift_fault(model: Transformer, text: Sentences, before: Tensor) -> str | None:
    """Which entry says `relative`, though a common shift of its positions changes the logits."""

    def shows(entries: Iterable[Encoding]) -> bool:
        with shifted(entries):
            return relative_difference(before, _logits(model, text)) > CLOSE

    claiming = [
        e
        for site in model.sites.values()
        if site.breaks_shift_invariance is None
        for e in site
        if e.facts.relative and e.facts.num_positions is None and not e.positions.distances_only
        # what another makes of places, as shaw_absolute, stays where turned queries meet it
        if not ("project" in e.hooks and any(_meets_queries(o) for o in site))
    ]
    if not claiming or not shows(claiming):
        return None
    name = next((e.name for e in claiming if shows([e])), claiming[0].name)
    return (
        f"encoding.{name}: says `relative`, but a common shift of all positions changes what it "
        "does; read distances alone (context.delta), or leave `relative` false"
    )


def _meets_queries(e: Encoding) -> bool:
    """Whether an entry changes queries, or what they are multiplied by, by their places."""
    return not e.facts.relative and not {"project", "scores"}.isdisjoint(e.hooks)


class HookResult(NamedTuple):
    """Tensors of a hook, cut to the tokens that must not differ."""

    entry: Encoding
    hook: str
    tensors: Sequence[Tensor]


def _first_difference(model: Transformer, change: Change) -> str:
    """The first hook whose results differ, with its entry and the remedy."""
    first, second = (
        _hook_results(model, text, change, beyond)
        for text, beyond in ((change.before, False), (change.after, True))
    )
    for before, after in zip(first, second, strict=False):
        for a, b in zip(before.tensors, after.tensors, strict=True):
            if relative_difference(a, b) > CLOSE / 8:
                e, hook = before.entry, before.hook
                mask = "give no weight where context.allowed is false"
                advice = mask if hook == "normalise" else change.advice
                return f"encoding.{e.name}: its `{hook}` ({e.dims.site}) {change.does}; {advice}"
    names = ",".join(dict.fromkeys(e.name for e in model.entries))
    return f"encoding=[{names}]: one of these {change.does}; {change.advice}"


def _hook_results(
    model: Transformer, text: Sentences, change: Change, beyond: bool
) -> list[HookResult]:
    """Results of all hooks, in their order; `beyond`: the text has tokens that may differ."""
    results: list[HookResult] = []
    with ExitStack() as after:
        for site, encodings in model.sites.items():
            queries = change.source if site == "encoder" else change.target
            keys = change.target if site == "decoder" else change.source
            for e in encodings:
                for hook in e.hooks:
                    recording = _recording(e, hook, (queries, keys), beyond, results)
                    vars(e)[hook] = recording  # in the place of its class's, for this pass
                    after.callback(vars(e).pop, hook)
        _logits(model, text, change.training)
    return results


def _recording(
    e: Encoding, hook: str, kept: tuple[int, int], beyond: bool, results: list[HookResult]
) -> Any:
    """A hook that also records its results for the queries and keys that are `kept`."""
    original = getattr(e, hook)
    queries, keys = kept

    def record(*tensors: Tensor) -> None:
        results.append(HookResult(e, hook, [t.clone() for t in tensors]))

    def project(inner: Projection, *arguments: Any, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
        def handed_on(xq: Tensor, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            record(xq[..., :queries, :], xk[..., :keys, :], xv[..., :keys, :])
            return inner(xq, xk, xv)

        q, k, v = original(handed_on, *arguments, **named)
        record(q[..., :queries, :], k[..., :keys, :], v[..., :keys, :])
        return q, k, v

    def other(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if result is None:
            return None
        if hook in ("scores", "bias", "normalise"):
            record(result[..., :queries, :keys])
        else:
            record(result[..., :queries, :])
        if hook == "normalise":  # what must not be seen has no weight
            weight = result[..., :queries, keys:].sum(-1)
            record(weight if beyond else torch.zeros_like(weight))
        return result

    return project if hook == "project" else other
