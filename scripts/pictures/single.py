"""A single encoding on its own: the outputs of its hooks for contents that nothing else changed."""

from typing import NamedTuple

from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.context import Context, causal
from nmt.encodings.passes import whole
from nmt.encodings.site import Encodings
from nmt.model.transformer import PAD

CLOSE = 1e-4  # what two contents get is equal, or nothing


def pass_over(e: Encoding, ids: Tensor, columns: dict[str, Tensor]) -> Context:
    """The context of one pass over whole sentences ids [batch, length]; a decoder's is causal."""
    ids = ids.repeat_interleave(e.streams, 0)
    columns = {name: column.repeat_interleave(e.streams, 0) for name, column in columns.items()}
    n, real = ids.shape[1], ids != PAD
    return whole(
        e.dims.site,
        n,
        rows=len(ids),
        streams=e.streams,
        allowed=causal(n, n, ids.device) if e.dims.site == "decoder" else real[:, None, None, :],
        lengths=real.sum(1),
        tokens=ids,
        columns=columns,
    )


class HookOutputs(NamedTuple):
    """Outputs of the hooks of one encoding for contents x [batch, length, dim].

    In the first layer that it serves.
    """

    contents: Tensor  # [batch, length, dim]: x
    embedded: Tensor  # [batch x streams, length, dim] after embed
    layered: Tensor  # [batch, length, dim]: x after layer
    projected: tuple[Tensor, Tensor, Tensor]  # q, k, v of x [batch, heads, length, any]
    plain: Tensor  # [batch, heads, length, head_dim]: x, split
    logits: Tensor  # [batch x streams, heads, query, key], scaled, not masked


def apply_hooks(e: Encoding, x: Tensor, context: Context) -> HookOutputs:
    """Call every hook but `outputs` and `readout`, with projections that only split into heads.

    Between the stacks there is nothing to embed, as in the model.
    """

    def split(*inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.unflatten(-1, (-1, e.dims.head_dim)).transpose(1, 2) for t in inputs)

    site = Encodings([e])
    layer = first_layer(e)
    across = context.site == "cross"
    rows = x.repeat_interleave(e.streams, 0)
    embedded = rows if across else site.embed(rows, context)
    inputs = x if e.streams == 1 else embedded
    layered = inputs if across else site.layer(inputs, layer, context)
    q, k, v = site.project(split, inputs, inputs, inputs, layer, context)  # type: ignore[arg-type]
    logits = site.scores(q, k, layer, context).float() * scale_of(e)
    if (bias := site.bias(layer, context)) is not None:
        logits = logits + bias
    return HookOutputs(x, embedded, layered, (q, k, v), split(inputs)[0], logits)


def first_layer(e: Encoding) -> int:
    """The first of the model's layers that an encoding serves."""
    return 0 if e.dims.served_layers is None else e.dims.served_layers[0]


def scale_of(e: Encoding) -> float:
    """The factor on an encoding's scores."""
    return e.dims.head_dim**-0.5 if e.scale is None else e.scale


def changes_by_part(first: HookOutputs, second: HookOutputs) -> dict[str, tuple[str, Tensor]]:
    """How two contents at the same places were changed: the kind, and the change of the first.

    The kind is "" for nothing, `vectors` if both got the same, `more` if it depends on contents.
    """
    x, y = first.contents, second.contents
    parts = {"embed": (first.embedded, second.embedded, x, y)}
    parts["layer"] = (first.layered, second.layered, x, y)
    for place, part in enumerate(("query", "key")):
        parts[part] = (first.projected[place], second.projected[place], first.plain, second.plain)
    return {part: _change(*tensors) for part, tensors in parts.items()}


def _change(first: Tensor, second: Tensor, x: Tensor, y: Tensor) -> tuple[str, Tensor]:
    if first.shape != x.shape:
        return "more", first
    change, other = first - x, second - y
    if float((change - other).abs().max()) > CLOSE:
        return "more", change
    return "vectors" if float(change.abs().max()) > CLOSE else "", change
