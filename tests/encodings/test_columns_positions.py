"""Encodings that read columns of the source: against formulas, in models, and when refused."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.checks import parity
from nmt.checks.example import perturbed
from nmt.config.settings import Settings
from nmt.encodings.base import Dims
from nmt.encodings.context import Context, Positions
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.input.learned import Learned
from nmt.encodings.passes import whole, with_positions
from nmt.encodings.positions_columns import ColumnPositions, Depth, Graph, Segment, Tree
from nmt.encodings.registry import create
from nmt.encodings.sinusoids import sinusoids
from nmt.encodings.site import Encodings
from nmt.encodings.trees.graformer import Graformer
from nmt.encodings.trees.per_language import PerLanguage
from nmt.encodings.trees.spr_absolute import SprAbsolute
from nmt.encodings.trees.tpe import Tpe
from nmt.encodings.trees.trees import depths, tree_distances
from nmt.encodings.trees.xl_pe import XlPe
from nmt.encodings.vectors.relative import Relative
from nmt.model.transformer import Transformer
from tests.encodings.attending import attend, dims, pass_over, pe, qkv, shaken

OPTIONS = [
    "spr_absolute",
    "spr_relative",
    "xl_pe",
    "tpe",
    "per_language",
    "graformer",
    "graph_bert",
    "laplacian",
    "structural",
    "graph_transformer",
]
Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]

HEADS = [[2, 0, 2, 5, 3, 5, 0, 0, 0], [0, 1, 1, 2, 2, 3, 3, 7, 0]]  # two trees, EOS last
WORDS = [[0, 1, 2, 3, 4, 5, 6, 0, 0], [*range(9)]]
ORDER = [[3, 0, 1, 2, 5, 4, 6, 0, 0], [8, 7, 6, 5, 4, 3, 2, 1, 9]]


def beside(site: str = "encoder", **more: Any) -> Context:
    """A pass over 9 tokens of two sentences, with all columns."""
    context = pass_over(9, site)
    columns = {"heads": HEADS, "words": WORDS, "order": ORDER, "language": [[1], [0]]} | more
    context.columns = {name: torch.tensor(values) for name, values in columns.items()}
    return context


def depth_of(row: int, token: int) -> int:
    """Steps to the root, walked."""
    count = 0
    while HEADS[row][token]:
        token, count = HEADS[row][token] - 1, count + 1
    return count


@pytest.mark.parametrize("kind", [SprAbsolute, XlPe])
def test_fusion_is_the_formula(kind: type[SprAbsolute | XlPe]) -> None:
    torch.manual_seed(0)
    e = kind(dims()).double()
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    got = Encodings([e]).embed(x, beside())
    u, v = e.fusion.first.weight, e.fusion.second.weight
    for row in range(2):
        for t in range(9):
            other = depth_of(row, t) if kind is SprAbsolute else ORDER[row][t]
            wanted = x[row, t] + (u @ pe(t, 8) + v @ pe(other, 8)).tanh()
            assert (got[row, t] - wanted).abs().max() < 1e-6  # sinusoids are float32


def test_graformer_in_two_loops() -> None:
    torch.manual_seed(1)
    e = Graformer(dims(positions=Graph(longest=2))).double()
    assert e.weight.shape == (2, 6)
    q, k, v = qkv(9, dims())
    logits = attend(e, q, k, v, beside(), 1)[0]
    seen = set()
    for row, length in enumerate((7, 9)):  # two pads would be one word, by their numbers
        for i in range(length):
            for j in range(length):
                steps = depth_of(row, j) - depth_of(row, i)
                token = j if steps > 0 else i
                for _ in range(abs(steps)):
                    token = HEADS[row][token] - 1
                reached = token == (i if steps > 0 else j)
                index = max(-2, min(2, steps)) + 2 if reached else 5
                seen.add(index)
                for h in range(2):
                    wanted = q[row, h, i] @ k[row, h, j] / 2 + e.weight[h, index]
                    assert abs(logits[row, h, i, j] - wanted) < 1e-12
    assert seen == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("binary", [True, False])
def test_tree_codes_are_the_formula(binary: bool) -> None:
    """Walked token by token, weighted number by number."""
    torch.manual_seed(2)
    branches = 2 if binary else 3
    e = Tpe(Dims("encoder", 2, 2, 24, 12), "heads", branches, 4, binary).double()
    copies = 24 // (4 * branches)
    assert e.decay.shape == (copies,) and len(list(e.parameters())) == 1
    got = Encodings([e]).embed(torch.zeros(2, 9, 24, dtype=torch.float64), beside())
    for row in range(2):
        for t in range(9):
            choices, token = [], t
            while HEADS[row][token]:
                sisters = [x for x in range(token) if HEADS[row][x] == HEADS[row][token]]
                if binary:
                    choices.append(1 if sisters else 0)
                    token = sisters[-1] if sisters else HEADS[row][token] - 1
                else:
                    choices.append(min(len(sisters), branches - 1))
                    token = HEADS[row][token] - 1
            wanted = torch.zeros(4, branches, copies, dtype=torch.float64)
            for m, choice in enumerate(choices[:4]):
                for c in range(copies):
                    p = math.tanh(e.decay[c].item())
                    wanted[m, choice, c] = p**m * math.sqrt((1 - p * p) * 12)
            assert torch.allclose(got[row, t], wanted.flatten(), atol=1e-12)


def test_tree_codes_without_decay_keep_the_last_branch() -> None:
    e = Tpe(Dims("encoder", 1, 1, 16, 16), "heads", 2, 4)
    with torch.no_grad():
        e.decay.zero_()
    code = e.embed(torch.zeros(2, 9, 16), beside())
    assert code[..., 4:].eq(0).all()
    assert torch.allclose(code[0, 0, :4], torch.tensor([8**0.5, 8**0.5, 0, 0]))
    code.sum().backward()
    assert e.decay.grad is not None and e.decay.grad.isfinite().all()


def test_saturated_decays_stay_finite() -> None:
    e = Tpe(Dims("encoder", 1, 1, 16, 16), "heads", 2, 4)
    with torch.no_grad():
        e.decay.fill_(20.0)
    e.embed(torch.zeros(2, 9, 16), beside()).square().sum().backward()
    assert e.decay.grad is not None and e.decay.grad.isfinite().all()


def test_a_layer_fits_codes_of_another_width() -> None:
    e = Tpe(dims())  # 1 copy of 2 x 32, a model of 8
    assert sum(p.numel() for p in e.parameters()) == 1 + 65 * 8
    assert e.zero_initialise()
    x = torch.randn(2, 9, 8)
    assert torch.equal(e.embed(x, beside()), x)
    assert not Tpe(dims(), "heads", 2, 2).zero_initialise()


def test_each_language_has_its_own_table() -> None:
    e = PerLanguage(dims(), "language", 2, 9)
    x = torch.randn(2, 9, 8)
    added = Encodings([e]).embed(x, beside()) - x
    assert torch.allclose(added, e.weight[[1, 0]], atol=1e-6)
    assert e.weight.shape == (2, 9, 8)


def test_a_language_is_of_a_sentence() -> None:
    with pytest.raises(ValueError, match="'order' must have one integer per sentence"):
        PerLanguage(dims(), "order").embed(torch.zeros(2, 9, 8), beside())


def test_a_column_is_a_position() -> None:
    x = torch.randn(2, 9, 8)
    order = torch.tensor(ORDER)
    got = Encodings([Absolute(dims(positions=ColumnPositions("order")))]).embed(x, beside())
    assert torch.equal(got, x + sinusoids(order, 8))
    learned = Learned(dims(positions=ColumnPositions("order")))
    got = Encodings([learned]).embed(x, beside())
    assert torch.equal(got, x + learned.weight[order])
    delta = with_positions(beside(), ColumnPositions("order")).delta
    assert delta.equal(order[:, None, :] - order[:, :, None])
    heads, words = torch.tensor(HEADS), torch.tensor(WORDS)
    assert with_positions(beside(), Depth()).queries.equal(depths(heads))
    assert with_positions(beside(), Tree()).delta.equal(tree_distances(heads, words))


def test_no_distance_in_a_tree_is_clipped() -> None:
    """Two leaves on a chain of four are 8 apart among six words, whatever padding follows."""
    torch.manual_seed(0)
    e, (q, k, v) = shaken(Relative(dims(positions=Tree()), tau=None, longest=16)), qkv(9, dims())

    def scores(n: int) -> Tensor:
        context, heads = whole("encoder", n), torch.zeros(1, n, dtype=torch.long)
        heads[0, :6] = torch.tensor([0, 1, 2, 3, 4, 4])
        context.columns = {"heads": heads, "words": torch.arange(n)[None]}
        assert with_positions(context, Tree()).delta.max() == 8
        return attend(e, q[:, :, :n], k[:, :, :n], v[:, :, :n], context)[0][..., :6, :6]

    assert Tree().max_distance(6, training=True) == 8 and Tree().max_distance(2, True) == 1
    torch.testing.assert_close(scores(6), scores(9))


def test_columns_are_named_to_the_model(tiny: Make) -> None:
    wanted = {
        "spr_absolute": {"heads"},
        "spr_relative": {"heads", "words"},
        "xl_pe": {"order"},
        "tpe": {"heads", "words"},
        "per_language": {"language"},
        "graformer": {"heads", "words"},
        "graph_bert": {"depth", "order"},
        "laplacian": {"heads", "words"},
        "structural": {"heads", "labels", "words"},
        "graph_transformer": {"heads", "labels", "words"},
    }
    assert {o: tiny(f"encoding={o}").columns for o in OPTIONS} == wanted
    assert tiny("encoding=xl_pe", "encoding.xl_pe.order=mine").columns == {"mine"}


@pytest.mark.parametrize("at", ["depth", "tree", "graph"])
def test_no_other_column_holds_a_tree(at: str) -> None:
    """The integers of others are not turned from words to pieces."""
    said = rf"encoding\.relative\.at\.{at}\.heads=parse: choose one of heads"
    with pytest.raises(ValueError, match=said):
        create({"relative": {"at": {at: {"heads": "parse"}}}}, dims())
    for use in ("graph_transformer", "laplacian", "spr_absolute", "structural", "tpe"):
        with pytest.raises(ValueError, match=rf"encoding\.{use}\.tree=parse: choose one of heads"):
            create({use: {"tree": "parse"}}, dims())


@pytest.mark.parametrize(
    "positions, columns, said",
    [
        (ColumnPositions("depth"), {}, "reads a column 'depth', which this text does not have"),
        (
            ColumnPositions("language"),
            {"language": [[1], [0]]},
            "'language' has one integer per sentence",
        ),
        (Depth(), {"heads": [[0, 1]]}, "'heads' has 2 integers for 9 tokens"),
        (Segment(), {}, "a column 'segments', which this text does not have"),
        (Segment("a"), {"a": [[1], [0]]}, "'a' has one integer per sentence"),
        (Tree(), {"heads": HEADS}, "a column 'words', which this text does not have"),
        (Graph(), {"words": WORDS}, "a column 'heads', which this text does not have"),
    ],
)
def test_columns_that_do_not_fit(positions: Positions, columns: Any, said: str) -> None:
    context = pass_over(9)
    context.columns = {name: torch.tensor(values) for name, values in columns.items()}
    with pytest.raises(ValueError, match=said):
        _ = with_positions(context, positions).delta


@pytest.mark.parametrize(
    "entries, site, said",
    [
        ({"absolute": {"at": "tree"}}, "encoder", "a position for every single token"),
        ({"learned": {"at": {"graph": {"longest": 3}}}}, "encoder", "for every single token"),
        ({"relative": {"at": "tree"}}, "decoder", "at=tree: not for where=decoder; give where"),
        ({"absolute": {"at": "depth"}}, "decoder", "at=depth: not for where=decoder"),
        ({"absolute": {"at": "segment"}}, "decoder", "at=segment: not for where=decoder"),
        ({"absolute": {"at": {"column": {"name": "a"}}}}, "decoder", "at=column: not for where"),
        ({"absolute": {"at": "column"}}, "encoder", "at.column: say which one"),
        ({"graformer": {"at": {"graph": {"longest": 0}}}}, "encoder", "longest=0: must be at lea"),
        ({"graformer": {}}, "encoder", "encoding.graformer: needs path lengths: at={graph"),
        ({"graformer": {"at": "tree"}}, "encoder", "needs path lengths"),
        ({"tpe": {"at": "depth"}}, "encoder", "at=depth: this encoding never looks at positions"),
        ({"tpe": {}}, "decoder", "the column 'heads' is parallel to the source"),
        ({"tpe": {"branches": 3}}, "encoder", "branches=3: a binary tree has 2; set binary=false"),
        ({"spr_absolute": {}}, "decoder", "the column 'heads' is parallel to the source"),
        ({"laplacian": {}}, "decoder", "the column 'heads' is parallel to the source"),
        ({"structural": {}}, "decoder", "the column 'heads' is parallel to the source"),
        ({"graph_transformer": {}}, "decoder", "the column 'heads' is parallel to the source"),
        ({"xl_pe": {}}, "decoder", "the column 'order' is parallel to the source"),
        ({"xl_pe": {"order": ""}}, "encoder", "at.column: say which one"),
        ({"per_language": {"column": ""}}, "encoder", "column=: name the column"),
    ],
)
def test_refuses_what_cannot_be(entries: dict[str, dict[str, Any]], site: str, said: str) -> None:
    with pytest.raises(ValueError) as e:
        create(entries, dims(site))
    assert said in str(e.value)


def test_a_decoder_may_have_a_table_per_language(
    tiny: Make, settings_of: Callable[..., Settings], ids: Ids
) -> None:
    """As the comment in conf/encoding/per_language.yaml says, also token by token."""
    words = (
        "encoding=per_language",
        "~encoding.learned",
        "+encoding.target={use: per_language, where: decoder, column: target_language, "
        "languages: 2, longest: 1024}",
    )
    model = tiny(*words)
    assert model.columns == {"language", "target_language"}
    measured = parity.measure(perturbed(settings_of(*words)), 9, ["float32"])
    assert all(d.passed for d in measured)
    source, target = ids(3, 6), ids(3, 8, seed=1)
    columns = {"language": torch.tensor([[0], [1], [0]])}
    columns["target_language"] = torch.tensor([[1], [0], [0]])
    full = model(source, target, columns)
    columns["target_language"] = 1 - columns["target_language"]
    assert (model(source, target, columns) - full).abs().max() > 1e-3
