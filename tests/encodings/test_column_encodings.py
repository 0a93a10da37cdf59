"""Encodings and positions that read columns of the source, against their formulas."""

import math
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from nmt.checks import parity
from nmt.checks.example import build_perturbed
from nmt.config.settings import Settings
from nmt.encodings.base import Dims
from nmt.encodings.context import Context, Positions, whole, with_positions
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.input.learned import Learned
from nmt.encodings.positions_columns import ColumnPositions, Depth, Graph, Segment, Tree
from nmt.encodings.registry import create
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.sinusoids import sinusoids
from nmt.encodings.site import SiteEncodings
from nmt.encodings.trees.graformer import Graformer
from nmt.encodings.trees.per_language import PerLanguage
from nmt.encodings.trees.spr_absolute import SprAbsolute
from nmt.encodings.trees.tpe import Tpe
from nmt.encodings.trees.trees import depths, tree_distances
from nmt.encodings.trees.xl_pe import XlPe
from nmt.encodings.vectors.relative import Relative
from tests.encodings.attending import attend, dims, pass_over, pe, qkv, randomise

HEADS = [[2, 0, 2, 5, 3, 5, 0, 0, 0], [0, 1, 1, 2, 2, 3, 3, 7, 0]]  # two trees, EOS last
WORDS = [[0, 1, 2, 3, 4, 5, 6, 0, 0], [*range(9)]]
ORDER = [[3, 0, 1, 2, 5, 4, 6, 0, 0], [8, 7, 6, 5, 4, 3, 2, 1, 9]]


def pass_with_columns(site: str = "encoder", **more: Any) -> Context:
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
    got = SiteEncodings([e]).embed(x, pass_with_columns())
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
    logits = attend(e, q, k, v, pass_with_columns(), 1)[0]
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
    got = SiteEncodings([e]).embed(torch.zeros(2, 9, 24, dtype=torch.float64), pass_with_columns())
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


def test_each_language_has_its_own_table() -> None:
    e = PerLanguage(dims(), "language", 2, 9)
    x = torch.randn(2, 9, 8)
    added = SiteEncodings([e]).embed(x, pass_with_columns()) - x
    assert torch.allclose(added, e.weight[[1, 0]], atol=1e-6)
    assert e.weight.shape == (2, 9, 8)


def test_a_column_is_a_position() -> None:
    x = torch.randn(2, 9, 8)
    order = torch.tensor(ORDER)
    got = SiteEncodings([Absolute(dims(positions=ColumnPositions("order")))]).embed(
        x, pass_with_columns()
    )
    assert torch.equal(got, x + sinusoids(order, 8))
    learned = Learned(dims(positions=ColumnPositions("order")))
    got = SiteEncodings([learned]).embed(x, pass_with_columns())
    assert torch.equal(got, x + learned.weight[order])
    delta = with_positions(pass_with_columns(), ColumnPositions("order")).delta
    assert delta.equal(order[:, None, :] - order[:, :, None])
    heads, words = torch.tensor(HEADS), torch.tensor(WORDS)
    assert with_positions(pass_with_columns(), Depth()).query_positions.equal(depths(heads))
    assert with_positions(pass_with_columns(), Tree()).delta.equal(tree_distances(heads, words))


def test_no_distance_in_a_tree_is_clipped() -> None:
    """Two leaves on a chain of four are 8 apart among six words, whatever padding follows."""
    torch.manual_seed(0)
    e, (q, k, v) = randomise(Relative(dims(positions=Tree()), tau=None, longest=16)), qkv(9, dims())

    def scores(n: int) -> Tensor:
        context, heads = whole("encoder", n), torch.zeros(1, n, dtype=torch.long)
        heads[0, :6] = torch.tensor([0, 1, 2, 3, 4, 4])
        context.columns = {"heads": heads, "words": torch.arange(n)[None]}
        assert with_positions(context, Tree()).delta.max() == 8
        return attend(e, q[:, :, :n], k[:, :, :n], v[:, :, :n], context)[0][..., :6, :6]

    assert Tree().max_distance(6, training=True) == 8 and Tree().max_distance(2, True) == 1
    torch.testing.assert_close(scores(6), scores(9))


