"""Segmentations are drawn as the papers say, by seed, epoch and line alone, and fit in batches."""

import io
import itertools
import math
import multiprocessing
import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from subword_nmt.apply_bpe import BPE

from nmt.corpus.batches import Batches
from nmt.corpus.examples import Joining
from nmt.corpus.learn import count_pieces, learn_merges
from nmt.corpus.pairs import PairStore, Writer
from nmt.corpus.subword_sampling import (
    RandomSegmentation,
    SampledBlock,
    SampledText,
    sampled_text,
)
from nmt.errors import Exit, UserError
from nmt.text.bpe import SEPARATOR, Bpe, BpeDropout
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import MarianSegmenter, NBest, Unigram, learn_model
from nmt.text.vocab import BOS, EOS, PAD, UNK, Vocabulary
from tests.composing import settings_of
from tests.text.test_segmenter_files import spm_model

PLAIN = Tokenizer("nfc", "none", "de")
WORDS = Counter({"low": 9, "lower": 8, "lowest": 7, "newer": 9, "wider": 6, "banana": 9, "x": 1})
LINES = ["the lower the newer", "wider banana and lowest", "banana low", "lowest of the low"] * 30
EVERY_CHARACTER = [c + end for c in sorted(set("".join(WORDS))) for end in ("", SEPARATOR)]


def bpe(more: Sequence[str] = EVERY_CHARACTER) -> tuple[Bpe, Vocabulary]:
    """Merges of the words, and a vocabulary with their pieces and `more`."""
    merges, _ = learn_merges(WORDS, 14, 1)
    known = sorted({*count_pieces(WORDS, merges), *more})
    return Bpe(PLAIN, merges, known), Vocabulary(known)


def unigram(kind: type[Unigram] = Unigram) -> tuple[Unigram, Vocabulary]:
    segmenter = kind(PLAIN, learn_model(LINES, 40, 1.0))
    return segmenter, Vocabulary(segmenter.pieces)


@pytest.fixture(autouse=True)
def seeded() -> None:
    random.seed(3)


def alike(first: Counter[str], second: Counter[str]) -> bool:
    """Whether two samples may be of one distribution: Pearson's chi-squared, at three sigma."""
    sizes = first.total(), second.total()
    statistic, cells = 0.0, 0
    for outcome in first | second:
        both = first[outcome] + second[outcome]
        expected = [both * size / sum(sizes) for size in sizes]
        if min(expected) < 5:
            continue
        cells += 1
        for counts, mean in zip((first, second), expected, strict=True):
            statistic += (counts[outcome] - mean) ** 2 / mean
    return cells > 2 and statistic < cells - 1 + 3 * math.sqrt(2 * (cells - 1))


@given(st.lists(st.text(st.sampled_from("lowernbaxid@é"), min_size=1), min_size=1))
def test_without_dropout_each_word_keeps_its_segmentation(words: list[str]) -> None:
    segmenter, vocabulary = bpe()
    ids = vocabulary.ids(segmenter.segment(" ".join(words)))[:-1]
    sampled = BpeDropout(segmenter, vocabulary, 0.0).line(ids)
    assert sampled == ids


def test_with_all_merges_left_out_there_are_characters() -> None:
    segmenter, vocabulary = bpe()
    ids = vocabulary.ids(segmenter.segment("lower x banana"))[:-1]
    sampled = BpeDropout(segmenter, vocabulary, 1.0).line(ids)
    assert " ".join(vocabulary.pieces(sampled)) == ("l@@ o@@ w@@ e@@ r x b@@ a@@ n@@ a@@ n@@ a")


@pytest.mark.parametrize("word", ["lowest", "banana"])
@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_dropout_is_distributed_as_that_of_subword_nmt(word: str, dropout: float) -> None:
    symbols = (merge.replace(" ", "") for merge in bpe()[0].merges)
    half = [s.removesuffix("</w>") if s.endswith("</w>") else s + SEPARATOR for s in symbols][::2]
    segmenter, vocabulary = bpe([*half, *EVERY_CHARACTER])  # others are cut again
    sampler = BpeDropout(segmenter, vocabulary, dropout)
    ids = vocabulary.ids(segmenter.segment(word))[:-1]
    ours = Counter(" ".join(vocabulary.pieces(sampler.line(ids))) for _ in range(3000))
    codes = io.StringIO("#version: 0.2\n" + "\n".join(segmenter.merges))
    theirs = BPE(codes, vocab=set(vocabulary.to_json()))
    counted = Counter(theirs.process_line(word, dropout) for _ in range(3000))
    assert len(ours) > 3 and alike(ours, counted)


