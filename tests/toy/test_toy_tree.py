"""Columns of the embedded grammar: trees, permutations, and the same on every machine."""

import hashlib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from nmt.text.lines import read_text
from nmt.toy import draw, ensure_text, pairs, words
from nmt.toy.draw import Drawing
from nmt.toy.grammar import german
from nmt.toy.tree import LABELS
from nmt.toy.tree import columns as of_tree
from tests.composing import settings_of
from tests.toy.toy_parser import columns, parse


@cache
def drawn() -> list[str]:
    """Sources of all lengths, and many as long as those of the training text."""
    return [source for source, _ in pairs(59, 3, 120, seed=7) + pairs(100, 4, 30, seed=1)]


@cache
def columns_of(source: str) -> dict[str, str]:
    return columns(source)


def numbers(source: str, name: str) -> list[int]:
    return [int(one) for one in columns_of(source)[name].split(" ")]


def governors(source: str) -> dict[str, str]:
    """Word -> head word (all different in these sentences), without punctuation."""
    apart = [word.rstrip(",.") for word in source.split(" ")]
    return {w: ["ROOT", *apart][h] for w, h in zip(apart, numbers(source, "heads"), strict=True)}


def test_heads_are_one_tree_and_depth_counts_its_steps() -> None:
    roots: Counter[str] = Counter()
    for source in drawn():
        heads, depth = numbers(source, "heads"), numbers(source, "depth")
        assert len(heads) == len(depth) == len(source.split(" "))
        assert heads.count(0) == 1
        assert [head == 0 for head in heads] == [n == 0 for n in numbers(source, "labels")]
        for word, head in enumerate(heads, start=1):
            assert head != word
            assert depth[word - 1] == (0 if head == 0 else depth[head - 1] + 1)
        roots[source.split(" ")[heads.index(0)].rstrip(",.")] += 1
    assert len(roots) > 30


def test_order_is_a_permutation() -> None:
    moved = 0
    for source in drawn():
        order = numbers(source, "order")
        assert sorted(order) == list(range(len(source.split(" "))))
        moved += order != sorted(order)
    assert moved > len(drawn()) / 2
    assert {columns_of(source)["language"] for source in drawn()} == {"0"}


@pytest.mark.parametrize(
    ("source", "heads", "labels"),
    [
        (
            "Heute macht der alte Mann die Tür zu.",
            "Heute-macht macht-ROOT der-Mann alte-Mann Mann-macht die-Tür Tür-macht zu-macht",
            "advmod root det amod nsubj det obj compound",
        ),
        (
            "Wir haben dem Kind im Garten ein Buch gezeigt.",
            "Wir-gezeigt haben-gezeigt dem-Kind Kind-gezeigt im-Garten Garten-gezeigt ein-Buch "
            "Buch-gezeigt gezeigt-ROOT",
            "nsubj aux det iobj case obl det obj root",
        ),
        (
            "Frauen, die tanzen, wollen am Abend sagen, dass er schläft, aber wir lachen.",
            "Frauen-sagen die-tanzen tanzen-Frauen wollen-sagen am-Abend Abend-sagen sagen-ROOT "
            "dass-schläft er-schläft schläft-sagen aber-lachen wir-lachen lachen-sagen",
            "nsubj nsubj acl aux fixed advmod root mark nsubj ccomp cc nsubj conj",
        ),
        (
            "Weil er schläft, lachen ein Mann und das Kind, während wir arbeiten.",
            "Weil-schläft er-schläft schläft-lachen lachen-ROOT ein-Mann Mann-lachen und-Kind "
            "das-Kind Kind-Mann während-arbeiten wir-arbeiten arbeiten-lachen",
            "mark nsubj advcl root det nsubj cc det conj mark nsubj advcl",
        ),
    ],
)
def test_known_trees(source: str, heads: str, labels: str) -> None:
    assert governors(source) == dict(pair.split("-") for pair in heads.split(" "))
    assert [LABELS[number] for number in numbers(source, "labels")] == labels.split(" ")


def test_the_parser_finds_the_tree_that_was_drawn() -> None:
    from random import Random

    rng = Random("drawn")
    for length in [4, 9, 17, 30, 60] * 10:
        parts = Drawing(rng).sentence(length)
        assert of_tree(parts) == of_tree(parse([str(token) for token in german(parts)]))


def test_columns_are_pinned() -> None:
    """The same on every machine and Python, as the sentences are."""
    found = [drawn.columns() for drawn in draw(300, 3, 120, seed=1)]
    labels = repr([one.pop("labels") for one in found])
    for part, digest in ((repr(found), "ce92f2bfb73b1d56"), (labels, "c0239669dc7e6e13")):
        assert hashlib.sha256(part.encode()).hexdigest().startswith(digest)


def test_files_stand_beside_each_source(tmp_path: Path) -> None:
    small = ["data.train_pairs=12", "data.dev_pairs=4", "data.test_pairs=4"]
    data = settings_of(*small, f"data.root={tmp_path / 'text'}").data
    ensure_text(data)
    assert list(data.columns) == ["heads", "labels", "order", "depth", "language"]
    for part in ("train", "dev", "test"):
        source = read_text(Path(getattr(data, f"{part}_source")))
        for name, column in data.columns.items():
            lines = read_text(Path(getattr(column, part)))
            assert lines == [columns(one)[name] for one in source]
    assert all(len(words(one)) > 3 for one in source)
