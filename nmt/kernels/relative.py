"""Attention with one vector per clipped distance (Shaw et al. 2018) as fused kernels.

What plain formulas keep for the backward pass are [batch, heads, query, key] tensors; here it is
the sums of probabilities by distance [batch, heads, query, 2 tau + 1], so that memory grows with
the length as that of fused plain attention does. What meets the tables stays with torch, as one
product over all tokens: q . r^K of each distance before, the sums times r^V after the kernel, and
the gradients of the tables. Nothing is added up in an order left to chance: equal calls give equal
bits.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import custom_op

from nmt.kernels import choice

STEPS = 2**16  # dropout keeps or drops by whole numbers of these parts
ALIGNED = 8  # numbers: rows by distance are filled up to a multiple, as fast products want it


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tau: int,
    keys: Tensor | None,
    values: Tensor | None,
    *,
    scale: float,
    allowed: Tensor | None = None,
    causal: bool = False,
    rate: float = 0.0,
) -> Tensor:
    """Outputs [batch, heads, query, head_dim] of q [.., query, ..], k and v [.., key, ..].

    o_i = sum_j p_ij (v_j + r^V[c(j - i)]) with p = dropout(softmax(scale q_i . (k_j + r^K[c]))) of
    probability `rate`; c clips to [-tau, tau], whose vectors are keys and values
    [heads | 1, 2 tau + 1, head_dim], or None where nothing is added. Query i and key j are the
    i-th and the j-th of their texts, counted from the same place. allowed
    [batch | 1, 1, query | 1, key] is true where one may look; causal forbids keys after the
    query of the same number. A query that may see nothing gets zeros. Products of float32 round
    their factors to TF32.

    The random numbers are made a second time in the backward pass, from a seed drawn from torch's
    generator for the device; so a layer that is recomputed from the same state of the generator
    drops the same.
    """
    dropped = round(rate * STEPS)
    seed = torch.randint(2**62, (1 if dropped else 0,), device=q.device)
    kept = None if allowed is None else allowed.expand(len(q), 1, -1, -1)
    if kept is not None and kept.stride(3) != 1:
        kept = kept.contiguous()
    width = _Call(tau, scale, dropped, causal).width
    filled = (_filled(table, width, q.dtype) for table in (keys, values))
    o, *_ = forward_op(q, k, v, *filled, kept, seed, tau, scale, dropped, causal)
    return o


class _Call(NamedTuple):
    """The arguments that are no tensors."""

    tau: int
    scale: float
    dropped: int  # of STEPS
    causal: bool

    @property
    def width(self) -> int:
        """Columns of what is kept by distance."""
        return -(-(2 * self.tau + 1) // ALIGNED) * ALIGNED


class _Inputs(NamedTuple):
    """What the kernels read, `allowed` contiguous in its last axis.

    The others as a linear layer gives them, [batch, n, heads, ..] in memory: a view of what is
    [batch, heads, n, ..] here, so that nothing is copied before attention and after it.
    """

    q: Tensor  # [batch, heads, query, head_dim]
    k: Tensor  # [batch, heads, key, head_dim]
    v: Tensor
    t: Tensor | None  # [batch, heads, query, width] q . r^K of each distance
    allowed: Tensor | None  # [batch, 1, query | 1, key]
    seed: Tensor  # [1], or [0] without dropout


# Operators of torch, so that its compiler makes one node of a graph of each. An operator cannot
# return None, nor one of its inputs: an empty tensor stands for what is absent.


@custom_op("nmt::relative_attention", mutates_args=())
def forward_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor | None,  # [heads | 1, width, head_dim]
    values: Tensor | None,
    allowed: Tensor | None,
    seed: Tensor,
    tau: int,
    scale: float,
    dropped: int,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(outputs, lse [batch, heads, query], t, sums): see `_Inputs` and `_forward`."""
    call = _Call(tau, scale, dropped, causal)
    with torch.autocast(q.device.type, enabled=False):
        q, k, v = map(_by_token, (q, k, v))
        t = None if keys is None else _times(q, keys.mT)
        o, lse, sums = _forward(_Inputs(q, k, v, t, allowed, seed), values is not None, call)
        if values is not None and sums is not None:
            _add_times(o, sums, values)
    return o, lse, _or_empty(t, q), _or_empty(sums, q)


