"""Text is segmented by seed, epoch, side and line alone, within limits; batches stay in budget."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nmt.corpus.batches import Batches
from nmt.corpus.examples import Joining
from nmt.corpus.learn import count_pieces, learn_merges
from nmt.corpus.pairs import Pairs, read_pairs, write_pairs
from nmt.corpus.sampling import RandomSegmentation, measure_growth
from nmt.text.bpe import SEPARATOR, Bpe, BpeDropout
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import BOS, EOS, PAD, Vocabulary

WORDS = Counter({"low": 9, "lower": 8, "lowest": 7, "newer": 9, "wider": 6, "banana": 9, "x": 1})
TEXTS = [" ".join(words) for words in itertools.product(WORDS, WORDS, WORDS)]  # 343 lines


@cache
def bpe() -> tuple[Bpe, Vocabulary]:
    """Merges of the words, and a vocabulary with their pieces and every character."""
    merges, _ = learn_merges(WORDS, 14, 1)
    characters = {c + end for c in "".join(WORDS) for end in ("", SEPARATOR)}
    known = sorted({*count_pieces(WORDS, merges), *characters})
    return Bpe(Tokenizer("nfc", "none", "de"), merges, known), Vocabulary(known)


def stored(path: Path, lines: Sequence[int]) -> Pairs:
    """Some lines of the text and their reversal, with a column of each kind."""
    segmenter, vocabulary = bpe()
    rows = dict[str, list[list[int]]](source=[], target=[])
    for number in lines:
        for side, step in (("source", 1), ("target", -1)):
            words = TEXTS[number].split()[::step]
            rows[side].append(vocabulary.ids(segmenter.segment(" ".join(words))))
    per, dtype = {"tag": "word", "document": "sentence"}, np.dtype("<u2")
    tags = np.concatenate(rows["source"]).astype(np.int32)
    columns = {"tag": tags, "document": np.array(lines, np.int32) // 40}
    write_pairs(path, [Pairs.of_rows(np.array(lines), rows, dtype, per, columns)], dtype, per)
    return read_pairs(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return stored(tmp_path_factory.mktemp("sampled") / "train", range(len(TEXTS)))


def segmentation(
    dropout: float = 0.3, seed: int = 1, most: int = 100, joined: int = 100
) -> RandomSegmentation:
    return RandomSegmentation([BpeDropout(*bpe(), dropout)] * 2, seed, most, joined)


def rows(
    store: Pairs, epoch: int, random_segmentation: RandomSegmentation
) -> dict[int, tuple[list[int], list[int]]]:
    """The ids of an epoch's lines."""
    prepared = store.select(np.arange(len(store)))
    pairs = random_segmentation.segment(prepared, np.ones(len(store), np.int64), epoch)
    both = ([ids.tolist() for ids in pairs.pair(i)] for i in range(len(pairs)))
    return {int(line): (s, t) for line, (s, t) in zip(pairs.lines, both, strict=True)}


def test_a_line_depends_on_seed_epoch_and_its_number_alone(store: Pairs, tmp_path: Path) -> None:
    state = random.getstate()
    first = rows(store, 2, segmentation())
    assert random.getstate() == state, "an application's own draws stay the same"
    few = stored(tmp_path / "few", range(7, 300, 3))
    fresh = rows(few, 2, segmentation())
    assert fresh == {line: first[line] for line in fresh}
    assert all(
        other != fresh
        for other in (rows(few, 3, segmentation()), rows(few, 2, segmentation(seed=2)))
    )
    same_words = [s != t for line, (s, t) in first.items() if len({*TEXTS[line].split()}) == 1]
    assert any(same_words), "both sides of a pair have draws of their own"


