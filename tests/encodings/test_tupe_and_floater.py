"""Positions inside attention against their formulas in loops: FLOATER, Synthesizer, TUPE, DIET."""

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.encodings.attention.floater import Dynamics, Floater
from nmt.encodings.attention.synthesizer import Synthesizer
from nmt.encodings.attention.tupe import Tupe
from nmt.encodings.biases.diet import Diet
from nmt.encodings.biases.t5 import bucket
from nmt.encodings.context import Context, Positions
from nmt.encodings.positions import Index, Sample, Shift
from nmt.encodings.site import SiteEncodings
from tests.encodings.attending import attend, dims, pass_over, qkv, randomise


def vectors(e: Floater, layer: int, c: Context) -> tuple[Tensor, Tensor, Tensor]:
    """What is added to q, k and v [batch | 1, heads, n, head_dim]."""
    d = e.dims
    sizes = (c.query_positions.shape[1], c.new_key_positions.shape[1], c.new_key_positions.shape[1])
    dtype = e.start.dtype
    q, k, v = (torch.zeros(1, d.heads, n, d.head_dim, dtype=dtype) for n in sizes)
    x = torch.zeros(1, 1, d.dim)
    return e.project(lambda *_: (q, k, v), x, x, x, layer, c)


def runge_kutta(f: Dynamics, p: Tensor, step: float, substeps: int, n: int) -> list[Tensor]:
    """The classical method in its textbook form, for one vector [dim]."""
    w1, b1, w2, b2 = (t.detach() for t in f.parameters())

    def slope(s: float, p: Tensor) -> Tensor:
        time = torch.tensor([s], dtype=p.dtype)
        return w2 @ torch.cat([(w1 @ torch.cat([p, time]) + b1).clamp(min=0), time]) + b2

    points, h = [p], step / substeps
    for t in range(1, n):
        for part in range(substeps):
            s = (t - 1) * step + part * h
            a = h * slope(s, p)
            b = h * slope(s + h / 2, p + a / 2)
            c = h * slope(s + h / 2, p + b / 2)
            d = h * slope(s + h, p + c)
            p = p + (a + 2 * b + 2 * c + d) / 6
        points.append(p)
    return points


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_floater_equals_the_formula(site: str) -> None:
    """Queries, keys and values of two layers from one f, each with a start of its own."""
    torch.manual_seed(0)
    e = Floater(dims(site), step=0.3, substeps=2).double()
    for p in e.dynamics.parameters():
        nn.init.normal_(p, std=0.5)
    at, there = torch.arange(5)[None], torch.arange(9 if site == "cross" else 5)[None]
    for layer in range(2):
        got = vectors(e, layer, Context(site, at, there, there))
        for role, x in enumerate(got):
            n = x.shape[2]
            wanted = runge_kutta(e.dynamics, e.start[layer, 0, role].detach(), 0.3, 2, n)
            flat = x[0].transpose(0, 1).flatten(1)
            assert torch.allclose(flat, torch.stack(wanted), atol=1e-12)
            assert n == (9 if site == "cross" and role else 5)


def loaded(e: Floater) -> None:
    e.load_state_dict(Floater(dims()).state_dict())


def in_place(e: Floater) -> None:
    e.dynamics.inner.weight.mul_(5)


def stepped(e: Floater, **options: Any) -> None:
    for p in e.parameters():
        p.grad = torch.ones_like(p)
    torch.optim.AdamW(e.parameters(), lr=0.1, **options).step()


CHANGES: list[Callable[[Floater], Any]] = [
    loaded, in_place, stepped, Floater.double
]  # fmt: skip


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("change", CHANGES)
def test_a_kept_path_is_forgotten_when_parameters_change(
    change: Callable[[Floater], Any], mode: type[torch.no_grad]
) -> None:
    torch.manual_seed(0)
    e = Floater(dims()).eval()
    with mode():
        e = copy.deepcopy(e)  # of inference tensors, no version is counted
        before = vectors(e, 0, pass_over(6))[0]
        change(e)
        after = vectors(e, 0, pass_over(6))[0]
        fresh = vectors(copied(e), 0, pass_over(6))[0]
    assert torch.equal(after, fresh) and after.dtype == fresh.dtype
    assert before.dtype != after.dtype or not torch.equal(before, after)


