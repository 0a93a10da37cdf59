"""DeBERTa, Transformer-XL and TENER against loops and against no positions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.encodings.context import Context, Positions
from nmt.encodings.positions import Index
from nmt.encodings.sinusoids import frequencies
from nmt.encodings.vectors.deberta import Deberta
from nmt.encodings.vectors.tener import Tener
from nmt.encodings.vectors.transformer_xl import TransformerXl
from nmt.model.layers import Attention
from nmt.model.transformer import Transformer
from tests.encodings.attending import attend, dims, drawn, equals_loops, pass_over, qkv

sites = pytest.mark.parametrize("site", ["encoder", "decoder"])


def pe(x: float, width: int, denominator: Any = "paper") -> Tensor:
    """Sines, then cosines, of one distance in float64."""
    a = x * frequencies(width, denominator)
    return torch.cat([a.sin(), a.cos()])


@sites
@pytest.mark.parametrize("p2c", ["code", "paper"])
def test_deberta_equals_the_formula(site: str, p2c: Any) -> None:
    e = drawn(Deberta(dims(site), 2, p2c))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        there = max(0, min(3, i - j + 2))
        back = there if p2c == "code" else max(0, min(3, j - i + 2))
        rows = slice(4 * h, 4 * h + 4)
        of_key = e.w_kr[layer, 0, rows] @ e.p[there]
        of_query = e.w_qr[layer, 0, rows] @ e.p[back]
        return (q @ k + q @ of_key + k @ of_query) / 12**0.5

    equals_loops(e, logit)


@sites
@pytest.mark.parametrize("untie", [False, True])
def test_transformer_xl_equals_the_formula(site: str, untie: bool) -> None:
    e = drawn(TransformerXl(dims(site), untie))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        r = e.w_r[layer, 0, 4 * h : 4 * h + 4] @ pe(i - j, 8)
        u, v = (t[layer if untie else 0, h, 0] for t in (e.u, e.v))
        return (q @ k + q @ r + u @ k + v @ r) / 2

    equals_loops(e, logit)


@sites
@pytest.mark.parametrize(
    "options", [{}, {"scaled": True}, {"key_term": True, "denominator": "tensor2tensor"}]
)
def test_tener_equals_the_formula(site: str, options: dict[str, Any]) -> None:
    e = drawn(Tener(dims(site), **options))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        r, back = (pe(x, 4, options.get("denominator", "paper")) for x in (i - j, j - i))
        u, v = e.u[layer, h, 0], e.v[layer, h, 0]
        logit = q @ k + q @ r + u @ k + v @ r
        logit = logit + k @ back if options.get("key_term") else logit
        return logit / 2 if options.get("scaled") else logit

    equals_loops(e, logit)


def test_tener_takes_keys_from_the_input_itself(tiny: Callable[..., Transformer]) -> None:
    without = tiny("encoding=tener")
    layers = [*without.encoder.layers, *without.decoder.layers]
    assert all(isinstance(layer.get_submodule("attention.key"), nn.Identity) for layer in layers)
    assert all(
        isinstance(layer.get_submodule("cross.key"), nn.Linear) for layer in without.decoder.layers
    )
    assert not any(".attention.key" in name for name in without.state_dict())
    attention = layers[0].attention
    assert isinstance(attention, Attention)
    x = torch.randn(2, 5, 16)
    assert torch.equal(attention._split(x, x, x)[1].transpose(1, 2).flatten(2), x)
    projected = tiny("encoding=tener", "encoding.tener.key_projection=true")
    attention = projected.encoder.layers[0].attention
    assert isinstance(attention, Attention) and isinstance(attention.key, nn.Linear)


def test_leaving_keys_out_changes_nothing_else_of_the_start(
    settings_of: Callable[..., Any],
) -> None:
    """One seed gives all encodings the same rest of the model, so that they can be compared."""
    from nmt import build

    states = []
    for encoding in ("none", "tener"):
        torch.manual_seed(0)
        states.append(build.transformer(settings_of(f"encoding={encoding}"), 30, 30).state_dict())
    none, tener = states
    missing = set(none) - set(tener)
    assert missing and all(".attention.key." in name for name in missing)
    assert all(torch.equal(none[name], tener[name]) for name in set(none) & set(tener))


REAL = {
    "transformer_xl": lambda: drawn(TransformerXl(dims())),
    "tener": lambda: drawn(Tener(dims(), key_term=True)),
}


@pytest.mark.parametrize("name", REAL)
def test_positions_between_whole_numbers_fit_in(name: str) -> None:
    """The addition theorem and the table of distances are one function of the positions."""
    e = REAL[name]()
    q, k, v = qkv(9, e.dims)
    whole = attend(e, q, k, v, pass_over(9))[0]
    at = torch.arange(9, dtype=torch.float64)[None]
    assert torch.allclose(attend(e, q, k, v, Context("encoder", at, at, at))[0], whole, atol=1e-11)
    rows = (torch.arange(9) + torch.tensor([[0], [1000]])).long()  # each sentence has its own
    c = Context("encoder", rows, rows, rows, rows=2)
    assert torch.allclose(attend(e, q, k, v, c)[0], whole, atol=1e-9)
    for one in (at, at.long()):  # a step of decoding
        c = Context("decoder", one[:, -1:], one, one[:, -1:], rows=2)
        step = e.scores(q[:, :, -1:] @ k.mT, q[:, :, -1:], k, 0, c) * (e.scale or 0.5)
        assert torch.allclose(step, whole[:, :, -1:], atol=1e-11)
    half = attend(e, q, k, v, Context("encoder", at / 2, at / 2, at / 2))[0]
    assert (half - whole).abs().max() > 0.01
    assert torch.allclose(half[:, :, 0, 0], whole[:, :, 0, 0], atol=1e-11)


class Edges(Positions):
    """Distances without positions, as trees and graphs give them."""

    distances_only = True

    def distances(self, context: Context) -> Tensor:
        """Plain distances, for all that the positions say."""
        n = context.keys.shape[1]
        return torch.arange(n)[None, None, :] - torch.arange(n)[None, :, None]


@pytest.mark.parametrize("make", [lambda: Deberta(dims(), 2), *REAL.values()])
def test_distances_are_enough(make: Callable[[], Any]) -> None:
    e = drawn(make())
    assert e.distances_only
    q, k, v = qkv(9, e.dims)
    e.positions = Edges()
    at = torch.arange(9).flip(0)[None].expand(2, -1) * 7
    given = attend(e, q, k, v, Context("encoder", at, at, at, rows=2))[0]
    e.positions = Index()
    assert torch.allclose(given, attend(e, q, k, v, pass_over(9))[0], atol=1e-12)


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Tener(dims(head_dim=3)), "even width, not 3"),
        (lambda: TransformerXl(dims(heads=1, head_dim=3)), "even width, not 3"),
    ],
)
def test_refuses_what_means_nothing(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
