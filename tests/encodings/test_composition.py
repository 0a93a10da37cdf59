"""Entries of one site answer together, and none is passed over for the sake of speed."""

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context
from nmt.encodings.irpe import Irpe
from nmt.encodings.relative import Relative
from tests.encodings.attending import dims, pass_over, qkv


@pytest.mark.parametrize("order", [1, -1])
def test_two_with_scores_and_values_answer_both(order: int) -> None:
    torch.manual_seed(0)
    context, (q, k, v) = pass_over(7), qkv(7, dims())
    one = Relative(dims(), None, 2).double()
    other = Irpe(dims(), value="contextual").double()
    for table in other.parameters():
        torch.nn.init.normal_(table)
    both = Encodings([one, other][::order])
    plain = q @ k.mT
    terms = [e.scores(plain.clone(), q, k, 0, context) - plain for e in (one, other)]
    assert all(t.abs().max() > 0.1 for t in terms)
    torch.testing.assert_close(both.scores(q, k, 0, context), plain + sum(terms))
    p = torch.rand(2, 2, 7, 7, dtype=torch.float64)
    extra = [e.values(p, 0, context) for e in (one, other)]
    wanted = p @ v + sum(t for t in extra if t is not None)
    torch.testing.assert_close(both.outputs(p, v, 0, context), wanted)


class OnValues(Encoding):
    """Adds to the output alone, which the fused kernel would not do."""

    def values(self, p: Tensor, layer: int, context: Context) -> Tensor | None:
        return p @ p.new_ones(p.shape[-1], self.dims.head_dim)


def test_who_adds_to_values_alone_keeps_the_kernel_away() -> None:
    assert not Encodings([OnValues(dims())]).fusible
    assert Encodings([Encoding(dims())]).fusible


def test_without_entries_attention_is_plain() -> None:
    context, (q, k, v) = pass_over(7), qkv(7, dims())
    torch.testing.assert_close(Encodings([]).scores(q, k, 0, context), q @ k.mT)
    p = torch.rand(2, 2, 7, 7, dtype=torch.float64)
    torch.testing.assert_close(Encodings([]).outputs(p, v, 0, context), p @ v)
