"""The three forms of Synthesizer in plain loops."""

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.attention.synthesizer import Synthesizer
from nmt.encodings.context import Context
from nmt.encodings.vectors.relative import Relative
from tests.encodings.attending import attend, dims, drawn, pass_over, qkv

N = 6
FORMS = ("dense", "random", "factorised")


def made(form: Any, site: str = "encoder") -> Synthesizer:
    e: Synthesizer = drawn(Synthesizer(dims(site), form, longest=8, rank=3))
    return e


def score(e: Synthesizer, q: Tensor, head: int, i: int, j: int) -> Tensor:
    """e_ij of layer 1, for all rows."""
    weight, rows = e.weight[1, head], len(q)
    if e.form == "dense":
        total = e.bias_of_key[1, head, 0, j].expand(rows)
        for c in range(q.shape[-1]):
            total = total + torch.where(q[:, head, i, c] > 0, q[:, head, i, c], 0.0) * weight[j, c]
        return total
    if e.form == "random":
        return weight[i, j].expand(rows)
    return sum((weight[i, r] * e.key_table[1, head, j, r] for r in range(3)),
               torch.zeros(rows, dtype=q.dtype))  # fmt: skip


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("form", FORMS)
def test_scores_outputs_and_gradients_are_those_of_loops(form: str, site: str) -> None:
    e, (q, k, v) = made(form, site), qkv(N, dims())
    inputs = [t.requires_grad_() for t in (q, v)] if form == "dense" else [v.requires_grad_()]
    found, _, o = attend(e, q, k, v, pass_over(N, site), layer=1)
    rows = [[[score(e, q, head, i, j) for j in range(N)] for i in range(N)] for head in range(2)]
    wanted = torch.stack(
        [torch.stack([torch.stack(row, -1) for row in head], 1) for head in rows], 1
    )
    torch.testing.assert_close(found, wanted)
    seen = wanted
    if site == "decoder":
        seen = wanted.masked_fill(torch.ones(N, N).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(o, seen.softmax(-1) @ v)
    learned = [*inputs, *e.parameters()]
    both = [torch.autograd.grad(t.square().sum(), learned) for t in (o, seen.softmax(-1) @ v)]
    torch.testing.assert_close(*both)
    assert all(g.any() for g in both[0])


@pytest.mark.parametrize("form", FORMS)
def test_one_query_at_a_time_at_any_position(form: str) -> None:
    e, (q, k, v) = made(form, "decoder"), qkv(N, dims())
    at = torch.stack([torch.arange(N), torch.tensor([0, 2, 3, 4, 6, 7])])  # positions of each row
    whole = Context("decoder", at, at, at, rows=2)
    every, _, _ = attend(e, q, k, v, whole)
    for i in range(N):
        step = Context("decoder", at[:, i : i + 1], at[:, : i + 1], at[:, i : i + 1], rows=2)
        found, _, _ = attend(e, q[:, :, i : i + 1], k[:, :, : i + 1], v[:, :, : i + 1], step)
        torch.testing.assert_close(found, every[:, :, i : i + 1, : i + 1])
    alone, _, _ = attend(e, q[:1], k[:1], v[:1], pass_over(N, rows=1))
    torch.testing.assert_close(alone, every[:1])


@pytest.mark.parametrize("form", FORMS)
def test_later_entries_may_write_into_the_scores(form: Any) -> None:
    """Of forms that are the same for all sentences, rows must not share memory."""
    e, later = made(form), drawn(Relative(dims(), 2))
    q, k, v = qkv(N, dims())
    one, other = (attend(entry, q, k, v, pass_over(N))[0] for entry in (e, later))
    both, _, _ = attend([e, later], q, k, v, pass_over(N))
    torch.testing.assert_close(both, one + other - q @ k.mT / 2)
