"""Several corpora: drawn by weight, tagged, never joined with each other, counted."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.check import read
from nmt.config.data import Corpus, Data
from nmt.corpus.batches import Batches
from nmt.corpus.examples import Joining, draw_examples
from nmt.corpus.prepare import Prepared, count_overlap, prepare
from nmt.corpus.report import describe
from nmt.corpus.sampling import RandomSegmentation, make_samplers
from nmt.errors import UserError
from tests.corpus import test_prepare
from tests.corpus.test_prepare import BPE, UNIGRAM, text

SIZES = {"fr": 300, "it": 100}
TOPIC = {"topic": {"per": "sentence", "train": "train.topic", "dev": "dev.topic", "test": None}}
TAGS = {"fr": ">>fr<<", "it": ">>it<<"}


def settings(folder: Path, weights: tuple[float, float] = (1, 3), **more: Any) -> Data:
    """Two corpora of one source language; their dev files are their first lines."""
    corpora = {}
    for (name, size), weight in zip(SIZES.items(), weights, strict=True):
        place = folder / name
        place.mkdir(exist_ok=True)
        for side, word in (("de", "hund"), ("en", name)):
            lines = [f"{word} {i % 17} lauft {i}" for i in range(size)]
            (place / f"train.{side}").write_bytes(text(lines))
            (place / f"dev.{side}").write_bytes(text(lines[:5]))
        own = {"weight": weight, "tag": TAGS[name], "dev_source": "dev.de", "dev_target": "dev.en"}
        corpora[name] = read(Corpus, own)
    return replace(test_prepare.corpus(folder), corpora=corpora, **more)


def prepared(folder: Path, segmenter: Any = BPE, **more: Any) -> Prepared:
    return prepare(settings(folder, **more), segmenter)


def test_each_corpus_is_tagged_and_counted(tmp_path: Path) -> None:
    made = prepared(tmp_path, UNIGRAM)
    for store, sizes in ((made.train, SIZES), (made.dev, dict.fromkeys(SIZES, 5))):
        assert len(store) == sum(sizes.values())
        corpus = store.corpus_of(np.arange(len(store)))
        assert np.bincount(corpus).tolist() == list(sizes.values())
        for row in (0, len(store) - 1):
            source, target = store.pair(row)
            name = list(SIZES)[corpus[row]]
            assert made.source.vocabulary.pieces(source)[0] == TAGS[name]
            line = made.source.text(source)
            assert line.startswith(f"{TAGS[name]} hund ")
            assert made.source.ids(line) == source.tolist()  # typed at the front, it is the same
            assert made.target.text(target).startswith(f"{name} ")
    assert made.train.locate(0) == "fr:1" and made.train.locate(399) == "it:100"
    assert made.facts["corpora"] == SIZES
    table = describe(made.report)
    assert all(f"kept, corpus {name}" in table for name in SIZES)
    assert made.report["train"]["corpora"]["it"]["kept"]["pairs"] == 100


def test_a_tag_that_the_text_has_is_there_once(tmp_path: Path) -> None:
    data = settings(tmp_path)
    path = tmp_path / "fr" / "train.de"
    lines = path.read_text(encoding="utf-8").split("\n")
    path.write_bytes(text([f">>fr<< {line}" for line in (*lines[:4], "")] + lines[5:-1]))
    made = prepare(data, BPE)
    report = made.report["train"]
    assert report["dropped"]["empty side"]["pairs"] == 1  # a tag alone is an empty line
    for row in range(10):
        assert made.source.vocabulary.pieces(made.train.pair(row)[0]).count(">>fr<<") == 1


def test_known_pairs_are_found_whatever_their_tags(tmp_path: Path) -> None:
    data = settings(tmp_path)
    made = prepare(data, BPE)
    assert made.report["dev"]["known"] == 10
    sources = (tmp_path / "it" / "dev.de").read_text(encoding="utf-8").split("\n")[:-1]
    targets = (tmp_path / "it" / "dev.en").read_text(encoding="utf-8").split("\n")[:-1]
    for tag in ("", ">>it<< "):
        (tmp_path / "t.de").write_bytes(text([*(f"{tag}{s}" for s in sources), f"{tag}neu"]))
        (tmp_path / "t.en").write_bytes(text([*targets, "new"]))
        assert count_overlap(made, tmp_path / "t.de", tmp_path / "t.en") == (5, 6)
    (tmp_path / "short").write_bytes(text(targets[:3]))
    with pytest.raises(UserError, match="must belong together"):
        count_overlap(made, tmp_path / "it" / "dev.de", tmp_path / "short")


@pytest.mark.parametrize(("weights", "join"), [((1, 3), 1), ((0.5, 2.25), 1), ((0.5, 2.25), 3)])
def test_an_epoch_has_pairs_by_weight(
    weights: tuple[float, float], join: int, tmp_path: Path
) -> None:
    store = prepared(tmp_path).train
    joining = Joining(join, 0.6, 40, None) if join > 1 else None
    batches = Batches(store, 200, "max", 5, joining, weights=weights)
    orders = []
    for epoch in range(3):
        lines, examples = Counter[int](), batches.plan(epoch).examples
        seen = store.count_by_corpus(examples.first, examples.counts)
        for number in range(batches.size(epoch)):
            (batch,) = batches.batch(epoch, number)
            lines.update(batch.lines)
        for weight, size, pairs in zip(weights, SIZES.values(), seen, strict=True):
            spread = 4 * join * (size * (weight % 1) * (1 - weight % 1)) ** 0.5  # four sigma
            assert abs(pairs - weight * size) <= spread
        if join == 1:
            for line, count in lines.items():
                assert count in {int(weights[line > 301]), int(weights[line > 301]) + 1}
        orders.append(lines)
        (again,) = Batches(store, 200, "max", 5, joining, weights=weights).batch(epoch, 1)
        assert again.source.equal(batches.batch(epoch, 1)[0].source)  # without the epochs before
    assert (orders[0] != orders[1]) == (any(w != int(w) for w in weights) or join > 1)


def test_lines_of_two_corpora_are_never_joined_and_a_tag_is_there_once(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    store = made.train
    examples = draw_examples(store, Joining(4, 1.0, 40, None), (), 1, 0)
    last = examples.first + examples.counts - 1
    assert (store.corpus_of(examples.first) == store.corpus_of(last)).all()
    assert int(examples.counts.sum()) == len(store)
    batches = Batches(store, 400, "max", 5, Joining(4, 1.0, 40, None), weights=(1, 3))
    tags = {made.source.vocabulary.ids([tag])[0] for tag in TAGS.values()}
    assert batches.plan(0).examples.counts.max() > 1
    for number in range(batches.size(0)):
        (batch,) = batches.batch(0, number)
        for row in batch.source.tolist():
            assert row[0] in tags and not tags & set(row[1:])
        assert batch.source.shape[1] <= batches.longest["source"] + 1
    lengths = {
        row: int(n) for row, n in zip(examples.first, examples.lengths["source"], strict=True)
    }
    for row in range(20):
        first, count = int(examples.first[row]), int(examples.counts[row])
        pieces = store.lengths["source"][first : first + count]
        assert lengths[first] == pieces.sum() - (count - 1)


@pytest.mark.parametrize(("dropout", "tag"), [(0, ""), (0.3, "<bt>")])
def test_lines_into_two_languages_are_never_joined_and_the_code_is_there_once(
    dropout: float, tag: str, tmp_path: Path
) -> None:
    """The codes stand in the text itself, as in that of a model from OPUS-MT."""
    codes = [(">>fr<<", ">>it<<")[i // 3 % 2] for i in range(200)]
    pairs = [(f"{code} hund {i % 17} lauft", f"{i}") for i, code in enumerate(codes)]
    data = test_prepare.corpus(tmp_path, pairs, user_symbols=[*TAGS.values()], bpe_dropout=dropout)
    if tag:
        files = {key: getattr(data, key) for key in ("train_source", "train_target")}
        data.corpora = {"all": read(Corpus, files | {"tag": tag})}
    made = prepare(data, BPE)
    joining = Joining(4, 1.0, 20, None)
    drawing = None
    if dropout:
        of_sides = make_samplers(data, (made.source, made.target))
        drawing = RandomSegmentation(of_sides, 1, data.max_length, 20)
    batches = Batches(made.train, 400, "max", 5, joining, drawing)
    ids = {made.source.vocabulary.ids([code])[0] for code in [*TAGS.values(), *[tag] * bool(tag)]}
    lines = 0
    for batch in (part for n in range(batches.size(0)) for part in batches.batch(0, n)):
        lines += len(batch.lines)
        for row, target, line in zip(batch.source, batch.target, batch.lines, strict=True):
            assert not ids & set(row[1 + bool(tag) :].tolist())
            *numbers, last = map(int, made.target.text(target[1:].tolist()).split())
            assert {codes[n] for n in (*numbers, last)} == {codes[line - 1]}
            assert made.source.text(row.tolist()).startswith(f"{tag} {codes[last]} hund ".lstrip())
        assert dropout or batch.source.shape[1] <= batches.longest["source"] + 1
    assert lines < 150, "many are joined"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"corpora": {"a-b": {}}}, r"data\.corpora\.a-b: a corpus is named by"),
        ({"corpora": {"a": {"weight": 0}}}, r"data\.corpora\.a\.weight=0: must be from"),
        ({"corpora": {"a": {"dev_source": "x"}}}, r"\.a: give dev_source and dev_target, or"),
        ({"corpora": {"a": {}}, "dev_source": None}, r"or those of a corpus: data\.corpora\.NAME"),
        ({"corpora": {"a": {}}, "columns": TOPIC}, r"data\.columns: not with data\.corpora"),
    ],
)
def test_what_is_no_corpus_is_refused(values: Any, message: str, tmp_path: Path) -> None:
    plain = vars(test_prepare.corpus(tmp_path)) | values
    with pytest.raises(UserError, match=message):
        read(Data, plain, "data")


def test_a_missing_file_says_which_key(tmp_path: Path) -> None:
    data = settings(tmp_path)
    (tmp_path / "it" / "train.en").unlink()
    with pytest.raises(UserError, match=r"set data\.corpora\.it\.root, or its train_target"):
        prepare(data, BPE)
    (tmp_path / "it" / "train.en").write_bytes(b"\n" * SIZES["it"])
    with pytest.raises(UserError, match=r"^data\.corpora\.it: no pair of the train text is left"):
        prepare(data, BPE)
