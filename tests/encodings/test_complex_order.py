"""Complex order: everything again in complex128."""

from collections.abc import Callable
from itertools import product as pairs
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.checks import parity
from nmt.checks.example import build_perturbed
from nmt.config.settings import Settings
from nmt.encodings.context import Context, with_positions
from nmt.encodings.input.complex_order import ComplexOrder
from nmt.encodings.positions import Index
from nmt.encodings.registry import create
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from tests.encodings.attending import attend, dims, pass_over, qkv
from tests.outside.bilevel import Bilevel

Make = Callable[..., Transformer]


def joined(x: Tensor) -> Tensor:
    """Streams side by side -> complex rows."""
    return torch.complex(x[0::2], x[1::2])


def embedded(e: ComplexOrder, ids: Tensor, x: Tensor, start: int = 0) -> Tensor:
    """Complex embeddings [rows, n, dim]."""
    c = pass_over(ids.shape[1], rows=2 * len(ids))
    c.tokens = ids.repeat_interleave(2, 0)
    return joined(e.embed(x.repeat_interleave(2, 0), with_positions(c, Index(start))))


@pytest.mark.parametrize("frequency, phase", list(pairs(["word", "shared"], [True, False])))
def test_embeddings_equal_the_formula_in_loops(frequency: Any, phase: bool) -> None:
    torch.manual_seed(0)
    e = ComplexOrder(dims(), frequency, phase).double()
    ids = torch.randint(30, (2, 6))
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    got = embedded(e, ids, x, start=3)
    for b, t, d in pairs(range(2), range(6), range(8)):
        word = int(ids[b, t])
        w = e.frequency[word, d] if frequency == "word" else 10000 ** (-2 * (d // 2) / 8)
        theta = e.phase[word, d] if phase else 0
        wanted = x[b, t, d] * torch.exp(1j * torch.as_tensor(w * (t + 3) + theta).to(got.dtype))
        assert abs(got[b, t, d] - wanted) < 1e-6  # the shared frequencies are kept in float32


@pytest.mark.parametrize("product", ["bilinear", "hermitian"])
def test_what_another_entry_adds_is_added_before_or_after(product: Any) -> None:
    """The modulus is that of queries and keys alone, wherever the entry stands."""
    torch.manual_seed(0)
    entries = create({"complex_order": {"product": product}, "relative": {"tau": 2}}, dims())
    q, k, v = qkv(7, dims(), rows=4)
    one, other = (attend(e, q, k, v, pass_over(7, rows=4)) for e in (entries, entries[::-1]))
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("product", ["bilinear", "hermitian"])
@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_attention_equals_the_formula_in_complex_numbers(site: str, product: Any) -> None:
    e = ComplexOrder(dims(site), product=product).double()
    q, k, v = qkv(9, dims(), rows=4)
    got, p, o = attend(e, q, k, v, pass_over(9, site, rows=4))
    zq, zk, zv = joined(q), joined(k), joined(v)
    for b, h, i in pairs(range(2), range(2), range(9)):
        visible = i + 1 if site == "decoder" else 9
        logits = torch.zeros(visible, dtype=torch.float64)
        for j in range(visible):
            key = zk[b, h, j] if product == "bilinear" else zk[b, h, j].conj()
            logits[j] = (zq[b, h, i] * key).sum().abs() / 8**0.5
        assert torch.allclose(got[2 * b, h, i, :visible], logits, atol=1e-12)
        wanted = (logits.softmax(0)[:, None] * zv[b, h, :visible]).sum(0)
        assert torch.allclose(joined(o)[b, h, i], wanted, atol=1e-12)
    assert torch.equal(p[0::2], p[1::2])


def test_the_modulus_has_a_gradient_where_it_vanishes() -> None:
    e = ComplexOrder(dims())
    q = torch.zeros(2, 2, 3, 4, requires_grad=True)
    s = e.scores(q @ q.mT, q, q, 0, pass_over(3))
    assert s.eq(0).all()
    s.sum().backward()
    assert q.grad is not None and q.grad.isfinite().all()


def test_only_a_decoder_merges_its_streams() -> None:
    x = torch.randn(4, 3, 8)
    at = torch.arange(3)[None]
    made = ComplexOrder(dims("decoder")).readout(x, Context("decoder", at, at, at))
    assert torch.allclose(made, joined(x).abs().square(), atol=1e-5)
    same = ComplexOrder(dims("encoder")).readout(x, Context("encoder", at, at, at))
    assert torch.equal(same, x)


def test_all_three_sites_must_be_complex(tiny: Make) -> None:
    with pytest.raises(UserError, match="complex embeddings need where="):
        tiny("encoding=complex_order", "encoding.complex_order.where=[encoder,decoder]")


def test_positions_that_read_tokens_read_those_of_each_row(
    settings_of: Callable[..., Settings],
) -> None:
    """Found from tokens, remembered for hypotheses: both streams of a hypothesis have the same."""
    model = build_perturbed(settings_of("encoding=[complex_order,t5]")).double()
    for e in model.entries:
        if e.name == "t5":
            e.positions = Bilevel(end=7, level="outer")
    with torch.inference_mode():
        for steps, full in parity.compare("beams", model, 20):
            assert float((steps - full).abs().max()) < 1e-12
