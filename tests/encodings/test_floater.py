"""FLOATER: Runge-Kutta in loops, and what is kept while decoding."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.encodings.attention.floater import Dynamics, Floater
from nmt.encodings.context import Context
from nmt.encodings.positions import Index
from nmt.encodings.site import Encodings
from nmt.model.transformer import Transformer
from tests.encodings.attending import dims, pass_over

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def vectors(e: Floater, layer: int, c: Context) -> tuple[Tensor, Tensor, Tensor]:
    """What is added to q, k and v [batch | 1, heads, n, head_dim]."""
    d = e.dims
    sizes = (c.queries.shape[1], c.new_keys.shape[1], c.new_keys.shape[1])
    dtype = e.start.dtype
    q, k, v = (torch.zeros(1, d.heads, n, d.head_dim, dtype=dtype) for n in sizes)
    x = torch.zeros(1, 1, d.dim)
    return e.project(lambda *_: (q, k, v), x, x, x, layer, c)


class Rotation(nn.Module):
    """Turns every pair (sin, cos) at its own speed."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = w
        self.calls = 0

    def forward(self, s: float, p: Tensor) -> Tensor:
        self.calls += 1
        sine, cosine = p[..., 0::2], p[..., 1::2]
        return torch.stack([self.w * cosine, -self.w * sine], -1).flatten(-2)


def rotating(dim: int = 64, substeps: int = 50) -> tuple[Floater, Rotation]:
    e = Floater(dims(heads=1, head_dim=dim, layers=1), step=1.0, substeps=substeps).double()
    w = 10000 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    rotation = Rotation(w)
    e.dynamics = rotation  # type: ignore[assignment]
    with torch.no_grad():
        e.start.copy_(torch.tensor([0.0, 1.0]).repeat(dim // 2).expand_as(e.start))
    return e, rotation


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
def test_equals_the_formula(site: str) -> None:
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


def test_decoding_draws_each_stretch_of_the_path_once() -> None:
    e, rotation = rotating(8, substeps=3)
    e.eval()
    whole = vectors(e, 0, pass_over(12, "decoder"))
    rotation.calls = 0
    with torch.no_grad():
        for t in range(12):
            at, keys = torch.tensor([[t]]), torch.arange(t + 1)[None]
            for part, full in zip(
                vectors(e, 0, Context("decoder", at, keys, at)), whole, strict=True
            ):
                assert torch.equal(part[:, :, 0], full[:, :, t])
    assert rotation.calls == 11 * 3 * 4
    with torch.no_grad():
        again = vectors(e, 0, pass_over(5, "decoder"))  # a shorter one needs nothing new
    assert rotation.calls == 11 * 3 * 4 and torch.equal(again[0], whole[0][:, :, :5])


def loaded(e: Floater) -> None:
    e.load_state_dict(Floater(dims()).state_dict())


def in_place(e: Floater) -> None:
    e.dynamics.inner.weight.mul_(5)


def unseen(e: Floater) -> None:
    e.start.data.add_(1)  # which no version counts


def stepped(e: Floater, **options: Any) -> None:
    for p in e.parameters():
        p.grad = torch.ones_like(p)
    torch.optim.AdamW(e.parameters(), lr=0.1, **options).step()


CHANGES: list[Callable[[Floater], Any]] = [
    loaded, in_place, unseen, stepped, partial(stepped, fused=True), Floater.double
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


def test_refuses_positions_before_the_path_begins() -> None:
    e = Floater(dims(positions=Index(start=-2)))
    with pytest.raises(ValueError, match="the first token may get position -2, below 0"):
        Encodings([e])
