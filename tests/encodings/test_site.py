"""Entries of one site: all answer, in the layers that they serve, and some change each other."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor

from nmt.checks import parity
from nmt.checks.example import build_perturbed
from nmt.config.settings import Settings
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context, whole
from nmt.encodings.registry import create
from nmt.encodings.site import SiteEncodings
from nmt.encodings.vectors.irpe import Irpe
from nmt.encodings.vectors.relative import Relative
from nmt.model.layers import Layer
from nmt.model.transformer import Transformer
from tests.encodings.attending import dims, pass_over, qkv


@pytest.mark.parametrize("order", [1, -1])
def test_two_with_scores_and_values_answer_both(order: int) -> None:
    torch.manual_seed(0)
    context, (q, k, v) = pass_over(7), qkv(7, dims())
    one = Relative(dims(), 2).double()
    other = Irpe(dims(), value="contextual").double()
    for table in other.parameters():
        torch.nn.init.normal_(table)
    both = SiteEncodings([one, other][::order])
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
    assert not SiteEncodings([OnOutputs(dims())]).fusible(0)
    assert SiteEncodings([Encoding(dims())]).fusible(0)


Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]
FOUR_LAYERS = Dims("encoder", layers=4, heads=4, dim=32, head_dim=8)


def site(**entries: dict[str, object]) -> SiteEncodings:
    torch.manual_seed(0)
    encodings = SiteEncodings(create(entries, FOUR_LAYERS)).double()
    for p in encodings.parameters():
        torch.nn.init.normal_(p)
    return encodings


def test_only_its_layers_change_and_tables_have_rows_for_these_alone() -> None:
    relative = site(relative={"per_head": True, "layers": [3, 1]})
    (entry,) = relative
    assert isinstance(entry, Relative) and entry.key_table is not None
    assert entry.key_table.shape[:2] == (2, 4)  # layers 1 and 3, all heads
    (q, k, _), context = qkv(5, FOUR_LAYERS), whole("encoder", 5, rows=2)
    plain = q @ k.mT
    p = plain.softmax(-1)
    for layer in range(4):
        changed = not torch.equal(relative.scores(q, k, layer, context), plain)
        moved = not torch.equal(relative.outputs(p @ k, k, p, layer, context), p @ k)
        assert changed == moved == (layer in (1, 3)) == (not relative.fusible(layer))
    row = entry.key_table[1, 2, 16 + 2]  # of layer 3, head 2, a key two places to the right
    s = relative.scores(q, k, 3, context)
    assert torch.allclose(s[0, 2, 1, 3] - plain[0, 2, 1, 3], q[0, 2, 1] @ row)


def test_entries_share_a_site_where_they_do_not_meet() -> None:
    both = site(sigmoid_attention={"layers": [0]}, stick_breaking={"layers": [1]})
    s, context = qkv(5, FOUR_LAYERS)[0] @ qkv(5, FOUR_LAYERS)[1].mT, whole("encoder", 5, rows=2)
    for layer, name in enumerate(("sigmoid_attention", "stick_breaking")):
        alone = site(**{name: {}}).normalise(s, layer, context)
        assert torch.equal(both.normalise(s, layer, context), alone)
    assert torch.equal(both.normalise(s, 2, context), s.softmax(-1))


def test_two_that_remember_by_the_same_name_serve_different_layers(
    settings_of: Callable[..., Settings],
) -> None:
    settings = settings_of("encoding=fox")
    entries = {f"fox{n}": {"use": "fox", "layers": [n]} for n in range(2)}
    model = build_perturbed(replace(settings, encoding=entries)).double()
    with torch.inference_mode():
        for steps, full in parity.compare("beams", model, 9):
            assert float((steps - full).abs().max()) < 1e-10


def test_huang_3_keeps_what_earlier_entries_added() -> None:
    """e_ij = q_i . r_ij + sum_d q_id k_jd a_ijd, by two loops."""
    torch.manual_seed(0)
    entries = {"relative_key": {"use": "relative", "tau": 2, "value": False}}
    both = SiteEncodings(create({**entries, "huang": {"method": 3, "tau": 2}}, SMALL)).double()
    for p in both.parameters():
        p.data.normal_()
    q, k = torch.randn(2, 3, 2, 5, 4, dtype=torch.double)
    at = torch.arange(5)[None]
    s = both.scores(q, k, 1, Context("encoder", at, at, at, rows=3))
    table, a = (dict(both.named_parameters())[n][1] for n in NAMES)
    for i in range(5):
        for j in range(5):
            row = max(-2, min(2, j - i)) + 2
            one = (q[:, :, i] * (k[:, :, j] * a[:, row] + table[:, row])).sum(-1)
            assert torch.allclose(s[:, :, i, j], one, atol=1e-12)
    s.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in both.parameters())


SMALL = Dims("encoder", 2, 2, 8, 4)
NAMES = ("entries.0.key_table", "entries.1.a")


@pytest.mark.parametrize(
    ("arguments", "projections"),
    [
        (["encoding=gaussian"], 0),
        (["encoding=synthesizer"], 1),
        (["encoding=[synthesizer_random,relative_key]"], 2),  # reads queries
        (["encoding=gaussian", "encoding.gaussian.layers=[0]"], 2),
    ],
    ids=str,
)
def test_projections_that_nothing_reads_are_left_out(
    arguments: list[str], projections: int, tiny: Make
) -> None:
    model = tiny(*arguments)
    for layer in model.encoder.layers:
        attention = cast(Layer, layer).attention
        both = attention.query, attention.key
        assert sum(isinstance(p, torch.nn.Linear) for p in both) == projections
    for layer in model.decoder.layers:
        cross = cast(Layer, layer).cross
        assert all(isinstance(p, torch.nn.Linear) for p in (cross.query, cross.key))
