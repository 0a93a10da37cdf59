"""Attention beside torch's own: what it computes, and the gradients of it."""

import pytest
import torch
from torch import Tensor, nn

from nmt.encodings.base import Encoding
from nmt.encodings.site import Encodings
from nmt.encodings.vectors.relative import Relative
from nmt.model.layers import Attention
from tests.encodings.attending import dims, pass_over


def no_rows() -> Relative:
    """Relative rows that are zero: the plain result, by the functions of relative attention."""
    encoding = Relative(dims(), 2)
    for table in encoding.parameters():
        nn.init.zeros_(table)
    return encoding


@pytest.mark.parametrize("entries", [[], [no_rows()]], ids=["plain", "relative"])
def test_outputs_and_gradients_are_those_of_torch(entries: list[Encoding]) -> None:
    torch.manual_seed(0)
    mine, theirs = Attention(8, 2, 0.0), nn.MultiheadAttention(8, 2, batch_first=True)
    linears = [w for w in (mine.query, mine.key, mine.value) if isinstance(w, nn.Linear)]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in linears]))
        theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in linears]))
        theirs.out_proj.load_state_dict(mine.out.state_dict())
    x, g = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 5, 8)

    o = mine(x, x, 0, Encodings(entries), pass_over(5))
    wanted, _ = theirs(x, x, x, need_weights=False)
    same(o, wanted)

    q, k, v, *ours = torch.autograd.grad(o, [*(w.weight for w in linears), mine.out.weight, x], g)
    packed, *others = torch.autograd.grad(
        wanted, [theirs.in_proj_weight, theirs.out_proj.weight, x], g
    )
    for a, b in zip([torch.cat([q, k, v]), *ours], [packed, *others], strict=True):
        same(a, b)


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
