"""Products with rows of a table, and sums of rows, where each pair of tokens has a row.

Autograd could do both; these functions know that heads share most tables, so that a product with
all tokens of all heads is one matrix product.

What needs a vector for each pair, a number for every batch, head, query, key and component, is too
much to hold: it is computed for some queries at a time, and once more for the gradient.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.utils.checkpoint import checkpoint

from nmt.system.products import gradient, product

CHUNK = 2**24  # numbers that are held at a time; 64 MiB in float32


def query_products(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """q_i . rows[index_ij] for q [batch, heads, query, head_dim]: [batch, heads, query, key].

    rows: [heads | 1, row, head_dim]; index: [batch | 1, query, key].
    """
    products: Tensor = _QueryProducts.apply(q, rows, index)
    return products


def row_sums(p: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """sum_j p_ij rows[index_ij] for p [batch, heads, query, key]: [batch, heads, query, head_dim].

    rows: [heads | 1, row, head_dim]; index: [batch | 1, query, key].
    """
    sums: Tensor = _RowSums.apply(p, rows, index)
    return sums


def by_queries(
    f: Callable[[Tensor, Tensor], Tensor], x: Tensor, index: Tensor, per_query: int
) -> Tensor:
    """f(x, index) for x [batch, heads, query, any] and index [batch | 1, query, key], in parts.

    `per_query`: so many numbers does f hold for a query.
    """
    step = max(1, CHUNK // max(1, per_query))
    if step >= x.shape[2]:
        return f(x, index)
    parts = zip(x.split(step, 2), index.split(step, 1), strict=True)
    if torch.is_grad_enabled():
        f = partial(checkpoint, f, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([f(*part) for part in parts], 2)


class _QueryProducts(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
        products = _multiply(q, rows.mT)
        ctx.save_for_backward(q.to(products.dtype), rows, index)
        return gather(products, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, rows, index = ctx.saved_tensors
        sums = sum_by_row(g, index, rows.shape[1])
        by_rows = _gradient_of_rows(sums, q, rows) if ctx.needs_input_grad[1] else None
        return _multiply(sums, rows), by_rows, None


class _RowSums(Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, rows: Tensor, index: Tensor) -> Tensor:
        sums = sum_by_row(p, index, rows.shape[1])
        o = _multiply(sums, rows)
        ctx.save_for_backward(sums.to(o.dtype), rows, index)
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sums, rows, index = ctx.saved_tensors
        by_p = gather(_multiply(g, rows.mT), index)
        by_rows = _gradient_of_rows(sums, g, rows) if ctx.needs_input_grad[1] else None
        return by_p, by_rows, None


def gather(t: Tensor, index: Tensor) -> Tensor:
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

    Its order is fixed, and sums are in float32. The ones [query, key, row] need no more memory
    than p where there are no more rows than heads of all sentences.
    """
    ones = (index[:, :, None] == torch.arange(rows, device=p.device)).to(p.dtype)
    sums = torch.bmm(p.flatten(0, 1).transpose(0, 1), ones)  # [query, batch x heads, row]
    return sums.transpose(0, 1).unflatten(0, p.shape[:2])


def _multiply(x: Tensor, rows: Tensor) -> Tensor:
    """x [batch, heads, n, m] @ rows [heads | 1, m, l]."""
    rows = rows.to(x.dtype)
    return x @ rows if len(rows) > 1 else product(x, rows[0].mT)  # with all tokens at once


def _gradient_of_rows(sums: Tensor, x: Tensor, rows: Tensor) -> Tensor:
    """sums^T x over all tokens, and over the heads that share rows: as rows."""
    if len(rows) > 1:
        return (sums.mT @ x).sum(0).to(rows.dtype)
    return gradient(sums.flatten(0, 2), x.flatten(0, 2))[None].to(rows.dtype)
