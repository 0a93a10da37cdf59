"""Tables of distances as cosines, next to formulas in loops and to what attention really adds."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.context import Context, Positions
from nmt.encodings.positions import Index, Scaled
from nmt.encodings.registry import find
from nmt.encodings.sinusoids import sinusoids
from nmt.encodings.vectors.relative import Relative
from nmt.model.transformer import Transformer
from scripts.panels import REACH, MatrixPanel, learned_vectors
from tests.composing import every_encoding
from tests.encodings.attending import dims

Make = Callable[..., Transformer]
LEARNED = {
    *("composite", "deberta", "huang_3", "huang_4", "irpe", "irpe_qkv"),
    *("relative", "relative_absolute", "relative_key", "relative_per_head", "relative_tied"),
    *("relative_unlimited", "relative_value", "rr_transformer", "spr_relative"),
}


def shown(model: Transformer) -> list[tuple[str, str, list[MatrixPanel]]]:
    """Site, role and panels of each table."""
    return [
        (name, role, panels)
        for name, site in model.sites.items()
        for e in site
        for role, panels in learned_vectors(e).items()
    ]


def cosine(a: Tensor, b: Tensor) -> float:
    a, b = a.detach().double(), b.detach().double()
    return float(a @ b / (a @ a).sqrt() / (b @ b).sqrt())


def test_a_table_by_hand(tiny: Make) -> None:
    model = tiny("encoding=relative", "tau=3")
    found = shown(model)
    assert [(site, role) for site, role, _ in found] == [
        (site, role) for site in ("encoder", "decoder") for role in ("keys", "values")
    ]
    fixed, _, second = found[1][2]
    assert [p.title for p in found[1][2]] == ["sinusoids", "layer 1", "layer 2"]
    assert fixed.first == second.first == -3
    e = next(iter(model.encoder_encodings))
    table = cast(Tensor, e.value_table)[1, 0]  # of the second layer
    waves = sinusoids(torch.arange(-3, 4), 8)
    for i in range(7):
        for j in range(7):
            assert second.values[i, j] == pytest.approx(cosine(table[i], table[j]), abs=1e-6)
            assert fixed.values[i, j] == pytest.approx(cosine(waves[i], waves[j]), abs=1e-6)
    assert found[2][2][1].first == -3 and len(found[2][2][1].values) == 4  # the past alone


@pytest.mark.parametrize("positions", [Index(99, -1), Scaled(Index(0, -1), 1, 9)])
def test_a_decoder_that_counts_down_looks_at_distances_above_0(positions: Positions) -> None:
    panel = learned_vectors(Relative(dims("decoder", positions=positions), tau=3))["keys"][1]
    assert panel.first == -3 and len(panel.values) == 7


def test_heads_are_averaged(tiny: Make) -> None:
    model = tiny("encoding=relative_per_head", "tau=2")
    panel = shown(model)[0][2][1]
    assert panel.title == "layer 1, mean over 2 heads"
    table = cast(Tensor, next(iter(model.encoder_encodings)).key_table)[0]
    for i in range(5):
        for j in range(5):
            mean = sum(cosine(head[i], head[j]) for head in table) / 2
            assert panel.values[i, j] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize("option", every_encoding())
def test_every_option_has_cosines_or_nothing(option: str, tiny: Make) -> None:
    found = shown(tiny(f"encoding={option}"))
    assert bool(found) == (option in LEARNED)
    for _, _, panels in found:
        for panel in panels:
            t = torch.from_numpy(panel.values)
            assert len(t) > 8 and -REACH <= panel.first <= 0 <= panel.first + len(t) - 1 <= REACH
            assert t.shape == (len(t), len(t)) and torch.allclose(t, t.T, rtol=0, atol=1e-12)
            assert torch.allclose(t.diagonal(), torch.ones(len(t)).double())
            steps = [tuple(row) for row in panel.values]
            assert steps[0] != steps[1] and steps[-1] != steps[-2]  # not clipped


def test_what_is_zero_is_not_shown(tiny: Make) -> None:
    model = tiny("encoding=relative")
    for site in (model.encoder_encodings, model.decoder_encodings):
        for e in site:
            torch.nn.init.zeros_(cast(Tensor, e.value_table))
    assert {role for _, role, _ in shown(model)} == {"keys"}


def test_distances_in_graphs_are_left_out(tiny: Make) -> None:
    words = ("encoding=relative", "+encoding.relative.at.tree.heads=heads")
    model = tiny(*words, "encoding.relative.where=encoder")
    assert next(iter(model.encoder_encodings)).positions.distances_only
    assert not shown(model)


OFFERS: list[tuple[str, dict[str, Any]]] = [
    ("relative", {"tau": 3}),
    ("relative", {"tau": 3, "tied": True, "per_head": True}),
    ("relative", {"tau": None, "longest": 20}),
    ("composite", {"tau": 3, "key": True, "fixed": False}),
    ("huang", {"tau": 3, "method": 4}),
    ("huang", {"tau": 3, "method": 3}),
    ("irpe", {"query": "contextual", "value": "contextual"}),
    ("irpe", {"query": "contextual", "key": "bias"}),
    ("deberta", {"k": 4}),
    ("deberta", {"k": 4, "p2c": "paper"}),
    ("relative_sinusoidal", {"tau": 3}),
    ("wavelet", {"scales": 2}),
]
QUERY = ("keys", "keys and values", "kernels of queries", "queries and keys")
KEY = ("queries", "kernels of keys", "queries and keys")


@pytest.mark.parametrize("name, options", OFFERS, ids=str)
@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_vectors_are_those_of_the_scores(name: str, options: dict[str, Any], site: str) -> None:
    """What is answered, put into the formula, gives the scores and values that attention gets.

    In a decoder that goes for what it sees: what lies ahead may have any score.
    """
    torch.manual_seed(0)
    sizes = dims(site)
    e: Encoding = find(name)(sizes, **options).double()
    with torch.no_grad():
        for parameter in e.parameters():
            parameter.add_(torch.randn_like(parameter))
    n, layer = 12, 1
    at = torch.arange(n)[None]
    context = Context(site, at, at, at, rows=2)
    q, k = torch.randn(2, 2, 2, n, 4, dtype=torch.float64)
    with torch.no_grad():
        tables = e.by_distance(layer, torch.arange(1 - n, n))
        got = e.scores(q @ k.mT, q, k, layer, context)
        p = torch.rand(2, 2, n, n, dtype=torch.float64)
        p = p.tril() if site == "decoder" else p
        summed = e.outputs(torch.zeros_like(q), q, p, layer, context)
    assert tables is not None
    query, key = (
        next((t for role, t in tables.items() if role in roles), None) for roles in (QUERY, KEY)
    )
    value = next((t for role, t in tables.items() if role.endswith("values")), None)
    for head in range(2):
        for i in range(n):
            total = torch.zeros(2, 4, dtype=torch.float64)
            for j in range(n):
                terms = [q[:, head, i] * k[:, head, j]]
                d = j - i + n - 1
                if name == "huang" and options["method"] == 3:
                    assert query is not None
                    terms = [terms[0] * query[head % len(query), d]]
                else:
                    terms += [] if query is None else [q[:, head, i] * query[head % len(query), d]]
                    terms += [] if key is None else [k[:, head, j] * key[head % len(key), d]]
                if site == "encoder" or j <= i:
                    score = torch.stack(terms).sum((0, 2))
                    assert torch.allclose(got[:, head, i, j], score, atol=1e-10)
                if value is not None:
                    total += p[:, head, i, j, None] * value[head % len(value), d]
            if value is None:
                assert not summed.any()
            else:
                assert torch.allclose(summed[:, head, i], total, atol=1e-10)


class Doubled(Relative):
    """Changes what the vectors add."""

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        return 2 * super().scores(s, q, k, layer, context)


def test_who_changes_scores_does_not_inherit_the_vectors() -> None:
    distances = torch.arange(3)
    assert Relative(dims()).by_distance(0, distances)
    assert Doubled(dims()).by_distance(0, distances) is None


def test_numbers_are_no_vectors() -> None:
    huang: Callable[..., Encoding] = find("huang")
    for method in (1, 2):
        assert huang(dims(), method=method).by_distance(0, torch.arange(3)) is None


@pytest.mark.parametrize(
    "name, options", [("composite", {"query": False}), ("irpe", {"key": "bias"})], ids=str
)
def test_without_vectors_scores_stay_as_they_are(name: str, options: dict[str, Any]) -> None:
    e: Encoding = find(name)(dims(), **options)
    assert e.by_distance(0, torch.arange(3)) == {}
    s, at = torch.rand(1, 2, 3, 3), torch.arange(3)[None]
    q, k = torch.rand(2, 1, 2, 3, 4)
    assert torch.equal(e.scores(s.clone(), q, k, 0, Context("encoder", at, at, at)), s)