@forward_op.register_fake
def _(q, k, v, keys, values, allowed, seed, tau, scale, dropped, causal):  # type: ignore[no-untyped-def]
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    tables = (None if table is None else _rows(q, table.shape[1]) for table in (keys, values))
    return _rows(q, q.shape[3]), lse, *(_or_empty(table, q) for table in tables)


@custom_op("nmt::relative_attention_backward", mutates_args=())
def backward_op(
    g: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor | None,
    values: Tensor | None,
    allowed: Tensor | None,
    seed: Tensor,
    o: Tensor,
    lse: Tensor,
    t: Tensor,
    sums: Tensor,
    tau: int,
    scale: float,
    dropped: int,
    causal: bool,
    learnt: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v, and of keys and values where `learnt` says so."""
    call = _Call(tau, scale, dropped, causal)
    with torch.autocast(q.device.type, enabled=False):
        q, k, v, g = map(_by_token, (q, k, v, g.to(o.dtype)))
        inputs = _Inputs(q, k, v, None if keys is None else t, allowed, seed)
        u = None if values is None else _times(g, values.mT)
        by_q, by_k, by_v, by_t = _backward(inputs, u, g, o, lse, call)
        if keys is not None and by_t is not None:
            _add_times(by_q, by_t, keys)
        by_tables = [
            _outer(of, x, len(table)) if table is not None and of is not None and needed else None
            for table, of, x, needed in zip(
                (keys, values), (by_t, sums), (q, g), learnt, strict=True
            )
        ]
        by_keys, by_values = (_or_empty(table, q) for table in by_tables)
        return by_q, by_k, by_v, by_keys, by_values


@backward_op.register_fake
def _(g, q, k, v, keys, values, *rest):  # type: ignore[no-untyped-def]
    by_tables = (
        q.new_empty(table.shape if table is not None and needed else 0)
        for table, needed in zip((keys, values), rest[-1], strict=True)
    )
    return *(_rows(x, x.shape[3]) for x in (q, k, v)), *by_tables


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.call = inputs[7:]


def _differentiate(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if g is None:
        return (None,) * 11
    learnt = list(ctx.needs_input_grad[3:5])
    gradients = backward_op(g, *ctx.saved_tensors, *ctx.call, learnt)
    needed = (True, True, True, *learnt)
    by_inputs = (x if need else None for x, need in zip(gradients, needed, strict=True))
    return *by_inputs, *(None,) * 6


forward_op.register_autograd(_differentiate, setup_context=_save)


def _forward(inputs: _Inputs, values: bool, call: _Call) -> tuple[Tensor, Tensor, Tensor | None]:
    """p v [as q], lse [batch, heads, query] and, for values, sums by distance [.., width]."""
    from nmt.kernels import relative_triton as kernels

    q = inputs.q
    o, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    sums = _rows(q, call.width).zero_() if values else None
    arguments = _arguments(inputs, call)
    with torch.cuda.device_of(q):  # Triton asks which one is current
        kernels.forward[_grid(q)](
            **arguments, o=o, lse=lse, sums=o if sums is None else sums, VALUES=values
        )
    return o, lse, sums


def _backward(
    inputs: _Inputs, u: Tensor | None, g: Tensor, o: Tensor, lse: Tensor, call: _Call
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The gradients of q (through q k alone), k, v and t, of which the last may be None."""
    from nmt.kernels import relative_triton as kernels

    q, k, v = inputs.q, inputs.k, inputs.v
    by_q, by_k, by_v = (torch.empty_like(x) for x in (q, k, v))
    by_t = None if inputs.t is None else _rows(q, call.width).zero_()
    delta = torch.empty_like(lse)
    arguments = {
        **_arguments(inputs, call),
        "u": g if u is None else u, "g": g, "lse": lse, "delta": delta, "VALUES": u is not None,
    }  # fmt: skip
    with torch.cuda.device_of(q):
        kernels.by_query[_grid(q)](**arguments, o=o, by_q=by_q, sums=by_q if by_t is None else by_t)
        kernels.by_key[_grid(k)](**arguments, by_k=by_k, by_v=by_v)
    return by_q, by_k, by_v, by_t


def _grid(x: Tensor) -> tuple[int]:
    """A program for each block of rows of x [batch, heads, n, head_dim]."""
    batch, heads, n, width = x.shape
    return (batch * heads * -(-n // choice.block(n, width)),)


def _arguments(inputs: _Inputs, call: _Call) -> dict[str, Any]:
    """The arguments of all three kernels."""
    q, k, v, t, allowed, seed = inputs
    seen = None if allowed is None else allowed.view(torch.uint8)
    mask = 0 if seen is None else 1 if seen.shape[2] == 1 else 2
    queries, keys = (choice.block(*x.shape[2:]) for x in (q, k))
    return {
        "q": q, "k": k, "v": v, "t": q if t is None else t, "seed": seed,
        "allowed": q if seen is None else seen,
        "mask_batch": 0 if seen is None else seen.stride(0),
        "mask_query": 0 if seen is None else seen.stride(2),
        "heads": q.shape[1], "n": q.shape[2], "m": k.shape[2], "scale": call.scale,
        "dropped": call.dropped, "grown": STEPS / (STEPS - call.dropped),
        "KEYS": t is not None, "MASK": mask, "CAUSAL": call.causal, "DROPOUT": bool(call.dropped),
        "TAU": call.tau, "WIDTH": call.width, "D": q.shape[3], "QUERIES": queries, "OTHERS": keys,
        "PRECISION": "tf32", "num_warps": choice.warps(queries, keys), "num_stages": 2,
    }  # fmt: skip


def _filled(table: Tensor | None, width: int, number_format: torch.dtype) -> Tensor | None:
    """[heads | 1, rows, head_dim], with rows of zeros up to `width`."""
    if table is None:
        return None
    return F.pad(table.to(number_format), (0, 0, 0, width - table.shape[1]))


def _or_empty(x: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(0) if x is None else x


def _rows(like: Tensor, width: int) -> Tensor:
    """[batch, heads, n, width] with anything in it, laid out as by `_by_token`."""
    batch, heads, n, _ = like.shape
    return like.new_empty(batch, n, heads, width).transpose(1, 2)


def _by_token(x: Tensor) -> Tensor:
    """x [batch, heads, n, width], with the heads of a token side by side in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _matrices(x: Tensor, heads: int) -> Tensor:
    """The rows of x [batch, heads, n, width] that meet one table: [heads | 1, rows, width], a view.

    All rows where one table serves all heads, else those of each head.
    """
    by_token = x.transpose(1, 2).flatten(0, 1)  # [batch x n, heads, width]
    return by_token.transpose(0, 1) if heads > 1 else by_token.flatten(0, 1)[None]


def _times(x: Tensor, table: Tensor) -> Tensor:
    """x [batch, heads, n, a] @ table [heads | 1, a, b]."""
    products = _matrices(x, len(table)) @ table
    by_token = products if len(table) == 1 else products.transpose(0, 1).contiguous()
    return by_token.view(len(x), x.shape[2], x.shape[1], -1).transpose(1, 2)


def _add_times(to: Tensor, x: Tensor, table: Tensor) -> None:
    """to [batch, heads, n, b] += x [batch, heads, n, a] @ table [heads | 1, a, b]."""
    _matrices(to, len(table)).baddbmm_(_matrices(x, len(table)), table)


def _outer(sums: Tensor, x: Tensor, heads: int) -> Tensor:
    """sums^T x over all tokens, and the heads that share a table: [heads | 1, width, head_dim]."""
    return _matrices(sums, heads).mT @ _matrices(x, heads)