@pytest.mark.parametrize(
    "positions, columns, said",
    [
        (ColumnPositions("depth"), {}, "reads a column 'depth', which this text does not have"),
        (Segment("a"), {"a": [[1], [0]]}, "'a' has one integer per sentence"),
        (Depth(), {"heads": [[0, 1]]}, "'heads' has 2 integers for 9 tokens"),
        (Tree(), {"heads": HEADS}, "a column 'words', which this text does not have"),
    ],
)
def test_columns_that_do_not_fit(positions: Positions, columns: Any, said: str) -> None:
    context = pass_over(9)
    context.columns = {name: torch.tensor(values) for name, values in columns.items()}
    with pytest.raises(ValueError, match=said):
        _ = with_positions(context, positions).delta


def test_a_decoder_may_have_a_table_per_language(settings_of: Callable[..., Settings]) -> None:
    """As the comment in conf/encoding/per_language.yaml says, also token by token."""
    words = (
        "encoding=per_language",
        "~encoding.learned",
        "+encoding.target={use: per_language, where: decoder, column: target_language, "
        "languages: 2, longest: 1024}",
    )
    measured = parity.measure(build_perturbed(settings_of(*words)), 9, ["float32"])
    assert all(d.passed for d in measured)


SEGMENTS = [[0, 0, 0, 1, 1, 2, 0, 0, 3], [4, 4, 4, 4, 4, 4, 4, 4, 5]]


def in_segments() -> Context:
    context = pass_over(9)
    context.columns = {"segments": torch.tensor(SEGMENTS)}
    return context


def test_a_segment_begins_where_its_number_changes() -> None:
    places = [[0, 1, 2, 0, 1, 0, 0, 1, 0], [*range(8), 0]]
    found = with_positions(in_segments(), Segment())
    assert found.query_positions.equal(torch.tensor(places)) and found.delta[0, 4, 3] == -1
    assert found.delta[0, 1, 4] == 0  # of another segment, where it counts the same


def test_two_levels_as_the_page_writes_them() -> None:
    """BiPE: x_t + w[place], and queries and keys turned by the numbers of their segments."""
    page = (Path(__file__).parents[2] / "docs/encodings.md").read_text(encoding="utf-8")
    (block,) = (b for b in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "segment:" in b)
    page_entries: Any = OmegaConf.to_container(OmegaConf.create(block))
    entries = page_entries["encoding"]
    places, segments = create(entries, dims())
    assert isinstance(places, Learned) and isinstance(segments, Rotary)
    assert [type(e) for e in create(entries, dims("decoder"))] == [Learned]
    context, x = in_segments(), torch.randn(2, 9, 8)
    both = SiteEncodings([places, segments])
    embedded = both.embed(x, context)
    numbers = torch.tensor(SEGMENTS)
    for row in range(2):
        for t in range(9):
            first = t
            while first and numbers[row, first - 1] == numbers[row, t]:
                first -= 1
            torch.testing.assert_close(embedded[row, t], x[row, t] + places.weight[t - first])
    q, k, v = qkv(9, dims())
    found = attend(list(both), q, k, v, context)[0]
    for row, i, j in product(range(2), range(9), range(9)):
        apart = float(numbers[row, j] - numbers[row, i])
        wanted = sum(
            _turned_product(
                q[row, :, i, b : b + 2], k[row, :, j, b : b + 2], apart / 100 ** (b / 2)
            )
            for b in (0, 2)
        )
        torch.testing.assert_close(found[row, :, i, j], wanted / 2)


def _turned_product(q: Tensor, k: Tensor, angle: float) -> Tensor:
    """q . k with k turned by an angle: [heads]."""
    cos, sin = math.cos(angle), math.sin(angle)
    return (q * torch.stack([k[:, 0] * cos - k[:, 1] * sin, k[:, 0] * sin + k[:, 1] * cos], 1)).sum(
        1
    )