def test_each_line_is_the_same_text_in_other_pieces(store: Pairs) -> None:
    _, vocabulary = bpe()
    pieces = 0
    for line, (source, target) in rows(store, 0, segmentation()).items():
        assert source[-1] == target[-1] == EOS
        pieces += len(source)
        for ids, step in ((source, 1), (target, -1)):
            joined = " ".join(vocabulary.pieces(ids)).replace("@@ ", "")
            assert joined.split() == TEXTS[line].split()[::step]
    assert 1.2 < pieces / store.ids["source"].size < 2.5
    growth = measure_growth(store, segmentation())["source"]
    assert growth == pytest.approx((pieces - 343) / store.lengths["source"].sum())


def test_what_would_be_too_long_keeps_its_own_pieces(store: Pairs) -> None:
    kept = 0
    for number, (source, _) in enumerate(rows(store, 0, segmentation(1.0, most=16)).values()):
        characters = sum(map(len, TEXTS[number].split()))
        if characters > 16:
            kept += 1
            assert source == store.pair(number)[0].tolist()
        else:
            assert len(source) - 1 == characters
    assert kept > 10


def test_lines_of_an_example_that_would_be_too_long_keep_theirs(store: Pairs) -> None:
    counts, first = np.array([3, 2, 1, 4, 2]), 0
    pairs = segmentation(1.0, joined=40).segment(store.select(np.arange(10, 22)), counts, 0)
    for count in counts.tolist():
        own = [store.pair(10 + first + i)[0].tolist() for i in range(count)]
        now = [pairs.pair(first + i)[0].tolist() for i in range(count)]
        characters = sum(map(len, " ".join(TEXTS[10 + first : 10 + first + count]).split()))
        assert (now == own) == (count > 1 and characters > 40)
        first += count


@pytest.mark.parametrize(
    ("joining", "budget"), [(None, 20), (None, 100), (Joining(3, 0.5, 30, "document"), 100)]
)
def test_batches_hold_each_line_once_and_no_part_exceeds_the_budget(
    store: Pairs, joining: Joining | None, budget: int
) -> None:
    drawing = segmentation(most=30, joined=30)
    batches = Batches(store, budget, "max", 1, joining, drawing)
    for epoch in (0, 4):
        text, seen, examples, drawn, parts = rows(store, epoch, drawing), list[int](), 0, 0, 0
        for number in range(batches.size(epoch)):
            made = batches.batch(epoch, number)
            parts += len(made)
            for batch in made:
                wide = max(batch.source.shape[1], batch.target.shape[1] - 1)
                assert len(batch.lines) == 1 or len(batch.lines) * wide <= budget
                assert list(batch.columns) in ([], ["document"]), "none has an integer per word"
                for row, line in enumerate(batch.lines):
                    source = batch.source[row][batch.source[row] != PAD].tolist()
                    target = batch.target[row][batch.target[row] != PAD].tolist()
                    assert target[0] == BOS and source.count(EOS) == target.count(EOS) == 1
                    count = lines_of(source, line)
                    seen += range(line, line + count)
                    whole = [i for n in range(count) for i in text[line + n][0][:-1]]
                    examples, drawn = examples + 1, drawn + (source == [*whole, EOS])
        assert sorted(seen) == list(range(len(store)))
        assert parts > batches.size(epoch) or budget == 20, "some batches are made in parts"
        assert drawn > (0.95 if joining is None else 0.5) * examples
        with pytest.raises(IndexError):
            batches.batch(epoch, batches.size(epoch))


def lines_of(source: list[int], line: int) -> int:
    """How many lines of the text, from this one on, a source consists of."""
    words = " ".join(bpe()[1].pieces(source)).replace("@@ ", "").split()
    assert words == " ".join(TEXTS[line : line + len(words) // 3]).split()
    return len(words) // 3


def test_workers_make_the_batches_of_this_process_also_ahead(store: Pairs) -> None:
    alone = Batches(store, 200, "max", 1, None, segmentation())
    shared = Batches(store, 200, "max", 1, None, segmentation(), workers=2)
    with shared.workers:
        shared.begin(3, range(2, 5))
        for number in (0, 2, 4, 3, 1, 3):
            made = zip(shared.batch(3, number), alone.batch(3, number), strict=True)
            assert all(a.source.equal(b.source) and a.target.equal(b.target) for a, b in made)
