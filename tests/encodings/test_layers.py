"""Entries that serve some layers of a site (`layers:`)."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nmt.build import shrunken
from nmt.checks import parity
from nmt.checks.example import perturbed
from nmt.config.settings import Settings
from nmt.encodings.base import Dims
from nmt.encodings.passes import whole
from nmt.encodings.registry import create
from nmt.encodings.site import Encodings
from nmt.encodings.vectors.relative import Relative
from nmt.errors import UserError
from nmt.exchange import site_positions
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]
DIMS = Dims("encoder", layers=4, heads=4, dim=32, head_dim=8)


def site(**entries: dict[str, object]) -> Encodings:
    torch.manual_seed(0)
    encodings = Encodings(create(entries, DIMS)).double()
    for p in encodings.parameters():
        torch.nn.init.normal_(p)
    return encodings


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_only_its_layers_change_and_tables_have_rows_for_these_alone() -> None:
    relative = site(relative={"per_head": True, "layers": [3, 1]})
    (entry,) = relative
    assert isinstance(entry, Relative) and entry.key_table is not None
    assert entry.key_table.shape[:2] == (2, 4)  # layers 1 and 3, all heads
    q, k, context = drawn(2, 4, 5, 8), drawn(2, 4, 5, 8), whole("encoder", 5, rows=2)
    plain = q @ k.mT
    p = plain.softmax(-1)
    for layer in range(4):
        changed = not torch.equal(relative.scores(q, k, layer, context), plain)
        moved = not torch.equal(relative.outputs(p @ k, k, p, layer, context), p @ k)
        assert changed == moved == (layer in (1, 3)) == (not relative.fusible(layer))
    row = entry.key_table[1, 2, 16 + 2]  # of layer 3, head 2, a key two places to the right
    s = relative.scores(q, k, 3, context)
    assert torch.allclose(s[0, 2, 1, 3] - plain[0, 2, 1, 3], q[0, 2, 1] @ row)


def test_all_layers_by_name_are_all(tiny: Make, ids: Ids) -> None:
    source, target = ids(3, 7), ids(3, 6, seed=1)
    for option in ("rotary", "relative", "fox", "t5", "universal"):
        one, other = (
            tiny(f"encoding={option}", *named)
            for named in ([], [f"+encoding.{option}.layers=[0,1]"])
        )
        assert torch.equal(one(source, target), other(source, target))


def test_entries_share_a_site_where_they_do_not_meet() -> None:
    both = site(sigmoid_attention={"layers": [0]}, stick_breaking={"layers": [1]})
    s, context = drawn(2, 4, 5, 5), whole("encoder", 5, rows=2)
    for layer, name in enumerate(("sigmoid_attention", "stick_breaking")):
        alone = site(**{name: {}}).normalise(s, layer, context)
        assert torch.equal(both.normalise(s, layer, context), alone)
    assert torch.equal(both.normalise(s, 2, context), s.softmax(-1))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"rotary": {"layers": [4]}}, r"encoding.rotary: layers=\[4\]: list different numbers "
         r"from 0 to 3, as the site has 4 layers \(encoder\)"),
        ({"rotary": {"layers": []}}, r"layers=\[\]: list"),
        ({"rotary": {"layers": [1, 1]}}, r"layers=\[1, 1\]: list"),
        ({"rotary": {"layers": 2}}, "layers=2: list"),
        ({"rotary": {"layers": [True]}}, r"layers=\[True\]: list"),
        ({"rotary": {"layers": "01"}}, "layers=01: list"),
        ({"absolute": {"layers": [0]}}, "encoding.absolute: layers: .* enters or leaves all"),
        ({"stick_breaking": {"layers": [0, 1]}, "sigmoid_attention": {"layers": [1]}},
         "only one entry can take the place of softmax"),
    ],
)  # fmt: skip
def test_what_cannot_be_restricted_is_refused(
    entry: dict[str, dict[str, object]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        site(**entry)


def test_a_large_model_is_tried_with_the_layers_that_are_named(
    settings_of: Callable[..., Settings],
) -> None:
    small = shrunken(
        settings_of("encoding=rotary", "model.encoder_layers=6", "+encoding.rotary.layers=[0,4]")
    )
    assert (small.model.encoder_layers, small.model.dim) == (5, 16)


def test_an_export_refuses_some_layers(tiny: Make) -> None:
    model = tiny("encoding=rotary", "+encoding.rotary.layers=[0]")
    dims = Dims("encoder", 2, 2, 16, 8, 30)
    with pytest.raises(UserError, match=r"it serves some layers only; .* encoding=rotary"):
        site_positions.read(model.encoder_encodings, dims, 20)


def test_two_that_remember_by_the_same_name_serve_different_layers(
    settings_of: Callable[..., Settings],
) -> None:
    settings = settings_of("encoding=fox")
    entries = {f"fox{n}": {"use": "fox", "layers": [n]} for n in range(2)}
    model = perturbed(replace(settings, encoding=entries)).double()
    with torch.inference_mode():
        beams = next(c for c in parity.CONDITIONS if c.name == "beams")
        for steps, full in beams.compare(model, 9):
            assert float((steps - full).abs().max()) < 1e-10
