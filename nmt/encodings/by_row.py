"""One vector per row of a table, one row per pair of tokens: products with it, and sums of it.

Autograd could do both; these functions know that heads share most tables, so that a product with
all tokens of all heads is one matrix product, in the layout in which projections come and go.
"""

from typing import Any

from torch import Tensor
from torch.autograd.function import Function, once_differentiable


def query_products(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """q_i . rows[index_ij] for q [batch, heads, query, head_dim]: [batch, heads, query, key].

    rows: [heads | 1, row, head_dim]; index: [batch | 1, query, key].
    """
    return _QueryProducts.apply(q, rows, index)


def row_sums(p: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """sum_j p_ij rows[index_ij] for p [batch, heads, query, key]: [batch, heads, query, head_dim].

    rows: [heads | 1, row, head_dim]; index: [batch | 1, query, key].
    """
    return _RowSums.apply(p, rows, index)


class _QueryProducts(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
        products = _times(q, rows.to(q.dtype))
        ctx.save_for_backward(q.to(products.dtype), rows, index)
        return by_query(products, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, rows, index = ctx.saved_tensors
        sums = sum_by_row(g, index, rows.shape[1])
        by_rows = _outer(sums, q, rows) if ctx.needs_input_grad[1] else None
        return _times(sums, rows.mT.to(g.dtype)), by_rows, None


class _RowSums(Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, rows: Tensor, index: Tensor) -> Tensor:
        sums = sum_by_row(p, index, rows.shape[1])
        ctx.save_for_backward(sums, rows, index)
        return _times(sums, rows.mT.to(p.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sums, rows, index = ctx.saved_tensors
        by_rows = _outer(sums, g, rows) if ctx.needs_input_grad[1] else None
        return by_query(_times(g, rows.to(g.dtype)), index), by_rows, None


def by_query(t: Tensor, index: Tensor) -> Tensor:
    """Read t [batch, heads, query, row] at index [batch | 1, query, key]: [.., query, key]."""
    return t.gather(-1, index[:, None].expand(t.shape[0], t.shape[1], -1, -1))


def sum_by_row(p: Tensor, index: Tensor, rows: int) -> Tensor:
    """Sum p [batch, heads, query, key] over the keys of each row: [batch, heads, query, row]."""
    sums = p.new_zeros(*p.shape[:3], rows)
    return sums.scatter_add_(-1, index[:, None].expand_as(p), p)


def _times(x: Tensor, rows: Tensor) -> Tensor:
    """x [batch, heads, n, width] @ rows^T [heads | 1, row, width]: [batch, heads, n, row]."""
    if len(rows) > 1:
        return x @ rows.mT
    if x.is_contiguous():
        return x @ rows[0].mT
    return (x.transpose(1, 2) @ rows[0].mT).transpose(1, 2)  # as projections lie in memory


def _outer(sums: Tensor, x: Tensor, rows: Tensor) -> Tensor:
    """The gradient of rows: sums^T x over all tokens, and over the heads that share them."""
    if len(rows) > 1:
        return (sums.mT @ x).sum(0).to(rows.dtype)
    flat = [t.transpose(1, 2).flatten(0, 2) for t in (sums, x)]  # [batch x n x heads, ..]
    return (flat[0].T @ flat[1])[None].to(rows.dtype)
