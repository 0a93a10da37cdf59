"""What hooks of encodings return and write, compared with what `Encoding` documents.

torch broadcasts heads over rows in silence, so a hook of a wrong shape may train; and what a hook
writes into its input, residual path and later layers read. Hooks are checked while a small model
is tried, and not in every step of a training.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any

from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.context import Context

WEIGHTS = "[batch, heads, query, key]"
AXES = {
    "embed": "[batch, query, dim]",
    "layer": "[batch, query, dim]",
    "scores": WEIGHTS,
    "normalise": WEIGHTS,
    "outputs": "[batch, heads, query, head_dim]",
}  # of hooks whose result has the shape of their first argument
BROADCAST = "[batch | 1, heads | 1, query | 1, key | 1]"


@contextmanager
def checking_hooks(encodings: Iterable[Encoding]) -> Iterator[None]:
    """Within the block, a hook of these that does anything else raises ValueError, with its name.

    Shapes are those of AXES; `project` keeps the dtypes of the projections that it wraps, which
    caches have; and no tensor is written into but the scores that `scores` gets.
    """
    with ExitStack() as cleanup:
        for e in encodings:
            for hook in e.hooks:
                vars(e)[hook] = _checked(e, hook, getattr(e, hook))  # before that of the class
                cleanup.callback(vars(e).pop, hook)
        yield


def _checked(e: Encoding, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
    names = [*signature(method).parameters]

    def call(*arguments: Any) -> Any:
        plain: list[Tensor] = []  # projections
        inputs = _read_only(dict(zip(names, arguments, strict=True)), hook)
        versions = {name: t._version for name, t in inputs.items()}
        if hook == "project":
            arguments = (_recorded(arguments[0], plain), *arguments[1:])
        result = method(*arguments)
        if written := [name for name, t in inputs.items() if t._version != versions[name]]:
            raise ValueError(
                f"encoding.{e.name}: its `{hook}` writes into {written[0]} in the {e.dims.site}; "
                "work on a copy"
            )
        if hook == "bias" and result is None:
            return result
        results = result if hook == "project" else [result]
        for part, (axes, sizes) in zip(
            results, _expected(e, hook, arguments, results), strict=True
        ):
            _compare(e, hook, part, axes, sizes)
        for part, projection in zip(results, plain, strict=False):
            if part.dtype != projection.dtype:
                raise ValueError(
                    f"encoding.{e.name}: its `{hook}` returns {part.dtype} in the {e.dims.site} "
                    f"for projections in {projection.dtype}; convert what it returns"
                )
        return result

    return call


def _recorded(project: Callable[..., Any], plain: list[Tensor]) -> Callable[..., Any]:
    """The projections, which leave what they return in `plain`."""

    def call(*inputs: Tensor) -> Any:
        plain[:] = project(*inputs)
        return tuple(plain)

    return call


def _read_only(arguments: dict[str, Any], hook: str) -> dict[str, Tensor]:
    """The tensors that a hook reads: arguments, and those of the pass by their places in it."""
    result = dict(arguments)
    if hook == "scores":
        result.pop(next(iter(result)))
    for name, context in arguments.items():
        if isinstance(context, Context):
            parts = vars(context) | context.columns | context._memo
            result |= {f"{name}.{part}": value for part, value in parts.items()}
    return {name: t for name, t in result.items() if isinstance(t, Tensor)}


def _expected(
    e: Encoding, hook: str, arguments: Sequence[Any], results: Sequence[Any]
) -> list[tuple[str, Sequence[int]]]:
    """Axes and sizes of each result."""
    if hook == "project":
        heads, (_, xq, xk, xv, *_) = e.dims.heads, arguments
        width = results[0].shape[-1]  # `changes_width` lets it be any
        return [
            ("[batch, heads, query, width]", (len(xq), heads, xq.shape[1], width)),
            ("[batch, heads, key, width]", (len(xk), heads, xk.shape[1], width)),
            ("[batch, heads, key, head_dim]", (len(xv), heads, xv.shape[1], e.dims.head_dim)),
        ]
    if hook == "bias":
        c = arguments[1]
        return [(BROADCAST, (c.rows, e.dims.heads, c.queries.shape[1], c.keys.shape[1]))]
    if hook == "readout":
        rows, query, dim = arguments[0].shape
        streams = e.streams if e.dims.site == "decoder" else 1
        return [("[batch, query, dim]", (rows // streams, query, dim))]
    return [(AXES[hook], arguments[0].shape)]


def _compare(e: Encoding, hook: str, result: Tensor, axes: str, sizes: Sequence[int]) -> None:
    returned = None if result is None else [*result.shape]
    pairs = list(zip(returned or [], sizes, strict=False))
    fits = all(size == expected or (axes == BROADCAST and size == 1) for size, expected in pairs)
    if not fits or returned is None or len(returned) != len(sizes):
        raise ValueError(
            f"encoding.{e.name}: its `{hook}` returns {returned} in the {e.dims.site}; "
            f"expected {axes} = {[*sizes]}"
        )