def test_no_piece_is_unknown_that_was_known() -> None:
    """A piece outside the vocabulary is cut again; where a character is none, all stays."""
    segmenter, vocabulary = bpe(["l@@", "o@@", "w@@", "e@@", "r", "lo@@", "wer", "an@@", "a"])
    ids = vocabulary.ids(segmenter.segment("lower banana"))[:-1]
    assert UNK not in ids
    sampler = BpeDropout(segmenter, vocabulary, 0.6)
    lines = [sampler.line(ids) for _ in range(200)]
    texts = {" ".join(vocabulary.pieces(line)) for line in lines}
    assert not any(UNK in line for line in lines)
    assert all(text.replace("@@ ", "") == "lower banana" for text in texts)
    assert "b@@" not in vocabulary.to_json() and len(texts) > 3
    assert all(text.endswith(" banana") for text in texts)


def test_words_with_an_unknown_piece_keep_their_segmentation() -> None:
    segmenter, vocabulary = bpe()
    lower = vocabulary.ids(segmenter.segment("lower"))[:-1]
    head = vocabulary.ids(["l@@"])[0]
    sampler = BpeDropout(segmenter, vocabulary, 1.0)
    characters = sampler.line(lower)
    broken = [head, UNK, *lower]  # `l`, something unknown, and what may be the rest of the word
    assert sampler.line([*lower, *broken, *lower]) == [*characters, *broken, *characters]
    assert sampler.line([UNK]) == [UNK]


def test_the_best_segmentations_are_drawn_by_the_power_of_their_probability() -> None:
    segmenter, vocabulary = unigram()
    sampler = NBest(segmenter, vocabulary, 0.5, 4)
    ids = vocabulary.ids(segmenter.segment("banana low"))[:-1]
    drawn = Counter(" ".join(vocabulary.pieces(sampler.line(ids))) for _ in range(2000))
    best, probable = segmenter.best("banana low", 4), segmenter.log_probabilities()
    weights = [math.exp(0.5 * sum(map(probable.__getitem__, way))) for way in best]
    exact = random.Random(6).choices([" ".join(way) for way in best], weights, k=20_000)
    assert len(drawn) == 4 and alike(drawn, Counter(exact))
    assert sampler.line([*ids, UNK]) == [*ids, UNK]


def test_the_code_of_a_language_stays_in_front() -> None:
    segmenter, _ = unigram(MarianSegmenter)
    vocabulary = Vocabulary([">>de<<", *segmenter.pieces])
    sampler = NBest(segmenter, vocabulary, 0.1, 8)
    ids = vocabulary.ids(segmenter.segment(">>de<< banana lowest"))[:-1]
    lines = {tuple(sampler.line(ids)) for _ in range(30)}
    assert len(lines) > 3 and {line[0] for line in lines} == {ids[0]}
    assert {segmenter.decode(vocabulary.pieces(line)) for line in lines} == {">>de<< banana lowest"}


def test_what_cannot_be_sampled_is_refused(tmp_path: Path) -> None:
    model = spm_model(tmp_path / "spm.model", LINES, model_type="bpe", vocab_size=40)
    merged = Unigram(PLAIN, model.read_bytes())
    with pytest.raises(ValueError, match="no unigram model"):
        NBest(merged, Vocabulary(merged.pieces), 0.1, 4)


TEXTS = [" ".join(words) for words in itertools.product(WORDS, WORDS, WORDS)]  # 343 lines