def copied(e: Floater) -> Floater:
    """An encoding with the same parameters that has drawn nothing yet."""
    new = Floater(dims()).to(e.start.dtype).eval()
    new.load_state_dict(e.state_dict())
    return new


def test_paths_are_drawn_in_the_parameters_precision_under_autocast() -> None:
    e = Floater(dims(head_dim=32)).eval()
    exact = vectors(e, 0, pass_over(302))[0]
    with torch.autocast("cpu"):
        assert torch.equal(vectors(e, 0, pass_over(302))[0], exact)


N = 6
FORMS = ("dense", "random", "factorised")


def synthesizer(form: Any, site: str = "encoder") -> Synthesizer:
    e: Synthesizer = randomise(Synthesizer(dims(site), form, longest=8, rank=3))
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
    e, (q, k, v) = synthesizer(form, site), qkv(N, dims())
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


SITES = pytest.mark.parametrize("site", ["encoder", "decoder"])


@SITES
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("reset, start", [(False, 0), (True, 3)])
def test_tupe_in_loops(site: str, relative: bool, reset: bool, start: int) -> None:
    buckets, far = (8, 6) if relative else (None, None)
    e = randomise(Tupe(dims(site, positions=Index(start)), 9 + start, buckets, far, reset))
    q, k, v = qkv(9, e.dims)

    def normed(x: Tensor) -> Tensor:
        x = (x - x.mean()) / (x.var(correction=0) + e.norm.eps).sqrt()
        return x * e.norm.weight + e.norm.bias

    p = [normed(x) for x in e.vectors]
    for layer in range(2):
        got = attend(e, q, k, v, pass_over(9, site), layer)[0]
        for h, i, j in product(range(2), range(9), range(9)):
            part = slice(4 * h, 4 * h + 4)  # the head's part of U
            a = e.to_query.weight[part] @ p[start + i] + e.to_query.bias[part]
            b = e.to_key.weight[part] @ p[start + j] + e.to_key.bias[part]
            term = a @ b / 8**0.5
            if e.distances is not None:
                x = int(bucket(torch.tensor(j - i), 8, 6, site == "encoder"))
                term = term + e.distances[h, x]
            if e.first is not None and i == 0:
                term = e.first[0, h]
            elif e.first is not None and j == 0:
                term = e.first[1, h]
            wanted = q[:, h, i] @ k[:, h, j].T / 8**0.5
            assert torch.allclose(got[:, h, i, j], wanted.diagonal() + term, atol=1e-9)


@SITES
@pytest.mark.parametrize("at", [Index(start=2), Shift(k=5), Sample(30, test_length=20)])
def test_tupe_unties_the_first_token_wherever_it_stands(site: str, at: Positions) -> None:
    e = randomise(Tupe(dims(site, positions=at), 30, reset=True))
    c = pass_over(9, site)
    c.training = True
    bias = SiteEncodings([e]).bias(0, c)
    assert bias is not None
    row, column = e.first[:, :, None].expand(2, 2, 9)
    assert torch.equal(bias[:, :, 0], row.expand_as(bias[:, :, 0]))
    assert torch.equal(bias[:, :, 1:, 0], column[:, 1:].expand_as(bias[:, :, 1:, 0]))
    assert not (bias[:, :, 1:, 1:] == column[:, None, 1:]).any()


def test_diet_in_loops() -> None:
    for per_layer in (False, True):
        absolute = randomise(Diet(dims(), longest=9, rank=3, per_layer=per_layer))
        relative = randomise(Diet(dims(), reference="relative", longest=3, per_layer=per_layer))
        assert absolute.to_key is not None and relative.to_key is None
        for layer in range(2):
            own = layer * per_layer
            a, r = absolute.bias(layer, pass_over(9)), relative.bias(layer, pass_over(9))
            assert a is not None and r is not None and a.shape == r.shape == (1, 2, 9, 9)
            for h, i, j in product(range(2), range(9), range(9)):
                wanted = absolute.to_query[own, h, i] @ absolute.to_key[own, h, j]
                assert torch.allclose(a[0, h, i, j], wanted, atol=1e-12)
                assert r[0, h, i, j] == relative.to_query[own, h, max(-2, min(2, j - i)) + 2, 0]
