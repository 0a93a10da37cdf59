"""An entry that serves some layers or heads of a site only: its keys `layers:` and `heads:`.

Elsewhere it does nothing. Its `Dims` count the layers and heads that it serves, and its hooks
receive these alone, so that an encoding learns nothing for others and need not know of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.encodings.base import Dims, Encoding, Projection
from nmt.encodings.context import Context

Projected = tuple[Tensor, Tensor, Tensor]  # q, k, v [batch, heads, n, head_dim]


def restricted(dims: Dims, layers: Any, heads: Any) -> Dims:
    """The sizes for an entry with these `layers` and `heads`, numbers from 0; None: all of them.

    Raises ValueError for what is not a list of different numbers of that site.
    """
    if layers is not None:
        layers = _numbers("layers", layers, dims.layers, dims.site)
        dims = replace(dims, layers=len(layers), served_layers=layers)
    if heads is not None:
        heads = _numbers("heads", heads, dims.heads, dims.site)
        dims = replace(dims, heads=len(heads), served_heads=heads)
    return dims


def _numbers(key: str, value: Any, count: int, site: str) -> tuple[int, ...]:
    numbers = value if isinstance(value, Sequence) and not isinstance(value, str) else []
    valid = [n for n in numbers if type(n) is int and 0 <= n < count]
    if not valid or len(set(valid)) != len(numbers):
        raise ValueError(
            f"{key}={value}: list different numbers from 0 to {count - 1}, as the site has {count} "
            f"{key} ({site}), for instance {key}=[0]"
        )
    return tuple(sorted(valid))


def check(e: Encoding) -> None:
    """Raise ValueError where an encoding cannot be restricted as its `Dims` say."""
    hooks, facts = {*e.hooks}, e.facts
    if e.dims.served_layers is not None:
        if hooks & {"embed", "readout"}:
            raise ValueError("layers: this encoding works on what enters or leaves all layers")
        if not facts.projects_keys:
            raise ValueError("layers: without its key projection, keys are the same in all layers")
    if e.dims.served_heads is not None:
        if hooks & {"embed", "layer", "readout"}:
            raise ValueError("heads: this encoding works on embeddings, which have no heads")
        if facts.scale not in (None, e.dims.head_dim**-0.5) or not facts.projects_keys:
            raise ValueError("heads: this encoding sets the scale or the keys of all heads")


def serves(e: Encoding, layer: int | None) -> bool:
    """Whether an entry serves a layer of the model; None: the whole stack, which all do."""
    served = e.dims.served_layers
    return served is None or layer is None or layer in served


def overlap(one: Encoding, other: Encoding) -> bool:
    """Whether two entries of a site meet in some head of some layer."""
    heads = _common(one.dims.served_heads, other.dims.served_heads)
    return heads and share_a_layer(one, other)


def share_a_layer(one: Encoding, other: Encoding) -> bool:
    """Whether some layer has both entries, be it in different heads."""
    return _common(one.dims.served_layers, other.dims.served_layers)


def _common(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> bool:
    return one is None or other is None or not {*one}.isdisjoint(other)


def number(e: Encoding, layer: int) -> int:
    """The number of the model's layer among those that an entry serves."""
    served = e.dims.served_layers
    return layer if served is None else served.index(layer)


def of_layers(e: Encoding, context: Context) -> Context:
    """The pass with the caches of the entry's layers only, numbered as its hooks number them."""
    served, caches = e.dims.served_layers, context.key_caches
    if served is None:
        return context

    def make() -> Context:
        of_served = None if caches is None else [caches[layer] for layer in served]
        return replace(context, key_caches=of_served, _memo={})

    return context.once(("layers", served), make)


def of_heads(e: Encoding, x: Tensor) -> Tensor:
    """The entry's heads of x [batch | 1, heads, ...]."""
    served = e.dims.served_heads
    return x if served is None else torch.stack([x[:, head] for head in served], 1)


def with_heads(e: Encoding, x: Tensor, part: Tensor) -> Tensor:
    """x [batch | 1, heads, ...] with `part` in the place of the entry's heads.

    Where the last axis of the two differs, the narrower one is filled up with zeros.
    """
    if e.dims.served_heads is None:
        return part
    width = max(x.shape[-1], part.shape[-1])
    x, part = (F.pad(t, (0, width - t.shape[-1])) for t in (x, part))
    x, heads = x.to(part.dtype), range(x.shape[1])
    # no tensor of indices, whose copy to a GPU would wait for it
    served = dict(zip(e.dims.served_heads, part.unbind(1), strict=True))
    return torch.stack([served[head] if head in served else x[:, head] for head in heads], 1)


def bias_of_all_heads(e: Encoding, bias: Tensor) -> Tensor:
    """A bias [batch | 1, heads | 1, query | 1, key | 1], 0 in heads that the entry lacks."""
    if e.dims.served_heads is None:
        return bias
    none = bias.new_zeros(bias.shape[0], e.dims.all_heads, *bias.shape[2:])
    return with_heads(e, none, bias.expand(-1, e.dims.heads, -1, -1))


def projection_of_heads(
    e: Encoding, project: Projection, inputs: Projected, all_heads: Projected, readers: list[str]
) -> Projection:
    """The projection of the entry's heads; `all_heads` is what `project` makes of the inputs.

    `readers`: earlier entries that remember something of the inputs, so these may not change.
    """

    def of_its_heads(xq: Tensor, xk: Tensor, xv: Tensor) -> Projected:
        unchanged = all(a is b for a, b in zip((xq, xk, xv), inputs, strict=True))
        if readers and not unchanged:
            raise ValueError(
                f"encoding.{e.name}: changes the input of some heads, of which "
                f"encoding.{readers[0]} reads the same in all; name {e.name} before it"
            )
        q, k, v = all_heads if unchanged else project(xq, xk, xv)
        return of_heads(e, q), of_heads(e, k), of_heads(e, v)

    return of_its_heads
