"""One vector per row of a table, one row per pair of tokens: products with it, and sums of it.

Autograd could do both; these functions know that heads share most tables, so that a product with
all tokens of all heads is one matrix product, and add what plain attention computes in place.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable


def query_products(q: Tensor, rows: Tensor, index: Tensor, k: Tensor | None = None) -> Tensor:
    """q_i . rows[index_ij] for q [batch, heads, query, head_dim]: [batch, heads, query, key].

    rows: [heads | 1, row, head_dim]; index: [batch | 1, query, key]. With keys
    k [batch, heads, key, head_dim]: plus q_i . k_j.
    """
    return _QueryProducts.apply(q, rows, index, k)


def row_sums(p: Tensor, rows: Tensor, index: Tensor, v: Tensor | None = None) -> Tensor:
    """sum_j p_ij rows[index_ij] for p [batch, heads, query, key]: [batch, heads, query, head_dim].

    rows: [heads | 1, row, head_dim]; index: [batch | 1, query, key]. With values
    v [batch, heads, key, head_dim]: plus sum_j p_ij v_j.
    """
    return _RowSums.apply(p, rows, index, v)


class _QueryProducts(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, rows: Tensor, index: Tensor, k: Tensor | None) -> Tensor:
        s = None if k is None else _product(q, k.mT)
        s = _plus(s, by_query(_times(q, rows.mT), index))
        k = None if k is None else k.to(s.dtype)
        ctx.save_for_backward(q.to(s.dtype), rows, index, k)
        return s

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, rows, index, k = ctx.saved_tensors
        by_q = None if k is None else _product(g, k)
        sums = sum_by_row(g, index, rows.shape[1])
        by_q = _plus_times(by_q, sums, rows)
        by_rows = _outer(sums, q, rows) if ctx.needs_input_grad[1] else None
        by_k = None if k is None else _product(g.mT, q)
        return by_q, by_rows, None, by_k


class _RowSums(Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, rows: Tensor, index: Tensor, v: Tensor | None) -> Tensor:
        o = None if v is None else _product(p, v)
        sums = sum_by_row(p, index, rows.shape[1])
        o = _plus_times(o, sums, rows)
        plain = (None, None) if v is None else (p.to(o.dtype), v.to(o.dtype))
        ctx.save_for_backward(sums.to(o.dtype), rows, index, *plain)
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sums, rows, index, p, v = ctx.saved_tensors
        by_p = None if v is None else _product(g, v.mT)
        by_p = _plus(by_p, by_query(_times(g, rows.mT), index))
        by_rows = _outer(sums, g, rows) if ctx.needs_input_grad[1] else None
        by_v = None if v is None else _product(p.mT, g)
        return by_p, by_rows, None, by_v


def by_query(t: Tensor, index: Tensor) -> Tensor:
    """Read t [batch, heads, query, row] at index [batch | 1, query, key]: [.., query, key]."""
    return t.gather(-1, index[:, None].expand(t.shape[0], t.shape[1], -1, -1))


def sum_by_row(p: Tensor, index: Tensor, rows: int) -> Tensor:
    """Sum p [batch, heads, query, key] over the keys of each row: [batch, heads, query, row].

    index: [batch | 1, query, key]. A CPU adds one number after the other, and rounds once. A GPU
    would add many at a time, in no fixed order, and round after each, which in bfloat16 loses a
    tenth of a sum of 512: it gets a product, or adds in float32.
    """
    at = index[:, None].expand_as(p)
    if p.device.type == "cpu":
        return p.new_zeros(*p.shape[:3], rows).scatter_add_(-1, at, p)
    if len(index) == 1 and rows <= p.shape[0] * p.shape[1]:
        return _sums_as_product(p, index[0], rows)
    sums = p.new_zeros(*p.shape[:3], rows, dtype=torch.float32)
    return sums.scatter_add_(-1, at, p.float()).to(p.dtype)


def _sums_as_product(p: Tensor, index: Tensor, rows: int) -> Tensor:
    """The same for index [query, key], as a product with ones where a key belongs to a row.

    Its order is fixed, and it is made in float32. The ones [query, key, row] need no more memory
    than p where there are no more rows than heads of all sentences.
    """
    ones = (index[:, :, None] == torch.arange(rows, device=p.device)).to(p.dtype)
    sums = torch.bmm(p.flatten(0, 1).transpose(0, 1), ones)  # [query, batch x heads, row]
    return sums.transpose(0, 1).unflatten(0, p.shape[:2])


def _product(x: Tensor, y: Tensor) -> Tensor:
    """x [batch, heads, n, m] @ y [batch, heads, m, l]."""
    return torch.bmm(x.flatten(0, 1), y.flatten(0, 1)).unflatten(0, x.shape[:2])


def _times(x: Tensor, rows: Tensor) -> Tensor:
    """x [batch, heads, n, m] @ rows [heads | 1, m, l]."""
    rows = rows.to(x.dtype)
    return x @ (rows if len(rows) > 1 else rows[0])  # one matrix: a product with all tokens


def _plus(x: Tensor | None, y: Tensor) -> Tensor:
    """x + y; x is overwritten."""
    return y if x is None else x.add_(y)


def _plus_times(x: Tensor | None, sums: Tensor, rows: Tensor) -> Tensor:
    """x [batch, heads, n, head_dim] + sums [.., n, row] @ rows; x, contiguous, is overwritten."""
    if x is None or len(rows) > 1:
        return _plus(x, _times(sums, rows))
    x.view(-1, x.shape[-1]).addmm_(sums.flatten(0, 2).to(x.dtype), rows[0].to(x.dtype))
    return x


def _outer(sums: Tensor, x: Tensor, rows: Tensor) -> Tensor:
    """The gradient of rows: sums^T x over all tokens, and over the heads that share them."""
    if len(rows) > 1:
        return (sums.mT @ x).sum(0).to(rows.dtype)
    return (sums.flatten(0, 2).T @ x.flatten(0, 2))[None].to(rows.dtype)
