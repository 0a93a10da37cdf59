"""Entries that serve some layers or heads of a site (`layers:` and `heads:`)."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nmt.build import shrunken
from nmt.config.settings import Settings
from nmt.encodings.base import Dims
from nmt.encodings.composition import Encodings
from nmt.encodings.passes import whole
from nmt.encodings.registry import create
from nmt.encodings.vectors.relative import Relative
from nmt.errors import UserError
from nmt.exchange import site_positions
from nmt.inspect import parity
from nmt.inspect.specimen import perturbed
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


def test_only_its_heads_change_and_tables_have_rows_for_its_layers_alone() -> None:
    relative = site(relative={"per_head": True, "layers": [3, 1], "heads": [0, 2]})
    (entry,) = relative
    assert isinstance(entry, Relative) and entry.key_table is not None
    assert entry.key_table.shape[:2] == (2, 2)  # layers 1 and 3, heads 0 and 2
    q, k, context = drawn(2, 4, 5, 8), drawn(2, 4, 5, 8), whole("encoder", 5, rows=2)
    plain = q @ k.mT
    for layer in range(4):
        changed = (relative.scores(q, k, layer, context) != plain).any(-1).any(-1).any(0).tolist()
        assert changed == [layer in (1, 3), False, layer in (1, 3), False]
        p = plain.softmax(-1)
        moved = (
            (relative.outputs(p @ k, k, p, layer, context) != p @ k).any(-1).any(-1).any(0).tolist()
        )
        assert moved == changed
        assert relative.fusible(layer) == (layer not in (1, 3))
    row = entry.key_table[1, 1, 16 + 2]  # of layer 3, head 2, a key two places to the right
    s = relative.scores(q, k, 3, context)
    assert torch.allclose(s[0, 2, 1, 3] - plain[0, 2, 1, 3], q[0, 2, 1] @ row)


def test_heads_get_positions_before_the_projection_alone() -> None:
    """What position-infused attention adds to the input reaches the heads that it serves."""
    weight = drawn(32, 32)

    def project(*inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple((x @ weight).unflatten(-1, (4, 8)).transpose(1, 2) for x in inputs)

    x, context = drawn(2, 5, 32), whole("encoder", 5, rows=2)
    everywhere = site(position_infused={}).project(project, x, x, x, 0, context)  # type: ignore[arg-type]
    some = site(position_infused={"heads": [1, 2]}).project(project, x, x, x, 0, context)  # type: ignore[arg-type]
    nowhere = project(x, x, x)
    for all_heads, mixed, none in zip(everywhere, some, nowhere, strict=True):
        assert torch.equal(mixed[:, 1:3], all_heads[:, 1:3])
        assert torch.equal(mixed[:, ::3], none[:, ::3])


def test_some_heads_have_no_input_of_their_own_for_what_is_remembered() -> None:
    """Gates of Fox come from the input: one that has positions in some heads would reach all."""

    def project(*inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.unflatten(-1, (4, 8)).transpose(1, 2) for x in inputs)

    x, context = drawn(2, 5, 32), whole("encoder", 5, rows=2)
    entries: dict[str, dict[str, object]] = {"position_infused": {"heads": [1, 2]}, "fox": {}}
    fox = site(**entries)
    fox.project(project, x, x, x, 0, context)  # type: ignore[arg-type]
    gates = fox.bias(0, context)
    plain = site(fox={})
    plain.load_state_dict({"entries.0." + n: p for n, p in [*fox][1].state_dict().items()})
    context = whole("encoder", 5, rows=2)
    plain.project(project, x, x, x, 0, context)  # type: ignore[arg-type]
    unchanged = plain.bias(0, context)
    assert gates is not None and unchanged is not None and torch.equal(gates, unchanged)
    later = site(**dict(reversed(entries.items())))
    with pytest.raises(ValueError, match=r"_infused: changes the input .*fox reads .* before it"):
        later.project(project, x, x, x, 0, whole("encoder", 5, rows=2))  # type: ignore[arg-type]


def test_all_layers_and_heads_by_name_are_all(tiny: Make, ids: Ids) -> None:
    source, target = ids(3, 7), ids(3, 6, seed=1)
    for option in ("rotary", "relative", "fox", "t5", "universal"):
        named = [f"+encoding.{option}.layers=[0,1]"]
        if option != "universal":
            named.append(f"+encoding.{option}.heads=[1,0]")
        one, other = tiny(f"encoding={option}"), tiny(f"encoding={option}", *named)
        assert torch.equal(one(source, target), other(source, target))


def test_entries_share_a_site_where_they_do_not_meet() -> None:
    both = site(
        fox={"layers": [0], "heads": [0, 1]},
        sigmoid_attention={"layers": [0], "heads": [2, 3]},
        stick_breaking={"layers": [1]},
    )
    s, context = drawn(2, 4, 5, 5), whole("encoder", 5, rows=2)
    p = both.normalise(s, 0, context)
    sums = p.sum(-1)
    assert torch.allclose(sums[:, :2], torch.ones_like(sums[:, :2]))
    assert torch.allclose(p[:, 2:], site(sigmoid_attention={}).normalise(s, 0, context)[:, 2:])
    assert torch.equal(both.normalise(s, 2, context), s.softmax(-1))


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("sandwich", ([0], [1, 2, 3])),  # a bias of one head fits any number of them
        ("sandwich", ([0, 1], [0, 1, 2, 3])),
        ("disan", ([0, 1], [0, 1, 2, 3])),
    ],
)
def test_two_entries_of_one_encoding_have_the_biases_of_their_own_heads(
    name: str, heads: tuple[list[int], list[int]]
) -> None:
    """What depends on how many heads an entry serves is no other entry's."""
    near, far = (dict[str, object](use=name, heads=served) for served in heads)
    alone = [site(entry=entry).bias(0, whole("encoder", 5, rows=2)) for entry in (near, far)]
    both = site(near=near, far=far).bias(0, whole("encoder", 5, rows=2))
    assert both is not None and alone[0] is not None and alone[1] is not None
    assert torch.equal(both, alone[0] + alone[1])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"rotary": {"layers": [4]}}, r"encoding.rotary: layers=\[4\]: list different numbers "
         r"from 0 to 3, as the site has 4 layers \(encoder\)"),
        ({"rotary": {"layers": []}}, r"layers=\[\]: list"),
        ({"rotary": {"heads": [1, 1]}}, r"heads=\[1, 1\]: list"),
        ({"rotary": {"heads": 2}}, "heads=2: list"),
        ({"rotary": {"heads": [True]}}, r"heads=\[True\]: list"),
        ({"rotary": {"heads": "01"}}, "heads=01: list"),
        ({"absolute": {"layers": [0]}}, "encoding.absolute: layers: .* enters or leaves all"),
        ({"universal": {"heads": [0]}}, "encoding.universal: heads: .* have no heads"),
        ({"deberta": {"heads": [0]}}, "encoding.deberta: heads: .* the scale"),
        ({"alibi": {"directional": True, "heads": [0, 1, 2]}}, "3 heads cannot be halved"),
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
        for steps, full in beams.decode(parity.Subject(model, 9)):
            assert float((steps - full).abs().max()) < 1e-10
