"""Coverage of the source as a term of the scores, and gates on what attention gives."""

import math
import re
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.checks.example import small_settings
from nmt.encodings import base
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.biases.fox import Fox
from nmt.encodings.context import Context, Extent
from nmt.encodings.registry import create
from nmt.encodings.site import Encodings
from nmt.encodings.softmax.coverage import Coverage
from nmt.encodings.softmax.gated_attention import GatedAttention
from nmt.encodings.vectors.relative import Relative
from nmt.testing import check_encoding
from tests.encodings.attending import attend, dims, drawn, pass_over, qkv
from tests.pages import text_of

N = 6


def covered(e: Coverage, q: Tensor, k: Tensor, layer: int) -> Tensor:
    """The scores with the term, in loops over target words and source words."""
    s = torch.zeros(*q.shape[:3], k.shape[2], dtype=q.dtype)
    for b in range(len(q)):
        for h in range(q.shape[1]):
            total = [0.0] * k.shape[2]
            for i in range(q.shape[2]):
                plain = [float(q[b, h, i] @ k[b, h, j]) / 2 for j in range(k.shape[2])]
                for j, score in enumerate(plain):
                    phi = 1.0
                    if e.fertility is not None:
                        u = e.fertility[layer, h, :, 0]
                        phi = 2 / (1 + math.exp(-float((u @ k[b, h, j]).detach())))
                    s[b, h, i, j] = score + float(e.weight[layer, h].detach()) * total[j] / phi
                parts = [math.exp(score) for score in plain]
                total = [t + part / sum(parts) for t, part in zip(total, parts, strict=True)]
    return s


@pytest.mark.parametrize("fertility", [True, False])
def test_scores_equal_loops(fertility: bool) -> None:
    e = drawn(Coverage(dims("cross"), fertility))
    q, k, v = qkv(N, dims())
    scores, _, _ = attend(e, q, k, v, pass_over(N, "cross"), layer=1)
    torch.testing.assert_close(scores, covered(e, q, k, 1))


def test_weights_of_half_precision() -> None:
    e = drawn(Coverage(dims("cross"))).bfloat16()
    q, k, _ = (t.bfloat16() for t in qkv(N, dims()))
    scores = Encodings([e]).scores(q, k, 1, pass_over(N, "cross")) / 2
    expected = covered(e.double(), q.double(), k.double(), 1)
    torch.testing.assert_close(scores.double(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("reader", ["coverage", "cope", "synthesizer"])
def test_what_relies_on_the_scale_meets_no_other(reader: str) -> None:
    sizes = dims("cross" if reader == "coverage" else "decoder")
    entries: dict[str, dict[str, Any]] = {
        reader: {"where": sizes.site},
        "t5": {"where": sizes.site, "scaled": True},
    }
    assert Encodings(create(entries, sizes)).scale(0) == 0.5
    entries["t5"]["scaled"] = False
    with pytest.raises(ValueError, match=f"sets the scale of the scores, {reader} and t5; leave"):
        Encodings(create(entries, sizes))


def test_each_hypothesis_has_its_own_memory_which_a_search_reorders() -> None:
    """Two sources of two hypotheses; after two words of each, hypotheses change places."""
    e, (q, k, v) = drawn(Coverage(dims("cross"))), qkv(N, dims(), rows=4)
    k, v = k[::2], v[::2]  # of the two sources
    state: dict[str, Tensor] = {}
    site = Encodings([e])

    def step(q: Tensor) -> Tensor:
        """Scores for q [hypothesis, heads, new, head_dim], hypotheses of a source adjacent."""
        beams = q.unflatten(0, (2, 2)).transpose(1, 2).flatten(2, 3)
        at, source = torch.arange(beams.shape[2])[None], torch.arange(N)[None]
        context = Context(
            "cross", at, source, source, rows=2, state=state, extent=Extent(9, N, beams=2)
        )
        s = site.scores(beams, k, 0, context)
        return s.unflatten(2, (2, -1)).transpose(1, 2).flatten(0, 1)

    step(q[:, :, :2])
    order = torch.tensor([1, 0, 3, 3])
    state = {name: value[order] for name, value in state.items()}
    got = step(q[order][:, :, 2:4])[:, :, 1] / 2  # the second of two words at once
    expected = covered(e, q, k.repeat_interleave(2, 0), 0)[order][:, :, 3]
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("per", ["component", "head"])
@pytest.mark.parametrize("norm", [True, False])
def test_gates_equal_loops(per: str, norm: bool) -> None:
    e = drawn(GatedAttention(dims(), per=per, norm=norm))  # type: ignore[arg-type]
    q, k, v = qkv(N, dims())
    _, p, o = attend(e, q, k, v, pass_over(N), layer=1)
    x = q.transpose(1, 2).flatten(2)
    for h in range(2):
        for i in range(N):
            given = sum(p[0, h, i, j] * v[0, h, j] for j in range(N))
            assert isinstance(given, Tensor)
            if norm:
                given = given / (given.square().mean() + torch.finfo(given.dtype).eps).sqrt()
            for d in range(4):
                row = e.weight[1, h * 4 + d if per == "component" else h]
                gate = 1 / (1 + math.exp(-float((row @ x[0, i]).detach())))
                torch.testing.assert_close(o[0, h, i, d], gate * given[d])


def test_a_kernel_serves_gates_with_what_else_it_serves() -> None:
    gate = drawn(GatedAttention(dims()))
    assert Encodings([Fox(dims()), gate]).fusible(0)
    assert not Encodings([Relative(dims()), gate]).fusible(0)


def test_the_example_of_the_page_passes_all_checks() -> None:
    """Beams, steps and padding, for who counts attention as docs/adding-an-encoding.md shows."""
    method = re.search(
        r"```py\n(    def scores.*?)```", text_of("docs/adding-an-encoding.md"), re.S
    )
    assert method is not None
    names: dict[str, Any] = dict(vars(base))
    exec(dedent(method[1]), names)

    class Tired(Encoding):
        relative, position_type = True, "none"

        def __init__(self, dims: Dims, strength: float = 2.0) -> None:
            super().__init__(dims)
            self.strength = torch.nn.Parameter(torch.tensor(strength))

        def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
            return names["scores"](self, s, q, k, layer, context)

    entries: dict[str, dict[str, Any]] = {"absolute": {}, "tired": {"use": Tired, "where": "cross"}}
    check_encoding(small_settings("none", entries=entries), tokens=8)
