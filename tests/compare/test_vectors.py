"""Tables of distances as cosines, next to formulas in loops and to what attention really adds."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nmt.compare.report import DistanceCosines
from nmt.compare.vectors import REACH, learned
from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.encodings.lookup import find
from nmt.encodings.sinusoids import sinusoids
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.overrides.options import options_of
from tests.encodings.attending import dims

Make = Callable[..., Transformer]
LEARNED = {
    *("composite", "deberta", "huang_3", "huang_4", "irpe", "irpe_qkv"),
    *("relative", "relative_absolute", "relative_key", "relative_per_head", "relative_tied"),
    *("relative_unlimited", "relative_value", "rr_transformer", "spr_relative"),
}


def shown(model: Transformer) -> list[DistanceCosines]:
    none = cast(Any, None)
    return learned(Trained(none, model, none, none, {}), 4)


def cosine(a: Tensor, b: Tensor) -> float:
    a, b = a.detach().double(), b.detach().double()
    return float(a @ b / (a @ a).sqrt() / (b @ b).sqrt())


def test_a_table_by_hand(tiny: Make) -> None:
    model = tiny("encoding=relative", "tau=3")
    found = shown(model)
    assert [v.title for v in found] == [
        f"{site}, layer {layer}, {role}"
        for site in ("encoder", "decoder")
        for layer in (1, 2)
        for role in ("keys", "values")
    ]
    v, e = found[3], model.encoder_encodings.each()[0]
    assert (v.system, v.distances) == (4, [-3, -2, -1, 0, 1, 2, 3])
    table = cast(Tensor, e.value_table)[1, 0]  # of the second layer
    waves = sinusoids(torch.tensor(v.distances), 8)
    for i in range(7):
        for j in range(7):
            assert v.similarity[i][j] == pytest.approx(cosine(table[i], table[j]), abs=1e-4)
            assert v.sinusoids[i][j] == pytest.approx(cosine(waves[i], waves[j]), abs=1e-4)
    assert found[4].distances == [-3, -2, -1, 0]  # a decoder has seen no others


def test_heads_are_averaged(tiny: Make) -> None:
    model = tiny("encoding=relative_per_head", "tau=2")
    v = shown(model)[0]
    assert v.title == "encoder, layer 1, keys, mean over 2 heads"
    table = cast(Tensor, model.encoder_encodings.each()[0].key_table)[0]
    for i in range(5):
        for j in range(5):
            mean = sum(cosine(head[i], head[j]) for head in table) / 2
            assert v.similarity[i][j] == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize("option", options_of("encoding"))
def test_every_option_has_cosines_or_nothing(option: str, tiny: Make) -> None:
    found = shown(tiny(f"encoding={option}"))
    assert bool(found) == (option in LEARNED)
    for v in found:
        n = len(v.distances)
        assert v.distances == list(range(v.distances[0], v.distances[0] + n))
        assert 0 in v.distances and n > 8 and max(map(abs, v.distances)) <= REACH
        for matrix in (v.similarity, v.sinusoids):
            t = torch.tensor(matrix)
            assert t.shape == (n, n) and torch.equal(t, t.T)
            assert torch.allclose(t.diagonal(), torch.ones(n)) and float(t.abs().max()) <= 1
        steps = [tuple(row) for row in v.similarity]
        assert len(steps) == 1 or (steps[0] != steps[1] and steps[-1] != steps[-2])  # not clipped


def test_what_is_zero_is_not_shown(tiny: Make) -> None:
    model = tiny("encoding=relative")
    for site in (model.encoder_encodings, model.decoder_encodings):
        for e in site.each():
            torch.nn.init.zeros_(cast(Tensor, e.value_table))
    assert {v.title.split(", ")[2] for v in shown(model)} == {"keys"}


def test_entries_have_names_where_there_are_several(tiny: Make) -> None:
    titles = [v.title for v in shown(tiny("encoding=[relative,irpe]"))]
    assert "encoder, layer 1, relative, keys" in titles and "decoder, layer 2, irpe, keys" in titles
    assert "encoder, layer 1, keys" in [v.title for v in shown(tiny("encoding=[lstm,relative]"))]


def test_distances_in_graphs_are_left_out(tiny: Make) -> None:
    words = ("encoding=relative", "+encoding.relative.at.tree.heads=heads")
    model = tiny(*words, "encoding.relative.where=encoder")
    assert model.encoder_encodings.each()[0].positions.pairs
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
        summed = e.values(p, layer, context)
    assert tables
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
                assert summed is None
            else:
                assert summed is not None
                assert torch.allclose(summed[:, head, i], total, atol=1e-10)


def test_numbers_are_no_vectors() -> None:
    huang: Callable[..., Encoding] = find("huang")
    for method in (1, 2):
        assert not huang(dims(), method=method).by_distance(0, torch.arange(3))
    fixed = find("relative_sinusoidal")(dims())
    assert not fixed.by_distance(0, torch.arange(3))
