"""Entries of one site answer together, and none is passed over for the sake of speed."""

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context
from nmt.encodings.irpe import Irpe
from nmt.encodings.relative import Relative
from tests.encodings.attending import attend, dims, pass_over, qkv


class Doubled(Relative):
    """Changes the parts of an encoding that has joint forms."""

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        return 2 * super().scores(s, q, k, layer, context)

    def values(self, p: Tensor, layer: int, context: Context) -> Tensor | None:
        own = super().values(p, layer, context)
        return None if own is None else 3 * own


def test_who_changes_a_part_does_not_inherit_the_whole() -> None:
    q, k, v = qkv(7, dims())
    entry = Doubled(dims(), None, 2).double()
    logits, p, o = attend(entry, q, k, v, pass_over(7))
    context = pass_over(7)
    parts = entry.scores(q @ k.mT, q, k, 0, context) * v.shape[-1] ** -0.5
    torch.testing.assert_close(logits, parts)
    own = entry.values(p, 0, context)
    assert own is not None
    torch.testing.assert_close(o, p @ v + own)


def test_a_whole_needs_its_part() -> None:
    with pytest.raises(TypeError, match="Half: overrides products, but not scores"):

        class Half(Encoding):
            def products(self, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
                return q @ k.mT


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
    terms = [e.scores(plain, q, k, 0, context) - plain for e in (one, other)]
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
