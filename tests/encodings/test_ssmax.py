"""Softmax that sharpens with the number of keys, and who takes the place of softmax."""

import pytest
import torch

from nmt.encodings.base import Encoding
from nmt.encodings.composition import Encodings
from nmt.encodings.relative import Relative
from nmt.encodings.ssmax import Ssmax
from tests.encodings.attending import attend, dims, pass_over, qkv


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_equals_the_formula_in_loops(site: str) -> None:
    torch.manual_seed(1)
    e, (q, k, v) = Ssmax(dims(site)).double(), qkv(7, dims())
    torch.nn.init.normal_(e.factor)
    scores, p, _ = attend(e, q, k, v, pass_over(7, site), layer=1)
    for h in range(2):
        for i in range(7):
            n = i + 1 if site == "decoder" else 7
            powers = n ** (e.factor[1, h] * scores[0, h, i, :n])
            torch.testing.assert_close(p[0, h, i, :n], powers / powers.sum())
            assert not p[0, h, i, n:].any()


def test_padding_does_not_count() -> None:
    e, (q, k, v) = Ssmax(dims()).double(), qkv(7, dims())
    padded = pass_over(7)
    padded.allowed = (torch.arange(7) < torch.tensor([7, 4])[:, None])[:, None, None]
    _, p, _ = attend(e, q, k, v, padded)
    _, alone, _ = attend(e, q[1:, :, :, :], k[1:, :, :4], v[1:, :, :4], pass_over(4, rows=1))
    torch.testing.assert_close(p[1:, :, :, :4], alone)


def test_one_entry_takes_the_place_of_softmax_and_keeps_the_kernel_away() -> None:
    one = Ssmax(dims())
    assert not Encodings([one]).fusible
    assert Encodings([Relative(dims()), one]).distance_vectors(0, pass_over(7)) is None
    one.name, other = "ssmax", Ssmax(dims())
    other.name = "sharper"
    with pytest.raises(ValueError, match="only one entry can take the place of softmax, not ssmax"):
        Encodings([one, other])


def test_biases_and_vectors_are_scaled_too() -> None:
    class Biased(Encoding):
        def bias(self, layer, context):  # type: ignore[no-untyped-def]
            return torch.ones(1, 1, 7, 7, dtype=torch.float64).tril()

    e, (q, k, v) = Ssmax(dims(), start=0.5).double(), qkv(7, dims())
    plain = q @ k.mT / 2 + torch.ones(7, 7, dtype=torch.float64).tril()
    _, p, _ = attend([e, Biased(dims())], q, k, v, pass_over(7))
    torch.testing.assert_close(p, (plain * 0.5 * torch.tensor(7.0).double().log()).softmax(-1))


def test_a_row_that_may_see_nothing_spoils_no_gradient() -> None:
    e, (q, k, v) = Ssmax(dims()).double(), qkv(7, dims())
    padded = pass_over(7)
    padded.allowed = (torch.arange(7) < torch.tensor([7, 0])[:, None])[:, None, None]
    attend(e, q, k, v, padded)[2].sum().backward()
    assert e.factor.grad is not None and e.factor.grad.isfinite().all()
