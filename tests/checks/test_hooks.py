"""Hooks that return another shape than the documented one are named."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.checks.trial import checking_hooks
from nmt.encodings.base import Encoding, Projection
from nmt.encodings.context import Context
from nmt.encodings.site import Encodings
from tests.encodings.attending import dims, pass_over, qkv


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
    with checking_hooks(site):
        return getattr(site, hook)(*arguments[hook])


BROADCAST = r"\[batch \| 1, heads \| 1, query \| 1, "
WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("embed", lambda x: x[:, :3], r"`embed` returns \[2, 3, 8\] in the decoder; expected "
     r"\[batch, query, dim\] = \[2, 7, 8\]"),
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
