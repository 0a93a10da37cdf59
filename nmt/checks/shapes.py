"""The shapes that hooks of encodings return, compared with those that `Encoding` documents.

torch broadcasts heads over rows in silence, so a hook of a wrong shape may train. Hooks are
compared while a small model is tried, and not in every step of a training.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor

from nmt.encodings.base import Encoding

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
def checking_shapes(encodings: Iterable[Encoding]) -> Iterator[None]:
    """Within the block, a hook of these raises ValueError that names it for any other shape."""
    with ExitStack() as cleanup:
        for e in encodings:
            for hook in e.hooks:
                vars(e)[hook] = _checked(e, hook, getattr(e, hook))  # before that of the class
                cleanup.callback(vars(e).pop, hook)
        yield


def _checked(e: Encoding, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        result = method(*arguments)
        if hook == "bias" and result is None:
            return result
        results = result if hook == "project" else [result]
        for part, (axes, sizes) in zip(
            results, _expected(e, hook, arguments, results), strict=True
        ):
            _compare(e, hook, part, axes, sizes)
        return result

    return call


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
