"""What a training tries beforehand, in a few passes of a small model over synthetic text.

Hooks do what is documented: torch broadcasts heads over rows in silence, so a hook of a wrong shape
may train; and what a hook writes into its input, the residual path and later layers read.

Later tokens and padding change nothing: an encoding that forgets `context.allowed` trains with a
lower loss than any other, because its decoder sees the tokens that it is to predict.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.checks import example
from nmt.checks.example import Sentences, full_pass
from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.encodings.positions import Scaled
from nmt.model.transformer import Transformer
from nmt.text.vocab import PAD

# Largest difference, as a share of the largest number, that is a matter of rounding. Products of
# other shapes sum in another order: of all encodings, fire differed most, by 6e-7.
ROUNDING = 1e-5
PADDING = 2  # tokens that are added
SHIFT = 5  # positions
LATER = (
    "a later token changes what comes before it; let a token depend on no later one, and in "
    "`normalise` give no weight where context.allowed is false"
)
PADDED = (
    "padding changes the tokens before it; read context.allowed and context.lengths, not the "
    "shape of the batch"
)
AXES = {
    "embed": ["batch, query, dim"],
    "layer_input": ["batch, query, dim"],
    "project": [f"batch, heads, {n}" for n in ("query, width", "key, width", "key, head_dim")],
    "scores": ["batch, heads, query, key"],
    "bias": ["batch | 1, heads | 1, query | 1, key | 1"],
    "normalise": ["batch, heads, query, key"],
    "outputs": ["batch, heads, query, head_dim"],
    "readout": ["batch, query, dim"],
}


class CheckError(ValueError):
    """A check that a model fails: the property, and by how much."""


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
            f"{name}: gets no gradient, so it would never learn; use it in a hook, or remove it. "
            "If another entry replaces what it is added to, leave one of the two out",
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
    """Within the block, a hook of these that breaks a rule raises CheckError.

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
    read_only = list(arguments[1:] if hook == "scores" else arguments)
    for values in (vars(context), context.columns, context._memo):
        read_only += values.values()
    versions = [(t, t._version) for t in read_only if isinstance(t, Tensor)]
    plain: list[Tensor] = []  # projections, before `project` changes them

    def project(*inputs: Tensor) -> Any:
        plain[:] = arguments[0](*inputs)
        return tuple(plain)

    result = method(project, *arguments[1:]) if hook == "project" else method(*arguments)
    name = name_of(e, f"its `{hook}`")
    unchanged = all(t._version == version for t, version in versions)
    require(unchanged, f"{name} writes into a tensor that it is given; work on a copy")
    if hook != "bias" or result is not None:
        fault = _misfit(e, hook, result if hook == "project" else [result], plain, context)
        require(fault is None, f"{name} {fault}")
    return result


def _misfit(
    e: Encoding, hook: str, results: Sequence[Tensor | None], plain: list[Tensor], context: Context
) -> str | None:
    """How results differ from AXES, or from the dtypes of plain projections; None: they do not."""
    sizes = {name: getattr(e.dims, name) for name in ("heads", "dim", "head_dim")}
    sizes |= {"query": context.query_positions.shape[1], "key": context.key_positions.shape[1]}
    merges = hook == "readout" and e.dims.site == "decoder"  # the streams of a sentence
    sizes["batch"] = context.rows // (e.streams if merges else 1)
    for part, axes in zip(results, AXES[hook], strict=True):
        returned = None if part is None else [*part.shape]
        sizes.setdefault("width", returned[-1] if returned else 0)  # `changes_width` lets it be any
        expected = [sizes[axis.removesuffix(" | 1")] for axis in axes.split(", ")]
        fitting = [n if n == 1 and "| 1" in axes else size
                   for n, size in zip(returned or [], expected, strict=False)]  # fmt: skip
        if returned is None or len(returned) != len(expected) or returned != fitting:
            return f"returns {returned}; expected [{axes}] = {expected}"
    for part, projection in zip(results, plain, strict=False):
        if part is not None and part.dtype != projection.dtype:
            return f"returns {part.dtype} for projections in {projection.dtype}; convert it"
    return None


