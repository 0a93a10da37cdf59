"""Products with rows and sums of rows: values and gradients as autograd has them."""

import pytest
import torch
from torch import Tensor

from nmt.encodings.vectors import by_row
from nmt.encodings.vectors.by_row import query_products, row_sums

SIZES = {"batch": 3, "heads": 2, "query": 4, "key": 5, "row": 6, "dim": 7}


def plain_products(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    return torch.einsum("bhqd,bhqkd->bhqk", q, each(rows, index))


def plain_sums(p: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    return torch.einsum("bhqk,bhqkd->bhqd", p, each(rows, index))


def each(rows: Tensor, index: Tensor) -> Tensor:
    """A vector for each pair of tokens: [batch, heads, query, key, dim]."""
    return rows.expand(SIZES["heads"], -1, -1)[:, index].transpose(0, 1)


@pytest.mark.parametrize("mine", [query_products, row_sums])
@pytest.mark.parametrize("heads", [1, SIZES["heads"]])
@pytest.mark.parametrize("batch", [1, SIZES["batch"]])
@pytest.mark.parametrize("transposed", [False, True])
def test_values_and_gradients(mine: object, heads: int, batch: int, transposed: bool) -> None:
    torch.manual_seed(2)
    width = SIZES["dim"] if mine is query_products else SIZES["key"]
    x = normal(4, width, transposed)
    rows = torch.randn(heads, SIZES["row"], SIZES["dim"], dtype=torch.float64)
    index = torch.randint(SIZES["row"], (batch, 4, 5))
    plain = plain_products if mine is query_products else plain_sums
    found = []
    for function in (mine, plain):
        x, rows = (each.detach().clone().requires_grad_() for each in (x, rows))
        result = function(x, rows, index)  # type: ignore[operator]
        torch.manual_seed(3)
        result.backward(torch.randn(result.shape, dtype=result.dtype))
        found.append([result.detach(), x.grad, rows.grad])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def normal(n: int, width: int, transposed: bool) -> Tensor:
    """[batch, heads, n, width]: in memory so, or [batch, n, heads, width] as projections are."""
    if transposed:
        return torch.randn(3, n, 2, width, dtype=torch.float64).transpose(1, 2)
    return torch.randn(3, 2, n, width, dtype=torch.float64)


def test_fixed_rows_get_no_gradient_and_autocast_keeps_number_formats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(by_row, "_outer")  # which would compute it
    q = torch.randn(1, 2, 4, 8, requires_grad=True)
    rows, index = torch.randn(1, 6, 8), torch.randint(6, (1, 4, 5))
    with torch.autocast("cpu", torch.bfloat16):
        s = query_products(q, rows, index)
        o = row_sums(s.float().softmax(-1), rows, index)
    assert s.dtype == o.dtype == torch.bfloat16
    (s.float().sum() + o.float().sum()).backward()
    assert q.grad is not None and q.grad.dtype == torch.float32
    near = plain_products(q, rows, index)
    torch.testing.assert_close(s.float(), near, rtol=0.05, atol=0.05)
