"""CoPE against its formula in loops."""

from itertools import product

import pytest
import torch
from torch import Tensor

from nmt.encodings.context import Context, causal
from nmt.encodings.vectors.cope import Cope
from tests.encodings.attending import attend, dims, pass_over, qkv


def made(site: str = "decoder", counts: int = 4) -> Cope:
    """In float64, with vectors of its own."""
    torch.manual_seed(0)
    e = Cope(dims(site), counts=counts).double()
    torch.nn.init.normal_(e.weight)
    return e


def loops(e: Cope, q: Tensor, k: Tensor, layer: int, allowed: Tensor | None = None) -> Tensor:
    """Scaled logits, one pair at a time; gates of all tokens between the two, both included."""
    rows, heads, n, width = q.shape
    out = q.new_zeros(rows, heads, n, n)
    for b, h, i, j in product(range(rows), range(heads), range(n), range(n)):
        count = torch.zeros((), dtype=torch.float64)
        for m in range(min(i, j), max(i, j) + 1):
            if allowed is None or allowed[0, 0, i, m]:
                count += torch.sigmoid(q[b, h, i] @ k[b, h, m] / width**0.5)
        count = count.clamp(max=e.counts - 1)
        low = int(count)
        high = min(low + 1, e.counts - 1)
        z = e.weight[layer, 0] @ q[b, h, i]
        out[b, h, i, j] = q[b, h, i] @ k[b, h, j] / width**0.5
        out[b, h, i, j] += z[low] + (count - low) * (z[high] - z[low])
    return out


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("counts", [3, 64])
def test_cope_in_loops(site: str, counts: int) -> None:
    e = made(site, counts)
    q, k, v = qkv(9, e.dims)
    for layer in range(2):
        c = pass_over(9, site)
        got = attend(e, q, k, v, c, layer)[0]
        wanted = loops(e, q, k, layer, c.allowed)
        seen = causal(9, 9, q.device) if site == "decoder" else torch.tensor(True)
        assert torch.allclose(got * seen, wanted * seen, atol=1e-9)


def test_padding_has_no_gate() -> None:
    e = made("encoder", 64)
    q, k, v = qkv(7, e.dims)
    at = torch.arange(7)[None]
    allowed = (torch.arange(7) != 3)[None, None, None]  # a hole in the middle
    got = attend(e, q, k, v, Context("encoder", at, at, at, rows=2, allowed=allowed))[0]
    real = [0, 1, 2, 4, 5, 6]
    alone = attend(e, q[:, :, real], k[:, :, real], v[:, :, real], pass_over(6))[0]
    assert torch.allclose(got[:, :, real][..., real], alone, atol=1e-12)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_cope_starts_as_attention_without_positions(site: str) -> None:
    e = Cope(dims(site)).double()
    q, k, v = qkv(9, e.dims)
    assert torch.equal(attend(e, q, k, v, pass_over(9, site))[0], q @ k.mT * 0.5)


def test_counts_stay_apart_in_bfloat16() -> None:
    """256 + 1 is 256 in bfloat16; here every gate is 1, and z[p] = p mod 2."""
    e = Cope(dims("decoder"), counts=400)
    with torch.no_grad():
        e.weight.copy_((torch.arange(400.0) % 2)[:, None] / 4)
    q = torch.ones(1, 2, 1, 4, dtype=torch.bfloat16)
    k = torch.full((1, 2, 350, 4), 100.0, dtype=torch.bfloat16)
    at = torch.arange(350)[None]
    s = e.scores(q @ k.mT, q, k, 0, Context("decoder", at[:, -1:], at, at[:, -1:]))
    assert torch.equal(s[0, 0, 0] - 400, 2 * (torch.arange(350, 0, -1) % 2).float())
