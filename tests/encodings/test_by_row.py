"""Products with rows and sums of rows: values and gradients as autograd has them."""

import pytest
import torch
from torch import Tensor

from nmt.encodings.by_row import query_products, row_sums

SIZES = {"batch": 3, "heads": 2, "query": 4, "key": 5, "row": 6, "dim": 7}


def plain_products(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    return torch.einsum("bhqd,bhqkd->bhqk", q, each(rows, index))


def plain_sums(p: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    return torch.einsum("bhqk,bhqkd->bhqd", p, each(rows, index))


def each(rows: Tensor, index: Tensor) -> Tensor:
    """A vector for each pair of tokens: [batch, heads, query, key, dim]."""
    wide = rows.expand(SIZES["heads"], -1, -1)[:, index].transpose(0, 1)
    return wide.expand(SIZES["batch"], -1, -1, -1, -1)


@pytest.mark.parametrize("mine", [query_products, row_sums])
@pytest.mark.parametrize("heads", [1, SIZES["heads"]])
@pytest.mark.parametrize("batch", [1, SIZES["batch"]])
@pytest.mark.parametrize("transposed", [False, True])
def test_values_and_gradients(mine: object, heads: int, batch: int, transposed: bool) -> None:
    torch.manual_seed(2)
    width = SIZES["dim"] if mine is query_products else SIZES["key"]
    if transposed:  # as projections are, and as they are not
        x = torch.randn(3, 4, 2, width, dtype=torch.float64).transpose(1, 2)
    else:
        x = torch.randn(3, 2, 4, width, dtype=torch.float64)
    rows = torch.randn(heads, SIZES["row"], SIZES["dim"], dtype=torch.float64)
    index = torch.randint(SIZES["row"], (batch, 4, 5))
    plain = plain_products if mine is query_products else plain_sums
    found = []
    for function in (mine, plain):
        inputs = [x.clone().requires_grad_(), rows.clone().requires_grad_()]
        result = function(*inputs, index)  # type: ignore[operator]
        torch.manual_seed(3)
        result.backward(torch.randn(result.shape, dtype=result.dtype))
        found.append([result.detach(), *(each.grad for each in inputs)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_fixed_rows_get_no_gradient_and_autocast_keeps_number_formats() -> None:
    q = torch.randn(1, 2, 4, 8, requires_grad=True)
    rows, index = torch.randn(1, 6, 8), torch.randint(6, (1, 4, 5))
    with torch.autocast("cpu", torch.bfloat16):
        s = query_products(q, rows, index)
        o = row_sums(s.softmax(-1), rows, index)
    (s.float().sum() + o.float().sum()).backward()
    assert q.grad is not None and q.grad.dtype == torch.float32
    near = torch.einsum("bhqd,bhqkd->bhqk", q, rows[:, index].transpose(0, 1))
    torch.testing.assert_close(s.float(), near, rtol=0.05, atol=0.05)
