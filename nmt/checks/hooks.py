"""What hooks of encodings return and write, compared with what `Encoding` documents.

torch broadcasts heads over rows in silence, so a hook of a wrong shape may train; and what a hook
writes into its input, the residual path and later layers read. Hooks are checked while a small
model is tried, and not in every step of a training.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from typing import Any

from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.context import Context

WEIGHTS = "batch, heads, query, key"
AXES = {
    "embed": ["batch, query, dim"],
    "layer": ["batch, query, dim"],
    "project": [f"batch, heads, {n}" for n in ("query, width", "key, width", "key, head_dim")],
    "scores": [WEIGHTS],
    "bias": ["batch | 1, heads | 1, query | 1, key | 1"],
    "normalise": [WEIGHTS],
    "outputs": ["batch, heads, query, head_dim"],
    "readout": ["batch, query, dim"],
}


@contextmanager
def checking_hooks(encodings: Iterable[Encoding]) -> Iterator[None]:
    """Within the block, a hook of these that does anything else raises ValueError, with its name.

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
    if fault := next((n for n, version in versions.items() if inputs[n]._version != version), None):
        fault = f"writes into {fault} in the {e.dims.site}; work on a copy"
    elif hook != "bias" or result is not None:
        fault = _misfit(e, hook, result if hook == "project" else [result], plain, context)
    if fault:
        raise ValueError(f"encoding.{e.name}: its `{hook}` {fault}")
    return result


def _misfit(
    e: Encoding, hook: str, results: Sequence[Tensor | None], plain: list[Tensor], context: Context
) -> str | None:
    """How results differ from AXES, or from the dtypes of plain projections; None: they do not."""
    streams = e.streams if hook == "readout" and e.dims.site == "decoder" else 1
    dims = {name: getattr(e.dims, name) for name in ("heads", "dim", "head_dim")}
    sizes = {"batch": context.rows // streams, **dims}
    sizes |= {"query": context.queries.shape[1], "key": context.keys.shape[1]}
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
