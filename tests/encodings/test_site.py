"""Entries of one site answer together, and none is passed over for the sake of speed."""

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.encodings.site import Encodings
from nmt.encodings.vectors.irpe import Irpe
from nmt.encodings.vectors.relative import Relative
from tests.encodings.attending import dims, pass_over, qkv


@pytest.mark.parametrize("order", [1, -1])
def test_two_with_scores_and_values_answer_both(order: int) -> None:
    torch.manual_seed(0)
    context, (q, k, v) = pass_over(7), qkv(7, dims())
    one = Relative(dims(), 2).double()
    other = Irpe(dims(), value="contextual").double()
    for table in other.parameters():
        torch.nn.init.normal_(table)
    both = Encodings([one, other][::order])
    plain = q @ k.mT
    terms = [e.scores(plain.clone(), q, k, 0, context) - plain for e in (one, other)]
    assert all(t.abs().max() > 0.1 for t in terms)
    torch.testing.assert_close(both.scores(q, k, 0, context), plain + sum(terms))
    p = torch.rand(2, 2, 7, 7, dtype=torch.float64)
    o, x = p @ v, q.transpose(1, 2).flatten(2)
    wanted = o + sum(e.outputs(torch.zeros_like(o), x, p, 0, context) for e in (one, other))
    torch.testing.assert_close(both.outputs(o, x, p, 0, context), wanted)


class OnOutputs(Encoding):
    """Adds to the output alone, which the fused kernel would not do."""

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        assert p is not None
        return o + p @ p.new_ones(p.shape[-1], self.dims.head_dim)


def test_who_changes_outputs_alone_keeps_the_kernel_away() -> None:
    assert not Encodings([OnOutputs(dims())]).fusible(0)
    assert Encodings([Encoding(dims())]).fusible(0)


def test_without_entries_attention_is_plain() -> None:
    context, (q, k, v) = pass_over(7), qkv(7, dims())
    torch.testing.assert_close(Encodings([]).scores(q, k, 0, context), q @ k.mT)
    p = torch.rand(2, 2, 7, 7, dtype=torch.float64)
    assert Encodings([]).outputs(v, v, p, 0, context) is v
