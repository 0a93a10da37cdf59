"""Entries of one site answer together, and none is passed over for the sake of speed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding, Projection
from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context
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


class Misshapen(Encoding):
    """Each hook returns what the test says, whose rows and heads are two each."""

    returns: Any = None

    def embed(self, x: Tensor, context: Context) -> Tensor:
        return self.returns(x)

    def layer(self, x: Tensor, layer: int, context: Context) -> Tensor:
        return self.returns(x)

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self.returns(*project(xq, xk, xv))

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        return self.returns(s)

    def bias(self, layer: int, context: Context) -> Tensor:
        return self.returns(context.delta.expand(2, 7, 7))

    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        return self.returns(e)

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        return self.returns(o)

    def readout(self, x: Tensor, context: Context) -> Tensor:
        return self.returns(x)


def ask(hook: str, returns: Callable[..., Any]) -> Any:
    """What the entries of a site answer, where one of them returns this."""
    e, context, (q, k, v) = Misshapen(dims("decoder")), pass_over(7, "decoder"), qkv(7, dims())
    e.returns = returns
    site, x, s = Encodings([e]), torch.zeros(2, 7, 8), torch.zeros(2, 2, 7, 7)
    arguments: dict[str, tuple[Any, ...]] = {
        "embed": (x, context),
        "layer": (x, 0, context),
        "project": (lambda *_: (q, k, v), x, x, x, 0, context),
        "scores": (q, k, 0, context),
        "bias": (0, context),
        "normalise": (s, 0, context),
        "outputs": (torch.zeros(2, 2, 7, 4), x, s, 0, context),
        "readout": (x, context),
    }
    return getattr(site, hook)(*arguments[hook])


BROADCAST = r"\[batch \| 1, heads \| 1, query \| 1, "
WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("embed", lambda x: x[:, :3], r"`embed` returns \[2, 3, 8\] in the decoder; expected "
     r"\[batch x streams, query, dim\] = \[2, 7, 8\]"),
    ("embed", lambda x: None, "`embed` returns None in the decoder"),
    ("layer", lambda x: x[:1], r"`layer` returns \[1, 7, 8\] .* = \[2, 7, 8\]"),
    ("readout", lambda x: x[..., :4], r"`readout` returns \[2, 7, 4\] .* = \[2, 7, 8\]"),
    ("scores", lambda s: s[0], r"`scores` returns \[2, 7, 7\] .*heads.* = \[2, 2, 7, 7\]"),
    ("normalise", lambda e: e[:, :1], r"`normalise` returns \[2, 1, 7, 7\] .* = \[2, 2, 7, 7\]"),
    ("bias", lambda d: d, rf"`bias` returns \[2, 7, 7\] in the decoder; expected {BROADCAST}"
     r"key \| 1\] = \[2, 2, 7, 7\]"),
    ("bias", lambda d: d[:, None, 0], r"`bias` returns \[2, 1, 7\]"),
    ("bias", lambda d: d[:, None, :, :3], r"`bias` returns \[2, 1, 7, 3\]"),
    ("outputs", lambda t: t[0], r"`outputs` returns \[2, 7, 4\] .* = \[2, 2, 7, 4\]"),
    ("project", lambda q, k, v: (q[:, :, :3], k, v), r"`project` returns \[2, 2, 3, 4\] .*query"),
    ("project", lambda q, k, v: (q, k[:, :1], v), r"`project` returns \[2, 1, 7, 4\] .*key, width"),
    ("project", lambda q, k, v: (q, k[..., :3], v), r"\[2, 2, 7, 3\] .* = \[2, 2, 7, 4\]"),
    ("project", lambda q, k, v: (q, k, v.transpose(1, 2)), r"\[2, 7, 2, 4\] .*key, head_dim"),
]  # fmt: skip


@pytest.mark.parametrize(("hook", "returns", "message"), WRONG)
def test_what_a_hook_returns_has_the_documented_shape(
    hook: str, returns: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ValueError, match=rf"^encoding\.Misshapen: its .*{message}"):
        ask(hook, returns)


@pytest.mark.parametrize(
    ("hook", "returns"),
    [
        ("bias", lambda d: d[:1, None]),
        ("bias", lambda d: d[:, None, :1]),
        ("project", lambda q, k, v: (torch.cat([q, q], -1), torch.cat([k, k], -1), v)),
    ],
)
def test_axes_may_be_broadcast_and_features_wider(hook: str, returns: Callable[..., Any]) -> None:
    ask(hook, returns)
