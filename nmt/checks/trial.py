"""What a training tries beforehand, in a few passes of a small model over synthetic text.

Hooks do what is documented: torch broadcasts heads over rows in silence, so a hook of a wrong shape
may train; and what a hook writes into its input, the residual path and later layers read.

Later tokens and padding change nothing: an encoding that forgets `context.allowed` trains with a
lower loss than any other, because its decoder sees the tokens that it is to predict. Where a pass
differs, hooks are left out, the last one first: without the one at fault nothing differs any more.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.checks import example
from nmt.checks.example import Sentences, full_pass
from nmt.encodings.base import HOOKS, Encoding
from nmt.encodings.context import Context
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
AXES = {
    "embed": ["batch, query, dim"],
    "layer": ["batch, query, dim"],
    "project": [f"batch, heads, {n}" for n in ("query, width", "key, width", "key, head_dim")],
    "scores": ["batch, heads, query, key"],
    "bias": ["batch | 1, heads | 1, query | 1, key | 1"],
    "normalise": ["batch, heads, query, key"],
    "outputs": ["batch, heads, query, head_dim"],
    "readout": ["batch, query, dim"],
}


class CheckError(ValueError):
    """A check that a model fails: what deviates, with its place in the config."""


def require(holds: bool | Tensor, fault: str) -> None:
    """Raise CheckError unless something holds."""
    if not holds:
        raise CheckError(fault)


def step(model: Transformer, sentences: Sentences) -> None:
    """Compute a loss and its gradients, from torch's global generator.

    Raises CheckError where something is not finite, a hook breaks its rules, a parameter gets no
    gradient, or torch does not know a tensor of an encoding; what encodings raise passes through.
    """
    _require_registered(model)
    target = sentences.target.clone()
    target[0, max(1, target.shape[1] - 2) :] = PAD
    model.train()
    with checking_hooks(model.entries):
        logits = model(sentences.source, target, sentences.columns)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
    require(loss.isfinite(), f"encoding: the loss of a first step is {loss.item()}")
    loss.backward()
    # by the names that a config has for them, or the model, and whether they must learn
    all_must = not any(e.may_lack_gradients for e in model.entries)
    parameters = {p: (f"model: {name}", all_must) for name, p in model.named_parameters()}
    for e in model.entries:
        must = not e.may_lack_gradients
        parameters |= {p: (name_of(e, name), must) for name, p in e.named_parameters()}
    for p, (name, must) in parameters.items():
        finite = p.grad is None or p.grad.isfinite().all()
        require(finite, f"{name}: its gradient in a first step is not finite")
        require(
            p.grad is not None or not p.requires_grad or not must,
            f"{name}: gets no gradient, so it would never learn; another entry may replace what it "
            "adds to: leave one out",
        )


def name_of(e: Encoding, attribute: str) -> str:
    """An attribute of an encoding as messages name it."""
    return f"encoding.{e.name}: {attribute} ({e.dims.site})"


def _require_registered(model: Transformer) -> None:
    """Refuse encodings with a tensor or a module in an attribute that torch does not know of."""
    known = {id(each) for each in (*model.parameters(), *model.buffers(), *model.modules())}
    for e in model.entries:
        for name, value in (item for module in e.modules() for item in vars(module).items()):
            values = value.values() if isinstance(value, dict) else value
            held = values if isinstance(value, (list, tuple, dict)) else [value]
            require(
                all(id(v) in known for v in held if isinstance(v, (Tensor, nn.Module))),
                f"{name_of(e, name)} is neither a parameter nor a buffer, so it would not be "
                "saved, nor moved to a GPU; use nn.Parameter, nn.ParameterList, nn.ModuleList, or "
                "register_buffer, for constants with persistent=False",
            )


@contextmanager
def checking_hooks(encodings: Iterable[Encoding]) -> Iterator[None]:
    """Within the block, a hook of these that breaks a rule raises CheckError, with its name.

    Shapes are those of AXES; `project` keeps the dtypes of the projections that it wraps, which
    caches have; and no tensor is written into but the scores that `scores` gets. For passes over
    whole texts outside of inference mode.
    """
    hooks = [(e, hook) for e in encodings for hook in e.hooks]
    for e, hook in hooks:  # before that of the class
        vars(e)[hook] = partial(_call, e, hook, getattr(e, hook))
    try:
        yield
    finally:
        for e, hook in hooks:
            del vars(e)[hook]


def _call(e: Encoding, hook: str, method: Callable[..., Any], *arguments: Any) -> Any:
    context = next(a for a in arguments if isinstance(a, Context))
    names = [*signature(getattr(Encoding, hook)).parameters][1:]
    inputs = dict(zip(names, arguments, strict=True))
    inputs |= {f"context.{n}": t for n, t in (vars(context) | context.columns).items()}
    inputs |= {f"context.once({n!r})": t for n, t in context._memo.items()}
    inputs.pop(names[0] if hook == "scores" else "", None)
    versions = {n: t._version for n, t in inputs.items() if isinstance(t, Tensor)}
    plain: list[Tensor] = []  # projections, before `project` changes them

    def project(*inputs: Tensor) -> Any:
        plain[:] = arguments[0](*inputs)
        return tuple(plain)

    result = method(project, *arguments[1:]) if hook == "project" else method(*arguments)
    fault = next((n for n, version in versions.items() if inputs[n]._version != version), None)
    where = f"encoding.{e.name}: its `{hook}`"
    require(fault is None, f"{where} writes into {fault} in the {e.dims.site}; work on a copy")
    if hook != "bias" or result is not None:
        fault = _misfit(e, hook, result if hook == "project" else [result], plain, context)
        require(fault is None, f"{where} {fault}")
    return result


def _misfit(
    e: Encoding, hook: str, results: Sequence[Tensor | None], plain: list[Tensor], context: Context
) -> str | None:
    """How results differ from AXES, or from the dtypes of plain projections; None: they do not."""
    sizes = {name: getattr(e.dims, name) for name in ("heads", "dim", "head_dim")}
    sizes |= {"query": context.queries.shape[1], "key": context.keys.shape[1]}
    merges = hook == "readout" and e.dims.site == "decoder"  # the streams of a sentence
    sizes["batch"] = context.rows // (e.streams if merges else 1)
    for part, axes in zip(results, AXES[hook], strict=True):
        returned = None if part is None else [*part.shape]
        sizes.setdefault("width", returned[-1] if returned else 0)  # `changes_width` lets it be any
        expected = [sizes[axis.removesuffix(" | 1")] for axis in axes.split(", ")]
        fitting = [n if n == 1 and "| 1" in axes else size
                   for n, size in zip(returned or [], expected, strict=False)]  # fmt: skip
        if returned is None or len(returned) != len(expected) or returned != fitting:
            return f"returns {returned} in the {e.dims.site}; expected [{axes}] = {expected}"
    for part, projection in zip(results, plain, strict=False):
        if part is not None and part.dtype != projection.dtype:
            return f"returns {part.dtype} for projections in {projection.dtype}; convert it"
    return None


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


def check_invariances(model: Transformer, text: Sentences) -> None:
    """Raise CheckError, with entry and hook, where later tokens, padding or a shift matter.

    `text` has no padding in its target. Sets torch's global generator, and the model's mode; a
    model at fault lacks hooks afterwards.
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