def check_invariances(model: Transformer, text: Sentences) -> None:
    """Raise CheckError where later tokens or padding change the logits of tokens before them.

    The last token of each target is another one; or it is missing, unless some encoding is to know
    the length. Padding is added on both sides, as far as the encodings allow. `text` has no padding
    in its target. Sets torch's global generator; leaves the model in eval mode.
    """
    words, n = text.source.shape[1], text.target.shape[1]
    if n > 1:
        last = text.target.clone()
        last[:, -1] = torch.where(last[:, -1] > 4, last[:, -1] - 1, last[:, -1] + 1)
        other = text._replace(target=last)
        _require_equal(model, text, other, n - 1, LATER, training=True)
        if not model.needs_lengths:
            other = text._replace(target=text.target[:, :-1])
        _require_equal(model, text, other, n - 1, LATER)
    source, target = example.within(model, words + PADDING, n + PADDING)

    def pad(rows: Tensor, length: int) -> Tensor:
        return F.pad(rows, (0, max(0, length - rows.shape[1])), value=PAD)

    # a column may have one number for each sentence
    longer = {k: pad(c, source) if c.shape[1] == words > 1 else c for k, c in text.columns.items()}
    padded = Sentences(pad(text.source, source), pad(text.target, target), longer)
    _require_equal(model, text, padded, n, PADDED)


def _require_equal(
    model: Transformer, one: Sentences, other: Sentences, n: int, fault: str, training: bool = False
) -> None:
    """Raise CheckError where two texts differ in the logits of their first n target tokens."""

    def logits(text: Sentences) -> Tensor:
        torch.default_generator.manual_seed(0)  # the same random numbers in each pass
        return full_pass(model.train(training), text)[:, :n]

    first = logits(one)
    moved = relative_difference(first, logits(other))
    # a pass that is no repetition of itself draws random numbers that are not torch's
    if moved > ROUNDING and relative_difference(first, logits(one)) <= ROUNDING:
        names = ",".join(dict.fromkeys(e.name for e in model.entries))
        share = f"by {moved:.2g} of the largest logit{' in training' if training else ''}"
        raise CheckError(f"encoding=[{names}]: {fault} (logits differ {share})")


def shift(model: Transformer, per_sentence: Collection[str] | None = None) -> float | None:
    """How much a common shift of all positions changes; None where only distances exist.

    `per_sentence`: see `example.columns`.
    """
    before = [e.positions for e in model.entries]
    if any(positions.distances_only for positions in before):
        return None
    for e in model.entries:
        e.positions = Scaled(e.positions, 1, SHIFT)
    # as many tokens as tables hold behind the shift
    text = example.text(model, per_sentence=per_sentence)
    after = full_pass(model, text)
    for e, positions in zip(model.entries, before, strict=True):
        e.positions = positions
    return relative_difference(full_pass(model, text), after)


def check_relative(model: Transformer, moved: float) -> None:
    """Raise CheckError where a model's only entry is `relative`, though a shift moves logits."""
    require(
        moved < ROUNDING or claims_relative(model) is not True,
        "encoding: `relative` is True, but a common shift of all positions changes logits by "
        f"{moved:.2g}; read distances alone (context.delta), or leave `relative` False",
    )


def claims_relative(model: Transformer) -> bool | None:
    """Whether a model's only entry says `relative`.

    None: there are several, which together may depend on absolute positions (see `site`).
    """
    alone = len({e.name for e in model.entries if e.hooks}) < 2
    return all(e.relative for e in model.entries) if alone else None


def relative_difference(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of the largest number; infinite where one is NaN."""
    unequal = (a != b) & (a.isfinite() | b.isfinite())
    if not unequal.any():
        return 0.0
    most = float((a - b)[unequal].abs().max())
    largest = max(float(t.abs().nan_to_num(0, 0, 0).max()) for t in (a, b))
    return most / largest if most < math.inf else math.inf
