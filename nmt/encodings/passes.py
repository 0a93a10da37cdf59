"""Contexts of forward passes and decoding steps, as the model makes them; not for encodings."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nmt.encodings.context import Context, Positions


def whole(
    site: str,
    queries: int,
    keys: int | None = None,
    device: torch.device | None = None,
    **fields: Any,
) -> Context:
    """A pass over all tokens of a text, which attend to each other or to `keys` tokens of another.

    `fields`: further fields of the Context.
    """
    at = torch.arange(queries, device=device)[None]
    all_keys = at if keys is None else torch.arange(keys, device=device)[None]
    return Context(site, at, all_keys, all_keys, query_end=queries, **fields)


def step(site: str, before: int, new: int, device: torch.device, **fields: Any) -> Context:
    """A step of decoding: `new` tokens attend to all tokens; those before them are cached."""
    keys = torch.arange(before + new, device=device)[None]
    queries = keys[:, before:]
    return Context(site, queries, keys, queries, query_end=before + new, **fields)


def cross_step(decoder: Context, source: int, beams: int, cached: bool, **fields: Any) -> Context:
    """A step of cross-attention: the new tokens of a decoder attend to `source` tokens.

    The `beams` hypotheses of one source are queries of one row. `cached`: its keys are cached.
    """
    keys = torch.arange(source, device=decoder.query_positions.device)[None]
    return Context(
        "cross",
        query_positions=decoder.query_positions.repeat(1, beams),
        key_positions=keys,
        new_key_positions=keys[:, :0] if cached else keys,
        beams=beams,
        query_end=decoder.query_end,
        **fields,
    )


def with_positions(context: Context, positions: Positions) -> Context:
    """The same pass with positions instead of token indices; entries with equal ones share it."""

    def assign() -> Context:
        assigned: list[tuple[Tensor, Tensor]] = []

        def at(index: Tensor) -> Tensor:
            # one tensor stays one object, and gets one random draw; compared by `is`, because a
            # graph of torch.compile cannot hold id() of a tensor in torch 2.11
            for other, result in assigned:
                if other is index:
                    return result
            assigned.append((index, positions.assign(index, context)))
            return assigned[-1][1]

        return replace(
            context,
            query_positions=at(context.query_positions),
            key_positions=at(context.key_positions),
            new_key_positions=at(context.new_key_positions),
            positions=positions,
            _indices=context.indices,
            _memo={},
        )

    return context.once(positions, assign)


def copy_pass(context: Context) -> Context:
    """A copy for gradient checkpointing: values computed later are in one of the two only."""
    memo = {k: copy_pass(v) if isinstance(v, Context) else v for k, v in context._memo.items()}
    return replace(context, _memo=memo)


def list_computed(context: Context) -> set[str]:
    """Names of what was computed for a pass so far: "delta" (distances), "remembered", ..."""
    return {str(name[0] if isinstance(name, tuple) else name) for name in context._memo}
