"""One training step on synthetic text: do hooks do what is documented, and do parameters learn?

torch broadcasts heads over rows in silence, so a hook of a wrong shape may train; and what a hook
writes into its input, the residual path and later layers read. Hooks are checked while a small
model is tried, and not in every step of a training.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.checks.example import Sentences
from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.model.transformer import PAD, Transformer

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


def names_fault(error: Exception) -> bool:
    """Whether the message of an error names the key at fault."""
    of_entry = isinstance(error, ValueError) and str(error).startswith("encoding.")
    return of_entry or isinstance(error, CheckError)


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
    with ExitStack() as cleanup:
        for e in encodings:
            for hook in e.hooks:  # before that of the class
                vars(e)[hook] = partial(_call, e, hook, getattr(e, hook))
                cleanup.callback(vars(e).pop, hook)
        yield


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
    streams = e.streams if hook == "readout" and e.dims.site == "decoder" else 1
    sizes = {name: getattr(e.dims, name) for name in ("heads", "dim", "head_dim")}
    sizes |= {"query": context.queries.shape[1], "key": context.keys.shape[1]}
    sizes["batch"] = context.rows // streams
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
