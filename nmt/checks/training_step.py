"""A first training step: hooks of encodings keep their rules, and every parameter gets a gradient.

Hooks are checked at each call: shapes, dtypes, and what they write into. torch broadcasts heads
over rows in silence, so a hook of a wrong shape may train; and what a hook writes into its input,
the residual path and later layers read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.checks import example
from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.model.transformer import Transformer
from nmt.text.vocab import PAD

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


def name_of(e: Encoding, attribute: str) -> str:
    """An attribute of an encoding as messages name it."""
    return f"encoding.{e.name}: {attribute} ({e.dims.site})"


def try_step(model: Transformer) -> None:
    """Compute a loss and its gradients, from torch's global generator.

    Raises CheckError where something is not finite, a hook breaks its rules, a parameter gets no
    gradient, or torch does not know a tensor of an encoding; what encodings raise passes through.
    """
    _require_registered(model)
    source, target, columns = example.text(model, target=9)
    target[0, max(1, target.shape[1] - 2) :] = PAD
    model.train()
    with checking_hooks(model.entries):
        logits = model(source, target, columns)
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


def check_training_step(model: Transformer) -> str:
    """Hooks do what is documented, and every parameter gets a gradient from every layer."""
    try_step(model)
    # softmax ignores the last bias of DAPE; by rounding its gradient is not 0 with that text
    for e in model.entries:
        for name, p in e.named_parameters() if not e.may_lack_gradients else ():
            if p.grad is not None:
                # those of one layer's module have no dimension for layers
                stacked = "." not in name and p.ndim and len(p) == e.dims.layers
                for layer, gradient in enumerate(p.grad if stacked else [p.grad]):
                    part = name_of(e, f"{name}[{layer}]" if stacked else name)
                    require(gradient.any(), f"{part}: its gradient is zero")
    return "every parameter gets a gradient"


def _require_registered(model: Transformer) -> None:
    """Raise CheckError where torch does not know a tensor or a module of an encoding."""
    registered = {id(each) for each in (*model.parameters(), *model.buffers(), *model.modules())}
    for e in model.entries:
        for name, value in (item for module in e.modules() for item in vars(module).items()):
            values = value.values() if isinstance(value, dict) else value
            values = values if isinstance(value, (list, tuple, dict)) else [value]
            require(
                all(id(v) in registered for v in values if isinstance(v, (Tensor, nn.Module))),
                f"{name_of(e, name)} is neither a parameter nor a buffer, so it would not be "
                "saved, nor moved to a GPU; use nn.Parameter, nn.ParameterList, nn.ModuleList, or "
                "register_buffer, for constants with persistent=False",
            )


@contextmanager
def checking_hooks(encodings: Iterable[Encoding]) -> Iterator[None]:
    """Within the block, a hook of these encodings that breaks a rule raises CheckError.

    Shapes are those of AXES; `project` keeps the dtypes of the projections that it wraps, which
    caches have; and no tensor is written into but the scores that `scores` gets. For passes over
    whole texts outside of inference mode.
    """
    hooks = [(e, hook) for e in encodings for hook in e.hooks]
    for e, hook in hooks:  # an attribute of the object hides the method of its class
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
    require(unchanged, f"{name} writes into one of its arguments; work on a copy")
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
    for result, axes in zip(results, AXES[hook], strict=True):
        shape = None if result is None else [*result.shape]
        sizes.setdefault("width", shape[-1] if shape else 0)  # `changes_width` lets it be any
        expected = [sizes[axis.removesuffix(" | 1")] for axis in axes.split(", ")]
        fitting = [n if n == 1 and "| 1" in axes else size
                   for n, size in zip(shape or [], expected, strict=False)]  # fmt: skip
        if shape is None or len(shape) != len(expected) or shape != fitting:
            return f"returns {shape}; expected [{axes}] = {expected}"
    for result, projection in zip(results, plain, strict=False):
        if result is not None and result.dtype != projection.dtype:
            return f"returns {result.dtype} for projections in {projection.dtype}; convert it"
    return None