def _check_shift(model: Transformer, text: Sentences) -> None:
    """Refuse an entry that says `relative`, though a common shift of its positions matters."""
    before = _logits(model, text)
    for site in model.sites.values():
        # absolute positions, as shaw_absolute has, which may meet queries that others rotate
        absolute = any({"project", "scores"} & {*e.hooks} for e in site if not e.relative)
        for e in site if site.breaks_shift_invariance is None else ():
            fixed = not e.relative or e.num_positions is not None or e.positions.distances_only
            if fixed or (absolute and "project" in e.hooks):
                continue
            positions = e.positions
            e.positions = Scaled(positions, 1, SHIFT)
            moved = relative_difference(before, _logits(model, text))
            e.positions = positions
            require(
                moved <= CLOSE,
                f"encoding.{e.name}: says `relative`, but a common shift of all positions "
                "changes what it does; read distances alone (context.delta), or leave "
                "`relative` false",
            )


def _first_at_fault(model: Transformer, change: Change) -> str:
    """The hook without which, and without all that come after it, nothing differs."""
    order = [(e, hook) for e in model.entries for hook in HOOKS if hook in e.hooks]
    for e, hook in reversed(order):
        fitting = e.hooks
        vars(e)["hooks"] = tuple(h for h in fitting if h != hook)
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
