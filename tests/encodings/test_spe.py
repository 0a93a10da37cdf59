"""sineSPE and convSPE against their templates in loops, and their estimate."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.encodings.rotary.conv_spe import ConvSpe
from nmt.encodings.rotary.sine_spe import SineSpe
from tests.encodings.attending import dims, pass_over, qkv


def with_short_waves(e: SineSpe) -> SineSpe:
    """Make it float64, with frequencies that turn within a few tokens."""
    torch.nn.init.normal_(e.raw_frequencies)
    return e.double()


def products(e: Encoding, q: Tensor, k: Tensor, layer: int, c: Context) -> Tensor:
    """Raw scores [rows, heads, n, n]: what attention multiplies by 1 / sqrt(head_dim)."""
    q, k, _ = e.project(lambda *_: (q, k, k), q, k, k, layer, c)
    return e.scores(q @ k.mT, q, k, layer, c)


def loops(
    q: Tensor, k: Tensor, gate: Tensor | None, template: Callable[[int, int, int], Tensor]
) -> Tensor:
    """sum_d q_id k_jd [g_d + (1 - g_d) P_d(i - j)], one pair at a time."""
    rows, heads, n, width = q.shape
    out = q.new_zeros(rows, heads, n, n)
    for h, i, j, d in product(range(heads), range(n), range(n), range(width)):
        g = torch.sigmoid(gate[h, d]) if gate is not None else 0
        out[:, h, i, j] += q[:, h, i, d] * k[:, h, j, d] * (g + (1 - g) * template(h, d, i - j))
    return out


def wave(e: SineSpe, h: int, d: int, x: int) -> Tensor:
    """P_d(x), straight from the formula."""
    total = torch.zeros((), dtype=torch.float64)
    waves = e.phases.shape[-1]
    for m in range(waves):
        f = 0.5 / (1 + (-e.raw_frequencies[h, d, m]).exp())
        gain = (1 + e.raw_gains[h, d, m].exp()).log()
        total = total + gain**2 * (2 * math.pi * f * x + e.phases[h, d, m]).cos()
    return total / (2 * waves)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("gated", [True, False])
def test_sine_spe_in_loops(site: str, gated: bool) -> None:
    e = with_short_waves(SineSpe(dims(site), waves=3, gated=gated))
    assert e.relative
    q, k, _ = qkv(6, e.dims)
    for layer in range(2):
        got = products(e, q, k, layer, pass_over(6, site))
        gate = None if e.gate is None else e.gate[layer]
        wanted = loops(q, k, gate, lambda h, d, x: wave(e, h, d, x))
        assert torch.allclose(got, wanted, atol=1e-12)


def test_the_estimate_is_right_on_average() -> None:
    """Errors shrink as 1 / sqrt(R); 40,000 columns leave about half a percent of the norms."""
    torch.manual_seed(0)
    exact = with_short_waves(SineSpe(dims(), waves=3))
    q, k, _ = qkv(6, exact.dims)
    wanted = products(exact, q, k, 0, pass_over(6))
    errors = {}
    for columns in (400, 40_000):
        e = SineSpe(dims(), mode="stochastic", waves=3, realizations=columns).double()
        e.load_state_dict(exact.state_dict())
        assert not e.relative
        errors[columns] = (products(e, q, k, 0, pass_over(6)) - wanted).square().mean().sqrt()
    assert errors[40_000] < 0.03 * wanted.square().mean().sqrt() + 0.03
    assert 5 < errors[400] / errors[40_000] < 20  # sqrt(100) = 10


def test_noise_is_new_in_each_pass_of_training_and_fixed_otherwise() -> None:
    torch.manual_seed(0)
    made = [SineSpe(dims(), mode="stochastic", realizations=8) for _ in range(2)]
    assert made[0].noise is not None and made[1].noise is not None
    assert torch.equal(made[0].noise, made[1].noise) and "noise" not in made[0].state_dict()
    e, (q, k, _) = made[0].double(), qkv(6, dims())
    whole = products(e, q, k, 0, pass_over(6))
    assert torch.equal(whole, products(e, q, k, 0, pass_over(6)))
    assert torch.allclose(
        whole[:, :, :4, :4], products(e, q[:, :, :4], k[:, :, :4], 0, pass_over(4)), atol=1e-12
    )
    c = pass_over(6)
    c.training = True
    one = products(e, q, k, 0, c)
    assert e.gate is not None
    e.gate.data[1] = e.gate.data[0]
    assert torch.equal(one, products(e, q, k, 1, c))  # within a pass, all layers share the draw
    other = pass_over(6)
    other.training = True
    assert not torch.allclose(one, products(e, q, k, 0, other))


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("gated", [True, False])
def test_conv_spe_in_loops(site: str, gated: bool) -> None:
    e = ConvSpe(dims(site), kernel=3, gated=gated).double()
    q, k, _ = qkv(7, e.dims)

    def correlation(h: int, d: int, x: int) -> Tensor:
        a, b = e.query_filter[h, d], e.key_filter[h, d]
        pairs = [(m, m + x) for m in range(3) if 0 <= m + x < 3]
        return torch.stack([a[m] * b[n] for m, n in pairs] or [torch.zeros(())]).sum()

    for layer in range(2):
        got = products(e, q, k, layer, pass_over(7, site))
        gate = None if e.gate is None else e.gate[layer]
        assert torch.allclose(got, loops(q, k, gate, correlation), atol=1e-12)