def stored(path: Path, lines: Sequence[int]) -> PairStore:
    """Some lines of the text and their reversal, with a column of each kind."""
    segmenter, vocabulary = bpe()
    with Writer(path, np.dtype("<u2"), {"tag": "word", "document": "sentence"}) as writer:
        for number in lines:
            for side, step in (("source", 1), ("target", -1)):
                words = TEXTS[number].split()[::step]
                ids = np.array(vocabulary.ids(segmenter.segment(" ".join(words))))
                writer.add(side, ids, np.array([len(ids)]))
                if side == "source":
                    writer.add_column("tag", ids)
            writer.add_column("document", np.array([number // 40]))
        writer.add_lines(np.array(lines))
    return PairStore(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    return stored(tmp_path_factory.mktemp("sampled") / "train", range(len(TEXTS)))


def sampled(store: PairStore, dropout: float = 0.3, seed: int = 1, most: int = 100) -> SampledText:
    segmentation = RandomSegmentation([BpeDropout(*bpe(), dropout)] * 2, seed)
    return SampledText(store, segmentation, (most, most))


def rows(text: SampledText, epoch: int, lines: int) -> dict[int, tuple[list[int], list[int]]]:
    """The ids of an epoch's lines, from one block of all of them."""
    pairs = text.block(epoch, np.arange(lines), np.ones(lines, np.int64)).text()
    both = ([ids.tolist() for ids in pairs.pair(i)] for i in range(len(pairs)))
    return {int(line): (s, t) for line, (s, t) in zip(pairs.lines, both, strict=True)}


def test_a_line_depends_on_seed_epoch_and_its_number_alone(
    store: PairStore, tmp_path: Path
) -> None:
    state = random.getstate()
    first = rows(sampled(store), 2, len(store))
    assert random.getstate() == state, "an application's own draws stay the same"
    few = stored(tmp_path / "few", range(7, 300, 3))
    n = len(few)
    fresh, used = rows(sampled(few), 2, n), sampled(few)
    rows(used, 5, n)
    assert fresh == rows(used, 2, n) == {line: first[line] for line in fresh}
    others = [rows(sampled(few), 3, n), rows(sampled(few, seed=2), 2, n)]
    assert all(other != fresh for other in others)
    same_words = [s != t for line, (s, t) in first.items() if len({*TEXTS[line].split()}) == 1]
    assert any(same_words), "both sides of a pair have draws of their own"


def test_each_line_is_the_same_text_in_other_pieces(store: PairStore) -> None:
    _, vocabulary = bpe()
    pieces = 0
    for line, (source, target) in rows(sampled(store), 0, len(store)).items():
        assert source[-1] == target[-1] == EOS
        pieces += len(source)
        for ids, step in ((source, 1), (target, -1)):
            joined = " ".join(vocabulary.pieces(ids)).replace("@@ ", "")
            assert joined.split() == TEXTS[line].split()[::step]
    assert 1.2 < pieces / store.ids["source"].size < 2.5


def test_what_would_be_too_long_keeps_its_own_pieces(
    store: PairStore, caplog: pytest.LogCaptureFixture
) -> None:
    text = sampled(store, dropout=1.0, most=16)
    kept = 0
    for number, (source, _) in enumerate(rows(text, 0, len(store)).values()):
        characters = sum(map(len, TEXTS[number].split()))
        if characters > 16:
            kept += 1
            assert source == store.pair(number)[0].tolist()
        else:
            assert len(source) - 1 == characters
    with caplog.at_level("INFO"):
        text.report()
    assert kept > 10
    assert f"; {100 * kept / len(store):.1f} % of the lines keep their own" in caplog.text


def test_lines_of_an_example_that_would_be_too_long_keep_theirs(store: PairStore) -> None:
    segmentation = RandomSegmentation([BpeDropout(*bpe(), 1.0)] * 2, 1)
    text = SampledText(store, segmentation, (100, 40))
    block = text.block(0, np.arange(10, 22), np.array([3, 2, 1, 4, 2]))
    pairs, first = block.text(), 0
    for count in block.counts.tolist():
        own = [store.pair(10 + first + i)[0].tolist() for i in range(count)]
        now = [pairs.pair(first + i)[0].tolist() for i in range(count)]
        characters = sum(map(len, " ".join(TEXTS[10 + first : 10 + first + count]).split()))
        assert (now == own) == (count > 1 and characters > 40)
        first += count


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_segment_as_this_process(
    workers: int, store: PairStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = rows(sampled(store), 2, len(store))
    monkeypatch.setattr("nmt.corpus.subword_sampling.TOGETHER", 70)
    segmentation = RandomSegmentation([BpeDropout(*bpe(), 0.3)] * 2, 1)
    text = SampledText(store, segmentation, (100, 100), workers)
    with text.pool:
        assert rows(text, 2, len(store)) == alone


def test_ranks_without_a_worker_each_segment_their_own_text(
    store: PairStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.corpus.subword_sampling.BLOCK", 1)
    data = settings_of("data.bpe_dropout=0.3", "data.workers=1").data
    text = sampled_text(data, store, (Side(*bpe()), Side(*bpe())), 1, ranks=2)
    assert text is not None and text.pool.count == 0


def test_a_killed_worker_is_an_error_of_data_workers(store: PairStore) -> None:
    segmentation = RandomSegmentation([BpeDropout(*bpe(), 0.3)] * 2, 1)
    text = SampledText(store, segmentation, (100, 100), 2)
    batches = Batches(store, 200, "max", 1, sampled=text)
    said = r"data\.workers: .*set data\.workers below 2"
    with pytest.raises(UserError, match=said) as caught, batches.workers():
        for child in multiprocessing.active_children():
            child.kill()
        batches.batch(0, 0)
    assert caught.value.code == Exit.NO_MEMORY


def test_integers_per_line_stay_and_those_per_word_do_not(store: PairStore) -> None:
    batch = Batches(store, 200, "max", 1, sampled=sampled(store)).batch(0, 3)
    assert list(batch.columns) == ["document"]
    assert batch.columns["document"][:, 0].tolist() == [line // 40 for line in batch.lines]


@pytest.mark.parametrize(("block", "accumulate"), [(2**14, 1), (60, 4)])
@pytest.mark.parametrize("joining", [None, Joining(3, 0.5, 30, "document")])
def test_batches_of_all_epochs_are_as_many_and_hold_the_text_of_theirs(
    store: PairStore,
    joining: Joining | None,
    block: int,
    accumulate: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nmt.corpus.batches.BLOCK", block)
    monkeypatch.setattr("nmt.corpus.batches.LEAST", 20)
    for budget in (20, 100, 400):
        batches = Batches(store, budget, "max", 1, joining, sampled(store, most=30), accumulate)
        for epoch in (0, 4):
            text = rows(sampled(store, most=30), epoch, len(store))
            seen, examples, drawn = list[int](), 0, 0
            for number in range(len(batches)):
                batch = batches.batch(epoch, number)
                wide = max(batch.source.shape[1], batch.target.shape[1] - 1)
                assert len(batch.lines) == 1 or len(batch.lines) * wide <= budget
                for row, line in enumerate(batch.lines):
                    source = batch.source[row][batch.source[row] != PAD].tolist()
                    target = batch.target[row][batch.target[row] != PAD].tolist()
                    assert target[0] == BOS and source.count(EOS) == target.count(EOS) == 1
                    count = lines_of(source, line)
                    seen += range(line, line + count)
                    parts = [text[line + more] for more in range(count)]
                    joined = [*itertools.chain.from_iterable(part[0][:-1] for part in parts), EOS]
                    examples, drawn = examples + 1, drawn + (source == joined)
            assert sorted(seen) == list(range(len(store)))
            assert budget < 400 or drawn > (0.95 if joining is None else 0.5) * examples
        with pytest.raises(IndexError):
            batches.batch(4, len(batches))


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_segment_the_blocks_of_a_rank_and_the_next_ones(
    workers: int, store: PairStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.corpus.batches.BLOCK", 60)
    monkeypatch.setattr("nmt.corpus.batches.LEAST", 30)
    text, begun = sampled(store), list[tuple[int, int]]()
    block = text.block

    def watched(epoch: int, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> SampledBlock:
        begun.append((epoch, len(rows)))
        return block(epoch, rows, counts)

    monkeypatch.setattr(text, "block", watched)
    monkeypatch.setattr(text.pool, "count", workers)
    batches = Batches(store, 200, "max", 1, sampled=text, accumulate=4)
    assert begun == []
    mine = [number for number in range(len(batches)) if number % 4 in (1, 3)]  # the second of two
    lines = [line for number in mine[:2] for line in batches.batch(3, number).lines]
    assert len(lines) < 30 and begun and sum(count for _, count in begun) < 4 * 35
    lines += [line for number in mine[2:] for line in batches.batch(3, number).lines]
    shares = {epoch: sum(count for e, count in begun if e == epoch) for epoch in (3, 4)}
    assert shares[3] == len(set(lines)) == len(lines) == pytest.approx(len(store) / 2, abs=4)
    assert shares[4] < 2 * 35 and (shares[4] > 0) == (workers > 0), "the next epoch's first ones"


def test_a_resumed_run_segments_no_more_than_the_block_it_stands_in(store: PairStore) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.corpus.batches.BLOCK", 60)
        whole, late = (Batches(store, 200, "max", 1, sampled=sampled(store)) for _ in range(2))
        expected = [whole.batch(2, number) for number in range(len(whole))]
        for number in (len(whole) - 1, 3):
            assert torch.equal(late.batch(2, number).source, expected[number].source)


@cache
def vocabulary_of_all() -> Vocabulary:
    return bpe()[1]


def lines_of(source: list[int], line: int) -> int:
    """How many lines of the text, from this one on, a source consists of."""
    words = " ".join(vocabulary_of_all().pieces(source)).replace("@@ ", "").split()
    assert words == " ".join(TEXTS[line : line + len(words) // 3]).split()
    return len(words) // 3
